"""``PairChances``: what two frames have to do with each other, and sums over pairs of frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.sampling.correlation import Correlation
from framefeed.sampling.population import Population

__all__ = [
    "PairChances",
    "across_groups",
    "even_chances",
    "in_groups",
    "independent_pairs",
    "ordered",
    "squares",
    "tails",
    "two_draws",
    "without",
]


@dataclass(frozen=True, eq=False)
class PairChances:
    """What two frames have to do with each other.

    Attributes:
        in_group: The chance that both are of one group and that many frames apart; 0 is the same frame twice.
        across: The chance that both are of one file, but not of one group, and that many frames apart.
    """

    in_group: NDArray[np.float64]
    across: NDArray[np.float64]

    @property
    def same_group(self) -> float:
        """The chance that both are of one group."""
        return float(self.in_group.sum())

    @property
    def other_group(self) -> float:
        """The chance that both are of one file, but not of one group."""
        return float(self.across.sum())

    @property
    def same_file(self) -> float:
        """The chance that both are of one file."""
        return self.same_group + self.other_group

    def correlation(self, values: Correlation) -> float:
        """How much the values of two such frames are correlated, on average."""
        within, across = (np.arange(len(each)) for each in (self.in_group, self.across))
        return float(self.in_group @ values.in_group(within) + self.across @ values.across_groups(across))


def tails(sizes: NDArray[np.int64], length: int, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """For each distance below ``length``, the sum of ``max(0, size - distance)`` over all sizes, weighted."""
    longest = int(sizes.max())
    if longest > max(length, len(sizes), 1 << 16):  # few and far apart
        distinct, places = np.unique(sizes, return_inverse=True)
    else:
        distinct, places = np.arange(longest + 1), sizes
    weight = np.bincount(places, weights, minlength=len(distinct)).astype(np.float64)
    counts, sums = (np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (weight, weight * distinct))
    distances = np.arange(length)
    first = np.searchsorted(distinct, distances, side="right")
    found: NDArray[np.float64] = sums[first] - distances * counts[first]
    return np.maximum(0.0, found)  # what rounding leaves of nothing may be negative


def ordered(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ordered pairs from those whose second frame comes later: two of each, but one of a frame with itself."""
    found = 2 * found
    found[0] /= 2
    return found


def in_groups(population: Population, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Ordered pairs of frames of one group, by distance; weights are those of each pair of a group."""
    return ordered(tails(population.group_sizes, int(population.group_sizes.max()), weights))


def across_groups(population: Population, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Ordered pairs of frames of two groups of one file, by distance; weights are those of each pair of a file."""
    of_groups = None if weights is None else np.repeat(weights, population.groups_per_file)
    in_files = ordered(tails(population.file_sizes, int(population.file_sizes.max()), weights))
    return without(in_files, in_groups(population, of_groups))


def without(pairs: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pairs without some of them, which have smaller distances; what rounding leaves of nothing is nothing."""
    found = pairs.copy()
    found[: len(others)] -= others
    found[np.abs(found) < 1e-12 * pairs] = 0.0
    return np.maximum(0.0, found)


def squares(sizes: NDArray[np.int64]) -> float:
    """The sum of squares: pairs of frames of one group, each frame with itself too."""
    return float((sizes.astype(np.float64) ** 2).sum())


def independent_pairs(population: Population) -> PairChances:
    """Two frames that are drawn from all frames by themselves."""
    total = float(population.num_frames) ** 2
    return PairChances(in_groups(population) / total, across_groups(population) / total)


def two_draws(population: Population, first: NDArray[np.float64], second: NDArray[np.float64]) -> PairChances:
    """Two frames that are drawn by themselves, with these chances of each group, and evenly within one."""
    of_files = [np.add.reduceat(each, population.first_groups) for each in (first, second)]
    within = in_groups(population, first * second / population.group_sizes.astype(np.float64) ** 2)
    across = across_groups(population, of_files[0] * of_files[1] / population.file_sizes.astype(np.float64) ** 2)
    other = float(of_files[0] @ of_files[1] - first @ second)
    return PairChances(within, _scaled(across, other))


def _scaled(shape: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Chances of this shape that are so much in all."""
    everything = float(shape.sum())
    return shape * (max(0.0, total) / everything) if everything > 0 else shape


def even_chances(population: Population) -> NDArray[np.float64]:
    """The chance of each group where all frames are equally likely."""
    return population.group_sizes / population.num_frames
