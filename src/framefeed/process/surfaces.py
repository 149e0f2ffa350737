"""Decoders' surfaces on their way to being converted, many at a time.

A surface is a decoder's own memory, which it writes to again when it is fed. So a wanted surface is copied aside, which
costs a GPU next to nothing, and conversions are launched for a chunk of them at once: Python's time for a launch would
otherwise limit the number of frames a second.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.errors import MissingBackend
from framefeed.process.cuda import Conversion, SurfaceFormat, convert
from framefeed.process.tables import TableSender

__all__ = ["CHUNK", "SurfaceQueue", "download", "queue_of", "surface_format"]

CHUNK = 16

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


@functools.cache
def _copy_on_device() -> Any:
    try:
        # Keeps Python's lock: the call returns at once, and getting the lock back could take a hundred times as long.
        driver = ctypes.PyDLL("libcuda.so.1")
    except OSError as error:
        raise MissingBackend("libcuda.so.1", f"the NVIDIA driver cannot be loaded: {error}") from error
    function = driver.cuMemcpyDtoDAsync_v2
    function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function


def download(surface: Any) -> NDArray[np.uint8]:
    """The bytes of a surface, in the CPU's memory; waits for its stream."""
    with torch.cuda.stream(surface.stream):
        size = surface.layout.num_bytes
        copy = torch.empty(size, dtype=torch.uint8, device=surface.stream.device)
        error = _copy_on_device()(copy.data_ptr(), surface.address, size, surface.stream.cuda_stream)
        if error:
            raise RuntimeError(f"copying a decoded picture failed with CUDA error {error}")
        return copy.cpu().numpy()


class SurfaceQueue:
    """Surfaces of one CUDA stream that wait to be converted. Used by one thread at a time.

    Everything is queued on that stream, in order: surfaces are copied before the decoder writes to them again, and
    copies are converted before others take their place.

    Args:
        stream: The stream of the decoder.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._device = stream.device
        self._sender = TableSender(self._device)
        self._memory: torch.Tensor | None = None
        self._slot_bytes = 0
        self._layout: Any = None
        self._count = 0
        self._copies: list[int] = []
        self._planes: list[tuple[int, ...]] = []
        self._work: dict[int, tuple[Conversion, list[tuple[int, ...]], list[int]]] = {}
        self._copy = _copy_on_device()
        self._handle = stream.cuda_stream

    def add(self, surface: Any, targets: Sequence[tuple[Conversion, int]]) -> None:
        """Copies a surface aside, to be converted.

        Args:
            surface: The surface.
            targets: What to make of it, and the address where each result goes.
        """
        layout = surface.layout
        if self._count == CHUNK or layout is not self._layout:
            self.flush()
            self._use(layout)
        copy = self._copies[self._count]
        error = self._copy(copy, surface.address, layout.num_bytes, self._handle)
        if error:
            raise RuntimeError(f"copying a decoded picture failed with CUDA error {error}")
        planes = self._planes[self._count]
        self._count += 1
        for conversion, target in targets:
            work = self._work.get(id(conversion))
            if work is None:
                work = self._work[id(conversion)] = (conversion, [], [])
            work[1].append(planes)
            work[2].append(target)

    def _use(self, layout: Any) -> None:
        """Lays the memory out for surfaces of that layout."""
        if layout is self._layout:
            return
        if layout.num_bytes > self._slot_bytes:
            self._slot_bytes = layout.num_bytes
            with torch.cuda.stream(self._stream):
                self._memory = torch.empty((CHUNK, self._slot_bytes), dtype=torch.uint8, device=self._device)
        assert self._memory is not None
        begin = self._memory.data_ptr()
        self._layout = layout
        self._copies = [begin + slot * self._slot_bytes for slot in range(CHUNK)]
        self._planes = [tuple(copy + offset if offset >= 0 else 0 for offset in layout.planes) for copy in self._copies]

    def flush(self) -> None:
        """Launches what has been added."""
        if not self._count:
            return
        pitch = self._layout.pitch
        for conversion, sources, targets in self._work.values():
            from_, to = self._sender.send(sources, targets, stream=self._stream)
            convert(conversion, from_, pitch, to, self._stream)
        self._work.clear()
        self._count = 0


_queues: dict[int, SurfaceQueue] = {}
_lock = threading.Lock()


def queue_of(stream: torch.cuda.Stream) -> SurfaceQueue:
    """The queue that belongs to a decoder's stream; there are as many as decoders."""
    with _lock:
        queue = _queues.get(stream.cuda_stream)
        if queue is None:
            queue = _queues[stream.cuda_stream] = SurfaceQueue(stream)
        return queue
