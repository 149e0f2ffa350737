"""Correlation from values: known ones are found again, with groups of unequal size."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.sampling import Population, estimate_correlation, variance_components

from .populations import videos

VIDEOS = videos(100, seed=4)


def _ids(population: Population) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    sizes = population.file_sizes
    frames = np.arange(population.num_frames) - np.repeat(population.file_starts, sizes)
    return np.repeat(np.arange(population.num_files), sizes), population.layout.groups, frames


def _values(population: Population, shares: tuple[float, float, float], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    of_files, of_groups, of_frames = (np.sqrt(share) for share in shares)
    parts = (
        np.repeat(of_files * rng.standard_normal(population.num_files), population.file_sizes),
        np.repeat(of_groups * rng.standard_normal(population.num_groups), population.group_sizes),
        of_frames * rng.standard_normal(population.num_frames),
    )
    return np.asarray(100 + 7 * np.sum(parts, axis=0))


def test_balanced_groups_by_hand() -> None:
    """One file a group, so that the classical one-way formula applies: (MSB - MSW) / (MSB + (g - 1) MSW)."""
    values = np.array([[1.0, 2.0, 3.0], [5.0, 7.0, 6.0], [2.0, 2.0, 5.0], [9.0, 8.0, 10.0]])
    between = 3 * values.mean(1).var(ddof=1)
    within = values.var(1, ddof=1).mean()
    expected = (between - within) / (between + 2 * within)
    ids = np.repeat(np.arange(4), 3)
    found = estimate_correlation(values.ravel(), ids, ids)
    assert (found.group, found.file) == pytest.approx((expected, expected))
    # All in one file: the same between groups, and nothing is known between files.
    found = estimate_correlation(values.ravel(), np.zeros(12, np.int64), ids)
    assert (found.group, found.file) == pytest.approx((expected, 0.0))
    assert found.error is None


def test_unequal_sizes_by_hand() -> None:
    """One-way with groups of 2, 3 and 5: n0 = (N - sum of squares / N) / (k - 1)."""
    groups = [[1.0, 2.0], [4.0, 6.0, 5.0], [1.0, 0.0, 2.0, 1.0, 3.0]]
    values = np.concatenate([np.array(group) for group in groups])
    ids = np.repeat(np.arange(3), [2, 3, 5])
    means = np.array([np.mean(group) for group in groups])
    sizes = np.array([2, 3, 5])
    between = float((sizes * (means - values.mean()) ** 2).sum()) / 2
    within = sum(float(((np.array(group) - np.mean(group)) ** 2).sum()) for group in groups) / 7
    n0 = (10 - (sizes**2).sum() / 10) / 2
    variance = (between - within) / n0
    components = variance_components(values, np.zeros(10, np.int64), ids)
    assert (components.files, components.groups, components.frames) == pytest.approx((0, variance, within))
    assert components.total == pytest.approx(variance + within)


@pytest.mark.parametrize("shares", [(0.2, 0.3, 0.5), (0.0, 0.6, 0.4), (0.7, 0.2, 0.1), (0.0, 0.0, 1.0)])
def test_known_shares_are_found(shares: tuple[float, float, float]) -> None:
    files, groups, frames = _ids(VIDEOS)
    found = [estimate_correlation(_values(VIDEOS, shares, seed), files, groups, frames) for seed in range(10)]
    for name, expected in (("group", shares[0] + shares[1]), ("file", shares[0])):
        estimates = np.array([getattr(each, name) for each in found])
        error = estimates.std(ddof=1) / np.sqrt(len(estimates))
        assert abs(estimates.mean() - expected) < 4 * error + 0.01
    # What is told to be the standard error is about as large as estimates differ.
    errors = [each.error for each in found if each.error is not None]
    spread = float(np.std([each.group for each in found], ddof=1))
    assert 0.4 * spread - 0.005 < np.mean(errors) < 2.5 * spread + 0.005
    near = np.mean([each.by_distance[0] for each in found])
    assert near == pytest.approx(shares[0] + shares[1], abs=0.05)


def test_correlation_by_distance() -> None:
    population = Population.of([[40] * 5] * 60)
    files, groups, frames = _ids(population)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((population.num_files, 200))
    for frame in range(1, 200):
        values[:, frame] = 0.95 * values[:, frame - 1] + np.sqrt(1 - 0.95**2) * values[:, frame]
    found = estimate_correlation(values.ravel(), files, groups, frames)
    for known, correlations in (
        (found.distances, found.by_distance),
        (found.file_distances, found.by_file_distance),
    ):
        assert known[:4] == (1, 2, 3, 4) and max(known) > 30
        near = sum(distance <= 40 for distance in known)  # of farther ones there are few
        assert correlations[:near] == pytest.approx([0.95**distance for distance in known[:near]], abs=0.08)
    assert found.in_group(np.array([1]))[0] == pytest.approx(0.95, abs=0.02)


def test_long_files_are_looked_at_in_part() -> None:
    population = Population.of([[100] * 30, [100] * 20])
    files, groups, frames = _ids(population)
    values = np.repeat(np.random.default_rng(0).standard_normal(50), 100)
    values += 0.01 * np.random.default_rng(1).standard_normal(5000)
    found = estimate_correlation(values, files, groups, frames)
    assert found.group > 0.99 and max(found.file_distances) < 512


def test_what_says_nothing_is_refused() -> None:
    ids = np.arange(4)
    with pytest.raises(ValueError, match="needs a group with two values"):
        estimate_correlation(np.array([0.0, 1, 2, 3]), ids, ids)
    with pytest.raises(ValueError, match="needs a group with two values"):
        estimate_correlation(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    with pytest.raises(ValueError, match="all values are equal"):
        estimate_correlation(np.ones(4), ids // 2, ids // 2)
    with pytest.raises(ValueError, match="must be finite"):
        estimate_correlation(np.array([1, np.nan, 2, 3]), ids // 2, ids // 2)
    with pytest.raises(ValueError, match="a frame has two values"):
        estimate_correlation(np.array([0.0, 1, 2, 3]), ids // 2, ids // 2, np.zeros(4, np.int64))
