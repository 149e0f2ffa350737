"""Workarounds for encoders: deterministic x264 output, and restoring SVT-AV1's thread priority."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator

__all__ = ["exact_x264", "usual_priority"]

_CPU = "/proc/cpuinfo"
_TASKS = "/proc/self/task"


@functools.cache
def exact_x264() -> str:
    """A parameter of x264 that makes it write the same bytes again; empty where none is needed.

    With AVX-512 it looks behind the end of a row of macroblocks, most often where pictures are narrow, and bytes differ
    from run to run. It is no slower without.
    """
    return "asm=AVX2" if _has_avx512() else ""


def _has_avx512() -> bool:
    """Asks the system where it tells: loading torch takes seconds, and who only encodes does not need it."""
    try:
        with open(_CPU, encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        import torch

        return bool(torch.backends.cpu.get_cpu_capability() == "AVX512")
    return "avx512f" in flags.split()


@contextlib.contextmanager
def usual_priority() -> Iterator[None]:
    """Threads that are begun meanwhile, and this one, have the priority afterwards that this one has now.

    SVT-AV1 asks for the highest of all where it may, as root for instance. Its caller keeps it, threads inherit it, and
    other processes of the machine hardly get on any more.
    """
    if not hasattr(os, "sched_getscheduler") or not os.path.isdir(_TASKS):
        yield
        return
    policy, parameters, before = os.sched_getscheduler(0), os.sched_getparam(0), set(os.listdir(_TASKS))
    try:
        yield
    finally:
        for task in {*map(int, set(os.listdir(_TASKS)) - before), threading.get_native_id()}:
            with contextlib.suppress(OSError):  # it may be over
                if os.sched_getscheduler(task) != policy:
                    os.sched_setscheduler(task, policy, parameters)
