"""Small tables of numbers on their way to a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from framefeed.cuda.driver import Event, copy_to_device

__all__ = ["TableRing", "on_stream"]


def on_stream(stream: torch.cuda.Stream | None, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Where launches go: Triton takes the current stream of the current device."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(stream) if stream is not None else torch.cuda.device(device)


class TableRing:
    """Sends tables of whole numbers to a device without waiting. Used by one thread at a time.

    Tables lie in pinned memory on their way, and in a ring of places on the device: one is written to again only after
    what was queued behind it on the stream. Nothing is allocated, and hardly anything is called, for a sending.

    Args:
        device: Where to send.
        stream: The stream that they are sent on, and the only one that may use them; None for the current one.
        widths: How many numbers a row of each table has.
        capacity: Rows that a table can have.
        blocks: How many sendings may be on their way before one waits; an even number.
    """

    def __init__(
        self,
        device: torch.device,
        stream: torch.cuda.Stream | None,
        widths: tuple[int, ...],
        capacity: int = 128,
        blocks: int = 32,
    ) -> None:
        self._stream = stream
        self.capacity = capacity
        self._num_blocks = blocks
        self._next = 0
        on_gpu = device.type == "cuda"
        size = capacity * sum(widths)
        with on_stream(stream, device):
            self._there = torch.empty((blocks, size), dtype=torch.int64, device=device)
        self._here = torch.empty((blocks, size), dtype=torch.int64, pin_memory=True) if on_gpu else self._there
        self._on_gpu = on_gpu
        self._sent: list[Event | None] = [None, None]
        begins = [capacity * sum(widths[:place]) for place in range(len(widths))]
        shapes = [(capacity,) if width == 1 else (capacity, width) for width in widths]
        places = list(zip(begins, widths, shapes, strict=True))
        numbers = self._here.numpy()
        self._tables: list[list[NDArray[np.int64]]] = [
            [numbers[block, begin : begin + capacity * width].reshape(shape) for begin, width, shape in places]
            for block in range(blocks)
        ]
        self._views = [
            tuple(self._there[block, begin : begin + capacity * width].view(shape) for begin, width, shape in places)
            for block in range(blocks)
        ]
        self._from = [self._here[block].data_ptr() for block in range(blocks)]
        self._to = [self._there[block].data_ptr() for block in range(blocks)]
        self._num_bytes = 8 * size

    def send(self, count: int, *tables: ArrayLike) -> tuple[torch.Tensor, ...]:
        """The tables as int64 tensors on the device, each with ``capacity`` rows, of which ``count`` mean something."""
        if count > self.capacity:
            raise ValueError(f"{count} rows do not fit into {self.capacity}")
        block = self._next
        self._next = (block + 1) % self._num_blocks
        half, place = divmod(block, self._num_blocks // 2)
        sent = self._sent[half]
        if sent is not None and place == 0:
            sent.synchronize()
        for target, table in zip(self._tables[block], tables, strict=True):
            target[:count] = table
        if self._on_gpu:
            handle = (self._stream if self._stream is not None else torch.cuda.current_stream()).cuda_stream
            copy_to_device(self._to[block], self._from[block], self._num_bytes, handle)
            if place + 1 == self._num_blocks // 2:
                self._sent[half] = Event(handle)
        return self._views[block]
