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

# That converter works on this many pixels at a time.
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
        source = _Source(picture)
        same_size = size == (picture.height, picture.width)
        fast = same_size and picture.format.name in _FAST
        if same_size:
            source.make_even(_BLOCK if fast else 2)
            # The size that is converted: what lies beyond the picture is padding, and cut off again.
            size = (source.height, source.width)
        packed = layout == "HWC" and fast
        exact = POINT | ACCURATE if same_size else BILINEAR | ACCURATE
        scaler = scaler_for(
            (source.width, source.height, picture.format.name),
            (size[1], size[0], "rgb24" if packed else "gbrp"),
            picture.colorspace if picture.colorspace != UNSPECIFIED else self._matrix,
            picture.format.name.startswith("yuvj") or (picture.color_range or self._range) == FULL_RANGE,
            BILINEAR if fast else exact,
        )
        if packed:
            _to_packed(scaler, source, size, out)
        elif layout == "CHW":
            _to_planar(scaler, source, size, out)
        else:
            planar = np.empty((3, *out.shape[:2]), np.uint8)
            _to_planar(scaler, source, size, planar)
            out[...] = planar.transpose(1, 2, 0)


class _Source:
    """A picture's planes, as addresses and bytes a line."""

    def __init__(self, picture: Any) -> None:
        self._picture = picture
        self.width: int = picture.width
        self.height: int = picture.height
        planes = picture.planes
        self.pointers = tuple(plane.buffer_ptr for plane in planes)
        self.strides = tuple(plane.line_size for plane in planes)
        self._copies: list[NDArray[np.uint8]] = []

    def make_even(self, block: int) -> None:
        """Rounds the size up, to whole blocks of pixels across and to an even number of lines.

        libswscale's fast converter leaves out the last pixels of a line that is no multiple of its block, and at odd
        sizes chroma samples would be taken from between the right ones. Decoders pad their lines, so mostly there is
        nothing to do but to tell a larger width; where there is no room, the planes are copied.
        """
        if self.width % block == 0 and self.height % 2 == 0:
            return
        chroma = self._picture.format.components[1:3]
        halves = any(part.width < self.width or part.height < self.height for part in chroma)
        if not halves:
            return
        width, height = -(-self.width // block) * block, self.height + self.height % 2
        shrunk = chroma[0].width < self.width
        bytes_each = 1 if self._picture.format.components[0].bits <= 8 else 2
        planar = len(self.strides) == 3
        needed = [bytes_each * (width if number == 0 or not shrunk else width // 2) for number in range(3)]
        if not planar:
            return
        if height != self.height or any(have < need for have, need in zip(self.strides, needed, strict=True)):
            self._copy(needed, height)
        self.width, self.height = width, height

    def _copy(self, widths: list[int], height: int) -> None:
        for plane, width in zip(self._picture.planes, widths, strict=True):
            rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
            lines = height if plane.height == self.height else height // 2
            copy = np.zeros((lines, -(-width // _ALIGN) * _ALIGN + _ALIGN), np.uint8)
            across = min(copy.shape[1], rows.shape[1])
            copy[: plane.height, :across] = rows[:, :across]
            self._copies.append(copy)
        self.pointers = tuple(copy.ctypes.data for copy in self._copies)
        self.strides = tuple(copy.shape[1] for copy in self._copies)


def turn(array: NDArray[np.uint8], orientation: Orientation, axes: tuple[int, int]) -> NDArray[np.uint8]:
    """The array mirrored and turned; a view."""
    if orientation.mirrored:
        array = np.flip(array, axes[1])
    return np.rot90(array, orientation.quarter_turns, axes)


def _to_packed(scaler: Scaler, source: _Source, size: tuple[int, int], out: NDArray[np.uint8]) -> None:
    target = out if out.shape[:2] == size else np.empty((*size, 3), np.uint8)
    scaler(source.pointers, source.strides, (target.ctypes.data,), (size[1] * 3,))
    if target is not out:
        out[...] = target[: out.shape[0], : out.shape[1]]


def _to_planar(scaler: Scaler, source: _Source, size: tuple[int, int], out: NDArray[np.uint8]) -> None:
    _, height, width = out.shape
    # Room for whole blocks: the general path, too, writes a little past the end of a line.
    stride = size[1] if size[1] % _BLOCK == 0 else -(-size[1] // _ALIGN) * _ALIGN + _ALIGN
    target = out if (height, width) == size and stride == width else np.empty((3, size[0], stride), np.uint8)
    red, plane = target.ctypes.data, size[0] * stride
    # FFmpeg's planes are green, blue, red; ours are red, green, blue.
    scaler(source.pointers, source.strides, (red + plane, red + 2 * plane, red), (stride, stride, stride))
    if target is not out:
        out[...] = target[:, :height, :width]
