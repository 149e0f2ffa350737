"""Converts decoders' surfaces, many at a time.

A surface is a decoder's own memory, which the decoder overwrites when it is fed again. All work on surfaces is queued
on the decoder's stream before that, for a whole run of pictures at once: Python's time per launch would otherwise limit
the frame rate.
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

__all__ = ["StreamContext", "context_of", "download", "surface_format"]

_FORMATS = {
    "NV12": SurfaceFormat.NV12,
    "P016": SurfaceFormat.P016,
    "YUV444": SurfaceFormat.YUV444,
    "YUV444_16Bit": SurfaceFormat.YUV444_16,
}


def surface_format(name: str) -> SurfaceFormat:
    """Returns the format with PyNvVideoCodec's name."""
    found = _FORMATS.get(name)
    if found is None:
        raise ValueError(f"surfaces of the format {name} cannot be converted; supported: {', '.join(_FORMATS)}")
    return found


def download(surface: Any) -> NDArray[np.uint8]:
    """Copies the bytes of a surface to the CPU; waits for its stream."""
    with torch.cuda.stream(surface.stream):
        size = surface.layout.num_bytes
        copy = torch.empty(size, dtype=torch.uint8, device=surface.stream.device)
        copy_on_device(copy.data_ptr(), surface.address, size, surface.stream.cuda_stream)
        return copy.cpu().numpy()


class StreamContext:
    """A CUDA stream with the tables and memory for launches on it. Used by one thread at a time.

    Attributes:
        stream: The stream.
        placing: Sends the tables of ``launch.finish``: addresses of intermediates and of frames, and placements.
        timeline: Moments that the stream has waited for.
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
        """Converts surfaces of one layout; each result goes to the corresponding address."""
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
        """Writes final values of surfaces of one layout, as ``launch.finish_pictures`` does."""
        pitch, most = surfaces[0].layout.pitch, self._finishing.capacity
        for low in range(0, len(surfaces), most):
            part = targets[low : low + most]
            sources, to, how = self._finishing.send(
                len(part), _planes(surfaces[low : low + most]), part, placements[low : low + most]
            )
            finish_pictures(conversion, bound, steps, sources, pitch, to, how, self.stream, len(part))

    def copy(self, surfaces: Sequence[Any], targets: Sequence[int], size: tuple[int, int]) -> None:
        """Copies surfaces of one layout unchanged to the corresponding addresses.

        Args:
            surfaces: The pictures.
            targets: Addresses of the copies, which have no padding.
            size: Lines of all planes together, and bytes of a line.
        """
        most = self._copying.capacity
        for low in range(0, len(surfaces), most):
            part = targets[low : low + most]
            begins = [surface.address for surface in surfaces[low : low + most]]
            sources, to = self._copying.send(len(part), begins, part)
            copy_pictures(sources, surfaces[0].layout.pitch, to, size, self.stream, len(part))

    def scratch(self, num_bytes: int) -> int:
        """Returns the address of scratch memory, valid until the next call."""
        if self._scratch is None or len(self._scratch) < num_bytes:
            with torch.cuda.stream(self.stream):
                self._scratch = torch.empty(num_bytes, dtype=torch.uint8, device=self.stream.device)
        return self._scratch.data_ptr()


def _planes(surfaces: Sequence[Any]) -> NDArray[np.int64]:
    """Returns the addresses of the planes of surfaces of one layout."""
    offsets = np.array([offset if offset >= 0 else 0 for offset in surfaces[0].layout.planes], np.int64)
    return np.array([surface.address for surface in surfaces], np.int64)[:, None] + offsets


_contexts: dict[int, StreamContext] = {}
_lock = threading.Lock()


def context_of(stream: torch.cuda.Stream) -> StreamContext:
    """Returns the context of a decoder's stream; there are as many as decoders."""
    handle = stream.cuda_stream
    context = _contexts.get(handle)
    if context is None:
        with _lock:
            context = _contexts.setdefault(handle, StreamContext(stream))
    return context
