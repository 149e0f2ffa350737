"""The variance of a batch's mean, measured on values of known correlation, is what was computed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle
from framefeed.sampling import (
    Correlation,
    FileFirst,
    Independent,
    Model,
    OneFile,
    Population,
    SlidingWindow,
    design_effect,
    find_pairs,
)

from .populations import EQUAL, UNEVEN, videos

VIDEOS = videos(60, shortest=20)  # where a file is drawn first, one of a single frame would be all there is to see
ORDERS: list[Order] = [
    Sequential(),
    Shuffle(),
    Chunked(4),
    Chunked(16),
    Chunked(64),
    Buffered(0),
    Buffered(256),
    Buffered(2048),
]
MODELS: list[Model] = [Independent(), SlidingWindow(5), SlidingWindow(16), FileFirst()]
METHODS: list[Order | Model] = [*ORDERS, *MODELS]

TIMES = 120  # how often values are drawn
BATCH = 64


def _nested(population: Population, of_files: float, of_groups: float, seed: int) -> NDArray[np.float64]:
    """Values with these shares of variance, the rest within groups; one column for each time."""
    rng = np.random.default_rng(seed)

    def part(share: float, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.repeat(np.sqrt(share) * rng.standard_normal((len(sizes), TIMES)), sizes, axis=0)

    rest = np.sqrt(1 - of_files - of_groups) * rng.standard_normal((population.num_frames, TIMES))
    return np.asarray(part(of_files, population.file_sizes) + part(of_groups, population.group_sizes) + rest)


def _fading(population: Population, left: float, seed: int) -> NDArray[np.float64]:
    """Values whose correlation within a file is ``left ** distance``."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((population.num_frames, TIMES))
    first = set(population.file_starts.tolist())
    for frame in range(population.num_frames):
        if frame not in first:
            values[frame] = left * values[frame - 1] + np.sqrt(1 - left**2) * values[frame]
    return values


def _measured(method: Order | Model, population: Population, values: NDArray[np.float64], size: int) -> float:
    """Mean squared error of batches' means, by what it is for independent frames."""
    centred = values - values.mean(0)
    count = population.num_frames // size
    errors = []
    for turn in range(1 if isinstance(method, Sequential) else 6):
        if isinstance(method, Model):
            batches = method.draw(population, size, 200, seed=turn)
        else:
            drawn = method.indices(population.layout, seed=7, epoch=turn)
            batches = drawn[: count * size].reshape(count, size)
        errors.append(np.stack([centred[batch].mean(0) for batch in batches]) ** 2)
    return float(np.concatenate(errors).mean() * size / centred.var(0).mean())


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_known_correlation_within_groups(method: Order | Model) -> None:
    values = _nested(VIDEOS, 0.0, 0.5, seed=1)
    assert _measured(method, VIDEOS, values, BATCH) == pytest.approx(
        design_effect(method, VIDEOS, BATCH, 0.5), rel=0.05
    )


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_known_correlation_within_groups_and_files(method: Order | Model) -> None:
    values = _nested(VIDEOS, 0.2, 0.3, seed=2)
    effect = design_effect(method, VIDEOS, BATCH, Correlation(0.5, 0.2))
    assert _measured(method, VIDEOS, values, BATCH) == pytest.approx(effect, rel=0.05)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_correlation_that_fades_with_distance(method: Order | Model) -> None:
    left = 0.9
    distances = tuple(range(1, 60))
    fading = tuple(left**distance for distance in distances)
    correlation = Correlation(0.5, 0.1, distances, fading, distances, fading)
    values = _fading(VIDEOS, left, seed=3)
    effect = design_effect(method, VIDEOS, BATCH, correlation)
    assert _measured(method, VIDEOS, values, BATCH) == pytest.approx(effect, rel=0.05)


def test_one_number_for_a_group_would_not_do() -> None:
    """Neighbours are more alike than frames of a group are on average, and chunks have neighbours."""
    left, distances = 0.9, tuple(range(1, 60))
    fading = tuple(left**distance for distance in distances)
    on_average = float(np.average(fading[:29], weights=np.arange(29, 0, -1)))
    values = _fading(VIDEOS, left, seed=3)
    measured = _measured(Chunked(4), VIDEOS, values, BATCH)
    assert measured > 1.5 * design_effect(Chunked(4), VIDEOS, BATCH, on_average)


def test_the_comparison_can_fail() -> None:
    values = _nested(VIDEOS, 0.0, 0.5, seed=1)
    measured = _measured(Chunked(16), VIDEOS, values, BATCH)
    assert measured != pytest.approx(design_effect(Chunked(16), VIDEOS, BATCH, 0.6), rel=0.05)
    assert measured != pytest.approx(design_effect(Chunked(12), VIDEOS, BATCH, 0.5), rel=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0, Correlation(0.7, 0.4)], ids=str)
@pytest.mark.parametrize("population", [VIDEOS, EQUAL, UNEVEN], ids=["videos", "equal", "uneven"])
@pytest.mark.parametrize("size", [2, 20, 33])
def test_a_shuffle_is_without_replacement(correlation: Correlation | float, population: Population, size: int) -> None:
    count = population.num_frames
    effect = design_effect(Shuffle(), population, size, correlation)
    assert effect == pytest.approx((count - size) / (count - 1), abs=1e-9)
    assert design_effect(Independent(), population, size, correlation) == pytest.approx(1)


def test_long_files_and_large_batches_by_hand() -> None:
    """With many long files and b frames of which n are a chunk, it is 1 + (n - 1) r, less a little at batches' ends."""
    population = Population.of([[30] * 20] * 500)
    for chunk in (2, 4, 8):
        inside = sum(2 * (1 - d / chunk) * (30 - d) / 30 for d in range(1, chunk))  # pairs that are of one group
        assert design_effect(Chunked(chunk), population, 4096, 0.5) == pytest.approx(1 + 0.5 * inside, rel=0.02)
    # A batch in order has groups of 30 as a whole, but for its two ends.
    assert design_effect(Sequential(), population, 3000, 0.5) == pytest.approx(1 + 29 * 0.5, rel=0.02)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_no_correlation_no_effect(method: Order | Model) -> None:
    effect = design_effect(method, VIDEOS, BATCH, 0.0)
    count = VIDEOS.num_frames
    if isinstance(method, Model):
        assert 0.98 < effect < 1.3  # a biased one draws some frames often
    else:
        assert effect == pytest.approx((count - BATCH) / (count - 1), rel=0.01)


def test_all_frames_of_a_group_the_same() -> None:
    one = Population.of([[10]])
    assert design_effect(Shuffle(), one, 4, 1.0) == 1.0  # no variance at all
    assert design_effect(OneFile(0), VIDEOS, BATCH, Correlation(1.0, 1.0)) == pytest.approx(
        BATCH * (1 + 1 / 60), rel=0.3
    )  # a batch is worth one frame, and it is always of the same file


def test_the_whole_epoch_has_no_error() -> None:
    for order in (Shuffle(), Sequential(), Chunked(4)):
        assert design_effect(order, EQUAL, EQUAL.num_frames, 0.5) == pytest.approx(0, abs=1e-6)


def test_correlations_are_checked() -> None:
    with pytest.raises(ValueError, match=r"in -1\.\.1, got 1\.5"):
        Correlation(1.5)
    with pytest.raises(ValueError, match="2 distances, but 1 correlations"):
        Correlation(0.5, 0.0, (1, 2), (0.5,))
    with pytest.raises(ValueError, match="distances must rise from 1"):
        Correlation(0.5, 0.0, (0, 2), (0.5, 0.5))
    profile = Correlation(0.5, 0.2, (1, 3), (0.9, 0.7))
    assert profile.in_group(np.array([0, 1, 2, 3, 9])) == pytest.approx([1, 0.9, 0.8, 0.7, 0.7])
    assert profile.across_groups(np.array([0, 5])) == pytest.approx([0.2, 0.2])
    assert find_pairs(Shuffle(), EQUAL, 8).drawn.correlation(Correlation(0.0)) == 0
