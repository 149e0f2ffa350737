"""Fitting of frames into a model's input, and mapping of boxes back to the frames."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["PAD_VALUE", "Fit", "Resize", "fit_frames", "parse_size"]

PAD_VALUE = 114  # of 255: the grey used to train YOLO models

Resize = Literal["letterbox", "stretch"]
Size = tuple[int, int]


@dataclass(frozen=True)
class Fit:
    """Placement of frames of one size in a model's input.

    Attributes:
        source: (height, width) of the upright frame.
        target: (height, width) of the model's input.
        scaled: (height, width) of the scaled frame.
        top, left: Position of the scaled frame in the input; the rest is grey.
    """

    source: Size
    target: Size
    scaled: Size
    top: int
    left: int

    @property
    def is_padded(self) -> bool:
        """True if some of the input is grey."""
        return self.scaled != self.target

    def undo(self, boxes: NDArray[Any]) -> NDArray[np.float32]:
        """Maps boxes (n, 4) with corners x1, y1, x2, y2 in the input to pixels of the frame, clipped to its edges."""
        # Uses the exact scale of each side: scaled frames have whole numbers of pixels.
        scale = np.array([self.scaled[1] / self.source[1], self.scaled[0] / self.source[0]] * 2)
        placed = (boxes.astype(np.float64) - [self.left, self.top] * 2) / scale
        edges = np.array([self.source[1], self.source[0]] * 2, np.float64)
        inside: NDArray[np.float32] = np.clip(placed, 0.0, edges).astype(np.float32)
        return inside


def fit_frames(source: Size, target: Size, resize: Resize = "letterbox") -> Fit:
    """Fits frames of ``source`` (height, width) into ``target``.

    Args:
        source: Size of the frames.
        target: Size of the model's input.
        resize: ``"letterbox"`` keeps the aspect ratio and pads with grey on two sides, ``"stretch"`` does not.
    """
    if resize == "stretch":
        return Fit(source, target, target, 0, 0)
    if resize != "letterbox":
        raise ValueError(f'resize must be "letterbox" or "stretch", got {resize!r}')
    height, width = source
    # Integer arithmetic: target/source of the tighter side times the other side, rounded half up.
    if target[0] * width <= target[1] * height:
        scaled = (target[0], max(1, (2 * width * target[0] + height) // (2 * height)))
    else:
        scaled = (max(1, (2 * height * target[1] + width) // (2 * width)), target[1])
    return Fit(source, target, scaled, (target[0] - scaled[0]) // 2, (target[1] - scaled[1]) // 2)


def parse_size(size: int | str | tuple[int, int]) -> Size:
    """Returns (height, width) from ``960``, ``"960x544"`` (width x height) or (height, width)."""
    if isinstance(size, str):
        match = re.fullmatch(r"(\d+)(?:x(\d+))?", size.strip())
        if match is None:
            raise ValueError(f"invalid image size {size!r}: use 960 or 960x544 (width x height)")
        pair = int(match[2] or match[1]), int(match[1])
    elif isinstance(size, int):
        pair = size, size
    else:
        pair = int(size[0]), int(size[1])
    if min(pair) < 1:
        raise ValueError(f"image size must be at least 1, got {size!r}")
    return pair
