"""Memory for frames that are kept, used again and never more than was agreed."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from framefeed.batch.videos import Intermediates
from framefeed.convert.desc import IntermediateSpec

__all__ = ["FrameStore"]

Shapes = tuple[tuple[IntermediateSpec, tuple[int, ...]], ...]


class FrameStore:
    """Arrays for frames. May be used by several threads at once.

    Arrays that come back are kept for the next frame of the same shape: memory that is touched for the first time
    costs more than writing a frame.

    Args:
        max_bytes: What all arrays, in use or not, may take together. Whoever asks sees to it that those in use do.

    Attributes:
        num_bytes: What they take now.
        peak_bytes: The most that they have taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._free: dict[Shapes, list[Intermediates]] = {}
        self._lock = threading.Lock()
        self.num_bytes = 0
        self.peak_bytes = 0

    def allocate(self, shapes: Mapping[IntermediateSpec, tuple[int, int, int]]) -> Intermediates:
        """Arrays for one frame, with whatever is in them."""
        key = tuple(shapes.items())
        size = sum(int(np.prod(shape)) for shape in shapes.values())
        with self._lock:
            free = self._free.get(key)
            if free:
                return free.pop()
            while self.num_bytes + size > self._max_bytes and self._drop_one():
                pass
            self.num_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        return {kind: np.empty(shape, np.uint8) for kind, shape in shapes.items()}

    def give_back(self, bases: Intermediates) -> None:
        """Takes arrays back that nobody looks at any more."""
        key = tuple((kind, array.shape) for kind, array in bases.items())
        with self._lock:
            self._free.setdefault(key, []).append(bases)

    def clear(self) -> None:
        """Frees all arrays that are not in use."""
        with self._lock:
            while self._drop_one():
                pass

    def _drop_one(self) -> bool:
        for key, free in self._free.items():
            if free:
                dropped: Mapping[IntermediateSpec, NDArray[np.uint8]] = free.pop()
                self.num_bytes -= sum(array.nbytes for array in dropped.values())
                return True
            del key
        return False
