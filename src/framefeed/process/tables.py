"""Small tables of numbers on their way to a GPU."""

from __future__ import annotations

import contextlib
import math
import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

__all__ = ["TableSender", "on_stream"]


def on_stream(stream: torch.cuda.Stream | None, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Where launches go: Triton takes the current stream of the current device."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(stream) if stream is not None else torch.cuda.device(device)


class TableSender:
    """Sends small tables of whole numbers to a device without waiting. May be used by several threads at once.

    Tables lie in pinned memory on their way. There is a ring of such blocks, and one is written to again only after
    what was last sent from it has arrived.

    Args:
        device: Where to send.
        blocks: How many sendings may be on their way; one more waits for the oldest.
    """

    def __init__(self, device: torch.device | str, blocks: int = 32) -> None:
        self._device = torch.device(device)
        self._lock = threading.Lock()
        self._blocks: list[_Block | None] = [None] * blocks
        self._next = 0

    def send(self, *tables: ArrayLike, stream: torch.cuda.Stream | None = None) -> tuple[torch.Tensor, ...]:
        """The tables as int64 tensors on the device, sent together.

        Args:
            tables: Whole numbers, or rows of them; arrays of int64 are the fastest.
            stream: The stream that they are sent on, and the only one that may use them; None for the current one.
        """
        arrays = [np.asarray(table, np.int64) for table in tables]
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        with on_stream(stream, self._device):
            sent = self._send(flat) if self._device.type == "cuda" else torch.from_numpy(flat)
        parts = torch.split(sent, [array.size for array in arrays])
        return tuple(part.view(array.shape) for part, array in zip(parts, arrays, strict=True))

    def _send(self, numbers: NDArray[np.int64]) -> torch.Tensor:
        target = torch.empty(len(numbers), dtype=torch.int64, device=self._device)
        with self._lock:
            block = self._blocks[self._next]
            if block is not None:
                block.sent.synchronize()
            if block is None or len(block.numbers) < len(numbers):
                block = self._blocks[self._next] = _Block(len(numbers))
            self._next = (self._next + 1) % len(self._blocks)
            block.numbers[: len(numbers)] = numbers
            target.copy_(block.memory[: len(numbers)], non_blocking=True)
            block.sent.record()
        return target


class _Block:
    """Pinned memory for that many numbers or a few more, and when it was last sent."""

    def __init__(self, size: int) -> None:
        self.memory = torch.empty(1 << math.ceil(math.log2(max(size, 256))), dtype=torch.int64, pin_memory=True)
        self.numbers = self.memory.numpy()
        self.sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
