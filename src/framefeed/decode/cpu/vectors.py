"""Motion vectors that point out of the picture, which FFmpeg's decoders of MPEG-1 and MPEG-2 pass over without a word.

They leave out the prediction of such a macroblock and add what else is coded to whatever its memory holds. So its
pixels are written, and yet are not determined by the data. FFmpeg hands the vectors out with each picture.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from framefeed.media.ffmpeg import library
from framefeed.types import StreamInfo

__all__ = ["EXPORTED", "PictureHeader", "picture_header", "strays_of"]

EXPORTED = {"export_side_data": "mvs"}

_TYPE, _BYTES = 8, 40  # AV_FRAME_DATA_MOTION_VECTORS and the size of one
_TO_X, _TO_Y = 5, 6  # 16-bit numbers: the middle of the block that is predicted
_MOVE_X, _MOVE_Y = 6, 7  # 32-bit numbers, in halves of a pixel

_B, _FRAME = 3, 3


class _SideData(ctypes.Structure):
    """The beginning of FFmpeg's AVFrameSideData, unchanged since 2012 but for the type of ``size``."""

    _fields_ = [("type", ctypes.c_int), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class PictureHeader(NamedTuple):
    """The needed fields of a packet's first picture header."""

    is_reference: bool
    is_field: bool


def picture_header(packet: bytes | memoryview) -> PictureHeader:
    """The first picture header of a packet."""
    data = bytes(packet[:512])
    place = data.find(b"\0\0\1\0")
    coding_type = data[place + 5] >> 3 & 7 if 0 <= place < len(data) - 5 else 0
    extension = data.find(b"\0\0\1\xb5", place + 4)
    is_field = 0 <= extension < len(data) - 6 and data[extension + 4] >> 4 == 8 and data[extension + 6] & 3 != _FRAME
    return PictureHeader(coding_type != _B, is_field)


def strays_of(stream: StreamInfo) -> Callable[[Any, bool], bool] | None:
    """A function that says whether a picture, perhaps of two fields, has such vectors; None for other codecs."""
    if stream.codec not in ("mpeg1video", "mpeg2video"):
        return None
    util = library("libavutil")
    util.av_frame_get_side_data.restype = ctypes.c_void_p
    util.av_frame_get_side_data.argtypes = [ctypes.c_void_p, ctypes.c_int]
    get = util.av_frame_get_side_data
    rows = 16 if _is_progressive(stream) else 32
    place = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
    pointer, side_data = ctypes.c_void_p.from_address, _SideData.from_address

    def strays(frame: Any, has_fields: bool) -> bool:
        found = get(pointer(id(frame) + place).value, _TYPE)
        if not found:
            return False
        data = side_data(found)
        count = data.size // _BYTES
        if not count:
            return False
        memory: Any = (ctypes.c_uint8 * (count * _BYTES)).from_address(data.data)
        moves = np.frombuffer(memory, np.int32).reshape(count, _BYTES // 4)
        to = np.frombuffer(memory, np.int16).reshape(count, _BYTES // 2)
        # From where blocks are taken, in halves of a pixel. Those of one field have their middle in lines 4 and 12.
        x, y = moves[:, _MOVE_X] + 2 * to[:, _TO_X], moves[:, _MOVE_Y] + 2 * (to[:, _TO_Y] & -16)
        right, bottom = 2 * (-(-frame.width // 16) * 16 - 16), 2 * (-(-frame.height // rows) * rows - 16)
        slack = 32 if has_fields else 0  # vectors of field pictures are told as if they were of frames
        return bool(x.min() < 16 or x.max() > right + 16 or y.min() < -slack or y.max() > bottom + slack)

    return strays


def _is_progressive(stream: StreamInfo) -> bool:
    """Returns whether all pictures of a stream are frames; False if that is unknown."""
    if stream.codec == "mpeg1video":
        return True
    headers = stream.extradata.split(b"\0\0\1\xb5")[1:]
    return any(len(header) > 1 and header[0] >> 4 == 1 and header[1] & 8 for header in headers)
