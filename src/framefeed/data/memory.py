"""How much memory frames that are kept may take."""

from __future__ import annotations

import operator
import os
import re
from typing import TYPE_CHECKING

from framefeed.machine import usable_memory

if TYPE_CHECKING:
    import torch

__all__ = ["budget_bytes", "parse_bytes"]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(amount: int | str) -> int:
    """Bytes from a number, or from a text such as ``"512MB"`` or ``"8GiB"``."""
    if isinstance(amount, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", amount, re.IGNORECASE)
        if match is None:
            raise ValueError(f'{amount!r} is no amount of memory; possible: 1000000, "512MB", "8GiB"')
        return int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    number = operator.index(amount)
    if number < 0:
        raise ValueError(f"memory_budget is at least 0, got {amount}")
    return number


def budget_bytes(amount: int | str | None, device: torch.device, share: int) -> int:
    """What frames may take that are kept.

    Where nobody says it, on the CPU that is a part of what this process may use, shared by the ranks of a job on this
    machine. A GPU is mostly one rank's own, but a model may be there already, or another process: there it is never
    more than half of what is free.

    Args:
        amount: What was said; None where nothing was.
        device: Where they are kept.
        share: Which part of the memory it is by default: 4 for a quarter.
    """
    if amount is not None:
        return parse_bytes(amount)
    if device.type != "cuda":
        ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return usable_memory() // share // max(1, ranks_here)
    import torch

    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # by torch, and ours to take
    return min(total // share, (free + unused) // 2)
