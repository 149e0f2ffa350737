"""Display matrices: how a picture has to be turned and mirrored to be shown."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from framefeed.types import Orientation

# (a, b, c, d) of the display matrix -> orientation. FFmpeg maps the point (x, y) to (a x + c y, b x + d y) with y
# pointing down, so (0, 1, -1, 0) turns the picture by 90 degrees clockwise.
_TURNS = {
    (1, 0, 0, 1): Orientation(0, False),
    (0, -1, 1, 0): Orientation(1, False),
    (-1, 0, 0, -1): Orientation(2, False),
    (0, 1, -1, 0): Orientation(3, False),
    (-1, 0, 0, 1): Orientation(0, True),
    (0, 1, 1, 0): Orientation(1, True),
    (1, 0, 0, -1): Orientation(2, True),
    (0, -1, -1, 0): Orientation(3, True),
}


def from_matrix(matrix: Sequence[int]) -> Orientation:
    """The orientation that a 3x3 display matrix (row by row, 16.16 fixed point) asks for.

    Angles between quarter turns are rounded to the nearest one. A matrix that maps the picture to a line is ignored.
    """
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    sign = a * d - b * c
    if sign == 0:
        return Orientation()
    # Of the two axes the stronger one decides the quarter turn; the determinant's sign decides about mirroring.
    x_axis = (1 if a > 0 else -1, 0) if abs(a) >= abs(b) else (0, 1 if b > 0 else -1)
    y_axis = (-x_axis[1], x_axis[0]) if sign > 0 else (x_axis[1], -x_axis[0])
    return _TURNS[(*x_axis, *y_axis)]


def from_frame(frame: Any) -> Orientation:
    """The orientation in a decoded frame's own side data."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None or len(bytes(data)) < 36:
        return Orientation()
    return from_matrix(struct.unpack("=9i", bytes(data)[:36]))


def mentions_orientation(packet: bytes) -> bool:
    """Whether an H.264 or HEVC packet may carry a display-orientation message (SEI payload type 47).

    A cheap look, not a parse: a false alarm costs one decoded picture.
    """
    return any(nal_header in packet for nal_header in (b"\x06\x2f", b"\x4e\x01\x2f"))
