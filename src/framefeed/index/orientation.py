"""Display matrices: rotation and mirroring of a picture for display."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.shown_size import units_before_pictures
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
    """Returns the orientation of a 3x3 display matrix (row by row, 16.16 fixed point).

    Angles are rounded to quarter turns. A singular matrix is ignored.
    """
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    sign = a * d - b * c
    if sign == 0:
        return Orientation()
    # The stronger axis decides the quarter turn, the determinant's sign the mirroring.
    x_axis = (1 if a > 0 else -1, 0) if abs(a) >= abs(b) else (0, 1 if b > 0 else -1)
    y_axis = (-x_axis[1], x_axis[0]) if sign > 0 else (x_axis[1], -x_axis[0])
    return _TURNS[(*x_axis, *y_axis)]


def from_frame(frame: Any) -> Orientation:
    """Returns the orientation in a decoded frame's side data."""
    data = frame.side_data.get("DISPLAYMATRIX")
    if data is None or len(bytes(data)) < 36:
        return Orientation()
    return from_matrix(struct.unpack("=9i", bytes(data)[:36]))


def first_packet_turns(codec: str, extradata: bytes, head: bytes) -> bool:
    """Returns whether the stream itself, not its container, may rotate pictures."""
    place = {"h264": 4, "hevc": 21}.get(codec)
    if place is None or len(extradata) <= place or extradata[0] != 1:
        return False
    return _mentions_orientation(head, codec, (extradata[place] & 3) + 1)


def _mentions_orientation(packet: bytes, codec: str, length_size: int) -> bool:
    """Returns whether an H.264 or HEVC packet begins with a display-orientation message (SEI payload type 47).

    Args:
        packet: The first bytes of the packet, with NAL units behind their lengths as in MP4.
        codec: ``h264`` or ``hevc``.
        length_size: Bytes of each length.
    """
    kind, header = (6, 1) if codec == "h264" else (39, 2)
    with suppress(OutOfData):
        for unit in units_before_pictures(codec, packet, length_size):
            here = unit[0] & 31 if codec == "h264" else unit[0] >> 1 & 63
            if here == kind and 47 in _messages(unit[header:]):
                return True
    return False


def _messages(sei: bytes) -> list[int]:
    """Yields payload types of an SEI unit, without unescaping: escapes do not occur in types and short sizes."""
    kinds = []
    at = 0
    while at + 2 < len(sei):
        values = []
        for _ in range(2):
            value = 0
            while at < len(sei) and sei[at] == 255:
                value += 255
                at += 1
            value += sei[at] if at < len(sei) else 0
            at += 1
            values.append(value)
        kinds.append(values[0])
        at += values[1]
    return kinds
