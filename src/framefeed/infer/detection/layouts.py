"""Detector output layouts: converts outputs to candidate boxes with scores and classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from framefeed.errors import ModelError

__all__ = ["LAYOUTS", "Candidates", "Outputs", "Reader", "choose_layout"]

Outputs = Sequence[tuple[str, Tensor]]
"""Outputs of a model by name, in order."""

LAYOUTS = ("auto", "yolo", "yolo-last", "yolov5", "end2end", "boxes")

_SHAPES = {
    "yolo": "(N, 4 + classes, points): cx, cy, w, h, scores (YOLOv8 and later)",
    "yolo-last": "(N, points, 4 + classes): the same, transposed",
    "yolov5": "(N, points, 5 + classes): cx, cy, w, h, objectness, scores",
    "end2end": "(N, detections, 6): x1, y1, x2, y2, score, class, already suppressed",
    "boxes": "(N, n, 4) x1, y1, x2, y2; (N, n) scores, and (N, n) classes; or (N, n, classes) scores",
}

# Strides of the grid points of YOLO models.
_STRIDES = (8, 16, 32)
_MANY = 1000  # more than any model that suppresses its own boxes returns

_ROLES = {
    "boxes": ("box",),
    "scores": ("score", "conf", "prob"),
    "classes": ("class", "label", "cls"),
    "count": ("num",),
}


@dataclass(frozen=True, eq=False)
class Candidates:
    """Boxes of a batch above the confidence threshold, in the model's input.

    Attributes:
        frames: Position of each box's frame in the batch.
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
        suppressed: True if the model suppresses overlaps itself.
        num_classes: Number of classes, if the output shapes tell.
    """

    layout: str
    read: Callable[[Outputs, float], Candidates]
    suppressed: bool = False
    num_classes: int | None = None


def choose_layout(
    layout: str, outputs: Outputs, size: tuple[int, int], num_classes: int | None, model: object
) -> Reader:
    """Chooses the reader of a model's outputs.

    Args:
        layout: One of ``LAYOUTS``.
        outputs: The outputs of a batch.
        size: (height, width) of the model's input.
        num_classes: Number of classes, if known.
        model: Name of the model in errors.

    Raises:
        ModelError: No layout fits, or several do.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if layout == "boxes" or (layout == "auto" and len(outputs) > 1):
        return _boxes_reader(outputs, model)
    found = _describe(outputs)
    if len(outputs) != 1 or outputs[0][1].ndim != 3:
        raise ModelError(model, f"unsupported outputs {found}; {_possible(LAYOUTS[1:])}")
    _, high, wide = outputs[0][1].shape
    possible = _possible_layouts(high, wide, size, num_classes)
    if layout == "auto":
        if len(possible) != 1:
            which = "fits several layouts" if possible else "fits no known layout"
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
            model, f"its output {found} has {classes} classes in layout {layout!r}, but {num_classes} names were given"
        )
    points = wide if layout == "yolo" else high
    if num_classes is None and classes > points:  # a wrong guess would silently find nothing
        raise ModelError(
            model,
            f"its output {found} has {classes} classes at {points} points in layout {layout!r}: it may be transposed. "
            f"If this is correct, pass class names (--classes); {_possible(('yolo', 'yolo-last', 'yolov5'))}",
        )
    read = {"yolo": _read_yolo, "yolo-last": _read_yolo_last, "yolov5": _read_yolov5}[layout]
    return Reader(layout, read, num_classes=classes)


def _describe(outputs: Outputs) -> str:
    return ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in outputs) or "none"


def _possible(layouts: Sequence[str]) -> str:
    return "supported: " + "; ".join(f"{name}: {_SHAPES[name]}" for name in layouts)


# --- single outputs -----------------------------------------------------------------------------------------------


def _chosen(scores: Tensor, confidence: float) -> tuple[Tensor, Tensor]:
    """Returns frames and positions of scores above the threshold. NaN is included, so that it gets noticed."""
    frames, places = torch.nonzero(~(scores < confidence), as_tuple=True)
    return frames, places


def _corners(middles: Tensor) -> Tensor:
    """Converts cx, cy, w, h to x1, y1, x2, y2."""
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


# --- separate boxes, scores and classes ---------------------------------------------------------------------------


def _boxes_reader(outputs: Outputs, model: object) -> Reader:
    roles = _roles(outputs)
    found = _describe(outputs)
    if "boxes" not in roles or "scores" not in roles:
        raise ModelError(
            model,
            f"ambiguous outputs ({found}): name them boxes, scores and classes, or choose another layout (--layout): "
            f"{_possible(LAYOUTS[1:])}",
        )
    scores = outputs[roles["scores"]][1]
    by_class = scores.ndim == 3
    if not by_class and "classes" not in roles:
        raise ModelError(model, f"its outputs ({found}) have no classes: (N, n) classes or (N, n, classes) scores")

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
    """Returns the position of each role's output, by name or else by shape and type."""
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
