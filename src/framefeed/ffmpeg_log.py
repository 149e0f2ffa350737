"""FFmpeg's own log, which goes to standard error past Python.

What matters of it comes as an exception with the file's name; the rest, such as a remark on every damaged macroblock,
would drown the user's output. ``FRAMEFEED_FFMPEG_LOG=warning`` (or any other of FFmpeg's levels) brings it back.
"""

from __future__ import annotations

import functools
import os

import av.logging

__all__ = ["quiet"]


@functools.cache
def quiet() -> None:
    """Turns the log of PyAV's FFmpeg down, once a process."""
    level = os.environ.get("FRAMEFEED_FFMPEG_LOG", "panic").upper()
    av.logging.set_libav_level(getattr(av.logging, level, av.logging.PANIC))
