"""Where each frame comes in the order `Buffered`, exactly, for few frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered
from framefeed.sampling.population import Population

__all__ = ["MAX_EXACT_FRAMES", "buffered_places"]

MAX_EXACT_FRAMES = 64  # about a second

# Of polynomials up to a degree of 47 the integral is exact; those of a higher one are smooth.
_MAX_NODES = 24


def buffered_places(order: Buffered, population: Population) -> NDArray[np.float64]:
    """For each place of an epoch (a row), the chance of each frame to come there.

    Raises:
        ValueError: There are more than `MAX_EXACT_FRAMES` frames.
    """
    count = population.num_frames
    if count > MAX_EXACT_FRAMES:
        raise ValueError(
            f"places of {order!r} are computed for up to {MAX_EXACT_FRAMES} frames, there are {count}; "
            "framefeed.sampling.simulate_batches estimates them"
        )
    read = _read_places(population)
    if order.buffer_size == 0:
        return read
    return _mixing(count, order.buffer_size) @ read


def _read_places(population: Population) -> NDArray[np.float64]:
    """The same before anything is mixed: groups in an even order, their frames as they lie.

    Each group is given an even random time. At the time t of one of them every other one has come with the chance t, by
    itself; so the frames that have come are a sum of independent numbers, and the integral over t gives their chances.
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
    """For each place (a row), the chance of the frame that is read at each place to be handed out there.

    Frame i is put at i + buffer_size * u. For a given u every other one is before it with a chance that is known, by
    itself; the integral over u gives the chances of how many are.
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
    """Where to look, and with which weight, to integrate from each bound to the next (Gauss and Legendre)."""
    places, weights = np.polynomial.legendre.leggauss(count)
    lengths = np.diff(bounds)
    nodes = bounds[:-1, None] + lengths[:, None] * (places + 1) / 2
    return nodes.ravel(), (lengths[:, None] * weights / 2).ravel()
