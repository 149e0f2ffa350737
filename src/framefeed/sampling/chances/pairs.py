"""How often two frames of a batch are of one group, or of one file: for each order and model."""

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
"""Whether chances are exact, exact but for terms of the order of a chunk by all frames, or estimated."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of frames under a way to draw.

    Attributes:
        batch_size: Frames of a batch.
        drawn: Two frames of a batch.
        beside: A frame of a batch, and one that is drawn from all frames by itself.
        independent: Two frames that are drawn from all frames by themselves.
        how: How good the chances are.
        error: Standard error of the chance of one group, where it is simulated.
    """

    batch_size: int
    drawn: PairChances
    beside: PairChances
    independent: PairChances
    how: How = "exact"
    error: float = 0.0

    def design_effect(self, correlation: Correlation | float) -> float:
        """Squared error of a batch's mean, beside that of as many independent frames.

        Args:
            correlation: Of values; a number is that of two frames of a group, with none between groups.
        """
        values = correlation if isinstance(correlation, Correlation) else Correlation(float(correlation))
        drawn, beside, independent = (each.correlation(values) for each in (self.drawn, self.beside, self.independent))
        left = 1 - independent  # of the variance, when it is taken around the mean of these very frames
        if left <= 1e-12:
            return 1.0  # all values are the same
        size = self.batch_size
        return max(0.0, 1 + (size - 1) * drawn - size * (2 * beside - independent)) / left


def find_pairs(method: Order | Model, population: Population, batch_size: int, *, seed: int = 0) -> Pairs:
    """Pairs of a batch, which is one of the full batches of an epoch, all being equally likely.

    Args:
        method: An order of the loader, on one rank, or a model.
        population: What is drawn from.
        batch_size: At least 2.
        seed: For what is simulated: `Buffered`, and orders that are not framefeed's.

    Raises:
        ValueError: There are not as many frames.
    """
    size = whole_number("batch_size", batch_size, least=2)
    if size > population.num_frames and not isinstance(method, Model):
        raise ValueError(f"no full batch: there are {population.num_frames} frames, and batch_size is {size}")
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
    different = population.num_frames / max(1, population.num_frames - 1)  # a frame does not come twice
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
    # The last frames, which make no full batch, never come.
    reached = np.clip(end - population.group_starts, 0, population.group_sizes) / end
    beside = two_draws(population, reached, even_chances(population))
    return Pairs(size, PairChances(within / all_pairs, across / all_pairs), beside, independent_pairs(population))


def _pieces(starts: NDArray[np.int64], end: int, size: int) -> NDArray[np.int64]:
    """The sizes of the pieces into which batches cut runs of frames, up to ``end``."""
    bounds = np.concatenate([starts[starts < end], np.arange(0, end + 1, size)])
    sizes = np.diff(np.sort(bounds, kind="stable"))  # which merges what is in order already
    return sizes[sizes > 0]


def _chunked(order: Chunked, population: Population, size: int) -> Pairs:
    """Two frames of one chunk are as far apart in a batch as in their file; those of two chunks meet by chance."""
    count, chunk = population.num_frames, order.chunk_size
    within, across = in_groups(population), across_groups(population)
    within[0] = 0.0
    distances = np.arange(len(across))
    # A file's phase is even, so two of its frames are in one chunk with a chance that falls with their distance.
    together = np.maximum(0.0, 1 - distances / chunk)
    near = np.maximum(0, size - distances) / (float(size) * (size - 1) * count)  # a pair of places, any of all frames
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
    """Frames of one group by simulation; two groups come as they would in a shuffle of groups."""
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
