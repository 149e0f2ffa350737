"""Missing pictures, found by the numbers that headers give to those that are there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_GAPS", "Gaps", "in_read_sequences", "latest_before", "order_gaps"]


class Gaps(NamedTuple):
    """Where packets are missing.

    Attributes:
        packets: Those that were next to a missing one, rising.
        of_references: For each of them, whether it is sure that others refer to the missing one.
    """

    packets: NDArray[np.int64]
    of_references: NDArray[np.bool_]


NO_GAPS = Gaps(np.empty(0, np.int64), np.empty(0, np.bool_))


def latest_before(marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each place, the last one before it that is marked; -1 where there is none."""
    latest = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
    return np.concatenate([[-1], latest[:-1]])


def in_read_sequences(begins: NDArray[np.bool_], unread: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each picture, whether all of its sequence could be read: what seems to be missing may be one that was not."""
    sequences = begins.cumsum()
    return ~np.isin(sequences, sequences[unread])


def order_gaps(
    counts: NDArray[np.int64], bits: int, begins: NDArray[np.bool_], anchors: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Pictures between which, by their picture order counts, there were others.

    Args:
        counts: The lowest bits of the count of each picture, in decode order.
        bits: How many these are.
        begins: Whether counts start again with the picture.
        anchors: Whether counts of the pictures that follow are told from that of this one.
    """
    places = anchors.nonzero()[0]
    if len(places) < 2:
        return np.empty(0, np.int64)
    half = 1 << (bits - 1)

    def signed(steps: NDArray[np.int64]) -> NDArray[np.int64]:
        return ((steps + half) & (2 * half - 1)) - half

    last = np.maximum(places.searchsorted(np.arange(len(counts)), side="right") - 1, 0)
    whole = signed(np.diff(counts[places], prepend=counts[places[0]])).cumsum()[last]
    whole += signed(counts - counts[places[last]])
    sequences = begins.cumsum()
    shown = np.lexsort((whole, sequences))
    steps = np.diff(whole[shown])
    inside = np.diff(sequences[shown]) == 0
    if not inside.any():
        return np.empty(0, np.int64)
    # Fields in one picture may shift its count by one.
    odd = (inside & ((steps < 1) | (steps >= 2 * np.median(steps[inside])))).nonzero()[0]
    return np.unique(np.concatenate([shown[odd], shown[odd + 1]]))
