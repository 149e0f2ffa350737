"""Pool of result memory.

The first write to fresh memory faults in page by page, which on virtual machines costs more than converting the
pictures. So a block returns to a pool when the last tensor that views it is gone.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque

import numpy as np
from numpy.typing import NDArray

from framefeed._util.limits import usable_memory
from framefeed._util.process.fork import in_forked_children

__all__ = ["BufferPool", "allocate"]

MAX_POOLED_BYTES = max(64 << 20, min(512 << 20, usable_memory() // 48))
SMALL = 1 << 16  # the C library's allocator is as fast for smaller sizes


class BufferPool:
    """A pool of unused blocks of bytes.

    Args:
        max_bytes: Maximum total size of unused blocks; the longest unused are freed first.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.reset()
        in_forked_children(self.reset)

    def reset(self) -> None:
        """Drops all unused blocks."""
        self._lock = threading.Lock()
        self._free: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()
        self._returned: deque[NDArray[np.uint8]] = deque()
        self.free_bytes = 0

    def allocate(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Returns an uninitialised byte array; its memory returns to the pool when it and all its views are gone."""
        size = int(np.prod(shape))
        if size < SMALL:
            return np.empty(shape, np.uint8)
        block = self._take(size)
        if block is None:
            block = np.empty(size, np.uint8)
        # The memoryview keeps NumPy from making views refer to the block instead of this array.
        array = np.frombuffer(memoryview(block.data)[:size], np.uint8).reshape(shape)
        owner = array.base if isinstance(array.base, np.ndarray) else array
        weakref.finalize(owner, self._give_back, block).atexit = False
        return array

    def _take(self, size: int) -> NDArray[np.uint8] | None:
        with self._lock:
            self._accept()
            for key in reversed(self._free):
                if size <= self._free[key].nbytes <= size + size // 4:
                    block = self._free.pop(key)
                    self.free_bytes -= block.nbytes
                    return block
        return None

    def _give_back(self, block: NDArray[np.uint8]) -> None:
        # The garbage collector calls this in any thread, even one that holds the lock.
        self._returned.append(block)
        if self._lock.acquire(blocking=False):  # otherwise the next caller does it
            try:
                self._accept()
            finally:
                self._lock.release()

    def _accept(self) -> None:
        while self._returned:
            block = self._returned.popleft()
            self._free[id(block)] = block
            self.free_bytes += block.nbytes
        while self.free_bytes > self._max_bytes:
            _, dropped = self._free.popitem(last=False)
            self.free_bytes -= dropped.nbytes


_POOL = BufferPool(MAX_POOLED_BYTES)
allocate = _POOL.allocate
