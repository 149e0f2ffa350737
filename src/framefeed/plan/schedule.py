"""How many threads each job gets, and how many frames are worth reading at once."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["choose_wide_jobs", "choose_window"]

# Decoding one group with several threads wastes some of them: frames wait for each other. Independent groups do not.
FRAME_THREADING_EFFICIENCY = 0.72  # measured on two cores, benchmarks/results

# Below this, starting and ending a threaded decoder costs more than it saves.
MIN_WIDE_COST = 12


def choose_wide_jobs(costs: Sequence[int], num_threads: int) -> int:
    """How many of the costliest jobs should be run one after the other, each with all threads.

    The rest run side by side with one thread each. Wide jobs pay where there are too few jobs to fill the threads
    evenly: one long group, or three groups on two threads.

    Args:
        costs: Packets of each job, falling.
        num_threads: Threads there are.
    """
    return _schedule(costs, num_threads)[0]


def choose_window(groups: NDArray[np.int64], stops: Sequence[int], num_threads: int) -> int:
    """How far to read so that the threads are kept busy evenly.

    Args:
        groups: For each frame from where reading starts on, the group that it decodes from.
        stops: Numbers of frames to choose from, rising, each at most ``len(groups)``.
        num_threads: Threads there are.
    """
    best, best_rate = stops[-1], 0.0
    for stop in stops:
        _, counts = np.unique(groups[:stop], return_counts=True)
        rate = stop / _schedule(sorted(counts.tolist(), reverse=True), num_threads)[1]
        if rate > best_rate * 1.05:  # where it makes little difference, the nearer one: memory is not free either
            best, best_rate = stop, rate
    return best


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
    """When the last worker ends if each free worker takes the costliest job that is left."""
    workers = [0.0] * num_threads
    for cost in costs:
        heapq.heappushpop(workers, workers[0] + cost)
    return max(workers)
