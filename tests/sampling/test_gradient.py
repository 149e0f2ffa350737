"""Gradients of a least-squares model: unbiased orders give that of all data on average, the biased way does not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle
from framefeed.sampling import Model, Population, SlidingWindow, batch_probabilities, bias, place_probabilities

from .populations import UNEVEN

# Files of very different lengths; runs of 8 leave the ends of all of them short, and the shortest out.
POPULATION = Population.of([[12, 12, 12], [5], [20, 20], [9, 9], [30], [8]] * 6)
BATCH = 41  # of 822 frames: epochs have 20 whole batches and two frames more


def _gradients() -> NDArray[np.float64]:
    """For each frame the gradient of its squared error, at some weights: features drift with the place in the file."""
    rng = np.random.default_rng(0)
    sizes = POPULATION.file_sizes
    place = np.concatenate([np.linspace(-1, 1, size) ** 2 for size in sizes])  # large at both ends
    of_file = np.repeat(rng.standard_normal(len(sizes)), sizes)
    features = np.stack([np.ones(len(place)), place, of_file, rng.standard_normal(len(place))], 1)
    targets = features @ np.array([0.5, 2.0, -1.0, 0.3]) + 0.3 * rng.standard_normal(len(place))
    weights = np.array([0.2, 1.0, -0.5, 0.0])
    return np.asarray(2 * (features @ weights - targets)[:, None] * features)


GRADIENTS = _gradients()
FULL = GRADIENTS.mean(0)


def _batch_means(method: Order | Model, times: int) -> NDArray[np.float64]:
    """Means of the gradients of batches: all batches of an epoch, epoch after epoch."""
    if isinstance(method, Model):
        drawn = method.draw(POPULATION, BATCH, times * 20, seed=1)
        return np.asarray(GRADIENTS[drawn].mean(1).reshape(times, 20, -1))
    epochs = (method.indices(POPULATION.layout, seed=2, epoch=epoch) for epoch in range(times))
    return np.stack([GRADIENTS[drawn[: 20 * BATCH]].reshape(20, BATCH, -1).mean(1) for drawn in epochs])


def _deviation(means: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """The largest distance of a mean of independent rows from what is expected, in standard errors."""
    error = means.std(0, ddof=1) / np.sqrt(len(means))
    return float((np.abs(means.mean(0) - expected) / error).max())


@pytest.mark.parametrize(
    "order", [Shuffle(), Chunked(4), Chunked(8), Chunked(16), Buffered(64), Buffered(1024)], ids=repr
)
def test_unbiased_over_an_epoch(order: Order) -> None:
    means = _batch_means(order, 400)
    assert _deviation(means.mean(1), FULL) < 4


@pytest.mark.parametrize("order", [Shuffle(), Chunked(4), Chunked(8), Chunked(16)], ids=repr)
@pytest.mark.parametrize("step", [0, 7, 19])
def test_unbiased_at_every_step(order: Order, step: int) -> None:
    assert _deviation(_batch_means(order, 400)[:, step], FULL) < 4


def test_a_buffer_is_unbiased_at_inner_steps() -> None:
    assert _deviation(_batch_means(Buffered(64), 1000)[:, 10], FULL) < 4


def test_the_first_step_of_a_buffer_is_biased_by_as_much_as_computed() -> None:
    """It begins with whole groups: short ones, and first frames, are more likely there."""
    values = np.random.default_rng(1).standard_normal((UNEVEN.num_frames, 3))
    order = Buffered(5)
    chances = batch_probabilities(order, UNEVEN, 6, 0)
    drawn = [order.indices(UNEVEN.layout, seed=1, epoch=epoch)[:6] for epoch in range(4000)]
    means = values[np.stack(drawn)].mean(1)
    assert _deviation(means, chances @ values / 6) < 4
    assert _deviation(means, values.mean(0)) > 8


def test_in_order_is_unbiased_over_an_epoch_but_not_at_a_step() -> None:
    (means,) = _batch_means(Sequential(), 1)
    dropped = GRADIENTS[20 * BATCH :].sum(0)
    assert means.mean(0) == pytest.approx((GRADIENTS.sum(0) - dropped) / (20 * BATCH))
    assert np.abs(means[0] - FULL).max() > 10 * np.abs(means.mean(0) - FULL).max()
    chances = place_probabilities(Sequential(), POPULATION, np.arange(BATCH)).sum(0) / BATCH
    assert means[0] == pytest.approx(chances @ GRADIENTS)


@pytest.mark.parametrize("window", [4, 8])
def test_the_sliding_window_is_biased_by_as_much_as_computed(window: int) -> None:
    model = SlidingWindow(window)
    means = _batch_means(model, 400).reshape(-1, GRADIENTS.shape[1])
    expected = bias(model, POPULATION, GRADIENTS, batch_size=BATCH)
    assert _deviation(means, FULL + expected) < 4
    assert _deviation(means, FULL) > 10
    assert np.abs(expected).max() > 0.05 * np.abs(FULL).max()


def test_an_unbiased_order_has_no_bias() -> None:
    for order in (Shuffle(), Chunked(8), Buffered(64), Sequential()):
        assert bias(order, POPULATION, GRADIENTS) == pytest.approx(np.zeros(4), abs=1e-12)
