"""Non-maximum suppression per class and frame, for whole batches, by torchvision or OpenCV."""

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

# Candidates of a frame, by score: more make suppression slow without benefit. Same as in YOLO tools.
MAX_CANDIDATES = 30_000


class Detections:
    """Boxes of a batch after suppression, in CPU memory: by frame, and within a frame by falling score.

    Attributes:
        frames: Position of each box's frame in the batch, rising.
        boxes: (n, 4) corners in the model's input.
        scores, classes: One for each box.
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
    """Returns ``torchvision.ops``, or None if it cannot be loaded, as with a mismatched torch build."""
    try:
        import torchvision.ops

        torch.ops.torchvision.nms  # noqa: B018  # registered by torchvision's library
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
    """Returns the library used for suppression: ``"torchvision"`` or ``"opencv"``.

    Raises:
        MissingBackend: Neither is installed.
    """
    if _torchvision() is not None:
        return "torchvision"
    if _opencv() is not None:
        return "opencv"
    raise MissingBackend("suppression", "needs torchvision, or OpenCV 4.7 or later: pip install framefeed[infer]")


def suppress(found: Candidates, iou: float, max_detections: int, *, suppressed: bool = False) -> Detections:
    """Suppresses overlapping boxes.

    Copies only candidates to the CPU or, if torchvision works on their device, only the boxes left.

    Args:
        found: A batch's candidates.
        iou: Boxes of one class with a larger intersection over union are suppressed.
        max_detections: Largest number of boxes in a frame.
        suppressed: True if the model has suppressed already: then boxes are only sorted.
    """
    found = _ordered(found)
    if not suppressed and len(found.scores):
        if _torchvision() is not None:
            kept = _torchvision().nms(_apart(found), found.scores.double(), iou)  # needs equal dtypes
            found = _ordered(_pick(found, kept))
        else:
            found = _on_cpu(found)
            found = _pick(found, _suppress_by_opencv(found, iou))
    found = _on_cpu(found)
    sides = found.boxes[:, 2:] - found.boxes[:, :2]
    found = _pick(found, torch.nonzero(~(sides <= 0).any(1))[:, 0])  # some models return boxes without area
    frames = found.frames.numpy()
    place = np.arange(len(frames)) - np.searchsorted(frames, frames)  # rank of each box in its frame
    few = place < max_detections
    return Detections(frames[few], found.boxes.numpy()[few], found.scores.numpy()[few], found.classes.numpy()[few])


def _pick(found: Candidates, chosen: Tensor) -> Candidates:
    return Candidates(found.frames[chosen], found.boxes[chosen], found.scores[chosen], found.classes[chosen])


def _on_cpu(found: Candidates) -> Candidates:
    return Candidates(found.frames.cpu(), found.boxes.cpu(), found.scores.cpu(), found.classes.cpu())


def _ordered(found: Candidates) -> Candidates:
    """Sorts by frame and falling score, stable, and limits the number per frame."""
    order = torch.argsort(found.scores, stable=True, descending=True)
    order = order[torch.argsort(found.frames[order], stable=True)]
    found = _pick(found, order)
    if len(order) > MAX_CANDIDATES:
        place = torch.arange(len(order), device=order.device) - torch.searchsorted(found.frames, found.frames)
        found = _pick(found, torch.nonzero(place < MAX_CANDIDATES)[:, 0])
    return found


def _apart(found: Candidates) -> Tensor:
    """Offsets boxes so that boxes of different frames and classes cannot overlap; in double precision.

    In single precision boxes would shift by fractions of a pixel, and results would depend on the rest of the batch.
    """
    boxes = found.boxes.double()
    span = boxes.max() - boxes.min() + 1
    group = found.frames * (found.classes.max() + 1) + found.classes
    return boxes + (group * span)[:, None]


def _suppress_by_opencv(found: Candidates, iou: float) -> Tensor:
    boxes = found.boxes.double().numpy()
    boxes = boxes - boxes.min()  # OpenCV offsets groups by the largest coordinate, so none may be negative
    rectangles = np.concatenate((boxes[:, :2], boxes[:, 2:] - boxes[:, :2]), 1)
    groups = (found.frames * (found.classes.max() + 1) + found.classes).numpy().astype(np.int32)
    kept = _opencv().NMSBoxesBatched(rectangles, found.scores.numpy(), groups, -1.0, float(iou))
    return torch.from_numpy(np.sort(np.asarray(kept, np.int64).reshape(-1)))
