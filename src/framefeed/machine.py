"""What this process may use of the machine: memory and CPUs, as containers and batch systems bound them."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["Limits", "available_cpus", "physical_memory", "read_limits", "usable_memory"]


class Limits(NamedTuple):
    """What control groups (cgroups) allow this process.

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
