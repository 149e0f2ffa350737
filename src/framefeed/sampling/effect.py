"""What a way to draw does to the mean of a batch: its bias, and its variance beside that of independent frames."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed.dataset.orders import Order
from framefeed.sampling.chances.pairs import find_pairs
from framefeed.sampling.chances.probabilities import draw_probabilities
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.models import Model
from framefeed.sampling.population import Population

__all__ = ["bias", "design_effect"]


def design_effect(
    method: Order | Model, population: Population, batch_size: int, correlation: Correlation | float, *, seed: int = 0
) -> float:
    """Squared error of a batch's mean, beside that of as many independent frames.

    The error is that of the mean of a batch as an estimate of the mean of all frames, be it of a loss or of a gradient.
    Below 1 where drawing without putting back helps, above 1 where frames of a batch are alike. ``batch_size`` divided
    by it is the number of independent frames that a batch is worth. Of ways to draw that are biased, the bias is in it.

    Args:
        method: An order of the loader, on one rank, or a model.
        population: What is drawn from.
        batch_size: Frames of a batch, at least 2.
        correlation: Of values; a number is that of two frames of a group, with none between groups.
        seed: For orders that are simulated.
    """
    return find_pairs(method, population, batch_size, seed=seed).design_effect(correlation)


def bias(
    method: Order | Model, population: Population, values: ArrayLike, *, batch_size: int | None = None
) -> NDArray[np.float64]:
    """The mean of a batch less the mean of all frames, on average.

    Args:
        method: The way to draw.
        population: What is drawn from.
        values: A number for each frame, or a row of numbers (a gradient).
        batch_size: Frames of a batch, for models that cut their last run there.
    """
    numbers = np.asarray(values, np.float64)
    chances = draw_probabilities(method, population, batch_size=batch_size)
    found: NDArray[np.float64] = np.asarray((chances - 1 / population.num_frames) @ numbers)
    return found
