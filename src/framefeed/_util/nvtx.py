"""Ranges that NVIDIA's Nsight Systems shows: what each thread does, and for how long.

Record them with ``nsys profile --trace=nvtx,cuda,osrt python train.py``. Without a profiler they cost next to nothing,
and without CUDA in torch nothing at all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["ASSEMBLE", "DECODE", "PLAN", "PROCESS", "READ", "Mark"]


class Mark:
    """A range by name, as a context manager that may be entered by several threads at once.

    Args:
        name: As it is shown.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if (functions := _found or _functions()) is not NOTHING:
            functions[0](self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (functions := _found or _functions()) is not NOTHING:
            functions[1]()


Functions = tuple[Callable[[str], Any], Callable[[], Any]]
NOTHING: Functions = (lambda name: None, lambda: None)
_found: Functions | None = None


def _functions() -> Functions:
    """Returns the functions that begin and end a range; loads no torch, which some processes do without."""
    global _found
    if _found is None:
        if "torch" not in sys.modules:
            return NOTHING
        import torch

        has_cuda = torch.version.cuda is not None
        _found = (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) if has_cuda else NOTHING
    return _found


PLAN = Mark("framefeed.plan")
READ = Mark("framefeed.read")
DECODE = Mark("framefeed.decode")
PROCESS = Mark("framefeed.process")
ASSEMBLE = Mark("framefeed.assemble")
