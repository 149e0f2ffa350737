"""NVIDIA's own parser: the few facts of a stream that decoders are created with."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

from framefeed.errors import MissingBackend

__all__ = ["Sequence", "parse_sequence"]

_CODECS = {"h264": 4, "hevc": 8, "vp8": 9, "vp9": 10}  # cudaVideoCodec
_END_OF_STREAM = 1


class Sequence(NamedTuple):
    """Parameters that a decoder is created with.

    Attributes:
        size: Width and height of what is coded, which is more than what is shown.
        surfaces: Pictures that it must be able to keep at least.
        progressive: Whether no picture is made of fields.
    """

    size: tuple[int, int]
    surfaces: int
    progressive: bool


class _Format(ctypes.Structure):
    """The beginning of CUVIDEOFORMAT."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("frame_rate", ctypes.c_uint * 2),
        ("progressive_sequence", ctypes.c_ubyte),
        ("bit_depth_luma_minus8", ctypes.c_ubyte),
        ("bit_depth_chroma_minus8", ctypes.c_ubyte),
        ("min_num_decode_surfaces", ctypes.c_ubyte),
        ("coded_width", ctypes.c_uint),
        ("coded_height", ctypes.c_uint),
    )


_OnSequence = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Format))
_OnPicture = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Parameters(ctypes.Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = (
        ("codec", ctypes.c_int),
        ("max_num_decode_surfaces", ctypes.c_uint),
        ("clock_rate", ctypes.c_uint),
        ("error_threshold", ctypes.c_uint),
        ("max_display_delay", ctypes.c_uint),
        ("flags", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 4),
        ("user_data", ctypes.c_void_p),
        ("on_sequence", _OnSequence),
        ("on_decode", _OnPicture),
        ("on_display", _OnPicture),
        ("more", ctypes.c_void_p * 8),
    )


class _Packet(ctypes.Structure):
    """CUVIDSOURCEDATAPACKET."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("payload_size", ctypes.c_ulong),
        ("payload", ctypes.c_char_p),
        ("timestamp", ctypes.c_longlong),
    )


@functools.cache
def _library() -> Any:
    try:
        return ctypes.CDLL("libnvcuvid.so.1")
    except OSError as error:
        raise MissingBackend("libnvcuvid.so.1", f"the NVIDIA driver's decoders cannot be loaded: {error}") from error


def parse_sequence(codec: str, content: bytes) -> Sequence | None:
    """Parses the first sequence in a byte stream; returns None if there is none.

    Args:
        codec: ``"h264"``, ``"hevc"``, ``"vp8"`` or ``"vp9"``.
        content: A picture; of the first two with start codes, and behind its parameter sets.
    """
    library = _library()
    found: list[Sequence] = []

    def on_sequence(_: Any, format_: Any) -> int:
        told = format_.contents
        size = (int(told.coded_width), int(told.coded_height))
        found.append(Sequence(size, int(told.min_num_decode_surfaces), bool(told.progressive_sequence)))
        return 1

    def on_picture(_: Any, __: Any) -> int:
        return 1

    parameters = _Parameters(
        codec=_CODECS[codec],
        max_num_decode_surfaces=32,
        error_threshold=100,  # none is an error
        on_sequence=_OnSequence(on_sequence),
        on_decode=_OnPicture(on_picture),
        on_display=_OnPicture(on_picture),
    )
    parser = ctypes.c_void_p()
    if library.cuvidCreateVideoParser(ctypes.byref(parser), ctypes.byref(parameters)):
        return None
    try:
        library.cuvidParseVideoData(parser, ctypes.byref(_Packet(_END_OF_STREAM, len(content), content, 0)))
    finally:
        library.cuvidDestroyVideoParser(parser)
    return found[0] if found else None
