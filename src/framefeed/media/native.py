"""Decoded pictures in the decoder's own pixel format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.media.ffmpeg import row_bytes

__all__ = ["NativeFrame"]


@dataclass(frozen=True, eq=False)
class NativeFrame:
    """A decoded picture in the stream's own pixel format.

    Attributes:
        pix_fmt: FFmpeg's name of the format, such as ``yuv420p10le``.
        width, height: Size in pixels.
        planes: The planes as arrays of bytes, one row a line, without padding.
    """

    pix_fmt: str
    width: int
    height: int
    planes: tuple[NDArray[np.uint8], ...]

    @classmethod
    def copy_of(cls, picture: Any) -> NativeFrame:
        """Copies the planes of a PyAV frame."""
        planes = tuple(_plane(plane, index, picture.format) for index, plane in enumerate(picture.planes))
        return cls(picture.format.name, picture.width, picture.height, planes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NativeFrame):
            return NotImplemented
        same = (self.pix_fmt, self.width, self.height) == (other.pix_fmt, other.width, other.height)
        return same and all(np.array_equal(a, b) for a, b in zip(self.planes, other.planes, strict=True))

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"NativeFrame({self.pix_fmt}, {self.width}x{self.height})"


def _plane(plane: Any, index: int, pix_fmt: Any) -> NDArray[np.uint8]:
    data = np.frombuffer(plane, np.uint8)
    if not plane.line_size:  # decoders return a palette as a plane without lines
        return np.array(data[None])
    rows = data.reshape(plane.height, abs(plane.line_size))
    return np.array(rows[:, : row_bytes(pix_fmt, index)])
