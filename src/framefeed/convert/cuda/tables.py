"""Sends small tables of numbers to a GPU."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from framefeed.cuda.driver import Event, copy_to_device

__all__ = ["TableRing", "on_stream"]


def on_stream(stream: torch.cuda.Stream | None, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Makes a stream current, because Triton launches on the current stream of the current device."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(stream) if stream is not None else torch.cuda.device(device)


class TableRing:
    """Sends tables of whole numbers to a device without waiting. Used by one thread at a time.

    Tables pass through pinned memory into a ring of blocks on the device; a block is overwritten only after the work
    queued behind its last use. Sending allocates nothing and makes few calls.

    Args:
        device: The device.
        stream: The stream of the copies, and the only one that may use the tables; None for the current one.
        widths: Numbers per row of each table.
        capacity: Rows per table.
        blocks: Number of sends in flight before one waits; even.
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
        """Returns the tables as int64 tensors on the device, with ``capacity`` rows, of which ``count`` are valid."""
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
