"""Random numbers: frozen, even, and without a link between neighbours."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.plan.randomness import keys, to_unit, uniforms, whole_number


def assert_even(counts: NDArray[np.int64], deviations: float = 4.0) -> None:
    """Fails if such counts come from equally likely cells less often than ``deviations`` standard deviations allow."""
    expected = counts.sum() / counts.size
    assert expected >= 5, "too few draws for a chi-square test"
    statistic = float(((counts - expected) ** 2).sum() / expected)
    # Wilson and Hilferty: the cube root of chi-square over its degrees of freedom is nearly normal.
    freedom = counts.size - 1
    spread = 2 / (9 * freedom)
    limit = freedom * (1 - spread + deviations * math.sqrt(spread)) ** 3
    assert statistic < limit, f"chi-square {statistic:.1f} of {freedom} degrees of freedom, at most {limit:.1f}"


def test_assert_even_can_fail() -> None:
    assert_even(np.array([98, 103, 99, 100]))
    with pytest.raises(AssertionError, match="chi-square"):
        assert_even(np.array([60, 140, 100, 100]))


def test_keys_are_frozen() -> None:
    assert keys(4, 7, 3, 1).tolist() == [0xCA1325179B78602D, 0xCB5BF4981DFBE52C, 0x78811B486CB0B092, 0x70EE89DEAEE8399F]
    assert keys(2, 2**64 - 1, 0).tolist() == [0x70CF0A8F9FB84AA2, 0xD1F6F2D1649A0133]


def test_fewer_keys_are_the_first_of_more() -> None:
    assert keys(0, 1).tolist() == []
    assert keys(5, 1, 2).tolist() == keys(100, 1, 2)[:5].tolist()
    assert keys(5, 1, 2).dtype == np.uint64


def test_other_entropy_gives_other_keys() -> None:
    entropies = [(), (0,), (0, 0), (1,), (1, 0), (0, 1), (1, 1), (2**32,), (2**32, 0), (0, 2**32), (2**64 - 1,)]
    entropies += [(2**32 + 1,), (1, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0, 0)]
    drawn = [tuple(keys(2, *entropy).tolist()) for entropy in entropies]
    assert len(set(drawn)) == len(entropies)


def test_keys_are_even() -> None:
    drawn = keys(200_000, 5, 6)
    for shift in (0, 24, 56):
        assert_even(np.bincount(((drawn >> np.uint64(shift)) & np.uint64(255)).astype(np.int64), minlength=256))


@pytest.mark.parametrize("entropy", [(-1,), (0, -5), (2**64,)])
def test_keys_refuse_what_is_out_of_range(entropy: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"seed.* has to be in 0\.\.{2**64 - 1}, got {entropy[-1]}"):
        keys(3, *entropy)


def test_whole_number() -> None:
    assert whole_number("rank", np.int64(3)) == 3  # type: ignore[arg-type]
    assert type(whole_number("rank", True)) is int
    with pytest.raises(TypeError, match=r"rank has to be a whole number, got 1\.5"):
        whole_number("rank", 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"rank has to be in 1\.\.4, got 5"):
        whole_number("rank", 5, least=1, most=4)


def test_uniforms_are_frozen() -> None:
    assert uniforms(7, 3, np.arange(5), 1).tolist() == [
        0.7351202499373306,
        0.5942064424077605,
        0.41703874378571437,
        0.3906447552571013,
        0.8435661421508461,
    ]
    assert uniforms(2**64 - 1, 0, np.array([2**62, 0]), 0).tolist() == [0.5844959789036861, 0.5041671241022117]


def test_uniforms_of_a_sample_depend_on_no_other() -> None:
    samples = np.array([5, 3, 900_000_000_000, 3, 0])
    together = uniforms(1, 2, samples, 3)
    assert together.dtype == np.float64
    assert together.tolist() == [uniforms(1, 2, np.array([sample]), 3)[0] for sample in samples]
    assert uniforms(1, 2, np.empty(0, np.int64), 3).tolist() == []


def test_to_unit_stays_below_one() -> None:
    assert to_unit(np.array([0, 2**63, 2**64 - 1], np.uint64)).tolist() == [0.0, 0.5, 1 - 2.0**-53]


@pytest.mark.parametrize(("seed", "epoch", "which"), [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**63, 10**6, 9)])
def test_uniforms_are_even(seed: int, epoch: int, which: int) -> None:
    drawn = uniforms(seed, epoch, np.arange(200_000), which)
    assert drawn.min() >= 0 and drawn.max() < 1
    assert_even(np.histogram(drawn, 1000, (0, 1))[0])
    # The lower bits as well.
    assert_even(np.histogram(drawn * 2**30 % 1, 1000, (0, 1))[0])


SAMPLES = np.arange(100_000)
VARIANTS = {
    "first": (0, 0, SAMPLES, 0),
    "sample": (0, 0, SAMPLES + 1, 0),
    "every second": (0, 0, SAMPLES * 2, 0),
    "epoch": (0, 1, SAMPLES, 0),
    "which": (0, 0, SAMPLES, 1),
    "seed": (1, 0, SAMPLES, 0),
    "high bit of the seed": (2**63, 0, SAMPLES, 0),
    "high bit of the epoch": (0, 2**63, SAMPLES, 0),
}


def _pairs(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.histogram2d(one, other, 20, ((0, 1), (0, 1)))[0].astype(np.int64)


@pytest.mark.parametrize(("one", "other"), list(combinations(VARIANTS, 2)))
def test_neighbours_are_independent(one: str, other: str) -> None:
    assert_even(_pairs(uniforms(*VARIANTS[one]), uniforms(*VARIANTS[other])))


def test_neighbours_along_seeds_epochs_and_which() -> None:
    for axis in range(3):
        words = np.zeros((8_001, 3), np.int64)
        words[:, axis] = np.arange(len(words))
        drawn = np.array([uniforms(seed, epoch, np.array([4]), which)[0] for seed, epoch, which in words.tolist()])
        assert_even(_pairs(drawn[1:], drawn[:-1]))


@pytest.mark.parametrize("name", ["seed", "epoch", "which"])
def test_uniforms_refuse_what_is_negative(name: str) -> None:
    arguments = {"seed": 0, "epoch": 0, "which": 0, name: -1}
    with pytest.raises(ValueError, match=f"{name} has to be in 0"):
        uniforms(arguments["seed"], arguments["epoch"], np.arange(3), arguments["which"])
