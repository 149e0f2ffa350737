"""Checksums that a codec carries and FFmpeg does not act upon.

FFmpeg checks those of PNG and of HEVC pictures itself when it is told to. Of FFV1 it checks them, too, but then copies
the slice from the picture before, without a word.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from framefeed.media.ffmpeg import library
from framefeed.types import StreamInfo

__all__ = ["checksum_of"]

_IEEE = 3  # AV_CRC_32_IEEE: bits in the order of FFV1, which is not zlib's
_STARTS = (0, 0x7A8C4079)  # what the register of FFV1's versions begins, and has to end with

_SIZE, _ERROR_CHECK = 3, 5  # bytes behind a slice: its size, and an error status with the checksum


def checksum_of(stream: StreamInfo) -> Callable[[bytes | memoryview], str | None] | None:
    """A function that says what is wrong with a packet by its checksums; None for streams without them."""
    if stream.codec != "ffv1" or not stream.extradata or _crc(stream.extradata, 0):
        return None  # versions before 3 have neither a checksum in the headers nor slices that say their size
    return _check_ffv1


def _check_ffv1(data: bytes | memoryview) -> str | None:
    packet = bytes(data)
    slices = _slices(packet, _SIZE + _ERROR_CHECK)
    if slices is None:
        return None if _slices(packet, _SIZE) else "the sizes of its slices do not fit"
    if any(all(_crc(part, start) != start for start in _STARTS) for part in slices):
        return "a slice does not match its checksum"
    return None


def _slices(packet: bytes, trailer: int) -> list[bytes] | None:
    """The slices of an FFV1 packet, found from its end; None where their sizes do not add up."""
    slices, end = [], len(packet)
    while end:
        begin = end - trailer - int.from_bytes(packet[end - trailer : end - trailer + _SIZE], "big")
        if end < trailer or begin < 0:
            return None
        slices.append(packet[begin:end])
        end = begin
    return slices


def _crc(data: bytes, start: int) -> int:
    util = library("libavutil")
    util.av_crc.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t]
    util.av_crc.restype = ctypes.c_uint32
    util.av_crc_get_table.restype = ctypes.c_void_p
    found: int = util.av_crc(util.av_crc_get_table(_IEEE), start, data, len(data))
    return found
