"""How often two frames of a batch are of one group or file: by enumeration, by simulation, and by a rule of thumb."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Layout, Order, Sequential, Shuffle
from framefeed.sampling import (
    FileFirst,
    Independent,
    Model,
    OneFile,
    PairChances,
    Population,
    SlidingWindow,
    find_pairs,
)
from framefeed.sampling.chances.pair_chances import tails
from framefeed.sampling.chances.simulation import simulate_order
from sampling.populations import EQUAL, MIXED, UNEVEN, videos

VIDEOS = videos(60)


def _counted(batches: NDArray[np.int64], population: Population, weights: NDArray[np.float64]) -> PairChances:
    """Pairs of batches (rows of frames), each as likely as its weight says."""
    groups = population.layout.groups
    files = np.repeat(np.arange(population.num_files), population.file_sizes)
    size = batches.shape[1]
    first, second = (each.ravel() for each in np.nonzero(~np.eye(size, dtype=bool)))
    one, other = batches[:, first], batches[:, second]
    weight = np.repeat(weights[:, None] / (size * (size - 1)), len(first), 1)
    same = groups[one] == groups[other]
    across = ~same & (files[one] == files[other])
    apart = np.abs(one - other)
    length = population.num_frames
    found = [np.bincount(apart[among], weight[among], minlength=length) for among in (same, across)]
    return PairChances(*(each.astype(np.float64) for each in found))


def _assert_same(found: PairChances, expected: PairChances) -> None:
    for ours, theirs in ((found.in_group, expected.in_group), (found.across, expected.across)):
        length = max(len(ours), len(theirs))
        padded = [np.pad(each, (0, length - len(each))) for each in (ours, theirs)]
        assert padded[0] == pytest.approx(padded[1], abs=1e-12)


def test_tails() -> None:
    sizes = np.array([3, 1, 5, 5])
    weights = np.array([1.0, 10.0, 0.5, 0.5])
    expected = [
        [sum(w * max(0, s - d) for s, w in zip(sizes, ws, strict=True)) for d in range(7)] for ws in ([1] * 4, weights)
    ]
    assert tails(sizes, 7).tolist() == expected[0]
    assert tails(sizes, 7, weights) == pytest.approx(expected[1])
    far = np.array([1_000_000, 3])  # found in another way
    assert tails(far, 4).tolist() == [1_000_003, 1_000_001, 999_999, 999_997]


@pytest.mark.parametrize("population", [UNEVEN, MIXED], ids=["uneven", "mixed"])
@pytest.mark.parametrize("size", [2, 5, 8])
def test_sequential_by_enumeration(population: Population, size: int) -> None:
    count = population.num_frames // size
    batches = np.arange(count * size).reshape(count, size)
    _assert_same(
        find_pairs(Sequential(), population, size).drawn, _counted(batches, population, np.full(count, 1 / count))
    )


@pytest.mark.parametrize("population", [UNEVEN, MIXED], ids=["uneven", "mixed"])
def test_shuffle_by_enumeration(population: Population) -> None:
    count = population.num_frames
    batches = np.array([(one, other) for one, other in product(range(count), repeat=2) if one != other])
    expected = _counted(batches, population, np.full(len(batches), 1 / len(batches)))
    for size in (2, 7, count):
        _assert_same(find_pairs(Shuffle(), population, size).drawn, expected)
        _assert_same(find_pairs(Chunked(1), population, size).drawn, expected)


@pytest.mark.parametrize("population", [UNEVEN, MIXED], ids=["uneven", "mixed"])
@pytest.mark.parametrize("model", [Independent(), FileFirst(), OneFile(1)], ids=repr)
def test_single_draws_by_enumeration(population: Population, model: Model) -> None:
    from framefeed.sampling import draw_probabilities

    chances = draw_probabilities(model, population)
    batches = np.array(list(product(range(population.num_frames), repeat=2)))
    expected = _counted(batches, population, chances[batches[:, 0]] * chances[batches[:, 1]])
    found = find_pairs(model, population, 9)
    _assert_same(found.drawn, expected)
    even = np.full(len(chances), 1 / len(chances))
    _assert_same(found.beside, _counted(batches, population, chances[batches[:, 0]] * even[batches[:, 1]]))
    _assert_same(found.independent, _counted(batches, population, even[batches[:, 0]] * even[batches[:, 1]]))


@pytest.mark.parametrize("population", [UNEVEN, MIXED], ids=["uneven", "mixed"])
@pytest.mark.parametrize(("window", "size"), [(2, 4), (3, 3), (4, 6), (5, 8), (9, 4)])
def test_windows_by_enumeration(population: Population, window: int, size: int) -> None:
    sizes = population.file_sizes
    places = [
        first + start
        for first, frames in zip(population.file_starts.tolist(), sizes.tolist(), strict=True)
        for start in range(frames - window + 1)
    ]
    runs = -(-size // window)
    batches = np.array(
        [[start + step for start in starts for step in range(window)][:size] for starts in product(places, repeat=runs)]
    )
    found = find_pairs(SlidingWindow(window), population, size)
    expected = _counted(batches, population, np.full(len(batches), 1 / len(batches)))
    assert found.drawn.same_group == pytest.approx(expected.same_group)
    assert found.drawn.same_file == pytest.approx(expected.same_file)
    if runs == 1:
        _assert_same(found.drawn, expected)


@pytest.mark.parametrize("order", [Chunked(4), Chunked(16), Chunked(100)], ids=repr)
@pytest.mark.parametrize("population", [VIDEOS, EQUAL], ids=["videos", "equal"])
def test_chunks_by_simulation(order: Order, population: Population) -> None:
    found = find_pairs(order, population, 64)
    within, across, error = simulate_order(order, population, 64, seed=3)
    assert found.how == "nearly exact"
    assert found.drawn.same_group == pytest.approx(within.sum(), abs=4 * error + 1e-4)
    assert found.drawn.other_group == pytest.approx(across.sum(), rel=0.05)
    near = slice(1, 4)
    assert found.drawn.in_group[near] == pytest.approx(within[near], rel=0.02)


def test_equal_chunks_by_hand() -> None:
    """Two frames of one chunk: neighbours at a distance d in a chunk of n with a chance of 1 - d/n."""
    population = Population.of([[1000]] * 50)
    found = find_pairs(Chunked(4), population, 128)
    weights = [2 * (128 - d) / (128 * 127) * (1 - d / 4) * (1000 - d) / 1000 for d in (1, 2, 3)]
    assert found.drawn.in_group[1:4] == pytest.approx(weights, rel=0.01)
    assert found.drawn.in_group[4:].sum() == pytest.approx((1 - sum(weights)) / 50, rel=0.01)


@pytest.mark.parametrize("order", [Buffered(0), Buffered(100), Buffered(1000)], ids=repr)
@pytest.mark.parametrize("population", [VIDEOS, EQUAL], ids=["videos", "equal"])
def test_buffer_by_simulation(order: Order, population: Population) -> None:
    found = find_pairs(order, population, 64)
    within, across, error = simulate_order(order, population, 64, seed=3)
    assert found.how == "simulated" and found.error < 0.01 * found.drawn.same_group + 1e-6
    assert found.drawn.same_group == pytest.approx(within.sum(), abs=4 * (error + found.error) + 1e-4)
    assert found.drawn.other_group == pytest.approx(across.sum(), rel=0.1)


def test_buffer_by_a_rule_of_thumb() -> None:
    """Delays are even in the buffer, so two frames of a group are r places apart with a chance of about 2 / buffer."""
    population = Population.of([[30]] * 4000)
    size, buffer = 128, 4096
    places = np.arange(1, size)
    met = float(((1 - places / size) * 2 / buffer * (1 - places / buffer)).sum())
    assert find_pairs(Buffered(buffer), population, size).drawn.same_group == pytest.approx(
        29 * met / (size - 1), rel=0.06
    )


class Backwards:
    """An order of somebody else."""

    name = "backwards"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        return np.arange(layout.num_samples - 1, -1, -1)


def test_orders_of_others_are_simulated() -> None:
    found = find_pairs(Backwards(), EQUAL, 40)
    expected = find_pairs(Sequential(), EQUAL, 40)
    assert (found.how, found.error) == ("simulated", 0.0)
    _assert_same(found.drawn, expected.drawn)
    many = Population(np.full(200_000, 50), np.full(100_000, 2))
    with pytest.raises(ValueError, match="can only be simulated, with up to 4194304 frames, got 10000000"):
        find_pairs(Backwards(), many, 40)


class Unknown:
    name = "unknown"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        raise NotImplementedError


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size is 34, but there are only 33 frames"):
        find_pairs(Shuffle(), UNEVEN, 34)
    with pytest.raises(ValueError, match="batch_size has to be in 2"):
        find_pairs(Shuffle(), UNEVEN, 1)
    with pytest.raises(ValueError, match=r"unknown method"):
        find_pairs(Unknown(), UNEVEN, 4)


@pytest.mark.parametrize("order", [Sequential(), Shuffle(), Chunked(16), Buffered(1024), SlidingWindow(16)], ids=repr)
def test_a_hundred_thousand_videos_take_seconds(order: Order | Model) -> None:
    rng = np.random.default_rng(0)
    groups_per_file = rng.integers(1, 20, 100_000)
    population = Population(rng.integers(1, 60, int(groups_per_file.sum())), groups_per_file)  # 30 million frames
    began = time.process_time()  # not what others do on this machine
    found = find_pairs(order, population, 128)
    assert time.process_time() - began < 15
    assert 0 <= found.drawn.same_group < found.drawn.same_file < 1
