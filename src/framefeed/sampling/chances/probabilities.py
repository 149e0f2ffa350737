"""Draw probabilities of frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle
from framefeed.plan.randomness import whole_number
from framefeed.sampling.chances.buffered import buffered_places
from framefeed.sampling.models import FileFirst, Independent, Model, OneFile, SlidingWindow
from framefeed.sampling.population import Population

__all__ = ["batch_probabilities", "draw_probabilities", "place_probabilities", "probability_range"]


def draw_probabilities(
    method: Order | Model, population: Population, *, batch_size: int | None = None, drop_last: bool = False
) -> NDArray[np.float64]:
    """Returns the probability of each frame to be a random frame of a random batch.

    An order draws every frame once per epoch, so all are equally likely, unless the last, short batch is dropped.

    Args:
        method: An order of the loader, on one rank, or a model.
        population: The frames to draw from.
        batch_size: Frames in a batch; needed for ``drop_last``, and for models that cut their last run there.
        drop_last: Drops the last, short batch of an epoch, the loader's default.

    Raises:
        ValueError: The method can only be simulated.
    """
    count = population.num_frames
    if isinstance(method, Order) and not isinstance(method, Model):
        if drop_last and batch_size is None:
            raise ValueError("drop_last needs a batch_size")
        left = 0 if not drop_last or batch_size is None else count % batch_size
        if not left or isinstance(method, Shuffle | Chunked):
            return np.full(count, 1 / count)
        if left == count:
            raise ValueError(f"batch_size is {batch_size}, but there are only {count} frames")
        dropped = place_probabilities(method, population, np.arange(count - left, count)).sum(0)
        return np.asarray((1 - dropped) / (count - left))
    if isinstance(method, Independent):
        return np.full(count, 1 / count)
    if isinstance(method, FileFirst):
        sizes = population.file_sizes
        return np.repeat(1 / (len(sizes) * sizes.astype(np.float64)), sizes)
    if isinstance(method, OneFile):
        first, size = population.file_starts[method.file], population.file_sizes[method.file]
        places = np.arange(count)
        return np.where((places >= first) & (places < first + size), 1 / size, 0.0)
    if isinstance(method, SlidingWindow):
        return _window_probabilities(method, population, batch_size or method.window)
    raise ValueError(f"unknown method {method!r}; expected an order or a model of framefeed.sampling")


def batch_probabilities(
    method: Order | Model, population: Population, batch_size: int, number: int = 0
) -> NDArray[np.float64]:
    """Returns how often each frame is in one batch on average: for orders, its probability.

    Args:
        method: An order of the loader, on one rank, or a model.
        population: The frames to draw from.
        batch_size: Frames in a batch.
        number: Number of the batch in the epoch; for models all are equal.

    Raises:
        ValueError: There is no such batch, or the method can only be simulated.
    """
    if isinstance(method, Model):
        return draw_probabilities(method, population, batch_size=batch_size) * batch_size
    places = np.arange(number * batch_size, min(population.num_frames, (number + 1) * batch_size))
    if number < 0 or not len(places):
        raise ValueError(f"no batch {number}; batches are 0..{-(-population.num_frames // batch_size) - 1}")
    if isinstance(method, Shuffle | Chunked):
        return np.full(population.num_frames, len(places) / population.num_frames)
    return np.asarray(place_probabilities(method, population, places).sum(0))


def place_probabilities(order: Order, population: Population, places: ArrayLike) -> NDArray[np.float64]:
    """Returns, for each of some positions of an epoch (a row), the probability of each frame.

    Args:
        order: An order of the loader, on one rank.
        population: The frames to draw from.
        places: Positions, from 0.

    Raises:
        ValueError: The order can only be simulated: `Buffered` with many frames, and orders that are not framefeed's.
    """
    count = population.num_frames
    numbers = np.atleast_1d(np.asarray(places, np.int64))
    if ((numbers < 0) | (numbers >= count)).any():
        raise ValueError(f"places must be in 0..{count - 1}")
    if isinstance(order, Sequential):
        return np.asarray(numbers[:, None] == np.arange(count), np.float64)
    if isinstance(order, Shuffle | Chunked):
        # Chunked is a ring cut at a random frame, so each frame's position is uniform.
        return np.full((len(numbers), count), 1 / count)
    if isinstance(order, Buffered):
        return buffered_places(order, population)[numbers]
    raise ValueError(f"positions of {order!r} can only be simulated: see framefeed.sampling.simulate_batches")


def probability_range(method: Order | Model, population: Population, batch_size: int) -> tuple[float, float]:
    """Returns the probabilities of the least and the most likely frame in whole epochs, relative to uniform.

    Needs no memory per frame.
    """
    whole_number("batch_size", batch_size, least=1)
    if isinstance(method, FileFirst):
        even = population.num_frames / population.num_files
        return float(even / population.file_sizes.max()), float(even / population.file_sizes.min())
    if isinstance(method, OneFile):
        size = int(population.file_sizes[method.file])
        return 0.0 if size < population.num_frames else 1.0, population.num_frames / size
    if isinstance(method, SlidingWindow):
        return _window_range(method, population, batch_size)
    return 1.0, 1.0


def _window_counts(window: int, offsets: int, places: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts, for frames at these positions of files of these sizes, the runs with them in the first ``offsets``."""
    last_start = sizes - window
    counts = np.minimum(places, offsets - 1) - np.maximum(0, places - last_start) + 1
    return np.where(last_start >= 0, np.maximum(0, counts), 0)


def _window_chances(
    model: SlidingWindow, population: Population, batch_size: int, places: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    full, rest = divmod(batch_size, model.window)
    counts = full * _window_counts(model.window, model.window, places, sizes)
    if rest:
        counts = counts + _window_counts(model.window, rest, places, sizes)
    return counts / (float(batch_size) * float(model.starts(population).sum()))


def _window_probabilities(model: SlidingWindow, population: Population, batch_size: int) -> NDArray[np.float64]:
    sizes = population.file_sizes
    places = np.arange(population.num_frames) - np.repeat(population.file_starts, sizes)
    return _window_chances(model, population, batch_size, places, np.repeat(sizes, sizes))


def _window_range(model: SlidingWindow, population: Population, batch_size: int) -> tuple[float, float]:
    """Finds the extremes, which are at the ends of files, or as far from them as a run reaches."""
    sizes = np.unique(population.file_sizes)[:, None]
    near = np.arange(min(model.window, int(sizes.max())))
    places = np.concatenate([np.broadcast_to(near, (len(sizes), len(near))), sizes - 1 - near], axis=1)
    places = np.clip(places, 0, sizes - 1)
    chances = _window_chances(model, population, batch_size, places, np.broadcast_to(sizes, places.shape))
    return float(chances.min() * population.num_frames), float(chances.max() * population.num_frames)
