"""Group and file probabilities of two frames of a batch, for each order and model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle
from framefeed.plan.randomness import whole_number
from framefeed.sampling.chances.pair_chances import (
    PairChances,
    across_groups,
    even_chances,
    in_groups,
    independent_pairs,
    ordered,
    squares,
    tails,
    two_draws,
    without,
)
from framefeed.sampling.chances.pairs_of_models import pairs_of_model
from framefeed.sampling.chances.simulation import simulate_groups, simulate_order
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.models import Model
from framefeed.sampling.population import Population

__all__ = ["How", "Pairs", "find_pairs"]

How = Literal["exact", "nearly exact", "simulated"]
"""Accuracy of chances: exact, exact up to terms of chunk size over all frames, or estimated."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of frames under a sampling method.

    Attributes:
        batch_size: Frames in a batch.
        drawn: Two frames of a batch.
        beside: A frame of a batch, and one drawn independently from all frames.
        independent: Two frames drawn independently from all frames.
        how: Accuracy of the chances.
        error: Standard error of the probability of a shared group, if simulated.
    """

    batch_size: int
    drawn: PairChances
    beside: PairChances
    independent: PairChances
    how: How = "exact"
    error: float = 0.0

    def design_effect(self, correlation: Correlation | float) -> float:
        """Returns the squared error of a batch's mean, relative to as many independent frames.

        Args:
            correlation: Correlation of values; a number applies within groups, with none between groups.
        """
        values = correlation if isinstance(correlation, Correlation) else Correlation(float(correlation))
        drawn, beside, independent = (each.correlation(values) for each in (self.drawn, self.beside, self.independent))
        left = 1 - independent  # of the variance, around the mean of these very frames
        if left <= 1e-12:
            return 1.0  # all values are equal
        size = self.batch_size
        return max(0.0, 1 + (size - 1) * drawn - size * (2 * beside - independent)) / left


def find_pairs(method: Order | Model, population: Population, batch_size: int, *, seed: int = 0) -> Pairs:
    """Computes pairs in a random full batch of an epoch.

    Args:
        method: An order of the loader, on one rank, or a model.
        population: The frames to draw from.
        batch_size: At least 2.
        seed: Seed of simulations: of `Buffered`, and of orders that are not framefeed's.

    Raises:
        ValueError: There are fewer frames than a batch.
    """
    size = whole_number("batch_size", batch_size, least=2)
    if size > population.num_frames and not isinstance(method, Model):
        raise ValueError(f"batch_size is {size}, but there are only {population.num_frames} frames")
    if isinstance(method, Model):
        drawn, beside = pairs_of_model(method, population, size)
        return Pairs(size, drawn, beside, independent_pairs(population))
    if isinstance(method, Shuffle):
        return _shuffle(population, size)
    if isinstance(method, Sequential):
        return _sequential(population, size)
    if isinstance(method, Chunked):
        return _chunked(method, population, size)
    if isinstance(method, Buffered):
        return _buffered(method, population, size, seed)
    return _simulated(method, population, size, seed)


def _shuffle(population: Population, size: int) -> Pairs:
    independent = independent_pairs(population)
    different = population.num_frames / max(1, population.num_frames - 1)  # frames do not repeat
    within = independent.in_group * different
    within[0] = 0.0
    return Pairs(size, PairChances(within, independent.across * different), independent, independent)


def _sequential(population: Population, size: int) -> Pairs:
    batches = population.num_frames // size
    end = batches * size
    all_pairs = batches * float(size) * (size - 1)
    groups, files = (_pieces(starts, end, size) for starts in (population.group_starts, population.file_starts))
    within, in_files = (ordered(tails(pieces, int(pieces.max()))) for pieces in (groups, files))
    across = without(in_files, within)
    within[0] = 0.0
    # The last frames, which do not fill a batch, never occur.
    reached = np.clip(end - population.group_starts, 0, population.group_sizes) / end
    beside = two_draws(population, reached, even_chances(population))
    return Pairs(size, PairChances(within / all_pairs, across / all_pairs), beside, independent_pairs(population))


def _pieces(starts: NDArray[np.int64], end: int, size: int) -> NDArray[np.int64]:
    """Returns the sizes of the parts into which batches cut runs of frames, up to ``end``."""
    bounds = np.concatenate([starts[starts < end], np.arange(0, end + 1, size)])
    sizes = np.diff(np.sort(bounds, kind="stable"))  # a merge sort benefits from sorted runs
    return sizes[sizes > 0]


def _chunked(order: Chunked, population: Population, size: int) -> Pairs:
    """Frames of one chunk have the same distance in a batch and in their file; those of two chunks meet by chance."""
    count, chunk = population.num_frames, order.chunk_size
    within, across = in_groups(population), across_groups(population)
    within[0] = 0.0
    distances = np.arange(len(across))
    # A file's phase is uniform, so two frames share a chunk with a probability that falls with their distance.
    together = np.maximum(0.0, 1 - distances / chunk)
    near = np.maximum(0, size - distances) / (float(size) * (size - 1) * count)  # per pair of positions
    joined = [pairs * together[: len(pairs)] for pairs in (within, across)]
    same_chunk = sum(float(pairs @ near[: len(pairs)]) for pairs in joined)
    apart = float(count) * (count - 1) - sum(float(pairs.sum()) for pairs in joined)  # pairs of two chunks
    chance = (1 - same_chunk) / apart if apart > 0 else 0.0
    drawn = [
        in_one * near[: len(in_one)] + (pairs - in_one) * chance
        for pairs, in_one in zip((within, across), joined, strict=True)
    ]
    independent = independent_pairs(population)
    return Pairs(size, PairChances(*drawn), independent, independent, "exact" if chunk == 1 else "nearly exact")


def _buffered(order: Buffered, population: Population, size: int, seed: int) -> Pairs:
    """Simulates frames of one group; two groups are as in a shuffle of groups."""
    count = population.num_frames
    met, error = simulate_groups(order, population, size, seed)
    within = in_groups(population) * met / ((count // size) * float(size) * (size - 1))
    within[0] = 0.0
    together = float(within.sum())
    apart = float(count) ** 2 - squares(population.group_sizes)
    across = across_groups(population) * ((1 - together) / apart if apart else 0.0)
    independent = independent_pairs(population)
    return Pairs(size, PairChances(within, across), independent, independent, "simulated", error * together)


def _simulated(order: Order, population: Population, size: int, seed: int) -> Pairs:
    within, across, error = simulate_order(order, population, size, seed)
    independent = independent_pairs(population)
    return Pairs(size, PairChances(within, across), independent, independent, "simulated", error)
