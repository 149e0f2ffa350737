"""Bounded cache of device-side lookup tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch

__all__ = ["MAX_TABLES", "DeviceTableCache"]

MAX_TABLES = 4096  # a table takes 512 bytes and more, and random crops have one table per position


class _Entry:
    """An entry of the cache.

    Attributes:
        value: The value.
        tensors: Its tensors in device memory.
        streams: Streams that have used it, by handle.
        is_dropped: Whether it was removed from the cache.
    """

    __slots__ = ("is_dropped", "streams", "tensors", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.tensors: tuple[torch.Tensor, ...] = (value,) if isinstance(value, torch.Tensor) else value.tables
        self.streams: dict[int, torch.cuda.Stream] = {}
        self.is_dropped = False

    def use(self, stream: torch.cuda.Stream) -> None:
        """Records a stream that is about to use the entry."""
        if stream.cuda_stream not in self.streams or self.is_dropped:
            self.streams[stream.cuda_stream] = stream
            # This order matters: a concurrent drop either sees the stream, or this call sees the drop.
            if self.is_dropped:
                self._let_streams_finish()

    def drop(self) -> None:
        """Frees the memory once it is unreferenced and those streams are done with it."""
        self.is_dropped = True
        self._let_streams_finish()

    def _let_streams_finish(self) -> None:
        for stream in list(self.streams.values()):
            for tensor in self.tensors:
                tensor.record_stream(stream)


class DeviceTableCache:
    """Cache of small tables on devices; drops the oldest beyond its capacity."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # making one may need another one
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, make: Callable[[], Any], stream: torch.cuda.Stream | None) -> Any:
        """Returns the value of a key; makes it if necessary.

        Args:
            key: Equal for equal values.
            make: Makes the value.
            stream: The stream that is about to use the value; None if no stream does.
        """
        found = self._entries.get(key)
        if found is None:
            with self._lock:
                found = self._entries.get(key)
                if found is None:
                    while len(self._entries) >= MAX_TABLES:
                        self._entries.pop(next(iter(self._entries))).drop()
                    found = self._entries[key] = _Entry(make())
        if stream is not None:
            found.use(stream)
        return found.value

    def __len__(self) -> int:
        return len(self._entries)
