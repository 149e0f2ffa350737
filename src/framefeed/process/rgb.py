"""Decoded pictures -> RGB in a given array: colour matrix, range, size, orientation and layout."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from framefeed.process.swscale import ACCURATE, BILINEAR, POINT, Scaler, scaler_for
from framefeed.process.transforms import Geometry
from framefeed.types import Orientation, StreamInfo

__all__ = ["Layout", "RgbWriter"]

Layout = Literal["CHW", "HWC"]

UNSPECIFIED = 2
FULL_RANGE = 2

# Formats with a hand-written converter in libswscale, several times faster than its general path.
_FAST = frozenset({"yuv420p", "yuv422p", "yuvj420p", "yuvj422p"})

# That converter works on 16 pixels at a time and writes past the end of lines that are no multiple of it.
_BLOCK = 16
_ALIGN = 64


class RgbWriter:
    """Writes pictures of a stream as 8-bit RGB.

    Args:
        stream: The stream; its colour facts are used where a picture does not bring its own.
        layout: Order of the dimensions of the arrays that are written to.
        geometry: Resize and crop, applied to the upright picture.
    """

    def __init__(self, stream: StreamInfo, layout: Layout, geometry: Geometry) -> None:
        self._matrix = stream.color_space
        self._range = stream.color_range
        self._orientation = stream.orientation
        self._layout = layout
        self._geometry = geometry

    def output_size(self, picture: Any) -> tuple[int, int]:
        """Height and width of the result for this picture."""
        height, width = picture.height, picture.width
        if self._orientation.swaps_sides:
            height, width = width, height
        return self._geometry.output_size(height, width)

    def write(self, picture: Any, out: NDArray[np.uint8]) -> None:
        """Converts a picture into ``out``, a contiguous array of the layout and of ``output_size``."""
        height, width = self._geometry.resize or (0, 0)
        if self._orientation.swaps_sides:
            height, width = width, height
        scaled = (height or picture.height, width or picture.width)
        if not self._orientation and self._geometry.crop is None:
            self._convert(picture, scaled, self._layout, out)
            return
        upright = np.empty((3, *scaled) if self._layout == "CHW" else (*scaled, 3), np.uint8)
        self._convert(picture, scaled, self._layout, upright)
        axes = (1, 2) if self._layout == "CHW" else (0, 1)
        upright = turn(upright, self._orientation, axes)
        if self._geometry.crop is not None:
            top, left, height, width = self._geometry.crop
            rows, columns = slice(top, top + height), slice(left, left + width)
            upright = upright[:, rows, columns] if self._layout == "CHW" else upright[rows, columns]
        out[...] = upright

    def _convert(self, picture: Any, size: tuple[int, int], layout: Layout, out: NDArray[np.uint8]) -> None:
        height, width = size
        pix_fmt = picture.format.name
        same_size = size == (picture.height, picture.width)
        fast = same_size and pix_fmt in _FAST and width % 2 == 0 and height % 2 == 0
        packed = layout == "HWC" and fast
        exact = POINT | ACCURATE if same_size else BILINEAR | ACCURATE
        scaler = scaler_for(
            (picture.width, picture.height, pix_fmt),
            (width, height, "rgb24" if packed else "gbrp"),
            picture.colorspace if picture.colorspace != UNSPECIFIED else self._matrix,
            pix_fmt.startswith("yuvj") or (picture.color_range or self._range) == FULL_RANGE,
            BILINEAR if fast else exact,
        )
        planes = picture.planes
        pointers = tuple(plane.buffer_ptr for plane in planes)
        strides = tuple(plane.line_size for plane in planes)
        if packed:
            _to_packed(scaler, pointers, strides, out)
        elif layout == "CHW":
            _to_planar(scaler, pointers, strides, out)
        else:
            planar = np.empty((3, height, width), np.uint8)
            _to_planar(scaler, pointers, strides, planar)
            out[...] = planar.transpose(1, 2, 0)


def turn(array: NDArray[np.uint8], orientation: Orientation, axes: tuple[int, int]) -> NDArray[np.uint8]:
    """The array mirrored and turned; a view."""
    if orientation.mirrored:
        array = np.flip(array, axes[1])
    return np.rot90(array, orientation.quarter_turns, axes)


def _to_packed(scaler: Scaler, pointers: tuple[int, ...], strides: tuple[int, ...], out: NDArray[np.uint8]) -> None:
    height, width = out.shape[:2]
    if width % _BLOCK == 0:
        scaler(pointers, strides, (out.ctypes.data,), (width * 3,))
        return
    stride = -(-width * 3 // _ALIGN) * _ALIGN + _ALIGN
    scratch = np.empty((height, stride), np.uint8)
    scaler(pointers, strides, (scratch.ctypes.data,), (stride,))
    out[...] = scratch[:, : width * 3].reshape(height, width, 3)


def _to_planar(scaler: Scaler, pointers: tuple[int, ...], strides: tuple[int, ...], out: NDArray[np.uint8]) -> None:
    _, height, width = out.shape
    if width % _BLOCK == 0:
        _scale_gbr(scaler, pointers, strides, out.ctypes.data, height, width)
        return
    stride = -(-width // _ALIGN) * _ALIGN + _ALIGN
    scratch = np.empty((3, height, stride), np.uint8)
    _scale_gbr(scaler, pointers, strides, scratch.ctypes.data, height, stride)
    out[...] = scratch[:, :, :width]


def _scale_gbr(
    scaler: Scaler, pointers: tuple[int, ...], strides: tuple[int, ...], red: int, height: int, stride: int
) -> None:
    """FFmpeg's planes are green, blue, red; ours are red, green, blue."""
    plane = height * stride
    scaler(pointers, strides, (red + plane, red + 2 * plane, red), (stride, stride, stride))
