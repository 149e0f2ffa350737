"""The engine that all decoders of a process share."""

from __future__ import annotations

import functools

from framefeed.decode.engine import Engine

__all__ = ["cpu_engine"]


@functools.cache
def cpu_engine() -> Engine:
    """The process-wide CPU engine: one bounded set of threads and codec contexts, whatever the number of videos."""
    from framefeed.decode.cpu import CpuFactory

    return Engine(CpuFactory())
