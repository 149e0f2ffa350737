"""Suppression of overlapping boxes, per class and per frame, a whole batch at a time, by torchvision or OpenCV."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from framefeed.errors import MissingBackend
from framefeed.infer.detection.layouts import Candidates

__all__ = ["Detections", "find_suppressor", "suppress"]

# Of a frame, by score: more make suppression slow and are of no use. What YOLO tools use too.
MAX_CANDIDATES = 30_000


class Detections:
    """What is left of a batch's candidates, in the CPU's memory: by frame, and there by falling score.

    Attributes:
        frames: Which frame of the batch each is in, rising.
        boxes: (n, 4) corners in the model's input.
        scores, classes: Of each.
    """

    __slots__ = ("boxes", "classes", "frames", "scores")

    def __init__(
        self,
        frames: NDArray[np.int64],
        boxes: NDArray[np.float32],
        scores: NDArray[np.float32],
        classes: NDArray[np.int64],
    ) -> None:
        self.frames = frames
        self.boxes = boxes
        self.scores = scores
        self.classes = classes


@functools.cache
def _torchvision() -> Any:
    """``torchvision.ops``, or None where it cannot be loaded; beside a torch of another build it fails in many ways."""
    try:
        import torchvision.ops

        torch.ops.torchvision.nms  # noqa: B018  # registered when its library was loaded
        return torchvision.ops
    except Exception:
        return None


@functools.cache
def _opencv() -> Any:
    try:
        import cv2
    except ImportError:
        return None
    return cv2.dnn if hasattr(cv2.dnn, "NMSBoxesBatched") else None


def find_suppressor() -> str:
    """Which library suppresses here: ``"torchvision"`` or ``"opencv"``.

    Raises:
        MissingBackend: There is neither.
    """
    if _torchvision() is not None:
        return "torchvision"
    if _opencv() is not None:
        return "opencv"
    raise MissingBackend("suppression", "needs torchvision, or OpenCV 4.7 or later: pip install framefeed[infer]")


def suppress(found: Candidates, iou: float, max_detections: int, *, suppressed: bool = False) -> Detections:
    """Keeps the best of boxes that overlap.

    Only candidates, and where torchvision works on their device only what is left of them, are copied to the CPU.

    Args:
        found: A batch's candidates.
        iou: Boxes of one class whose intersection is a larger share of their union are one.
        max_detections: Of a frame, at most.
        suppressed: Whether the model has done it: then they are only put in order.
    """
    found = _ordered(found)
    if not suppressed and len(found.scores):
        if _torchvision() is not None:
            kept = _torchvision().nms(_apart(found), found.scores.double(), iou)  # which wants both of one type
            found = _ordered(_pick(found, kept))
        else:
            found = _on_cpu(found)
            found = _pick(found, _suppress_by_opencv(found, iou))
    found = _on_cpu(found)
    sides = found.boxes[:, 2:] - found.boxes[:, :2]
    found = _pick(found, torch.nonzero(~(sides <= 0).any(1))[:, 0])  # some models give boxes without an area
    frames = found.frames.numpy()
    place = np.arange(len(frames)) - np.searchsorted(frames, frames)  # of each in its frame
    few = place < max_detections
    return Detections(frames[few], found.boxes.numpy()[few], found.scores.numpy()[few], found.classes.numpy()[few])


def _pick(found: Candidates, chosen: Tensor) -> Candidates:
    return Candidates(found.frames[chosen], found.boxes[chosen], found.scores[chosen], found.classes[chosen])


def _on_cpu(found: Candidates) -> Candidates:
    return Candidates(found.frames.cpu(), found.boxes.cpu(), found.scores.cpu(), found.classes.cpu())


def _ordered(found: Candidates) -> Candidates:
    """By frame, there by falling score; equal ones stay in the model's order. Not more than can be suppressed."""
    order = torch.argsort(found.scores, stable=True, descending=True)
    order = order[torch.argsort(found.frames[order], stable=True)]
    found = _pick(found, order)
    if len(order) > MAX_CANDIDATES:
        place = torch.arange(len(order), device=order.device) - torch.searchsorted(found.frames, found.frames)
        found = _pick(found, torch.nonzero(place < MAX_CANDIDATES)[:, 0])
    return found


def _apart(found: Candidates) -> Tensor:
    """Boxes moved so far that those of different frames and classes cannot overlap; in double precision.

    In single precision boxes would move by fractions of a pixel, so that what is kept depended on the rest of the
    batch.
    """
    boxes = found.boxes.double()
    span = boxes.max() - boxes.min() + 1
    group = found.frames * (found.classes.max() + 1) + found.classes
    return boxes + (group * span)[:, None]


def _suppress_by_opencv(found: Candidates, iou: float) -> Tensor:
    boxes = found.boxes.double().numpy()
    boxes = boxes - boxes.min()  # it moves groups apart by the largest coordinate alone, so none may be negative
    rectangles = np.concatenate((boxes[:, :2], boxes[:, 2:] - boxes[:, :2]), 1)
    groups = (found.frames * (found.classes.max() + 1) + found.classes).numpy().astype(np.int32)
    kept = _opencv().NMSBoxesBatched(rectangles, found.scores.numpy(), groups, -1.0, float(iou))
    return torch.from_numpy(np.sort(np.asarray(kept, np.int64).reshape(-1)))
