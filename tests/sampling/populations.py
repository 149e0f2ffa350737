"""Populations that tests draw from, and how well counts fit to chances."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from framefeed.sampling import Population

# Files of wildly different lengths, some of one frame, most shorter than a chunk.
UNEVEN = Population.of([[1], [20], [1], [2, 1], [7], [1]])
MIXED = Population.of([[4, 4, 2], [9], [1], [3, 3, 3, 3], [6, 1]])
EQUAL = Population.of([[8] * 5] * 40)


def videos(count: int, *, shortest: int = 1, seed: int = 0) -> Population:
    """Files of up to 300 frames in groups of 30, as encoders make them."""
    lengths = np.random.default_rng(seed).integers(shortest, 300, count)
    return Population.of([[30] * (n // 30) + ([n % 30] if n % 30 else []) for n in lengths.tolist()])


def assert_fits(counts: NDArray[np.int64], chances: NDArray[np.float64], deviations: float = 4.0) -> None:
    """Fails if such counts come from these chances less often than so many standard deviations allow (chi-square)."""
    statistic, freedom = _chi_square(counts, chances)
    limit = _limit(freedom, deviations)
    assert statistic < limit, f"chi-square {statistic:.1f} of {freedom} degrees of freedom, at most {limit:.1f}"


def fits(counts: NDArray[np.int64], chances: NDArray[np.float64], deviations: float = 4.0) -> bool:
    """The same as an answer."""
    statistic, freedom = _chi_square(counts, chances)
    return statistic < _limit(freedom, deviations)


def _chi_square(counts: NDArray[np.int64], chances: NDArray[np.float64]) -> tuple[float, int]:
    assert math.isclose(chances.sum(), 1, rel_tol=1e-9)
    assert counts[chances == 0].sum() == 0, "what cannot be drawn was drawn"
    expected = counts.sum() * chances
    large = expected >= 5
    together = np.append(expected[large], expected[~large].sum())
    found = np.append(counts[large], counts[~large].sum())
    kept = together >= 5
    assert kept.sum() > 1, "too few draws for a chi-square test"
    statistic = float(((found[kept] - together[kept]) ** 2 / together[kept]).sum())
    return statistic, int(kept.sum()) - 1


def _limit(freedom: int, deviations: float) -> float:
    # Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + deviations * math.sqrt(spread)) ** 3)
