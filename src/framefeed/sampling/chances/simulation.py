"""Simulation of orders: counts pairs of frames in batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Order
from framefeed.sampling.population import Population

__all__ = ["simulate_batches", "simulate_groups", "simulate_order"]

# Frames drawn in all epochs together: two or three digits of a probability, in about a second.
FRAMES = 1 << 20
MIN_EPOCHS, MAX_EPOCHS = 4, 256
# Largest epoch. A buffer's effect on a group does not depend on the number of other groups.
MAX_FRAMES = 1 << 18
MAX_WHOLE_FRAMES = 1 << 22
NEAR = 32  # distances counted completely; larger ones are sampled


def simulate_batches(
    order: Order, population: Population, batch_size: int, number: int, *, epochs: int, seed: int = 0
) -> NDArray[np.int64]:
    """Returns how often each frame is in a batch, over a number of epochs.

    Args:
        order: The order.
        population: The frames to draw from.
        batch_size: Frames in a batch.
        number: Number of the batch in each epoch.
        epochs: Number of epochs.
        seed: Seed of the order.
    """
    counts = np.zeros(population.num_frames, np.int64)
    for epoch in range(epochs):
        drawn = order.indices(population.layout, seed=seed, epoch=epoch)
        counts[drawn[number * batch_size : (number + 1) * batch_size]] += 1
    return counts


def simulate_groups(
    order: Buffered, population: Population, batch_size: int, seed: int
) -> tuple[NDArray[np.float64], float]:
    """Returns, for each distance, how likely two frames of a group are in one full batch of an epoch.

    Returns:
        The probabilities by distance, and the relative standard error of their sum.
    """
    room = max(MAX_FRAMES, 8 * min(order.buffer_size, MAX_WHOLE_FRAMES // 8), 8 * batch_size)
    sample = _some_groups(population, room, seed)
    distances = _some_distances(int(population.group_sizes.max()))
    groups = sample.layout.groups
    weights = _pair_weights(population.group_sizes, distances)
    epochs = _num_epochs(sample.num_frames)
    met = np.zeros((epochs, len(distances)))
    for epoch in range(epochs):
        batches = _batches(order.indices(sample.layout, seed=seed, epoch=epoch), batch_size)
        for place, distance in enumerate(distances.tolist()):
            first, second = slice(None, -distance), slice(distance, None)
            alike = groups[first] == groups[second]
            both = alike & (batches[first] == batches[second]) & (batches[first] >= 0)
            met[epoch, place] = float(np.count_nonzero(both)) / max(1, int(np.count_nonzero(alike)))
    chances = met.mean(0)
    found = np.interp(np.arange(int(population.group_sizes.max())), distances, chances)
    totals = met @ weights
    mean = float(totals.mean())
    return found, float(totals.std(ddof=1)) / np.sqrt(epochs) / mean if mean else 0.0


def simulate_order(
    order: Order, population: Population, batch_size: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Simulates pairs of a full batch, for an arbitrary order.

    Returns:
        Probability of a shared group by distance, of a shared file but two groups by distance, and the standard error
        of the first in total.
    """
    count = population.num_frames
    if count > MAX_WHOLE_FRAMES:
        raise ValueError(
            f"{order!r} can only be simulated, with up to {MAX_WHOLE_FRAMES} frames, got {count}: use fewer files "
            "(Population.files)"
        )
    groups = population.layout.groups
    files = np.repeat(np.arange(population.num_files), population.file_sizes)
    distances = _some_distances(int(population.file_sizes.max()))
    all_pairs = (count // batch_size) * float(batch_size) * (batch_size - 1)
    epochs = _num_epochs(count)
    met = np.zeros((2, len(distances)))  # of one group, and of two groups of one file
    totals = np.zeros((epochs, 2))
    for epoch in range(epochs):
        batches = _batches(order.indices(population.layout, seed=seed, epoch=epoch), batch_size)
        in_group, in_file = (_ordered_pairs(batches, of, int(of[-1]) + 1) for of in (groups, files))
        totals[epoch] = in_group, in_file - in_group
        for place, distance in enumerate(distances.tolist()):
            first, second = slice(None, -distance), slice(distance, None)
            both = (files[first] == files[second]) & (batches[first] == batches[second]) & (batches[first] >= 0)
            same = both & (groups[first] == groups[second])
            met[:, place] += np.count_nonzero(same), np.count_nonzero(both) - np.count_nonzero(same)
    found = []
    for shape, total in zip(met, totals.mean(0) / all_pairs, strict=True):
        # Larger distances were sampled: their sum is known.
        chances = np.append(0.0, np.interp(np.arange(1, int(population.file_sizes.max())), distances, shape))
        found.append(chances * (total / chances.sum()) if chances.sum() else chances)
    error = float(totals[:, 0].std(ddof=1)) / all_pairs / np.sqrt(epochs)
    return found[0], found[1], error


def _num_epochs(count: int) -> int:
    return int(np.clip(FRAMES // count, MIN_EPOCHS, MAX_EPOCHS))


def _batches(drawn: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Returns the batch of each frame; -1 after the last full one."""
    batches = np.empty(len(drawn), np.int64)
    batches[drawn] = np.arange(len(drawn)) // size
    batches[batches >= len(drawn) // size] = -1
    return batches


def _ordered_pairs(batches: NDArray[np.int64], of: NDArray[np.int64], count: int) -> float:
    """Counts ordered pairs of two frames in one batch and one group or file."""
    _, together = np.unique(batches[batches >= 0] * count + of[batches >= 0], return_counts=True)
    return float((together.astype(np.float64) ** 2).sum() - together.sum())


def _some_groups(population: Population, room: int, seed: int) -> Population:
    """Returns random groups within the limit, each as a file of its own: their files do not matter."""
    sizes = population.group_sizes
    if population.num_frames > room:
        sizes = sizes[np.random.default_rng(seed).permutation(len(sizes))]
        sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), room)) + 1]
    return Population(sizes, np.ones(len(sizes), np.int64))


def _some_distances(longest: int) -> NDArray[np.int64]:
    """Returns all small distances and, evenly on a log scale, some larger ones: probabilities change little there."""
    if longest <= NEAR + 1:
        return np.arange(1, max(2, longest))
    far = np.unique(np.geomspace(NEAR, longest - 1, 24).round().astype(np.int64))
    return np.concatenate([np.arange(1, NEAR), far])


def _pair_weights(sizes: NDArray[np.int64], distances: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.array([np.maximum(0, sizes - distance).sum() for distance in distances.tolist()], np.float64)
