"""A tiny detector that needs no training, and clips with known boxes; for tests, docs and the demo.

Clips show red, green and blue rectangles that wander over a grey texture. The detector is a convolutional network with
weights set by hand: a 1x1 convolution measures how red, green or blue each pixel is; at every eighth pixel, long and
thin convolutions count the coloured pixels to its left and right, and above and below, which gives the box of its
rectangle. Boxes are exact to a fraction of a pixel as long as rectangles are at most ``REACH`` pixels wide and high in
the model's input, and rectangles of one colour are farther apart than that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from framefeed.testing.samples import painted_frame, plane_samples, write_clip

__all__ = ["CLASSES", "REACH", "Painted", "ShapeDetector", "export", "painted_boxes", "write_shape_clip"]

CLASSES = ("red", "green", "blue")
STRIDE = 8
REACH = 72
"""Maximum side of a rectangle in pixels of the model's input."""

# Full colours in limited-range BT.601: Y, U, V.
_YUV = {"red": (81, 90, 240), "green": (145, 54, 34), "blue": (41, 240, 110)}
# One channel minus the mean of the others is proportional to the share of a pixel with that colour, whatever grey
# surrounds it. Shares below and above these count as none and all, so that noise does not add up.
_NONE, _ALL = 0.2, 0.8
_FULL = 0.95
_NEAR = 5

Layout = Literal["yolo", "boxes"]


class Painted(NamedTuple):
    """A painted rectangle: corners in pixels of the clip, and its class."""

    x1: int
    y1: int
    x2: int
    y2: int
    class_id: int


def painted_boxes(number: int, width: int, height: int, *, seed: int = 0, count: int = 3) -> list[Painted]:
    """Returns the rectangles painted into frame ``number``: one in each of ``count`` columns of the picture.

    Columns of one colour are three apart. Edges lie on even pixels: chroma has half the resolution.
    """
    column = width // count
    if column < 24 or height < 32:
        raise ValueError(f"{width}x{height} is too small for {count} rectangles: each needs 24 columns and 32 rows")
    rng = np.random.default_rng((seed, width, height))
    found = []
    for place in range(count):
        most = min(column - 6, REACH) // 2, min(height // 2, REACH) // 2
        wide, high = (2 * int(rng.integers(2 * length // 3, length + 1)) for length in most)
        speeds, phases = rng.integers(1, 4, 2), rng.integers(0, 1000, 2)
        left = column * place + 2 + _to_and_fro(number * int(speeds[0]) + int(phases[0]), column - wide - 4)
        top = 2 + _to_and_fro(number * int(speeds[1]) + int(phases[1]), height - high - 4)
        left, top = left - left % 2, top - top % 2
        found.append(Painted(left, top, left + wide, top + high, place % len(CLASSES)))
    return found


def _to_and_fro(number: int, span: int) -> int:
    span = max(1, span)
    return span - abs(number % (2 * span) - span)


def write_shape_clip(
    path: Path | str,
    *,
    frames: int = 60,
    width: int = 192,
    height: int = 160,
    seed: int = 0,
    count: int = 3,
    background: Callable[[int], Any] | None = None,
    **rest: Any,
) -> Path:
    """Writes a clip of rectangles.

    Args:
        path: The file.
        frames, width, height: Number and size of the frames.
        seed: Chooses the rectangles, and the texture behind them.
        count: Rectangles in a frame.
        background: Paints the background, as a PyAV frame in YUV 4:2:0; its colours are removed.
        rest: Further arguments of ``framefeed.testing.samples.write_clip``.
    """

    def paint(number: int) -> Any:
        frame = background(number) if background is not None else painted_frame(number, width, height, seed=seed)
        y, u, v = (plane_samples(plane, np.dtype(np.uint8)) for plane in frame.planes)
        u[:], v[:] = 128, 128
        for box in painted_boxes(number, width, height, seed=seed, count=count):
            for plane, value, step in zip((y, u, v), _YUV[CLASSES[box.class_id]], (1, 2, 2), strict=True):
                plane[box.y1 // step : box.y2 // step, box.x1 // step : box.x2 // step] = value
        return frame

    rest.setdefault("options", {"preset": "veryfast", "crf": "18", "sc_threshold": "0"})  # GOPs of the requested length
    return write_clip(path, frames=frames, width=width, height=height, painter=paint, **rest)


class ShapeDetector(nn.Module):
    """Finds red, green and blue rectangles.

    Args:
        height, width: Size of the input (N, 3, height, width), values in [0, 1].
        layout: ``"yolo"`` gives one output (N, 4 + 3, points) with middles and sizes; ``"boxes"`` gives corners (N,
            points, 4), scores (N, points) and classes (N, points).
        work: Number of further convolutions that change nothing, for benchmarks with a costlier model.
        channels: Channels of these convolutions.
    """

    place_x: Tensor
    place_y: Tensor
    numbers: Tensor

    def __init__(self, height: int, width: int, *, layout: Layout = "yolo", work: int = 0, channels: int = 16) -> None:
        super().__init__()
        self.size = (height, width)
        self.layout = layout
        classes = len(CLASSES)
        mix = torch.full((classes, 3, 1, 1), -0.5)
        for number in range(classes):
            mix[number, number] = 1.0
        # A share of _NONE becomes 0 and one of _ALL becomes 1.
        steep = 1 / (_ALL - _NONE)
        self.color = _conv(mix * (steep / _FULL), bias=-_NONE * steep)
        ones, ramp = torch.ones(2 * REACH + 1), torch.arange(-REACH, REACH + 1.0)
        self.count_x, self.sum_x = (_count(weights[None, :]) for weights in (ones, ramp))
        self.count_y, self.sum_y = (_count(weights[:, None]) for weights in (ones, ramp))
        # 1 if all is coloured nearby, 0 if little more than half is: a point outside has no right box.
        self.near = _count(torch.full((_NEAR, _NEAR), 2.5 * _NEAR**-2.0), bias=-1.5)
        rows, columns = (torch.arange(0, length, STRIDE) + 0.5 for length in (height, width))
        self.register_buffer("place_x", columns[None, :].expand(len(rows), -1)[None, None].contiguous())
        self.register_buffer("place_y", rows[:, None].expand(-1, len(columns))[None, None].contiguous())
        self.register_buffer("numbers", torch.arange(float(len(CLASSES))).reshape(1, -1, 1, 1))
        first = [nn.Conv2d(3, channels, 3, stride=2, padding=1), nn.ReLU()] if work else []
        more = [part for _ in range(work - 1) for part in (nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())]
        self.work = nn.Sequential(*first, *more)
        for parameter in self.parameters():
            parameter.requires_grad_(False)
        self.eval()

    def forward(self, frames: Tensor) -> Any:
        """Returns predictions for frames (N, 3, height, width)."""
        # Only operations that ONNX, torch.export and TorchScript all have.
        share = self.color(frames).clamp(0.0, 1.0)
        score = self.near(share).clamp(0.0, 1.0)
        if len(self.work):
            score = score + self.work(frames).mean((1, 2, 3), keepdim=True) * 0.0
        # Number of coloured pixels, and their mean distance.
        wide, high = self.count_x(share), self.count_y(share)
        x = self.place_x + self.sum_x(share) / wide.clamp(min=1.0)
        y = self.place_y + self.sum_y(share) / high.clamp(min=1.0)
        if self.layout == "boxes":
            corners = (x - wide * 0.5, y - high * 0.5, x + wide * 0.5, y + high * 0.5)
            boxes = torch.cat([side.flatten(1).unsqueeze(2) for side in corners], 2)
            classes = (score * 0.0 + self.numbers).flatten(1)
            return boxes, score.flatten(1), classes.to(torch.int32)
        # A point lies in one rectangle at most.
        weights = score / score.sum(1, keepdim=True).clamp(min=1e-3)
        sides = [(side * weights).sum(1, keepdim=True) for side in (x, y, wide, high)]
        return torch.cat([*sides, score], 1).flatten(2)


def _count(weights: Tensor, bias: float | None = None) -> nn.Conv2d:
    """Returns the sums of each class around every eighth pixel."""
    alike = weights.expand(len(CLASSES), 1, *weights.shape)
    return _conv(alike, bias=bias, groups=len(CLASSES), stride=STRIDE)


def _conv(weight: Tensor, *, bias: float | None = None, groups: int = 1, stride: int = 1) -> nn.Conv2d:
    outputs, inputs, high, wide = weight.shape
    conv = nn.Conv2d(
        inputs * groups,
        outputs,
        (high, wide),
        stride=stride,
        padding=(high // 2, wide // 2),
        groups=groups,
        bias=bias is not None,
    )
    with torch.no_grad():
        conv.weight.copy_(weight)
        if conv.bias is not None and bias is not None:
            conv.bias.fill_(bias)
    return conv


def export(detector: ShapeDetector, path: Path | str, *, batch: int | None = None) -> Path:
    """Writes a detector as ``.onnx``, ``.pt2`` (torch.export) or ``.ts`` and ``.pt`` (TorchScript).

    Args:
        detector: The detector.
        path: The file; its suffix gives the format.
        batch: Batch size of the model; None for any.
    """
    path = Path(path)
    parameter = next(detector.parameters())
    example = torch.zeros((batch or 2, 3, *detector.size), dtype=parameter.dtype, device=parameter.device)
    if path.suffix == ".onnx":
        from framefeed.testing.shapes_onnx import write_onnx

        write_onnx(detector, path, batch)
    elif path.suffix == ".pt2":
        shapes = {"frames": {0: torch.export.Dim("batch", min=1, max=1024)}} if batch is None else None
        torch.export.save(torch.export.export(detector, (example,), dynamic_shapes=shapes), path)
    elif path.suffix in (".ts", ".pt"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch recommends torch.export
            torch.jit.trace(detector, example).save(str(path))  # type: ignore[no-untyped-call]
    else:
        raise ValueError(f"{path}: unknown suffix; supported: .onnx, .pt2, .ts, .pt")
    return path
