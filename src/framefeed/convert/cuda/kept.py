"""What lies on a device for many launches: made once, and given up in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import torch

__all__ = ["MAX_KEPT", "Kept"]

MAX_KEPT = 4096  # a table takes 512 bytes and more, and a random crop has one for each place


class _Held:
    """Something on a device that was made once.

    Attributes:
        value: What it is.
        tensors: What of it lies in the device's memory.
        streams: Those that have used it, by handle.
        is_dropped: Whether it is not found any more.
    """

    __slots__ = ("is_dropped", "streams", "tensors", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.tensors: tuple[torch.Tensor, ...] = (value,) if isinstance(value, torch.Tensor) else value.tables
        self.streams: dict[int, torch.cuda.Stream] = {}
        self.is_dropped = False

    def use(self, stream: torch.cuda.Stream) -> None:
        """Notes that a stream is about to use it."""
        if stream.cuda_stream not in self.streams or self.is_dropped:
            self.streams[stream.cuda_stream] = stream
            # In this order: whoever drops it at the same time either sees the stream, or is seen.
            if self.is_dropped:
                self._let_streams_finish()

    def drop(self) -> None:
        """Its memory goes back as soon as nobody has it any more, and those streams are done with it."""
        self.is_dropped = True
        self._let_streams_finish()

    def _let_streams_finish(self) -> None:
        for stream in list(self.streams.values()):
            for tensor in self.tensors:
                tensor.record_stream(stream)


class Kept:
    """Small things on devices that are made once. Where there are many, those that were made first go."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # what is made may need another one
        self._kept: dict[Hashable, _Held] = {}

    def get(self, key: Hashable, make: Callable[[], Any], stream: torch.cuda.Stream | None) -> Any:
        """What was made for the key.

        Args:
            key: Of the same kind for all that is the same.
            make: Makes it.
            stream: The stream that is about to use it; None where that is nobody's concern.
        """
        found = self._kept.get(key)
        if found is None:
            with self._lock:
                found = self._kept.get(key)
                if found is None:
                    while len(self._kept) >= MAX_KEPT:
                        self._kept.pop(next(iter(self._kept))).drop()
                    found = self._kept[key] = _Held(make())
        if stream is not None:
            found.use(stream)
        return found.value

    def __len__(self) -> int:
        return len(self._kept)
