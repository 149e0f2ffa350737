"""Missing pictures and the order of those that are there, by the numbers that headers give them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NO_GAPS", "Gaps", "at_rows", "in_read_sequences", "last_shown", "latest_before", "order_gaps"]


class Gaps(NamedTuple):
    """Places where packets are missing.

    Attributes:
        packets: Those that were next to a missing one, rising.
        of_references: For each of them, whether others may refer to the missing one, or a decoder may take it so: then
            what becomes of others may depend even on pictures that nobody refers to.
        places: For each packet of the stream, a number that rises in the order in which pictures are shown, by their
            counts; -1 where it is not known. Empty where nothing is.
    """

    packets: NDArray[np.int64]
    of_references: NDArray[np.bool_]
    places: NDArray[np.int64]

    def with_order_breaks(self, order: NDArray[np.int64]) -> Gaps:
        """Together with the pictures that come too late or too early in this order of packets."""
        if not len(self.places):
            return self
        places = self.places[order]
        if (places < 0).any():
            order, places = order[places >= 0], places[places >= 0]
        falls = places[1:] < places[:-1]
        if not falls.any():
            return self
        late = falls.nonzero()[0]
        packets = np.union1d(self.packets, order[np.concatenate([late, late + 1])])
        references = np.isin(packets, self.packets[self.of_references])
        return self._replace(packets=packets, of_references=references)


NO_GAPS = Gaps(np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int64))


def latest_before(marked: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each place, the last one before it that is marked; -1 where there is none."""
    latest = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
    return np.concatenate([[-1], latest[:-1]])


def in_read_sequences(begins: NDArray[np.bool_], unread: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """For each picture, whether all of its sequence could be read: what seems to be missing may be one that was not."""
    if not unread.any():
        return np.ones(len(begins), np.bool_)
    sequences = begins.cumsum()
    return ~np.isin(sequences, sequences[unread])


def at_rows(values: NDArray[np.int64], rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The values at these of ``count`` rows, rising, and -1 elsewhere."""
    if len(rows) == count:
        return values
    every = np.full(count, -1)
    every[rows] = values
    return every


def order_gaps(
    counts: NDArray[np.int64],
    bits: int,
    begins: NDArray[np.bool_],
    anchors: NDArray[np.bool_],
    *,
    fields: bool,
    step: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pictures between which, by their picture order counts, there were others; and the places of all, as in `Gaps`.

    Args:
        counts: The lowest bits of the count of each picture, in decode order.
        bits: How many these are.
        begins: Whether counts start again with the picture.
        anchors: Whether counts of the pictures that follow are told from that of this one.
        fields: Whether pictures may have two fields, which may shift their count by one.
        step: By how much counts rise where no picture is missing; 0 for what they mostly or at least do.
    """
    none = np.empty(0, np.int64)
    even = _even_places(counts, bits, begins, step or (1 if (counts & 1).any() else 2))
    if even is not None:
        return none, even
    whole = _whole_counts(counts, bits, anchors)
    if whole is None:
        return none, np.full(len(counts), -1)
    sequences = begins.cumsum()
    shown = np.lexsort((whole, sequences))
    places = np.empty(len(counts), np.int64)
    places[shown] = np.arange(len(counts))
    steps = np.diff(whole[shown])
    inside = np.diff(sequences[shown]) == 0
    if not inside.any():
        return none, places
    rising = steps[inside & (steps > 0)]
    usual = step or (0 if not len(rising) else np.median(rising) if fields else rising.min())
    odd = (inside & ((steps < 1) | (steps >= 2 * usual if fields else steps != usual))).nonzero()[0]
    return np.unique(np.concatenate([shown[odd], shown[odd + 1]])), places


def last_shown(places: NDArray[np.int64], begins: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The picture of each sequence that is shown last.

    Args:
        places: Of all pictures, as of `order_gaps`.
        begins: Whether a sequence begins with the picture.
    """
    if not len(places) or places[0] < 0:
        return np.empty(0, np.int64)
    shown = np.empty(len(places), np.int64)
    shown[places] = np.arange(len(places))
    ends = np.append(begins[1:].nonzero()[0], len(places) - 1)
    found: NDArray[np.int64] = shown[ends]
    return found


def _whole_counts(counts: NDArray[np.int64], bits: int, anchors: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """Picture order counts with all of their bits; None where nothing tells."""
    places = anchors.nonzero()[0]
    if not len(places):
        return None
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    last = np.maximum(anchors.cumsum() - 1, 0)
    at_anchors = counts[places]
    whole: NDArray[np.int64] = at_anchors.copy()
    whole[1:] = ((np.diff(at_anchors) + half) & mask) - half
    whole = whole.cumsum()[last]
    whole += ((counts - at_anchors[last] + half) & mask) - half
    return whole


def _even_places(
    counts: NDArray[np.int64], bits: int, begins: NDArray[np.bool_], step: int
) -> NDArray[np.int64] | None:
    """Places where counts rise by this step from each picture shown to the next, as in nearly all streams.

    Found without sorting them: counts are completed by the place in decode order, from which no picture is far.
    """
    if len(counts) < 2:
        return np.zeros(len(counts), np.int64)
    firsts = begins.nonzero()[0]
    if not len(firsts) or firsts[0]:
        firsts = np.concatenate([[0], firsts])
    half, mask = 1 << (bits - 1), (1 << bits) - 1
    lengths = np.diff(firsts, append=len(counts))
    whole = step * np.arange(len(counts))  # as if all were shown as they are decoded, in one sequence
    whole += ((counts - whole + (step * firsts).repeat(lengths) + half) & mask) - half
    offsets = step * firsts - np.minimum.reduceat(whole, firsts)
    if offsets.any():
        whole += offsets.repeat(lengths)
    # As many places as pictures: where each place is taken, each is taken once.
    if int(whole.max()) >= step * len(counts):
        return None
    taken = np.zeros(step * len(counts), np.bool_)
    taken[whole] = True
    if not taken[::step].all():
        return None
    return whole if step == 1 else whole // step
