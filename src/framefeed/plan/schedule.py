"""How many threads each job gets."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

__all__ = ["choose_wide_jobs"]

# Decoding one group with several threads wastes some of them: frames wait for each other. Independent groups do not.
FRAME_THREADING_EFFICIENCY = 0.8

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
    if num_threads < 2:
        return 0
    best, best_time = 0, _makespan(costs, num_threads)
    wide_time = 0.0
    for count, cost in enumerate(costs, start=1):
        if cost < MIN_WIDE_COST:
            break
        wide_time += cost / (num_threads * FRAME_THREADING_EFFICIENCY)
        total = wide_time + _makespan(costs[count:], num_threads)
        if total < best_time * 0.97:  # a tie goes to the simpler side
            best, best_time = count, total
        if count >= num_threads:  # more than this can only even out what is even already
            break
    return best


def _makespan(costs: Sequence[int], num_threads: int) -> float:
    """When the last worker ends if each free worker takes the costliest job that is left."""
    workers = [0.0] * num_threads
    for cost in costs:
        heapq.heappushpop(workers, workers[0] + cost)
    return max(workers)
