"""Memory and CPUs that this process may use, as containers and batch systems limit them."""

from __future__ import annotations

import functools
import math
import operator
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

__all__ = [
    "Limits",
    "available_cpus",
    "budget_bytes",
    "parse_bytes",
    "physical_memory",
    "read_limits",
    "usable_memory",
]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


class Limits(NamedTuple):
    """Limits of this process by control groups (cgroups).

    Attributes:
        memory: Bytes; infinite without a limit.
        cpus: CPUs' worth of time; infinite without a limit.
    """

    memory: float = math.inf
    cpus: float = math.inf


def physical_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def usable_memory() -> int:
    """Bytes of memory that this process may use, together with others that share its limit.

    That is the machine's memory, or less in a container or a batch job: whoever takes more is killed.
    """
    return int(min(physical_memory(), _limits().memory))


def available_cpus() -> int:
    """CPUs that this process may use: those that it may run on, or fewer where its share of time is bounded.

    With more threads than that a container's share is used up early in each period, and all of them stand still.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        count = os.cpu_count() or 1
    return max(1, min(count, math.ceil(min(_limits().cpus, count))))


@functools.cache
def _limits() -> Limits:
    return read_limits()


def read_limits(root: Path = Path("/")) -> Limits:
    """Asks the control groups of this process, of both versions, and all groups that they lie in.

    Args:
        root: Where ``proc`` and ``sys`` are.
    """
    found = [Limits()]
    for group, is_unified in _groups(root):
        if is_unified:
            quota, period = _numbers(group / "cpu.max", 2)
            memory = min(*_numbers(group / "memory.max"), *_numbers(group / "memory.high"))
        else:
            (quota,), (period,) = _numbers(group / "cpu.cfs_quota_us"), _numbers(group / "cpu.cfs_period_us")
            (memory,) = _numbers(group / "memory.limit_in_bytes")
        found.append(Limits(memory, quota / period if math.isfinite(period) else math.inf))
    return Limits(min(one.memory for one in found), min(one.cpus for one in found))


def _groups(root: Path) -> Iterator[tuple[Path, bool]]:
    """The folders of this process's groups, each with those above it; whether they are of version 2."""
    own: dict[str, str] = {}  # by controller, "" for version 2
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    for line in _lines(root / "proc/self/mountinfo"):
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ")[:3]
        if kind == "cgroup2":
            wanted = [""]
        elif kind == "cgroup":
            wanted = [name for name in options.split(",") if name in ("memory", "cpu")]
        else:
            continue
        top, mounted = (_unescaped(field) for field in fields.split(" ")[3:5])
        for controller in wanted:
            yield from ((root / group, kind == "cgroup2") for group in _upwards(own.get(controller), top, mounted))


def _upwards(own: str | None, top: str, mounted: str) -> Iterator[str]:
    """Folders from a group up to what is mounted, relative to the root.

    Args:
        own: The group; None where there is none.
        top: The group that is mounted.
        mounted: Where.
    """
    if own is None:
        return
    # In a container, groups may be told as the host sees them, while only the container's own one is mounted.
    path = PurePosixPath(own)
    below = path.relative_to(top) if path.is_relative_to(top) else PurePosixPath()
    for folder in (below, *below.parents):
        yield str(PurePosixPath(mounted, folder)).lstrip("/")


def _numbers(file: Path, count: int = 1) -> tuple[float, ...]:
    """The numbers that a file begins with; infinite where there is none, or no limit."""
    words = next(_lines(file), "").split()
    numbers = tuple(float(word) if word.isdecimal() else math.inf for word in words[:count])
    return numbers + (math.inf,) * (count - len(numbers))


def _lines(file: Path) -> Iterator[str]:
    try:
        yield from file.read_text().splitlines()
    except OSError:  # not on Linux, or not for us
        return


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\134", "\\")


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
    """Returns the memory that cached frames may take.

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
