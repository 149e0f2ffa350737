"""Effect of a sampling method on the mean of a batch: bias, and variance relative to independent frames."""

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
    """Returns the squared error of a batch's mean, relative to as many independent frames.

    The error is that of the mean of a batch as an estimate of the mean of all frames, be it of a loss or of a gradient.
    It is below 1 where drawing without replacement helps, above 1 where frames of a batch are alike. ``batch_size``
    divided by it is the number of independent frames that a batch is worth. For biased methods it includes the bias.

    Args:
        method: An order of the loader, on one rank, or a model.
        population: The frames to draw from.
        batch_size: Frames in a batch, at least 2.
        correlation: Correlation of values; a number applies within groups, with none between groups.
        seed: Seed of simulated orders.
    """
    return find_pairs(method, population, batch_size, seed=seed).design_effect(correlation)


def bias(
    method: Order | Model, population: Population, values: ArrayLike, *, batch_size: int | None = None
) -> NDArray[np.float64]:
    """Returns the expected mean of a batch minus the mean of all frames.

    Args:
        method: The sampling method.
        population: The frames to draw from.
        values: A number for each frame, or a row of numbers (a gradient).
        batch_size: Frames in a batch, for models that cut their last run there.
    """
    numbers = np.asarray(values, np.float64)
    chances = draw_probabilities(method, population, batch_size=batch_size)
    found: NDArray[np.float64] = np.asarray((chances - 1 / population.num_frames) @ numbers)
    return found
