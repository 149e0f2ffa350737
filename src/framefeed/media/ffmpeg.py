"""The FFmpeg that PyAV has loaded: its log level and its shared libraries.

Errors that matter become exceptions with the file's name. The rest of the log, such as a line for every damaged
macroblock, would flood the user's output; ``FRAMEFEED_FFMPEG_LOG=warning`` (or any other FFmpeg level) shows it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any

import av
import av.logging

from framefeed.errors import MissingBackend

__all__ = ["library", "quiet", "row_bytes"]


@functools.cache
def quiet() -> None:
    """Lowers the log level of PyAV's FFmpeg, once per process."""
    level = os.environ.get("FRAMEFEED_FFMPEG_LOG", "panic").upper()
    av.logging.set_libav_level(getattr(av.logging, level, av.logging.PANIC))


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Loads the shared library, such as ``libswscale``, that PyAV uses: from its wheel, or the system's.

    Raises:
        MissingBackend: The library cannot be found.
    """
    path = _loaded_path(name)
    if path is None:
        raise MissingBackend("PyAV", f"{name} cannot be found; install PyAV's own wheel: pip install av")
    return ctypes.CDLL(path)


def _loaded_path(name: str) -> str | None:
    """Returns the path of PyAV's library. Other packages load other builds of FFmpeg into the same process."""
    package = Path(av.__file__).parent
    for folder in (package.parent / "av.libs", package / ".dylibs"):
        for candidate in sorted(folder.glob(f"{name}[-.]*")):
            return str(candidate)
    major = av.library_versions[name][0]
    maps = Path("/proc/self/maps")
    for line in maps.read_text().splitlines() if maps.exists() else ():
        path = line.split(maxsplit=5)[-1]
        if f"/{name}.so.{major}" in path:
            return path
    return None


def row_bytes(pix_fmt: Any, plane: int) -> int:
    """Returns the bytes of a row that hold pixels; components of one plane are interleaved.

    Args:
        pix_fmt: A ``VideoFormat`` with a size.
        plane: Number of the plane; one without components is a palette.
    """
    components = [component for component in pix_fmt.components if component.plane == plane]
    if not components:
        return 4
    if len(components) == len(pix_fmt.components) and not pix_fmt.is_planar:
        bits = int(pix_fmt.padded_bits_per_pixel)
    else:
        bits = sum(8 if each.bits <= 8 else 16 if each.bits <= 16 else 32 for each in components)
    return -(-int(components[0].width) * bits // 8)
