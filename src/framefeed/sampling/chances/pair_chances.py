"""``PairChances``: joint group and file probabilities of two frames, and sums over pairs."""

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
    """Joint probabilities of two frames.

    Attributes:
        in_group: Probability of a shared group, by distance in frames; distance 0 is the same frame twice.
        across: Probability of a shared file but different groups, by distance.
    """

    in_group: NDArray[np.float64]
    across: NDArray[np.float64]

    @property
    def same_group(self) -> float:
        """Probability that both are in one group."""
        return float(self.in_group.sum())

    @property
    def other_group(self) -> float:
        """Probability that both are in one file, but in different groups."""
        return float(self.across.sum())

    @property
    def same_file(self) -> float:
        """Probability that both are in one file."""
        return self.same_group + self.other_group

    def correlation(self, values: Correlation) -> float:
        """Returns the mean correlation of the values of two such frames."""
        within, across = (np.arange(len(each)) for each in (self.in_group, self.across))
        return float(self.in_group @ values.in_group(within) + self.across @ values.across_groups(across))


def tails(sizes: NDArray[np.int64], length: int, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Returns, for each distance below ``length``, the weighted sum of ``max(0, size - distance)`` over all sizes."""
    longest = int(sizes.max())
    if longest > max(length, len(sizes), 1 << 16):  # sparse
        distinct, places = np.unique(sizes, return_inverse=True)
    else:
        distinct, places = np.arange(longest + 1), sizes
    weight = np.bincount(places, weights, minlength=len(distinct)).astype(np.float64)
    counts, sums = (np.append(np.cumsum(each[::-1])[::-1], 0.0) for each in (weight, weight * distinct))
    distances = np.arange(length)
    first = np.searchsorted(distinct, distances, side="right")
    found: NDArray[np.float64] = sums[first] - distances * counts[first]
    return np.maximum(0.0, found)  # rounding may leave negative zeros


def ordered(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Counts ordered pairs from pairs in rising order: two of each, but one of a frame with itself."""
    found = 2 * found
    found[0] /= 2
    return found


def in_groups(population: Population, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Counts ordered pairs of frames of one group, by distance; weights are per pair of a group."""
    return ordered(tails(population.group_sizes, int(population.group_sizes.max()), weights))


def across_groups(population: Population, weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Counts ordered pairs of frames of one file and two groups, by distance; weights are per pair of a file."""
    of_groups = None if weights is None else np.repeat(weights, population.groups_per_file)
    in_files = ordered(tails(population.file_sizes, int(population.file_sizes.max()), weights))
    return without(in_files, in_groups(population, of_groups))


def without(pairs: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtracts pairs with smaller distances; clips rounding errors at 0."""
    found = pairs.copy()
    found[: len(others)] -= others
    found[np.abs(found) < 1e-12 * pairs] = 0.0
    return np.maximum(0.0, found)


def squares(sizes: NDArray[np.int64]) -> float:
    """Returns the sum of squares: pairs of frames of one group, including each frame with itself."""
    return float((sizes.astype(np.float64) ** 2).sum())


def independent_pairs(population: Population) -> PairChances:
    """Returns the chances of two frames drawn independently from all frames."""
    total = float(population.num_frames) ** 2
    return PairChances(in_groups(population) / total, across_groups(population) / total)


def two_draws(population: Population, first: NDArray[np.float64], second: NDArray[np.float64]) -> PairChances:
    """Returns the chances of two independent frames with these group probabilities, uniform within a group."""
    of_files = [np.add.reduceat(each, population.first_groups) for each in (first, second)]
    within = in_groups(population, first * second / population.group_sizes.astype(np.float64) ** 2)
    across = across_groups(population, of_files[0] * of_files[1] / population.file_sizes.astype(np.float64) ** 2)
    other = float(of_files[0] @ of_files[1] - first @ second)
    return PairChances(within, _scaled(across, other))


def _scaled(shape: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Scales chances to a total."""
    everything = float(shape.sum())
    return shape * (max(0.0, total) / everything) if everything > 0 else shape


def even_chances(population: Population) -> NDArray[np.float64]:
    """Returns the probability of each group if all frames are equally likely."""
    return population.group_sizes / population.num_frames
