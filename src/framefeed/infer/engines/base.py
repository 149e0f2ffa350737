"""Interface of model engines, and checks of their inputs and outputs."""

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
    """Input of a model: (batch, 3, height, width). None stands for any value, or an unknown one.

    Attributes:
        batch: Frames in a batch.
        height, width: Size of the frames.
        dtype: ``torch.float32`` or ``torch.float16``.
        names: Class names stored in the model.
        max_batch: Largest batch, if ``batch`` is None and there is a limit.
    """

    batch: int | None = None
    height: int | None = None
    width: int | None = None
    dtype: torch.dtype = torch.float32
    names: tuple[str, ...] = field(default=(), repr=False)
    max_batch: int | None = None


class ModelEngine(Protocol):
    """A loaded model.

    Attributes:
        name: Its file, or its name in errors.
        signature: Its input.
        concurrent: True if several threads may run it at the same time.
    """

    name: str
    signature: Signature
    concurrent: bool

    def run(self, frames: Tensor) -> Outputs:
        """Runs the model. On a GPU it is launched on the current stream, without waiting.

        Args:
            frames: (n, 3, height, width), contiguous, with the signature's dtype, on the model's device.
        """


def check_input(model: object, found: str, shape: Sequence[Any], dtype: torch.dtype | None) -> Signature:
    """Returns a model's signature from the shape and dtype of its input.

    Args:
        model: Name of the model in errors.
        found: Description of the input in errors.
        shape: Its dimensions; values that are not numbers stand for any size.
        dtype: Its dtype; None if torch does not have it.

    Raises:
        ModelError: The input is not a batch of RGB frames.
    """
    sizes = [int(side) if isinstance(side, int) and side > 0 else None for side in shape]
    if len(sizes) != 4 or sizes[1] not in (3, None) or dtype not in DTYPES:
        raise ModelError(model, f"unsupported input {found}; expected (N, 3, height, width), float32 or float16")
    return Signature(sizes[0], sizes[2], sizes[3], dtype)


def named_outputs(value: Any, model: object) -> list[tuple[str, Tensor]]:
    """Converts a model's result to tensors with names.

    Accepts a tensor, several, or a mapping of them; or, as from torchvision's detectors, one mapping per frame with
    boxes, scores and labels, which are padded to equal length.

    Raises:
        ModelError: The result is anything else.
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
        # YOLO modules return additional lists of feature maps.
        tensors = [(f"output{place}", part) for place, part in enumerate(value) if isinstance(part, Tensor)]
        if tensors:
            return tensors
    raise ModelError(
        model, f"it returned {_described(value)}; expected tensors, or boxes, scores and labels for each frame"
    )


def _described(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {', '.join(type(part).__name__ for part in value[:5]) or 'nothing'}"
    return f"a {type(value).__name__}"


def _stacked(frames: Sequence[Mapping[str, Any]], model: object) -> list[tuple[str, Tensor]]:
    try:
        parts = [(each["boxes"], each["scores"], each["labels"]) for each in frames]
    except KeyError as error:
        raise ModelError(model, f"it returned a frame without {error}; expected boxes, scores and labels") from None
    most = max(len(scores) for _, scores, _ in parts)
    boxes = parts[0][0].new_zeros((len(parts), most, 4))
    scores = parts[0][1].new_full((len(parts), most), -1.0)
    labels = parts[0][2].new_zeros((len(parts), most))
    for place, found in enumerate(parts):
        for whole, part in zip((boxes, scores, labels), found, strict=True):
            whole[place, : len(part)] = part
    return [("boxes", boxes), ("scores", scores), ("classes", labels)]


def parse_names(text: str) -> tuple[str, ...]:
    """Parses class names as exporters write them: ``{0: 'person', 1: 'car'}`` or a list; empty for other text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return ()
    if isinstance(value, dict):
        value = [value.get(number) for number in range(len(value))]
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    return ()
