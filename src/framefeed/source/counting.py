"""A packet source that counts what is read from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from framefeed.source import PacketSource

__all__ = ["CountedSource"]


class CountedSource:
    """A source that counts the packets and bytes read from it."""

    def __init__(self, source: PacketSource) -> None:
        self._source = source
        self._packets = 0
        self._num_bytes = 0

    def take_counts(self) -> tuple[int, int]:
        """Returns and resets the number of packets and bytes."""
        counts = self._packets, self._num_bytes
        self._packets = self._num_bytes = 0
        return counts

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for packets in rising order."""
        for number, data in self._source.read(numbers):
            self._packets += 1
            self._num_bytes += len(data)
            yield number, data
