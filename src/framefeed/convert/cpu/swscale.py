"""Bindings of libswscale that convert directly into our memory.

PyAV's reformatter returns a new frame each time: a large allocation and a copy for every picture, which cost several
times as much as the conversion (docs/decisions/0003). The library is the one that PyAV has loaded; only functions that
have been public for ten years and more are used.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import OrderedDict
from typing import Any

__all__ = ["ACCURATE", "BICUBIC", "BILINEAR", "POINT", "Scaler", "scaler_for"]

BILINEAR = 0x2
BICUBIC = 0x4
POINT = 0x10
ACCURATE = 0x40000

_Pointers = ctypes.c_void_p * 4
_Strides = ctypes.c_int * 4


@functools.cache
def _library() -> Any:
    import av.video.reformatter  # noqa: F401  # loads libswscale and libavutil

    from framefeed.media.ffmpeg import library, quiet

    quiet()
    swscale, avutil = library("libswscale"), library("libavutil")
    swscale.sws_getContext.restype = ctypes.c_void_p
    swscale.sws_getContext.argtypes = [ctypes.c_int] * 7 + [ctypes.c_void_p] * 3
    swscale.sws_freeContext.argtypes = [ctypes.c_void_p]
    swscale.sws_scale.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 2 + [ctypes.c_void_p] * 2
    swscale.sws_getCoefficients.restype = ctypes.c_void_p
    swscale.sws_setColorspaceDetails.argtypes = (
        [ctypes.c_void_p] * 2 + [ctypes.c_int] + [ctypes.c_void_p] + [ctypes.c_int] * 4
    )
    avutil.av_get_pix_fmt.argtypes = [ctypes.c_char_p]
    return swscale, avutil.av_get_pix_fmt


@functools.cache
def _pix_fmt(name: str) -> int:
    return int(_library()[1](name.encode()))


class Scaler:
    """Converts pictures from one format and size to another. Used by one thread at a time.

    Args:
        source: (width, height, FFmpeg pixel format) of the pictures.
        target: (width, height, FFmpeg pixel format) of the result.
        matrix: Matrix coefficients by ISO number (1 is BT.709, 9 is BT.2020; BT.601 for 2, unspecified).
        full_range: Whether the source uses the full range of values.
        flags: libswscale's flags for the filter and the accuracy.
    """

    def __init__(
        self,
        source: tuple[int, int, str],
        target: tuple[int, int, str],
        matrix: int,
        full_range: bool,
        flags: int,
        target_full_range: bool = True,
    ) -> None:
        library = _library()[0]
        self._scale = library.sws_scale
        self._free = library.sws_freeContext
        self._height = source[1]
        self._context = library.sws_getContext(
            source[0],
            source[1],
            _pix_fmt(source[2]),
            target[0],
            target[1],
            _pix_fmt(target[2]),
            flags,
            None,
            None,
            None,
        )
        if not self._context:
            raise ValueError(f"cannot convert {source} to {target}")
        coefficients = library.sws_getCoefficients(matrix)
        one = 1 << 16
        library.sws_setColorspaceDetails(
            self._context, coefficients, int(full_range), coefficients, int(target_full_range), 0, one, one
        )

    def __call__(
        self, pointers: tuple[int, ...], strides: tuple[int, ...], to: tuple[int, ...], to_strides: tuple[int, ...]
    ) -> None:
        """Converts one picture; arguments are addresses and bytes per line of up to four planes."""
        self._scale(
            self._context,
            _Pointers(*pointers),
            _Strides(*strides),
            0,
            self._height,
            _Pointers(*to),
            _Strides(*to_strides),
        )

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._free(self._context)


class _Scalers(threading.local):
    """Scalers of one thread."""

    LIMIT = 16  # making a scaler takes about as long as converting a picture

    def __init__(self) -> None:
        self.by_key: OrderedDict[tuple[Any, ...], Scaler] = OrderedDict()


_SCALERS = _Scalers()


def scaler_for(*key: Any) -> Scaler:
    """Returns this thread's scaler for these arguments."""
    scalers = _SCALERS.by_key
    scaler = scalers.get(key)
    if scaler is None:
        scaler = scalers[key] = Scaler(*key)
        if len(scalers) > _Scalers.LIMIT:
            scalers.popitem(last=False)
    else:
        scalers.move_to_end(key)
    return scaler
