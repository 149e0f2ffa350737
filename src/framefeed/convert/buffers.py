"""Memory for results, used again once nobody holds it.

A fresh batch of pictures is touched for the first time page by page, and on virtual machines that costs more than
converting the pictures. So a block goes back to a pool when the last tensor that looks at it is gone.
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
SMALL = 1 << 16  # the C library's own lists are as good for less than this


class BufferPool:
    """Blocks of bytes that have been given back.

    Args:
        max_bytes: What the unused blocks may hold together; the longest unused go first.
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
        """An uninitialised array of bytes; its memory returns to the pool when it and all its views are gone."""
        size = int(np.prod(shape))
        if size < SMALL:
            return np.empty(shape, np.uint8)
        block = self._take(size)
        if block is None:
            block = np.empty(size, np.uint8)
        # A memoryview in between: NumPy would otherwise make every view refer to the block itself, not to this one.
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
        # By the garbage collector, too: in any thread, even one that has the lock.
        self._returned.append(block)
        if self._lock.acquire(blocking=False):  # otherwise whoever comes next sees to it
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
