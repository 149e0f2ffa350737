"""Decoders' surfaces -> what is wanted of them, many at a time.

A surface is a decoder's own memory, which it writes to again when it is fed. All work on it is queued on the decoder's
stream before that, for a whole run of pictures at once: Python's time for a launch would otherwise limit the number of
frames a second.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.convert.conversion import Conversion, SurfaceFormat
from framefeed.convert.cuda.launch import convert, copy_pictures, finish_pictures
from framefeed.convert.cuda.tables import TableRing
from framefeed.convert.desc import BoundDesc
from framefeed.cuda.driver import copy_on_device
from framefeed.cuda.timelines import Timeline

__all__ = ["Lane", "download", "lane_of", "surface_format"]

_FORMATS = {
    "NV12": SurfaceFormat.NV12,
    "P016": SurfaceFormat.P016,
    "YUV444": SurfaceFormat.YUV444,
    "YUV444_16Bit": SurfaceFormat.YUV444_16,
}


def surface_format(name: str) -> SurfaceFormat:
    """The format by PyNvVideoCodec's name."""
    found = _FORMATS.get(name)
    if found is None:
        raise ValueError(f"surfaces of the format {name} cannot be converted; possible: {', '.join(_FORMATS)}")
    return found


def download(surface: Any) -> NDArray[np.uint8]:
    """The bytes of a surface, in the CPU's memory; waits for its stream."""
    with torch.cuda.stream(surface.stream):
        size = surface.layout.num_bytes
        copy = torch.empty(size, dtype=torch.uint8, device=surface.stream.device)
        copy_on_device(copy.data_ptr(), surface.address, size, surface.stream.cuda_stream)
        return copy.cpu().numpy()


class Lane:
    """A CUDA stream with what is needed to launch on it. Used by one thread at a time.

    Attributes:
        stream: The stream.
        placing: Sends what ``process.cuda.finish`` needs: addresses of bases and of frames, and placements.
        timeline: What it has waited for.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.stream = stream
        self.placing = TableRing(stream.device, stream, (1, 1, 3))
        self._converting = TableRing(stream.device, stream, (3, 1))
        self._finishing = TableRing(stream.device, stream, (3, 1, 3))
        self._copying = TableRing(stream.device, stream, (1, 1))
        self._scratch: torch.Tensor | None = None
        self.timeline = Timeline(int(stream.cuda_stream))

    def convert(self, conversion: Conversion, surfaces: Sequence[Any], targets: Sequence[int]) -> None:
        """Converts surfaces of one layout; each result goes to the address beside it."""
        pitch, most = surfaces[0].layout.pitch, self._converting.capacity
        for low in range(0, len(surfaces), most):
            part = targets[low : low + most]
            sources, to = self._converting.send(len(part), _planes(surfaces[low : low + most]), part)
            convert(conversion, sources, pitch, to, self.stream, len(part))

    def finish(
        self,
        conversion: Conversion,
        bound: BoundDesc,
        steps: tuple[int, int, int],
        surfaces: Sequence[Any],
        targets: Sequence[int],
        placements: Sequence[tuple[int, int, int]],
    ) -> None:
        """Makes final values of surfaces of one layout, as ``process.cuda.finish_pictures`` does."""
        pitch, most = surfaces[0].layout.pitch, self._finishing.capacity
        for low in range(0, len(surfaces), most):
            part = targets[low : low + most]
            sources, to, how = self._finishing.send(
                len(part), _planes(surfaces[low : low + most]), part, placements[low : low + most]
            )
            finish_pictures(conversion, bound, steps, sources, pitch, to, how, self.stream, len(part))

    def copy(self, surfaces: Sequence[Any], targets: Sequence[int], size: tuple[int, int]) -> None:
        """Copies surfaces of one layout as they are, to the addresses beside them.

        Args:
            surfaces: The pictures.
            targets: Where they go, without what lies between lines.
            size: Lines of all planes, and bytes of a line.
        """
        most = self._copying.capacity
        for low in range(0, len(surfaces), most):
            part = targets[low : low + most]
            begins = [surface.address for surface in surfaces[low : low + most]]
            sources, to = self._copying.send(len(part), begins, part)
            copy_pictures(sources, surfaces[0].layout.pitch, to, size, self.stream, len(part))

    def scratch(self, num_bytes: int) -> int:
        """The address of memory that may be used until this is called again."""
        if self._scratch is None or len(self._scratch) < num_bytes:
            with torch.cuda.stream(self.stream):
                self._scratch = torch.empty(num_bytes, dtype=torch.uint8, device=self.stream.device)
        return self._scratch.data_ptr()


def _planes(surfaces: Sequence[Any]) -> NDArray[np.int64]:
    """Where the planes of surfaces of one layout begin."""
    offsets = np.array([offset if offset >= 0 else 0 for offset in surfaces[0].layout.planes], np.int64)
    return np.array([surface.address for surface in surfaces], np.int64)[:, None] + offsets


_lanes: dict[int, Lane] = {}
_lock = threading.Lock()


def lane_of(stream: torch.cuda.Stream) -> Lane:
    """The lane that belongs to a decoder's stream; there are as many as decoders."""
    handle = stream.cuda_stream
    lane = _lanes.get(handle)
    if lane is None:
        with _lock:
            lane = _lanes.setdefault(handle, Lane(stream))
    return lane
