"""Conversions of decoded pictures to RGB as libraries do them: nearly all by libswscale, with different settings."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.convert.cpu.swscale import scaler_for

__all__ = ["WAYS", "RgbConversion", "conversions", "turn"]

# libswscale: bicubic, bilinear, fast bilinear, nearest; plain, accurate, with chroma at full width, both.
_SCALERS = (0x4, 0x2, 0x1, 0x10)
_EXTRAS = (0, 0x40000, 0x2000, 0x42000)
_MATRICES = (0, 5, 1)  # the picture's own, BT.601, BT.709
_ALIGN = 64  # line alignment in bytes: libswscale may write up to the next multiple

WAYS = tuple(itertools.product((False, True), range(4)))
"""Orientations of a picture: mirrored or not, and quarter turns."""


@dataclass(frozen=True)
class RgbConversion:
    """A conversion to RGB.

    Attributes:
        flags: Flags of libswscale; None for PyAV's ``to_ndarray``.
        matrix: ISO number of the matrix; 0 for the picture's own.
        full_range: None for the picture's own range.
        swapped: True if libswscale writes BGR, which gives different values.
    """

    flags: int | None
    matrix: int = 0
    full_range: bool | None = None
    swapped: bool = False

    def __call__(self, frame: Any) -> NDArray[np.uint8]:
        """Converts a PyAV frame to a (height, width, 3) array."""
        if self.flags is None or frame.format.has_palette:
            plain: NDArray[np.uint8] = frame.to_ndarray(format="rgb24")
            return plain
        full = frame.color_range == 2 if self.full_range is None else self.full_range
        matrix = self.matrix or (frame.colorspace if frame.colorspace not in (0, 3) else 2)
        size, name = (frame.width, frame.height), frame.format.name
        scaler = scaler_for(
            (*size, name), (*size, "bgr24" if self.swapped else "rgb24"), int(matrix), bool(full), self.flags
        )
        stride = -(-3 * frame.width // _ALIGN) * _ALIGN
        picture = np.empty((frame.height + 1, stride), np.uint8)
        pointers = tuple(plane.buffer_ptr for plane in frame.planes)
        strides = tuple(plane.line_size for plane in frame.planes)
        rest = (0,) * (4 - len(pointers))
        scaler((*pointers, *rest), (*strides, *rest), (picture.ctypes.data, 0, 0, 0), (stride, 0, 0, 0))
        made = picture[: frame.height, : 3 * frame.width].reshape(frame.height, frame.width, 3)
        return made[..., ::-1] if self.swapped else made


def conversions(*, likely: bool = False) -> Iterator[RgbConversion]:
    """Yields all known conversions, or those of most libraries."""
    yield RgbConversion(None)
    if likely:
        choices = itertools.product((None,), (0, 5), (False, True), _EXTRAS[:2], _SCALERS[:2])
    else:
        choices = itertools.product((None, True, False), _MATRICES, (False, True), _EXTRAS, _SCALERS)
    for full, matrix, swapped, extra, scaler in choices:
        yield RgbConversion(scaler | extra, matrix, full, swapped)


def turn(picture: NDArray[np.uint8], way: tuple[bool, int]) -> NDArray[np.uint8]:
    """Mirrors and rotates a picture."""
    mirrored, turns = way
    return np.rot90(picture[:, ::-1] if mirrored else picture, turns)
