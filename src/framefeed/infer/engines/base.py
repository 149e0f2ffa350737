"""What all kinds of models have in common."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from framefeed.errors import ModelError
from framefeed.infer.detection.layouts import Outputs

__all__ = ["ModelEngine", "Signature", "check_input", "named_outputs", "parse_names"]

DTYPES = (torch.float32, torch.float16)


@dataclass(frozen=True)
class Signature:
    """What a model takes: (batch, 3, height, width) of a type. None where any number will do, or none is known.

    Attributes:
        batch: Frames at a time.
        height, width: Size of the frames.
        dtype: ``torch.float32`` or ``torch.float16``.
        names: Names of classes that came with the model.
        max_batch: Most frames at a time, where ``batch`` is None and there is a limit.
    """

    batch: int | None = None
    height: int | None = None
    width: int | None = None
    dtype: torch.dtype = torch.float32
    names: tuple[str, ...] = field(default=(), repr=False)
    max_batch: int | None = None


class ModelEngine(Protocol):
    """A model that is ready to run.

    Attributes:
        name: Its file, or whatever it is called in errors.
        signature: What it takes.
        concurrent: Whether it may be run by several threads at a time.
    """

    name: str
    signature: Signature
    concurrent: bool

    def run(self, frames: Tensor) -> Outputs:
        """Runs it. On a GPU it is launched on the current stream, and nobody waits for it.

        Args:
            frames: (n, 3, height, width), contiguous, of the signature's type and on the model's device.
        """


def check_input(model: object, found: str, shape: Sequence[Any], dtype: torch.dtype | None) -> Signature:
    """The signature of a model by the shape and type of its input.

    Args:
        model: What errors are about.
        found: How the input is described in errors.
        shape: What it says of each dimension; what is no number can be any.
        dtype: Its type; None where it is another one than torch has.

    Raises:
        ModelError: It is no batch of RGB frames.
    """
    sizes = [int(side) if isinstance(side, int) and side > 0 else None for side in shape]
    if len(sizes) != 4 or sizes[1] not in (3, None) or dtype not in DTYPES:
        raise ModelError(model, f"it takes {found}; needed is (N, 3, height, width), float32 or float16")
    return Signature(sizes[0], sizes[2], sizes[3], dtype)


def named_outputs(value: Any, model: object) -> list[tuple[str, Tensor]]:
    """What a model has returned, as tensors with names.

    A tensor, several, or a mapping of them; or, as torchvision's detectors do, for each frame a mapping with boxes,
    scores and labels: these are filled up to equal length.

    Raises:
        ModelError: It is anything else.
    """
    if isinstance(value, Tensor):
        return [("output", value)]
    if isinstance(value, Mapping):
        tensors = [(str(name), part) for name, part in value.items() if isinstance(part, Tensor)]
        if tensors:
            return tensors
    elif isinstance(value, list | tuple) and value:
        if all(isinstance(part, Mapping) for part in value):
            return _stacked(value, model)
        # YOLO modules add lists of feature maps to what counts.
        tensors = [(f"output{place}", part) for place, part in enumerate(value) if isinstance(part, Tensor)]
        if tensors:
            return tensors
    raise ModelError(
        model, f"it returned {_described(value)}; needed are tensors, or for each frame boxes, scores and labels"
    )


def _described(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {', '.join(type(part).__name__ for part in value[:5]) or 'nothing'}"
    return f"a {type(value).__name__}"


def _stacked(frames: Sequence[Mapping[str, Any]], model: object) -> list[tuple[str, Tensor]]:
    try:
        parts = [(each["boxes"], each["scores"], each["labels"]) for each in frames]
    except KeyError as error:
        raise ModelError(
            model, f"what it returned for a frame has no {error}; needed are boxes, scores and labels"
        ) from None
    most = max(len(scores) for _, scores, _ in parts)
    boxes = parts[0][0].new_zeros((len(parts), most, 4))
    scores = parts[0][1].new_full((len(parts), most), -1.0)
    labels = parts[0][2].new_zeros((len(parts), most))
    for place, found in enumerate(parts):
        for whole, part in zip((boxes, scores, labels), found, strict=True):
            whole[place, : len(part)] = part
    return [("boxes", boxes), ("scores", scores), ("classes", labels)]


def parse_names(text: str) -> tuple[str, ...]:
    """Class names as exporters write them: ``{0: 'person', 1: 'car'}`` or a list; empty where it is neither."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    if isinstance(value, dict):
        value = [value.get(number) for number in range(len(value))]
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    return ()
