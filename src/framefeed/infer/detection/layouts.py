"""A model's outputs -> candidates: boxes with a score and a class, in the common layouts of detectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from framefeed.errors import ModelError

__all__ = ["LAYOUTS", "Candidates", "Outputs", "Reader", "choose_layout"]

Outputs = Sequence[tuple[str, Tensor]]
"""What a model gives, by name, in its order."""

LAYOUTS = ("auto", "yolo", "yolo-last", "yolov5", "end2end", "boxes")

_SHAPES = {
    "yolo": "(N, 4 + classes, points): cx, cy, w, h, scores (YOLOv8 and later)",
    "yolo-last": "(N, points, 4 + classes): the same, transposed",
    "yolov5": "(N, points, 5 + classes): cx, cy, w, h, objectness, scores",
    "end2end": "(N, detections, 6): x1, y1, x2, y2, score, class, suppressed already",
    "boxes": "(N, n, 4) x1, y1, x2, y2; (N, n) scores, and (N, n) classes; or (N, n, classes) scores",
}

# Strides of the points that YOLO models predict at.
_STRIDES = (8, 16, 32)
_MANY = 1000  # no model that has suppressed its own boxes gives so many

_ROLES = {
    "boxes": ("box",),
    "scores": ("score", "conf", "prob"),
    "classes": ("class", "label", "cls"),
    "count": ("num",),
}


@dataclass(frozen=True, eq=False)
class Candidates:
    """Boxes of a batch that have at least the confidence asked for, in the model's input.

    Attributes:
        frames: Which frame of the batch each is in.
        boxes: Corners x1, y1, x2, y2, float32.
        scores: float32.
        classes: int64.
    """

    frames: Tensor
    boxes: Tensor
    scores: Tensor
    classes: Tensor


@dataclass(frozen=True)
class Reader:
    """Reads one layout.

    Attributes:
        layout: Its name.
        read: ``read(outputs, confidence)``.
        suppressed: Whether the model has suppressed overlaps itself.
        num_classes: How many classes the model has, where its shapes say.
    """

    layout: str
    read: Callable[[Outputs, float], Candidates]
    suppressed: bool = False
    num_classes: int | None = None


def choose_layout(
    layout: str, outputs: Outputs, size: tuple[int, int], num_classes: int | None, model: object
) -> Reader:
    """Finds out how to read a model's outputs.

    Args:
        layout: One of ``LAYOUTS``.
        outputs: The outputs of a batch.
        size: (height, width) of the model's input.
        num_classes: How many classes there are, where that is known.
        model: What errors are about.

    Raises:
        ModelError: No layout fits, or several do.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is one of {', '.join(LAYOUTS)}, not {layout!r}")
    if layout == "boxes" or (layout == "auto" and len(outputs) > 1):
        return _boxes_reader(outputs, model)
    found = _describe(outputs)
    if len(outputs) != 1 or outputs[0][1].ndim != 3:
        raise ModelError(model, f"its outputs are {found}; {_possible(LAYOUTS[1:])}")
    _, high, wide = outputs[0][1].shape
    possible = _possible_layouts(high, wide, size, num_classes)
    if layout == "auto":
        if len(possible) != 1:
            which = "could be several layouts" if possible else "is no layout that is known here"
            classes = f" with {num_classes} classes" if num_classes is not None else ""
            names = possible or LAYOUTS[1:]
            raise ModelError(model, f"its output {found}{classes} {which}; give layout (--layout): {_possible(names)}")
        layout = possible[0]
    return _single_reader(layout, high, wide, num_classes, found, model)


def _possible_layouts(high: int, wide: int, size: tuple[int, int], num_classes: int | None) -> list[str]:
    def fits(classes: int) -> bool:
        return classes >= 1 if num_classes is None else classes == num_classes

    points = sum(-(-size[0] // stride) * -(-size[1] // stride) for stride in _STRIDES)
    if wide == 6 and high != points and high <= _MANY and num_classes is None:
        return ["end2end"]
    possible = []
    if high < wide and fits(high - 4):
        possible.append("yolo")
    if wide < high:
        possible += [name for name, extra in (("yolo-last", 4), ("yolov5", 5)) if fits(wide - extra)]
    if wide == 6 and high != points:
        possible.append("end2end")
    return possible


def _single_reader(layout: str, high: int, wide: int, num_classes: int | None, found: str, model: object) -> Reader:
    extra = {"yolo": high - 4, "yolo-last": wide - 4, "yolov5": wide - 5, "end2end": 1}
    if extra[layout] < 1 or (layout == "end2end" and wide != 6):
        raise ModelError(model, f"its output {found} does not fit layout {layout!r}: {_SHAPES[layout]}")
    if layout == "end2end":
        return Reader(layout, _read_end2end, suppressed=True)
    classes = extra[layout]
    if num_classes is not None and classes != num_classes:
        raise ModelError(
            model, f"its output {found} has {classes} classes in layout {layout!r}, and {num_classes} names were given"
        )
    points = wide if layout == "yolo" else high
    if num_classes is None and classes > points:  # read so, nothing would be found, and nobody would know why
        raise ModelError(
            model,
            f"its output {found} has {classes} classes at {points} points in layout {layout!r}: is it transposed? "
            f"Where that is right, name the classes (--classes); {_possible(('yolo', 'yolo-last', 'yolov5'))}",
        )
    read = {"yolo": _read_yolo, "yolo-last": _read_yolo_last, "yolov5": _read_yolov5}[layout]
    return Reader(layout, read, num_classes=classes)


def _describe(outputs: Outputs) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in outputs) or "none"


def _possible(layouts: Sequence[str]) -> str:
    return "possible: " + "; ".join(f"{name}: {_SHAPES[name]}" for name in layouts)


# --- single outputs -----------------------------------------------------------------------------------------------


def _chosen(scores: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Frames and places of scores that are high enough. What is no number counts too, so that it is noticed."""
    frames, places = torch.nonzero(~(scores < confidence), as_tuple=True)
    return frames, places


def _corners(middles: Tensor) -> Tensor:
    """x1, y1, x2, y2 of cx, cy, w, h."""
    half = middles[:, 2:] * 0.5
    return torch.cat((middles[:, :2] - half, middles[:, :2] + half), 1)


def _read_yolo(outputs: Outputs, confidence: float) -> Candidates:
    found = outputs[0][1]
    scores, classes = found[:, 4:].max(1)
    scores = scores.float()
    frames, places = _chosen(scores, confidence)
    boxes = _corners(found[frames, :4, places].float())
    return Candidates(frames, boxes, scores[frames, places], classes[frames, places])


def _read_yolo_last(outputs: Outputs, confidence: float) -> Candidates:
    return _read_yolo([("", outputs[0][1].transpose(1, 2))], confidence)


def _read_yolov5(outputs: Outputs, confidence: float) -> Candidates:
    found = outputs[0][1]
    best, classes = found[:, :, 5:].max(2)
    scores = best.float() * found[:, :, 4].float()
    frames, places = _chosen(scores, confidence)
    boxes = _corners(found[frames, places, :4].float())
    return Candidates(frames, boxes, scores[frames, places], classes[frames, places])


def _read_end2end(outputs: Outputs, confidence: float) -> Candidates:
    found = outputs[0][1].float()
    frames, places = _chosen(found[:, :, 4], confidence)
    rows = found[frames, places]
    return Candidates(frames, rows[:, :4], rows[:, 4], rows[:, 5].round().long())


# --- boxes, scores and classes apart ------------------------------------------------------------------------------


def _boxes_reader(outputs: Outputs, model: object) -> Reader:
    roles = _roles(outputs)
    found = _describe(outputs)
    if "boxes" not in roles or "scores" not in roles:
        raise ModelError(
            model,
            f"cannot tell which of its outputs ({found}) are boxes, scores and classes; name them so, or choose "
            f"another layout (--layout): {_possible(LAYOUTS[1:])}",
        )
    scores = outputs[roles["scores"]][1]
    by_class = scores.ndim == 3
    if not by_class and "classes" not in roles:
        raise ModelError(model, f"its outputs ({found}) say no classes: (N, n) classes or (N, n, classes) scores")

    def read(outputs: Outputs, confidence: float) -> Candidates:
        boxes, scores = outputs[roles["boxes"]][1], outputs[roles["scores"]][1].float()
        if by_class:
            scores, classes = scores.max(2)
        else:
            classes = outputs[roles["classes"]][1]
        if "count" in roles:
            counts = outputs[roles["count"]][1].reshape(-1, 1)
            places = torch.arange(scores.shape[1], device=scores.device)
            scores = torch.where(places < counts, scores, torch.full_like(scores, -1.0))
        frames, places = _chosen(scores, confidence)
        chosen = classes[frames, places]
        whole = chosen.round().long() if chosen.is_floating_point() else chosen.long()
        return Candidates(frames, boxes[frames, places].float(), scores[frames, places], whole)

    return Reader("boxes", read, num_classes=scores.shape[2] if by_class else None)


def _roles(outputs: Outputs) -> dict[str, int]:
    """Which output is what: by its name, or else by its shape and type."""
    roles: dict[str, int] = {}
    for place, (name, tensor) in enumerate(outputs):
        for role, words in _ROLES.items():
            if role not in roles and any(word in name.lower() for word in words) and _can_be(role, tensor):
                roles[role] = place
                break
    left = [(place, tensor) for place, (_, tensor) in enumerate(outputs) if place not in roles.values()]
    for role in ("boxes", "classes", "scores"):
        fitting = [place for place, tensor in left if _looks_like(role, tensor)]
        if role not in roles and len(fitting) == 1:
            roles[role] = fitting[0]
            left = [(place, tensor) for place, tensor in left if place != fitting[0]]
    return roles


def _can_be(role: str, tensor: Tensor) -> bool:
    if role == "boxes":
        return tensor.ndim == 3 and tensor.shape[2] == 4
    if role == "count":
        return not tensor.is_floating_point() and tensor.numel() == tensor.shape[0]
    return tensor.ndim == 2 or (role == "scores" and tensor.ndim == 3)


def _looks_like(role: str, tensor: Tensor) -> bool:
    if role == "boxes":
        return tensor.ndim == 3 and tensor.shape[2] == 4
    if role == "classes":
        return tensor.ndim == 2 and not tensor.is_floating_point()
    return tensor.is_floating_point() and tensor.ndim in (2, 3)
