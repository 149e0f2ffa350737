"""FFmpeg as PyAV has loaded it: its log and its shared libraries.

What matters of the log comes as an exception with the file's name; the rest, such as a remark on every damaged
macroblock, would drown the user's output. ``FRAMEFEED_FFMPEG_LOG=warning`` (or any other of FFmpeg's levels) brings it
back.
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
    """Turns the log of PyAV's FFmpeg down, once a process."""
    level = os.environ.get("FRAMEFEED_FFMPEG_LOG", "panic").upper()
    av.logging.set_libav_level(getattr(av.logging, level, av.logging.PANIC))


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """The library of that name, such as ``libswscale``, that PyAV uses: its wheel's own, or the system's.

    Raises:
        MissingBackend: It cannot be found.
    """
    path = _loaded_path(name)
    if path is None:
        raise MissingBackend("PyAV", f"its {name} cannot be found; install PyAV's own wheel: pip install av")
    return ctypes.CDLL(path)


def _loaded_path(name: str) -> str | None:
    """Other packages load other builds of FFmpeg into the same process, so the first one found may not be PyAV's."""
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
    """Bytes of a row that hold pixels: components of one plane lie side by side.

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
