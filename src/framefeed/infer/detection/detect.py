"""Detector: fits frames into a model's input, runs it, and turns outputs into boxes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from framefeed.errors import ModelError
from framefeed.infer.detection.fit import PAD_VALUE, Fit
from framefeed.infer.detection.layouts import Outputs, Reader, choose_layout
from framefeed.infer.detection.suppress import Detections, suppress
from framefeed.infer.engines import ModelEngine

__all__ = ["Detector", "Launched", "input_size", "new_stream"]

# Scores are at most 1, except for rounding.
MOST = 1.001


def input_size(engine: ModelEngine, image_size: tuple[int, int] | None) -> tuple[int, int]:
    """Returns (height, width) of a model's input.

    Args:
        engine: The model.
        image_size: The requested size, or None.

    Raises:
        ModelError: The model needs another size, or needs a size and none was given.
    """
    signature = engine.signature
    if image_size is None:
        if signature.height is None or signature.width is None:
            raise ModelError(engine.name, "accepts any frame size; give image_size (--image-size)")
        return signature.height, signature.width
    for own, asked in zip((signature.height, signature.width), image_size, strict=True):
        if own not in (None, asked):
            size = f"{signature.width or 'any'}x{signature.height or 'any'}"
            raise ModelError(
                engine.name, f"expects frames of {size}, not {image_size[1]}x{image_size[0]}; leave image_size out"
            )
    return image_size


def new_stream(device: torch.device, *, is_urgent: bool = False) -> torch.cuda.Stream:
    """Creates a stream; work on an urgent stream runs before waiting work on others."""
    return torch.cuda.Stream(device, priority=-1 if is_urgent else 0)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False)
class Launched:
    """A batch whose outputs may still be pending.

    Attributes:
        outputs: The model's outputs.
        count: Number of frames in the batch.
        event: Event that marks their completion; None on the CPU.
    """

    outputs: Outputs
    count: int
    event: Any = None


class Detector:
    """Finds boxes in batches of frames.

    On a GPU a batch is launched and collected later, so that the next one can be launched meanwhile. Postprocessing has
    a stream of its own and does not wait for the next batch.

    Args:
        engine: The model.
        size: (height, width) of its input.
        device: The device.
        batch_size: Largest number of frames in a batch.
        layout: Layout of its outputs.
        confidence: Lowest score to keep.
        iou: Overlap above which boxes of one class are suppressed.
        max_detections: Largest number of boxes in a frame.
        num_classes: Number of classes, if known.
    """

    def __init__(
        self,
        engine: ModelEngine,
        size: tuple[int, int],
        device: torch.device,
        *,
        batch_size: int,
        layout: str = "auto",
        confidence: float = 0.25,
        iou: float = 0.45,
        max_detections: int = 300,
        num_classes: int | None = None,
    ) -> None:
        self._engine = engine
        self._size = size
        self._device = device
        self._batch = engine.signature.batch
        self._rows = max(batch_size, self._batch or 0)
        self._layout = layout
        self._confidence = confidence
        self._iou = iou
        self._max_detections = max_detections
        self._num_classes = num_classes
        self._reader: Reader | None = None
        self._fit: Fit | None = None
        self._input = torch.empty(0)
        # Postprocessing is many small steps; without priority each would wait for the next batches' layers.
        self._side = new_stream(device, is_urgent=True) if device.type == "cuda" else None

    @property
    def reader(self) -> Reader | None:
        """Reader of the outputs; None before the first batch."""
        return self._reader

    def launch(self, frames: Tensor, fit: Fit) -> Launched:
        """Runs the model on frames.

        Args:
            frames: (n, 3, height, width) of ``fit.scaled``, uint8, on the device.
            fit: Placement of the frames in the input.
        """
        count = len(frames)
        whole = self._fill(frames, fit)
        outputs = self._run(whole, count)
        event = None
        if self._side is not None:
            event = torch.cuda.current_stream(self._device).record_event()
        return Launched(outputs, count, event)

    def _fill(self, frames: Tensor, fit: Fit) -> Tensor:
        """Returns the model's input with these frames, values from 0 to 1."""
        if fit != self._fit:
            shape = (self._rows, 3, *self._size)
            dtype = self._engine.signature.dtype
            self._input = torch.full(shape, PAD_VALUE / 255, dtype=dtype, device=self._device)
            self._fit = fit
        (height, width), top, left = fit.scaled, fit.top, fit.left
        place = self._input[: len(frames), :, top : top + height, left : left + width]
        if self._device.type == "cpu":
            # NumPy, because torch would use several threads, which wait for each other while others decode.
            for source, target in zip(frames.numpy(), place.numpy(), strict=True):
                np.copyto(target, source)
                np.divide(target, target.dtype.type(255), out=target)
        else:
            place.copy_(frames)
            place.div_(255)
        return self._input

    def _run(self, whole: Tensor, count: int) -> Outputs:
        # A model with a fixed batch size runs on full batches; surplus outputs are dropped.
        step = self._batch or self._engine.signature.max_batch or count
        parts = [self._engine.run(self._part(whole, low, min(count, low + step))) for low in range(0, count, step)]
        outputs = parts[0]
        if len(parts) > 1:
            joined = [torch.cat([part[place][1] for part in parts]) for place in range(len(outputs))]
            outputs = [(name, tensor) for (name, _), tensor in zip(outputs, joined, strict=True)]
        if self._batch is not None:
            outputs = [(name, tensor[:count]) for name, tensor in outputs]
        for name, tensor in outputs:
            if not tensor.ndim or tensor.shape[0] != count:
                found = f"its output {name} {tuple(tensor.shape)}"
                raise ModelError(self._engine.name, f"{found} does not have one row for each of {count} frames")
        return outputs

    def _part(self, whole: Tensor, low: int, high: int) -> Tensor:
        if self._batch is None:
            return whole[low:high]
        part = whole[low : low + self._batch]
        lacking = self._batch - len(part)
        return torch.cat((part, part[-1:].expand(lacking, -1, -1, -1))) if lacking else part

    def collect(self, launched: Launched) -> Detections:
        """Returns the detections of a batch, in CPU memory."""
        with self._beside(launched), torch.inference_mode():
            if self._reader is None:
                self._reader = choose_layout(
                    self._layout, launched.outputs, self._size, self._num_classes, self._engine.name
                )
            found = self._reader.read(launched.outputs, self._confidence)
            if not (torch.isfinite(found.scores).all() & torch.isfinite(found.boxes).all()):
                raise ModelError(self._engine.name, "returned NaN or infinite values")
            kept = suppress(found, self._iou, self._max_detections, suppressed=self._reader.suppressed)
        self._check(kept)
        return kept

    @contextlib.contextmanager
    def _beside(self, launched: Launched) -> Iterator[None]:
        """Switches to the postprocessing stream, on a GPU."""
        if self._side is None:
            yield
            return
        with torch.cuda.stream(self._side):
            self._side.wait_event(launched.event)
            yield
            # The outputs' memory returns to the other stream when this batch is freed.
            self._side.synchronize()

    def _check(self, kept: Detections) -> None:
        if not len(kept.scores):
            return
        if kept.scores.max() > MOST:
            raise ModelError(
                self._engine.name,
                f"returned scores up to {kept.scores.max():.3g}; expected 0 to 1: the model may lack its last "
                "sigmoid, or have another layout (--layout)",
            )
        if self._num_classes is not None and kept.classes.max() >= self._num_classes:
            raise ModelError(
                self._engine.name, f"returned class {kept.classes.max()}, but only {self._num_classes} names were given"
            )
