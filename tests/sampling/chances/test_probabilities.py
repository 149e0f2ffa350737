"""How often frames come is what was computed; a biased way is biased by as much as was computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Layout, Order, Sequential, Shuffle
from framefeed.sampling import (
    FileFirst,
    Independent,
    Model,
    OneFile,
    Population,
    SlidingWindow,
    batch_probabilities,
    bias,
    draw_probabilities,
    place_probabilities,
    probability_range,
    simulate_batches,
)
from sampling.populations import EQUAL, MIXED, UNEVEN, assert_fits, fits, videos

ORDERS: list[Order] = [
    Sequential(),
    Shuffle(),
    Chunked(1),
    Chunked(4),
    Chunked(16),
    Buffered(0),
    Buffered(5),
    Buffered(40),
    Buffered(1024),
]
MODELS: list[Model] = [
    Independent(),
    SlidingWindow(1),
    SlidingWindow(4),
    SlidingWindow(7),
    SlidingWindow(20),
    FileFirst(),
    OneFile(1),
]
BATCH = 6


EPOCHS = 2500
_DRAWN: dict[tuple[str, int], NDArray[np.int64]] = {}


def _drawn(order: Order, population: Population) -> NDArray[np.int64]:
    """The order of each of many epochs, a row each; made once."""
    key = (repr(order), id(population))
    if key not in _DRAWN:
        _DRAWN[key] = np.stack([order.indices(population.layout, seed=5, epoch=epoch) for epoch in range(EPOCHS)])
    return _DRAWN[key]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
@pytest.mark.parametrize("population", [UNEVEN, MIXED], ids=["uneven", "mixed"])
def test_frames_come_where_they_were_computed_to_come(order: Order, population: Population) -> None:
    drawn = _drawn(order, population)
    count = population.num_frames
    chances = place_probabilities(order, population, np.arange(count))
    assert np.allclose(chances.sum(0), 1) and np.allclose(chances.sum(1), 1)
    for place in range(0, count, 4):  # each place by itself: places of one epoch depend on each other
        counts = np.bincount(drawn[:, place], minlength=count)
        if isinstance(order, Sequential):
            assert counts.tolist() == (len(drawn) * chances[place]).tolist()
        else:
            assert_fits(counts, chances[place])


@pytest.mark.parametrize("order", ORDERS, ids=repr)
@pytest.mark.parametrize("number", [0, 2])
def test_chances_of_a_batch_are_those_of_its_places(order: Order, number: int) -> None:
    chances = batch_probabilities(order, UNEVEN, BATCH, number)
    places = place_probabilities(order, UNEVEN, np.arange(number * BATCH, (number + 1) * BATCH))
    assert np.allclose(chances, places.sum(0)) and chances.sum() == pytest.approx(BATCH)
    counts = np.bincount(
        _drawn(order, UNEVEN)[:, number * BATCH : (number + 1) * BATCH].ravel(), minlength=len(chances)
    )
    spread = np.sqrt(EPOCHS * chances * (1 - np.minimum(1, chances)))
    assert (np.abs(counts - EPOCHS * chances) <= 4.5 * spread + 1e-6).all()
    if order == Chunked(4):
        again = simulate_batches(order, UNEVEN, BATCH, number, epochs=EPOCHS, seed=5)
        assert again.tolist() == counts.tolist()


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_what_drop_last_leaves_out(order: Order) -> None:
    count = UNEVEN.num_frames
    chances = draw_probabilities(order, UNEVEN, batch_size=count - 1, drop_last=True)  # leaves the last place out
    assert chances.sum() == pytest.approx(1)
    assert draw_probabilities(order, UNEVEN) == pytest.approx(np.full(count, 1 / count))
    drawn = _drawn(order, UNEVEN)
    left_out = 1 - chances * (count - 1)  # chances of the frame that is left out
    counts = np.bincount(drawn[:, -1], minlength=count)
    if isinstance(order, Sequential):
        assert left_out == pytest.approx(np.eye(count)[-1])
    else:
        assert_fits(counts, np.where(np.abs(left_out) < 1e-12, 0, left_out))


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("size", [7, 16])
def test_models_draw_as_often_as_was_computed(model: Model, size: int) -> None:
    chances = draw_probabilities(model, UNEVEN, batch_size=size)
    drawn = model.draw(UNEVEN, size, 20_000, seed=3)
    picked = drawn[np.arange(len(drawn)), np.random.default_rng(0).integers(0, size, len(drawn))]
    counts = np.bincount(picked, minlength=UNEVEN.num_frames)
    if isinstance(model, SlidingWindow) and model.window == 20 and size == 7:  # one start, and the first 7 of its run
        assert chances[1:8] == pytest.approx(np.full(7, 1 / 7))
    assert_fits(counts, chances)
    assert batch_probabilities(model, UNEVEN, size) == pytest.approx(chances * size)


def test_the_sliding_window_is_biased_by_as_much_as_computed() -> None:
    population = Population.of([[30, 30], [10], [3], [30] * 4])  # files of 60, 10, 3 and 120 frames
    model = SlidingWindow(5)
    chances = draw_probabilities(model, population)
    even = np.full(population.num_frames, 1 / population.num_frames)
    counts = np.bincount(model.draw(population, 5, 40_000, seed=1)[:, 2], minlength=population.num_frames)
    # Frame 2 of a run: the first frames of a file never are.
    assert counts[[0, 1, 60, 61]].tolist() == [0, 0, 0, 0]
    picked = model.draw(population, 5, 40_000, seed=2)[np.arange(40_000), np.arange(40_000) % 5]
    counts = np.bincount(picked, minlength=population.num_frames)
    assert_fits(counts, chances)
    assert not fits(counts, even)
    # By hand: 56 + 6 + 116 starts; one run covers the first frame of a file, five cover inner ones.
    starts = 56 + 6 + 116
    assert chances[0] == pytest.approx(1 / (5 * starts)) and chances[2] == pytest.approx(3 / (5 * starts))
    assert chances[30] == pytest.approx(1 / starts)
    assert chances[70:73] == pytest.approx([0, 0, 0])  # too short for a run
    values = np.zeros(population.num_frames)
    values[[0, 59, 60, 69, 73, 192]] = 1  # first and last frames
    assert bias(model, population, values) == pytest.approx(6 / (5 * starts) - 6 / population.num_frames)


def test_file_first_favours_short_files() -> None:
    chances = draw_probabilities(FileFirst(), UNEVEN)
    assert chances[0] == pytest.approx(1 / 6) and chances[1] == pytest.approx(1 / 120)
    assert probability_range(FileFirst(), UNEVEN, 8) == pytest.approx((33 / 120, 33 / 6))


@pytest.mark.parametrize("method", [*ORDERS, *MODELS, SlidingWindow(5)], ids=repr)
@pytest.mark.parametrize("population", [UNEVEN, MIXED, EQUAL, videos(30)], ids=["uneven", "mixed", "equal", "videos"])
def test_range_is_that_of_all_chances(method: Order | Model, population: Population) -> None:
    for size in (3, 8):
        try:
            chances = draw_probabilities(method, population, batch_size=size) * population.num_frames
        except ValueError as error:
            assert isinstance(method, SlidingWindow) and "the longest has" in str(error)
            continue
        assert probability_range(method, population, size) == pytest.approx((chances.min(), chances.max()))


@dataclass(frozen=True)
class Uncut:
    """`Chunked` as it would be without a ring that is cut at a random frame."""

    chunk_size: int

    @property
    def name(self) -> str:
        return "uncut"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        ring = Chunked(self.chunk_size).indices(layout, seed=seed, epoch=epoch)
        files = np.searchsorted(layout.files, ring, side="right")
        starts = np.flatnonzero((np.diff(ring, prepend=-9) != 1) | (np.diff(files, prepend=-9) != 0))
        return np.roll(ring, -int(starts[min(1, len(starts) - 1)]))


def test_the_comparison_can_fail() -> None:
    drawn = _drawn(Uncut(4), UNEVEN)
    even = place_probabilities(Chunked(4), UNEVEN, [0])[0]
    assert not fits(np.bincount(drawn[:, 0], minlength=UNEVEN.num_frames), even)
    with pytest.raises(AssertionError, match="chi-square"):
        assert_fits(np.array([300, 700]), np.array([0.5, 0.5]))


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 64 frames, got 1600"):
        place_probabilities(Buffered(8), EQUAL, [0])
    with pytest.raises(ValueError, match=r"places must be in 0\.\.32"):
        place_probabilities(Shuffle(), UNEVEN, [33])
    with pytest.raises(ValueError, match=r"no batch 6; batches are 0\.\.5"):
        batch_probabilities(Shuffle(), UNEVEN, BATCH, 6)
    with pytest.raises(ValueError, match="needs a batch_size"):
        draw_probabilities(Sequential(), UNEVEN, drop_last=True)
    with pytest.raises(ValueError, match="but there are only"):
        draw_probabilities(Sequential(), UNEVEN, batch_size=34, drop_last=True)
    with pytest.raises(ValueError, match="no file has 21 frames; the longest has 20"):
        draw_probabilities(SlidingWindow(21), UNEVEN)
    with pytest.raises(ValueError, match="can only be simulated"):
        place_probabilities(Uncut(4), UNEVEN, [0])
    with pytest.raises(ValueError, match="window has to be in 1"):
        SlidingWindow(0)
