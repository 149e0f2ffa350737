"""Pictures in a hardware decoder's memory."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Surface", "SurfaceLayout", "even", "layout_of"]


def even(side: int) -> int:
    """Hardware rounds sizes up to even ones."""
    return side + (side & 1)


class SurfaceLayout(NamedTuple):
    """Layout of a decoder's pictures in device memory.

    Attributes:
        width, height: Of the picture.
        pitch: Bytes from one line to the next.
        num_bytes: Of all planes, which lie one behind the other.
        planes: Where each begins: luma, chroma, and the second chroma plane of 4:4:4 formats or -1.
        format: PyNvVideoCodec's name of the format.
    """

    width: int
    height: int
    pitch: int
    num_bytes: int
    planes: tuple[int, int, int]
    format: str


class Surface:
    """A decoded picture in device memory, valid until its session is fed again.

    What reads it has to be queued on the session's ``stream`` before that.

    Attributes:
        address: Where it begins.
        layout: How it lies there.
        stream: The CUDA stream that it is written on.
    """

    __slots__ = ("address", "layout", "stream")

    def __init__(self, address: int, layout: SurfaceLayout, stream: Any) -> None:
        self.address = address
        self.layout = layout
        self.stream = stream

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.layout.width

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.layout.height


def layout_of(frame: Any, size: tuple[int, int]) -> SurfaceLayout:
    """Returns the layout of one of PyNvVideoCodec's frames.

    Args:
        frame: The frame.
        size: Width and height of the stream's pictures.
    """
    rows, columns = frame.shape[:2]
    told = frame.framesize
    num_bytes = int(told() if callable(told) else told)
    pitch = columns * round(num_bytes / (rows * columns))
    name = str(frame.format).rsplit(".", 1)[-1]
    separate = name.startswith("YUV444")
    # Of an odd number of lines half a line of chroma is left out of the shape and the size, but not of the memory.
    width, height = columns, rows // 3 if separate else (2 * rows + 1) // 3
    plane = pitch * height
    num_bytes = 3 * plane if separate else plane + pitch * ((height + 1) // 2)
    if (even(width), even(height)) == (even(size[0]), even(size[1])):
        width, height = size
    return SurfaceLayout(width, height, pitch, num_bytes, (0, plane, 2 * plane if separate else -1), name)
