"""Converts decoded pictures to RGB arrays: colour matrix, range, size, orientation and layout."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from framefeed.convert.buffers import allocate
from framefeed.convert.cpu.swscale import ACCURATE, BICUBIC, BILINEAR, Scaler, scaler_for
from framefeed.convert.transforms import Geometry
from framefeed.types import Orientation, StreamInfo

__all__ = ["Layout", "PictureWriter", "Pixels", "RgbWriter", "Source", "to_planar"]

Layout = Literal["CHW", "HWC"]
Pixels: TypeAlias = "NDArray[Any]"

UNSPECIFIED = 2
FULL_RANGE = 2

# Formats with a fast converter in libswscale, for pictures of even height without scaling.
_FAST = frozenset({"yuv420p", "yuv422p", "yuvj420p", "yuvj422p"})

# The fast converter works on this many pixels at a time.
_BLOCK = 16
_ALIGN = 64

GBR = (1, 2, 0)  # FFmpeg's planes are green, blue, red; ours red, green, blue


class PictureWriter(ABC):
    """Writes pictures of a stream as arrays of three 8-bit channels, upright, resized and cropped.

    Args:
        stream: The stream; its colour facts apply to pictures without their own.
        layout: Order of the dimensions of the output arrays.
        geometry: Resize and crop, applied to the upright picture.
    """

    def __init__(self, stream: StreamInfo, layout: Layout, geometry: Geometry) -> None:
        self._matrix = stream.color_space
        self._range = stream.color_range
        self._orientation = stream.orientation
        self._layout = layout
        self._geometry = geometry

    def output_size(self, picture: Any) -> tuple[int, int]:
        """Returns the result's height and width for this picture."""
        return self._geometry.output_size(*self.upright_size(picture))

    def upright_size(self, picture: Any) -> tuple[int, int]:
        """Returns the picture's height and width as displayed, before it is resized."""
        return self._turned((picture.height, picture.width))

    def write(self, picture: Any, out: NDArray[np.uint8]) -> None:
        """Converts a picture into ``out``, a contiguous array of the layout and of ``output_size``."""
        scaled = self._turned(self._geometry.resize) if self._geometry.resize else (picture.height, picture.width)
        plain = not self._orientation and self._geometry.crop is None
        result = self._convert(picture, scaled, out if plain else None)
        if not plain:
            result = self._cut(turn(result, self._orientation, (1, 2) if self._layout == "CHW" else (0, 1)))
        if result is not out:
            out[...] = result

    def _cut(self, upright: Pixels) -> Pixels:
        if self._geometry.crop is None:
            return upright
        top, left, height, width = self._geometry.crop
        rows, columns = slice(top, top + height), slice(left, left + width)
        return upright[:, rows, columns] if self._layout == "CHW" else upright[rows, columns]

    def _turned(self, size: tuple[int, int]) -> tuple[int, int]:
        return (size[1], size[0]) if self._orientation.swaps_sides else size

    def _matrix_of(self, picture: Any) -> int:
        matrix: int = picture.colorspace
        return matrix if matrix != UNSPECIFIED else self._matrix

    def _is_full_range(self, picture: Any) -> bool:
        return picture.format.name.startswith("yuvj") or (picture.color_range or self._range) == FULL_RANGE

    @abstractmethod
    def _convert(self, picture: Any, size: tuple[int, int], out: NDArray[np.uint8] | None) -> Pixels:
        """Converts the unrotated picture to (height, width), into ``out`` if possible, else into other memory."""


class RgbWriter(PictureWriter):
    """Writes pictures of a stream as 8-bit RGB; without scaling equal to FFmpeg's conversion to ``rgb24``."""

    def _convert(self, picture: Any, size: tuple[int, int], out: NDArray[np.uint8] | None) -> Pixels:
        source = Source(picture)
        height, width = size
        same_size = size == (picture.height, picture.width)
        fast = same_size and height % 2 == 0 and source.format in _FAST
        if fast:
            source.pad(across=_BLOCK)
            # Size to convert: everything beyond the picture is padding, and is cut off again.
            size = (source.height, source.width)
        # Outside its fast converter, libswscale computes other chroma for planar RGB than for packed RGB.
        packed = same_size and (self._layout == "HWC" or (not fast and _is_subsampled(picture)))
        scaler = scaler_for(
            (source.width, source.height, source.format),
            (size[1], size[0], "rgb24" if packed else "gbrp"),
            self._matrix_of(picture),
            self._is_full_range(picture),
            BICUBIC if same_size else BILINEAR | ACCURATE,
        )
        if packed:
            result = _to_packed(scaler, source, size, out if self._layout == "HWC" else None)
            if result is out:
                return result
            result = result[:height, :width]
            return result if self._layout == "HWC" else result.transpose(2, 0, 1)
        planar = to_planar(scaler, source, size, GBR, out if self._layout == "CHW" else None)
        if planar is out:
            return planar
        planar = planar[:, :height, :width]
        return planar if self._layout == "CHW" else planar.transpose(1, 2, 0)


def _is_subsampled(picture: Any) -> bool:
    """Returns whether pixels share samples, or RGB has fewer than 8 bits, which libswscale converts via chroma, too."""
    parts = picture.format.components
    return any(part.width < picture.width or part.height < picture.height or part.bits < 8 for part in parts[1:3])


class Source:
    """Planes of a picture: addresses and bytes per line."""

    def __init__(self, picture: Any) -> None:
        self._picture = picture
        self.width: int = picture.width
        self.height: int = picture.height
        # Alpha is left out: libswscale has no fast converter for some formats with alpha.
        self.format: str = picture.format.name.replace("yuva", "yuv")
        planes = picture.planes[:3] if self.format != picture.format.name else picture.planes
        self.pointers = tuple([plane.buffer_ptr for plane in planes])
        self.strides = tuple([plane.line_size for plane in planes])
        self._copies: list[NDArray[np.uint8]] = []

    def pad(self, across: int, down: int = 1) -> None:
        """Rounds the size up to multiples of ``across`` and ``down`` if chroma is subsampled.

        libswscale's fast converter skips the last pixels of a line that is not a multiple of its block, and at odd
        sizes repeated chroma would be sampled between the right positions. Decoders pad their lines, so usually a
        larger width is enough; if the padding is too small, the planes are copied.
        """
        width, height = -(-self.width // across) * across, -(-self.height // down) * down
        if (width, height) == (self.width, self.height):
            return
        chroma = self._picture.format.components[1:3]
        halves = any(part.width < self.width or part.height < self.height for part in chroma)
        if not halves or len(self.strides) != 3:
            return
        shrunk = chroma[0].width < self.width
        bytes_each = 1 if self._picture.format.components[0].bits <= 8 else 2
        needed = [bytes_each * (width if number == 0 or not shrunk else width // 2) for number in range(3)]
        if height != self.height or any(have < need for have, need in zip(self.strides, needed, strict=True)):
            self._copy(needed, height)
        self.width, self.height = width, height

    def _copy(self, widths: list[int], height: int) -> None:
        for plane, width in zip(self._picture.planes[:3], widths, strict=True):
            rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
            lines = height if plane.height == self.height else height // 2
            copy = np.zeros((lines, padded(width)), np.uint8)
            across = min(copy.shape[1], rows.shape[1])
            copy[: plane.height, :across] = rows[:, :across]
            self._copies.append(copy)
        self.pointers = tuple(copy.ctypes.data for copy in self._copies)
        self.strides = tuple(copy.shape[1] for copy in self._copies)


def turn(array: Pixels, orientation: Orientation, axes: tuple[int, int]) -> Pixels:
    """Returns a mirrored and rotated view of the array."""
    if orientation.mirrored:
        array = np.flip(array, axes[1])
    return np.rot90(array, orientation.quarter_turns, axes)


def _to_packed(scaler: Scaler, source: Source, size: tuple[int, int], out: NDArray[np.uint8] | None) -> Pixels:
    height, width = size
    if width % _BLOCK == 0 and out is not None and out.shape[:2] == size:
        target = out
    else:
        # Space behind the end of a line: the general path writes whole blocks.
        target = allocate((height, padded(width * 3)))
    stride = target.strides[0]
    scaler(source.pointers, source.strides, (target.ctypes.data,), (stride,))
    return target if target is out else target[:, : width * 3].reshape(height, width, 3)


def to_planar(
    scaler: Scaler,
    source: Source,
    size: tuple[int, int],
    order: tuple[int, int, int],
    out: NDArray[np.uint8] | None = None,
    word: type[np.uint8] | type[np.uint16] = np.uint8,
) -> Pixels:
    """Converts into three planes.

    Args:
        scaler: Scaler to planes of ``size``.
        source: The source planes.
        size: Height and width of the conversion.
        order: For each of FFmpeg's planes, its index in the result.
        out: Contiguous array for the result; unused if it does not fit.
        word: Type of the scaler's samples.

    Returns:
        ``out``, or other memory of the shape (3, height, width).
    """
    across = size[1] * np.dtype(word).itemsize
    # Space for whole blocks: the general path, too, writes a little past the end of a line.
    stride = across if size[1] % _BLOCK == 0 else padded(across)
    fits = out is not None and out.shape == (3, *size) and stride == across
    target = out if out is not None and fits else allocate((3, size[0], stride))
    first, plane = target.ctypes.data, size[0] * stride
    scaler(source.pointers, source.strides, tuple([first + plane * place for place in order]), (stride,) * 3)
    return target if target is out else target.view(word)[:, :, : size[1]]


def padded(width: int) -> int:
    """Returns the padded bytes per line for that many."""
    return -(-width // _ALIGN) * _ALIGN + _ALIGN
