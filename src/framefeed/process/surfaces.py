"""Decoders' surfaces on their way to being converted, many at a time.

A surface is a decoder's own memory, which it writes to again when it is fed. So a wanted surface is copied aside, which
costs a GPU next to nothing, and conversions are launched for a chunk of them at once: Python's time for a launch would
otherwise limit the number of frames a second.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.errors import MissingBackend
from framefeed.process.cuda import Conversion, SurfaceFormat, TableSender, convert

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
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise MissingBackend("libcuda.so.1", f"the NVIDIA driver cannot be loaded: {error}") from error
    function = driver.cuMemcpyDtoDAsync_v2
    function.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function


def download(surface: Any) -> NDArray[np.uint8]:
    """The bytes of a surface, in the CPU's memory; waits for its stream."""
    with torch.cuda.stream(surface.stream):
        copy = torch.empty(surface.num_bytes, dtype=torch.uint8, device=surface.stream.device)
        error = _copy_on_device()(copy.data_ptr(), surface.planes[0], surface.num_bytes, surface.stream.cuda_stream)
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
        self._work: dict[Conversion, tuple[list[tuple[int, int, int]], list[int]]] = {}

    def add(self, surface: Any, targets: Sequence[tuple[Conversion, int]]) -> None:
        """Copies a surface aside, to be converted.

        Args:
            surface: The surface.
            targets: What to make of it, and the address where each result goes.
        """
        layout = (surface.num_bytes, surface.pitch, surface.format)
        if self._count == CHUNK or layout != self._layout:
            self.flush()
        if surface.num_bytes > self._slot_bytes:
            self._slot_bytes = surface.num_bytes
            with torch.cuda.stream(self._stream):
                self._memory = torch.empty((CHUNK, self._slot_bytes), dtype=torch.uint8, device=self._device)
        assert self._memory is not None
        self._layout = layout
        copy = self._memory.data_ptr() + self._count * self._slot_bytes
        luma = surface.planes[0]
        error = _copy_on_device()(copy, luma, surface.num_bytes, self._stream.cuda_stream)
        if error:
            raise RuntimeError(f"copying a decoded picture failed with CUDA error {error}")
        planes = tuple(plane - luma + copy if plane else 0 for plane in surface.planes)
        self._count += 1
        for conversion, target in targets:
            sources, addresses = self._work.setdefault(conversion, ([], []))
            sources.append(planes)  # type: ignore[arg-type]  # three of them
            addresses.append(target)

    def flush(self) -> None:
        """Launches what has been added."""
        if not self._count:
            return
        pitch = self._layout[1]
        for conversion, (sources, targets) in self._work.items():
            from_, to = self._sender.send(sources, targets, stream=self._stream)
            convert(conversion, from_, pitch, to, self._stream)
        self._work.clear()
        self._count = 0


_queues: weakref.WeakKeyDictionary[Any, SurfaceQueue] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def queue_of(stream: torch.cuda.Stream) -> SurfaceQueue:
    """The queue that belongs to a decoder's stream."""
    with _lock:
        queue = _queues.get(stream)
        if queue is None:
            queue = _queues[stream] = SurfaceQueue(stream)
        return queue
