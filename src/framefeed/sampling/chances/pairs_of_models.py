"""Pairs of frames of a batch, for models: independent draws, or runs of frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.sampling.chances.pair_chances import PairChances, even_chances, two_draws
from framefeed.sampling.models import FileFirst, Independent, Model, OneFile, SlidingWindow
from framefeed.sampling.population import Population

__all__ = ["pairs_of_model"]


def pairs_of_model(model: Model, population: Population, size: int) -> tuple[PairChances, PairChances]:
    """Returns the chances of two frames of a batch, and of a frame of a batch with an independent one.

    Raises:
        ValueError: The model is unknown.
    """
    per_frame: NDArray[np.float64]
    if isinstance(model, SlidingWindow):
        return _windows(model, population, size)
    if isinstance(model, Independent):
        per_frame = np.full(population.num_files, 1 / population.num_frames)
    elif isinstance(model, FileFirst):
        per_frame = 1 / (population.num_files * population.file_sizes.astype(np.float64))
    elif isinstance(model, OneFile):
        per_frame = np.zeros(population.num_files)
        per_frame[model.file] = 1 / population.file_sizes[model.file]
    else:
        raise ValueError(f"unknown method {model!r}; expected an order or a model of framefeed.sampling")
    chances: NDArray[np.float64] = np.repeat(per_frame, population.groups_per_file) * population.group_sizes
    return two_draws(population, chances, chances), two_draws(population, chances, even_chances(population))


def _windows(model: SlidingWindow, population: Population, size: int) -> tuple[PairChances, PairChances]:
    """Combines two frames of one run with two frames of independent runs."""
    window = min(model.window, size)
    full, rest = divmod(size, model.window)
    starts = model.starts(population)
    num_starts = float(starts.sum())
    begins = population.group_starts - population.file_starts[population.group_files]
    room = starts[population.group_files]

    def covered(offsets: int, stop: NDArray[np.int64]) -> NDArray[np.float64]:
        """Counts pairs of a start and one of the first ``offsets`` frames after it that are before ``stop``."""
        return _steps(stop, room) - _steps(stop - offsets, room)

    def in_group(offsets: int, distance: int = 0) -> NDArray[np.float64]:
        stops = np.maximum(begins, begins + population.group_sizes - distance)
        return covered(offsets, stops) - covered(offsets, begins)

    within, across = (
        np.zeros(max(int(sizes.max()), window)) for sizes in (population.group_sizes, population.file_sizes)
    )
    for distance in range(1, window):
        for runs, offsets in ((full, model.window - distance), (1, rest - distance)):
            if runs and offsets > 0:
                both = 2 * runs * float(in_group(offsets, distance).sum()) / num_starts
                within[distance] += both
                across[distance] += max(0.0, 2 * runs * offsets - both)
    of_run = [in_group(offsets) / num_starts for offsets in (model.window, rest)]  # frames of a run in each group
    for runs, first, second in ((full * (full - 1), 0, 0), (2 * full, 0, 1)):
        if runs and (rest or not second):
            met = two_draws(population, of_run[first], of_run[second])
            within[: len(met.in_group)] += runs * met.in_group
            across[: len(met.across)] += runs * met.across
    all_pairs = float(size) * (size - 1)
    drawn = PairChances(within / all_pairs, across / all_pairs)
    chances = (full * of_run[0] + of_run[1]) / size
    return drawn, two_draws(population, chances, even_chances(population))


def _steps(stop: NDArray[np.int64], room: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the sum of ``clip(j, 0, room)`` over all j up to ``stop``."""
    inner = np.clip(stop, 0, room).astype(np.float64)
    found: NDArray[np.float64] = inner * (inner + 1) / 2 + room * np.maximum(0, stop - room).astype(np.float64)
    return found
