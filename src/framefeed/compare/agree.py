"""Agreement of two runs of one comparison."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any

from framefeed.compare.results import Row, counted, counts, grouped, place_of, ratio_of, rows_of

__all__ = ["TIED", "Agreement", "agreement"]

# Readers closer than this are equally fast: another run may rank them the other way.
TIED = 1.05


@dataclass(frozen=True)
class Agreement:
    """Agreement of two runs.

    Attributes:
        pairs: Number of reader pairs in one comparison, with right frames in both runs.
        ranked: Number of these that clearly differ in both runs.
        turned: Those ranked the other way, in words.
        largest_change: Largest change of the ratio of two readers, as 0.1 for 10 %.
        largest: Where that was, in words.
    """

    pairs: int
    ranked: int
    turned: tuple[str, ...]
    largest_change: float
    largest: str

    def as_json(self) -> dict[str, Any]:
        """Returns the agreement as plain values."""
        return asdict(self) | {"tied_below": TIED, "largest_change": round(self.largest_change, 4)}

    def sentences(self) -> list[str]:
        """Describes the agreement in sentences."""
        if not self.pairs:
            return ["The two runs have nothing in common: compare the same videos, cases and readers."]
        told = f"{counted(self.pairs, 'pair')} of readers, {self.ranked} of them more than {TIED - 1:.0%} apart"
        turned = f"ranked the other way: {'; '.join(self.turned)}" if self.turned else "all ranked alike"
        return [f"Beside the other run: {told}, {turned}; ratios within {self.largest_change:.0%} ({self.largest})."]


def agreement(one: dict[str, Any], other: dict[str, Any]) -> Agreement:
    """Compares the results of two runs."""
    before = {(place_of(row), row["reader"]): row for row in rows_of(other) if counts(other, row)}
    pairs = ranked = 0
    turned: list[str] = []
    largest, where = 0.0, "none"
    for group in grouped((row for row in rows_of(one) if counts(one, row)), place_of):
        common = [row for row in group if (place_of(row), row["reader"]) in before]
        for first, second in itertools.combinations(common, 2):
            olds = [before[place_of(row), row["reader"]] for row in (first, second)]
            ratio, old = ratio_of(first, second), ratio_of(*olds)
            pairs += 1
            change = max(ratio, old) / min(ratio, old) - 1
            if change > largest:
                largest, where = change, _words(first, second)
            if _apart(ratio) and _apart(old):
                ranked += 1
                if (ratio > 1) != (old > 1):
                    turned.append(_words(first, second))
    return Agreement(pairs, ranked, tuple(turned), largest, where)


def _apart(ratio: float) -> bool:
    return not 1 / TIED <= ratio <= TIED


def _words(first: Row, second: Row) -> str:
    return f"{first['reader']} and {second['reader']} in {first['case']} on {first['video']}"
