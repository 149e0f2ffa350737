"""The engines that all decoders of a process share."""

from __future__ import annotations

import functools

from framefeed.decode.engine import Engine

__all__ = ["cpu_engine", "cuda_engine"]


@functools.cache
def cpu_engine() -> Engine:
    """The process-wide CPU engine: one bounded set of threads and codec contexts, whatever the number of videos."""
    from framefeed.decode.cpu import CpuFactory

    return Engine(CpuFactory())


@functools.cache
def cuda_engine(device: int) -> Engine:
    """The process-wide engine of a GPU: somewhat more decoders than it has units, so that none of these waits."""
    from framefeed.decode.nvdec import NvdecFactory, num_units

    units = num_units(device)
    return Engine(NvdecFactory(device), max_threads=units + (units + 1) // 2)
