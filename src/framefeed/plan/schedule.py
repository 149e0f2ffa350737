"""Threads of each job, and numbers of frames that are worth reading at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["choose_wide_jobs", "choose_window", "wide_threads"]

# Decoding one group with several threads wastes some of them: frames wait for each other. Independent groups do not.
FRAME_THREADING_EFFICIENCY = 0.72  # measured on two cores, docs/decisions/0005

# Below this, starting and ending a threaded decoder costs more than it saves.
MIN_WIDE_COST = 12


def wide_threads(codec: str, num_threads: int) -> int:
    """Threads for a decoder that has the machine to itself.

    FFmpeg's H.264 frame threads wait for each other more: one more than cores gave 5 % on two cores. HEVC lost 5 %.
    """
    return num_threads + 1 if codec == "h264" and num_threads > 1 else num_threads


def choose_wide_jobs(costs: Sequence[int], num_threads: int) -> int:
    """Returns how many of the costliest jobs run one after the other, each with all threads.

    The rest run side by side with one thread each. Wide jobs pay where one job is longer than its share: a single long
    group, or a long one beside a few short ones.

    Args:
        costs: Packets of each job, falling.
        num_threads: Threads there are.
    """
    return _schedule(costs, num_threads)[0]


def choose_window(groups: NDArray[np.int64], stops: Sequence[int], num_threads: int) -> int:
    """Returns how far to read so that the threads are kept busy evenly.

    Args:
        groups: For each frame from where reading starts on, the group that it decodes from.
        stops: Numbers of frames to choose from, rising, each at most ``len(groups)``.
        num_threads: Threads there are.
    """
    best, best_time = stops[-1], float("inf")
    for stop in stops:
        # What is left is read in the next window: a good beginning with a poor end is no good choice.
        time = sum(_schedule(_sizes(part), num_threads)[1] for part in (groups[:stop], groups[stop:]))
        if time < best_time * 0.95:  # where it makes little difference, the nearer one: memory is not free either
            best, best_time = stop, time
    return best


def _sizes(groups: NDArray[np.int64]) -> list[int]:
    """Returns the number of frames of each group, falling."""
    return sorted(np.unique(groups, return_counts=True)[1].tolist(), reverse=True)


def _schedule(costs: Sequence[int], num_threads: int) -> tuple[int, float]:
    """The number of wide jobs that ends soonest, and when that is."""
    best, best_time = 0, _makespan(costs, num_threads)
    wide_time = 0.0
    for count, cost in enumerate(costs[:num_threads] if num_threads > 1 else (), start=1):
        if cost < MIN_WIDE_COST:
            break
        wide_time += cost / (num_threads * FRAME_THREADING_EFFICIENCY)
        total = wide_time + _makespan(costs[count:], num_threads)
        if total < best_time * 0.97:  # a tie goes to the simpler side
            best, best_time = count, total
    return best, best_time


def _makespan(costs: Sequence[int], num_threads: int) -> float:
    """When the last job ends, if there is one more worker than threads: the system shares them out evenly."""
    return max(max(costs, default=0), sum(costs) / num_threads)
