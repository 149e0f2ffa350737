"""Exact position probabilities of the order `Buffered`, for few frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered
from framefeed.sampling.population import Population

__all__ = ["MAX_EXACT_FRAMES", "buffered_places"]

MAX_EXACT_FRAMES = 64  # takes about a second

# Exact for polynomials up to degree 47; those of higher degree are smooth.
_MAX_NODES = 24


def buffered_places(order: Buffered, population: Population) -> NDArray[np.float64]:
    """Returns, for each position of an epoch (a row), the probability of each frame.

    Raises:
        ValueError: There are more than `MAX_EXACT_FRAMES` frames.
    """
    count = population.num_frames
    if count > MAX_EXACT_FRAMES:
        raise ValueError(
            f"positions of {order!r} are computed for at most {MAX_EXACT_FRAMES} frames, got {count}; "
            "framefeed.sampling.simulate_batches estimates them"
        )
    read = _read_places(population)
    if order.buffer_size == 0:
        return read
    return _mixing(count, order.buffer_size) @ read


def _read_places(population: Population) -> NDArray[np.float64]:
    """Returns the probabilities before mixing: groups in random order, their frames in sequence.

    Each group gets a uniform random time. At the time t of one group, every other one has come with probability t,
    independently; so the number of frames before it is a sum of independent numbers, and the integral over t gives its
    distribution.
    """
    count = population.num_frames
    sizes = population.group_sizes.tolist()
    times, weights = _nodes(len(sizes) // 2 + 1, np.array([0.0, 1.0]))
    found = np.zeros((count, count))
    known: dict[int, NDArray[np.float64]] = {}
    for group, (first, size) in enumerate(zip(population.group_starts.tolist(), sizes, strict=True)):
        if size not in known:
            come = np.zeros((len(times), count))
            come[:, 0] = 1.0
            for other, frames in enumerate(sizes):
                if other != group:
                    come[:, frames:] = come[:, frames:] * (1 - times)[:, None] + come[:, :-frames] * times[:, None]
                    come[:, :frames] *= (1 - times)[:, None]
            known[size] = weights @ come
        for place in range(size):
            found[place:, first + place] = known[size][: count - place]
    return found


def _mixing(count: int, buffer_size: int) -> NDArray[np.float64]:
    """Returns, for each position (a row), the probability of each read position.

    Frame i moves to i + buffer_size * u. For a given u, every other frame is before it with a known probability,
    independently; the integral over u gives the distribution of their number.
    """
    mixed = np.zeros((count, count))
    for read in range(count):
        others = np.delete(np.arange(count), read)
        ahead = (read - others) / buffer_size
        bounds = np.unique(np.clip(np.concatenate([[0.0, 1.0], -ahead, 1 - ahead]), 0, 1))
        moved, weights = _nodes(min(_MAX_NODES, count // 2 + 1), bounds)
        before = np.zeros((len(moved), count))
        before[:, 0] = 1.0
        for chances in np.clip(moved[:, None] + ahead, 0, 1).T:
            before[:, 1:] = before[:, 1:] * (1 - chances)[:, None] + before[:, :-1] * chances[:, None]
            before[:, 0] *= 1 - chances
        mixed[:, read] = weights @ before
    return mixed


def _nodes(count: int, bounds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns nodes and weights of Gauss-Legendre integration between consecutive bounds."""
    places, weights = np.polynomial.legendre.leggauss(count)
    lengths = np.diff(bounds)
    nodes = bounds[:-1, None] + lengths[:, None] * (places + 1) / 2
    return nodes.ravel(), (lengths[:, None] * weights / 2).ravel()
