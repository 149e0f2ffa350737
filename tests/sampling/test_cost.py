"""What an order costs to decode, beside what the loader counts."""

from __future__ import annotations

import numpy as np
import pytest

from framefeed import Catalog, ProcessDesc, VideoDataset, VideoLoader
from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle
from framefeed.plan import plan_frames, random_frame_cost
from framefeed.sampling import (
    Excerpt,
    FileFirst,
    Independent,
    OneFile,
    Population,
    SlidingWindow,
    decoding_cost,
    memory_needed,
)
from framefeed.testing.samples import write_clip

BATCH = 16
FRAME_BYTES = 3 * 64 * 48


@pytest.fixture(scope="module")
def clips_catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("cost")
    options = {"preset": "ultrafast", "x264-params": "scenecut=0"}
    for number in range(12):
        path = folder / f"{number:02d}.mp4"
        write_clip(path, frames=50 + 5 * number, width=64, height=48, gop=12, bframes=2, options=options, seed=number)
    return Catalog.build(folder, folder / "catalog.arrow", progress=False)


@pytest.fixture(scope="module")
def whole(clips_catalog: Catalog) -> Excerpt:
    return Excerpt.of(clips_catalog, num_frames=None)


def _counted(catalog: Catalog, order: Order, memory_frames: int) -> float:
    dataset = VideoDataset(list(catalog.paths), sequence_length=1, catalog=catalog, processing={"x": ProcessDesc()})
    budget = memory_frames * FRAME_BYTES
    loader = VideoLoader(dataset, batch_size=BATCH, order=order, memory_budget=budget, drop_last=False, num_threads=1)
    for _ in loader:
        pass
    return loader.stats().decoded_per_delivered


@pytest.mark.parametrize(
    ("order", "share"),
    [
        (Sequential(), 0.0),
        (Chunked(4), 0.0),
        (Chunked(16), 0.0),
        (Buffered(100), 0.2),
        (Shuffle(), 0.0),
        (Shuffle(), 0.1),
        (Shuffle(), 0.3),
        (Shuffle(), 1.0),
    ],
)
def test_the_plan_is_about_what_the_loader_does(
    clips_catalog: Catalog, whole: Excerpt, order: Order, share: float
) -> None:
    memory = round(share * clips_catalog.total_frames)
    planned = decoding_cost(order, whole, batch_size=BATCH, memory_frames=memory)
    assert (planned.frames, planned.whole) == (clips_catalog.total_frames, True)
    assert planned.decoded_per_delivered == pytest.approx(_counted(clips_catalog, order, memory), rel=0.2)


def test_nothing_is_decoded_twice_where_it_need_not_be(whole: Excerpt) -> None:
    population = whole.population
    for order, memory in (
        (Sequential(), 0),
        (Buffered(100), memory_needed(Buffered(100), population)),
        (Shuffle(), population.num_frames),
    ):
        cost = decoding_cost(order, whole, batch_size=BATCH, memory_frames=memory).decoded_per_delivered
        assert cost == pytest.approx(1, abs=0.02)


def test_more_memory_costs_less(whole: Excerpt) -> None:
    costs = [
        decoding_cost(Shuffle(), whole, batch_size=BATCH, memory_frames=memory).decoded_per_delivered
        for memory in (0, 60, 200, 900)
    ]
    assert costs == sorted(costs, reverse=True)


def test_single_draws_cost_what_single_frames_cost(clips_catalog: Catalog, whole: Excerpt) -> None:
    costs = [random_frame_cost(clips_catalog[number].packets) for number in range(12)]
    expected = {
        Independent(): float(np.concatenate(costs).mean()),
        FileFirst(): float(np.mean([cost.mean() for cost in costs])),
        OneFile(3): float(costs[3].mean()),
    }
    for model, cost in expected.items():
        found = decoding_cost(model, whole, batch_size=BATCH).decoded_per_delivered  # type: ignore[arg-type]
        assert found == pytest.approx(cost)


def test_windows_cost_what_their_plans_cost(clips_catalog: Catalog, whole: Excerpt) -> None:
    plans = [
        plan_frames(clips_catalog[number].packets, np.arange(first, first + 8)).num_packets
        for number in range(12)
        for first in range(clips_catalog[number].num_frames - 7)
    ]
    part = Excerpt.of(clips_catalog, num_frames=100)  # whose pieces may be shorter
    for excerpt in (whole, part):
        found = decoding_cost(SlidingWindow(8), excerpt, batch_size=BATCH).decoded_per_delivered
        assert found == pytest.approx(np.mean(plans) / 8, rel=0.05)
    assert decoding_cost(SlidingWindow(60), part, batch_size=BATCH).decoded_per_delivered == pytest.approx(1, abs=0.2)


def test_an_excerpt_has_whole_groups_of_all_lengths(clips_catalog: Catalog) -> None:
    part = Excerpt.of(clips_catalog, num_frames=300, seed=1)
    assert part.population.num_files == 12 and 250 < part.population.num_frames < 500
    assert part.share == part.population.num_frames / clips_catalog.total_frames
    files, frames = part.locate(np.arange(part.population.num_frames))
    groups = part.population.layout.groups
    for number, table in enumerate(part.tables):
        chosen = frames[files == number]
        assert (np.diff(chosen) == 1).all()
        starts = table.start[table.frames]
        assert chosen[0] == 0 or starts[chosen[0]] != starts[chosen[0] - 1]  # begins with a group
        assert chosen[-1] + 1 == len(starts) or starts[chosen[-1]] != starts[chosen[-1] + 1]
        assert len(set(zip(starts[chosen].tolist(), groups[files == number].tolist(), strict=True))) == len(
            set(starts[chosen].tolist())
        )


def test_an_excerpt_costs_about_as_much(clips_catalog: Catalog, whole: Excerpt) -> None:
    part = Excerpt.of(clips_catalog, num_frames=240, seed=2)
    assert part.share < 0.3  # memory for 200 frames is all of it, but not of the whole
    for order, memory in ((Shuffle(), 0), (Shuffle(), 200), (Chunked(4), 0), (Chunked(4), 200), (Sequential(), 0)):
        in_part, in_all = (
            decoding_cost(order, excerpt, batch_size=BATCH, memory_frames=memory).decoded_per_delivered
            for excerpt in (part, whole)
        )
        assert in_part == pytest.approx(in_all, rel=0.2)


def test_memory_needed() -> None:
    population = Population.of([[30, 12], [500]])
    assert memory_needed(Buffered(10), population) == 510
    assert memory_needed(Buffered(1000), population) == 542
    assert memory_needed(Shuffle(), population) == 0
