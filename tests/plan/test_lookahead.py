"""The look-ahead: within its memory, no frame forgotten, and as little decoding as the known future allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Layout, Order, Shuffle
from framefeed.plan.lookahead import Budget, GroupJob, Key, LookAhead, Use

# --- a consumer that keeps book ---


@dataclass
class Clip:
    """A video as the look-ahead sees it: groups of equal length, frames of equal size."""

    gop: int
    size: int


@dataclass
class Consumer:
    """Does what it is told, and checks that it can be done.

    Attributes:
        store: Frames that have been decoded and are kept.
        claims: How often each frame is claimed.
    """

    videos: Sequence[Clip]
    budget: Budget
    ahead: LookAhead
    store: set[Key] = field(default_factory=set)
    claims: Counter[Key] = field(default_factory=Counter)

    @classmethod
    def of(cls, videos: Sequence[Clip], num_bytes: int, *, soon: int = 0) -> Consumer:
        budget = Budget(num_bytes)
        return cls(videos, budget, LookAhead(budget, lambda video: videos[video].size, soon))

    def use(self, time: int, video: int, frame: int) -> Use:
        return Use(time, video, frame, frame // self.videos[video].gop * self.videos[video].gop)

    def open(self, *batches: Sequence[Use]) -> tuple[Key, ...]:
        """Opens batches; returns the frames that are claimed for them."""
        opening = self.ahead.open(*batches)
        now = [(job.video, frame) for job in opening.jobs for frame in job.now]
        assert len(set(now)) == len(now) and set(now) == {key for missing in opening.missing for key in missing}
        for uses, held, missing in zip(batches, opening.held, opening.missing, strict=True):
            assert sorted({(use.video, use.frame) for use in uses}) == sorted([*held, *missing])
            assert not {*held} & {*now}
            assert {*held} <= self.store, "told to be there, but nobody was asked to keep it"
            self.claims.update(held)
        self.drop()
        assert len({job.group for job in opening.jobs}) == len(opening.jobs)
        for job in opening.jobs:
            assert job.now
            self.decode(job)
        self.check()
        return tuple(key for held in opening.held for key in held)

    def prefetch(self, uses: Iterable[Use]) -> None:
        job = self.ahead.prefetch(uses)
        self.drop()
        if job is not None:
            assert not job.now and job.keep
            self.decode(job)
        self.check()

    def decode(self, job: GroupJob) -> None:
        gop = self.videos[job.video].gop
        assert all(job.start <= frame < job.start + gop for frame in job.frames)
        keep = {(job.video, frame) for frame in job.keep}
        assert not keep & self.store, "decoded though it is there"
        self.store |= {key for key in keep if self.ahead.holds(key)}  # another group may have taken its room since

    def release(self, key: Key) -> None:
        self.claims[key] -= 1
        self.ahead.release(key)
        self.drop()
        self.check()

    def drop(self) -> None:
        """Lets go of what is not to be kept any longer."""
        for key in self.ahead.take_dropped():
            assert not self.ahead.holds(key), "dropped though it is to be kept"
            assert not self.claims[key], "dropped while it was claimed"
            self.store.discard(key)
        self.ahead.settle()

    def check(self) -> None:
        held = sum(self.videos[video].size for video, _ in self.store)
        assert all(self.ahead.holds(key) for key in self.store)
        assert self.budget.taken == self.ahead.held_bytes == held
        assert self.budget.taken <= self.budget.peak <= self.budget.num_bytes


clip_lists = st.lists(st.builds(Clip, st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=4)


@st.composite
def epochs(draw: st.DrawFn) -> tuple[list[Clip], list[list[tuple[int, int]]], int]:
    """Videos, the frames of each batch, and a budget."""
    videos = draw(clip_lists)
    frame = st.tuples(st.integers(0, len(videos) - 1), st.integers(0, 20))
    batches = draw(st.lists(st.lists(frame, min_size=1, max_size=6), min_size=1, max_size=25))
    return videos, batches, draw(st.integers(0, 40))


def _uses(consumer: Consumer, batches: Sequence[Sequence[tuple[int, int]]]) -> list[list[Use]]:
    time = iter(range(1 << 30))
    return [[consumer.use(next(time), *key) for key in batch] for batch in batches]


@settings(max_examples=150, deadline=None)
@given(epoch=epochs(), window=st.integers(1, 30), soon=st.integers(0, 9), data=st.data())
def test_any_epoch_can_be_served_within_the_budget(
    epoch: tuple[list[Clip], list[list[tuple[int, int]]], int], window: int, soon: int, data: st.DataObject
) -> None:
    videos, batches, num_bytes = epoch
    consumer = Consumer.of(videos, num_bytes, soon=soon)
    planned = _uses(consumer, batches)
    unfinished: list[tuple[Key, ...]] = []
    known = number = 0
    while number < len(planned):
        while known < min(len(planned), number + window):
            consumer.ahead.extend(planned[known])
            consumer.check()
            known += 1
        first, number = number, data.draw(st.integers(number + 1, known))
        unfinished.append(consumer.open(*planned[first:number]))
        if data.draw(st.booleans()):
            consumer.prefetch(use for later in planned[number:known] for use in later)
        while len(unfinished) > data.draw(st.integers(0, 3)):  # several batches are being filled in at once
            for key in unfinished.pop(0):
                consumer.release(key)
    for claimed in unfinished:
        for key in claimed:
            consumer.release(key)
    assert consumer.budget.taken == 0 and not consumer.store, "kept for nobody"


@settings(max_examples=60, deadline=None)
@given(epoch=epochs(), data=st.data())
def test_any_epoch_can_be_left_early(
    epoch: tuple[list[Clip], list[list[tuple[int, int]]], int], data: st.DataObject
) -> None:
    videos, batches, num_bytes = epoch
    consumer = Consumer.of(videos, num_bytes)
    planned = _uses(consumer, batches)
    consumer.ahead.extend(use for batch in planned for use in batch)
    for batch in planned[: data.draw(st.integers(0, len(planned)))]:
        consumer.open(batch)
    consumer.ahead.close()
    assert consumer.budget.taken == consumer.ahead.held_bytes == 0


@settings(max_examples=60, deadline=None)
@given(epochs=st.lists(epochs(), min_size=2, max_size=2), num_bytes=st.integers(0, 40), data=st.data())
def test_two_that_share_a_budget_stay_within_it(
    epochs: list[tuple[list[Clip], list[list[tuple[int, int]]], int]], num_bytes: int, data: st.DataObject
) -> None:
    budget = Budget(num_bytes)
    waiting = []
    for videos, batches, _ in epochs:
        ahead = LookAhead(budget, lambda video, videos=videos: videos[video].size)  # type: ignore[misc]
        consumer = Consumer(videos, budget, ahead)
        planned = _uses(consumer, batches)
        ahead.extend(use for batch in planned for use in batch)
        waiting.append((ahead, planned))
    while waiting:
        ahead, planned = waiting[data.draw(st.integers(0, len(waiting) - 1))]
        for key in ahead.open(planned.pop(0)).held[0]:
            ahead.release(key)
        ahead.settle()
        if not planned:
            waiting = [each for each in waiting if each[0] is not ahead]
        assert 0 <= budget.taken <= num_bytes
    assert budget.taken == 0


@settings(max_examples=60, deadline=None)
@given(epoch=epochs(), data=st.data())
def test_frames_that_could_not_be_decoded_are_forgotten(
    epoch: tuple[list[Clip], list[list[tuple[int, int]]], int], data: st.DataObject
) -> None:
    videos, batches, num_bytes = epoch
    consumer = Consumer.of(videos, num_bytes)
    planned = _uses(consumer, batches)
    consumer.ahead.extend(use for batch in planned for use in batch)
    for batch in planned:
        claimed = consumer.open(batch)
        bad = data.draw(st.sets(st.sampled_from(sorted(consumer.store)), max_size=3)) if consumer.store else set()
        for key in bad:  # all claims end with it
            consumer.claims[key] = 0
            consumer.ahead.discard(key)
        consumer.drop()
        consumer.check()
        assert not bad & consumer.store
        for key in claimed:
            if key not in bad:
                consumer.release(key)
    assert consumer.budget.taken == 0


def test_a_frame_is_needed_again_after_it_was_discarded() -> None:
    consumer = Consumer.of([Clip(10, 1)], 5)
    uses = [consumer.use(time, 0, 3) for time in range(3)]
    consumer.ahead.extend(uses)
    assert consumer.open(uses[:1]) == ()
    consumer.ahead.discard((0, 3))
    consumer.ahead.discard((0, 3))
    consumer.drop()
    assert consumer.open(uses[1:2]) == ()
    assert consumer.open(uses[2:]) == ((0, 3),)


def test_a_frame_larger_than_the_budget_is_never_kept() -> None:
    consumer = Consumer.of([Clip(10, 6)], 5)
    uses = [consumer.use(time, 0, 3) for time in range(3)]
    consumer.ahead.extend(uses)
    for use in uses:
        assert consumer.open([use]) == ()
    assert consumer.budget.peak == 0


def test_what_batches_need_that_are_opened_together_is_not_kept() -> None:
    consumer = Consumer.of([Clip(4, 1), Clip(4, 1)], 100)
    uses = [[consumer.use(2 * frame + video, video, frame) for video in (0, 1)] for frame in range(8)]
    consumer.ahead.extend(use for batch in uses for use in batch)
    opening = consumer.ahead.open(*uses[:4])
    assert [(job.group, job.now, job.keep) for job in opening.jobs] == [
        ((0, 0), (0, 1, 2, 3), ()),
        ((1, 0), (0, 1, 2, 3), ()),
    ]
    assert consumer.ahead.open(*uses[4:6]).jobs == (
        GroupJob(0, 4, (4, 5), (6, 7), False),
        GroupJob(1, 4, (4, 5), (6, 7), False),
    )
    last = consumer.ahead.open(*uses[6:])
    assert last.jobs == () and last.held == (((0, 6), (1, 6)), ((0, 7), (1, 7)))


def test_a_repeated_frame_is_one_frame_of_its_batch() -> None:
    consumer = Consumer.of([Clip(10, 1)], 5)
    uses = [consumer.use(time, 0, 3) for time in range(6)]
    consumer.ahead.extend(uses)
    assert consumer.open(uses[:3]) == ()
    assert consumer.open(uses[3:]) == ((0, 3),)
    consumer.release((0, 3))
    assert consumer.budget.taken == 0


def test_nobody_else_has_memory_that_is_still_in_use() -> None:
    consumer = Consumer.of([Clip(10, 1)], 1)
    uses = [consumer.use(time, 0, 3) for time in range(2)]
    consumer.ahead.extend(uses)
    consumer.open(uses[:1])
    consumer.open(uses[1:])
    consumer.ahead.release((0, 3))
    assert consumer.ahead.take_dropped() == [(0, 3)]
    assert not consumer.budget.take(1)  # whoever was told so has not let go of it
    consumer.ahead.settle()
    assert consumer.budget.take(1)


def _shuffled(seed: int) -> tuple[Consumer, list[list[Use]]]:
    """Small batches over groups of frames that need most of the memory, in an order with repeats."""
    rng = np.random.default_rng(seed)
    consumer = Consumer.of([Clip(8, 1), Clip(20, 1)], 24)
    batches = [[(int(video), int(frame)) for video, frame in rng.integers(0, (2, 40), (4, 2))] for _ in range(60)]
    return consumer, _uses(consumer, batches)


def test_what_is_dropped_is_not_to_be_kept() -> None:
    """A frame that is dropped and kept again in one plan must not be told to be dropped: its memory is in use."""
    both = 0
    for seed in range(30):
        consumer, planned = _shuffled(seed)
        consumer.ahead.extend(use for batch in planned for use in batch)
        for batch in planned:
            opening = consumer.ahead.open(batch)
            both += sum(consumer.ahead.holds(key) for key in consumer.ahead.take_dropped())
            for key in opening.held[0]:
                consumer.ahead.release(key)
            consumer.ahead.take_dropped()
    assert both == 0


def test_nothing_is_dropped_for_a_frame_that_does_not_fit_anyway() -> None:
    consumer = Consumer.of([Clip(10, 10), Clip(10, 30)], 15)
    uses = [consumer.use(0, 0, 0), consumer.use(1, 1, 0), consumer.use(9, 0, 5)]
    consumer.ahead.extend(uses)
    consumer.open(uses[:1])
    assert consumer.store == {(0, 5)}
    assert consumer.ahead.prefetch(uses[1:]) is None
    assert consumer.ahead.take_dropped() == []
    assert consumer.ahead.holds((0, 5))


def test_a_frame_counts_once_when_room_is_made() -> None:
    """It was used and is needed again: it may be noted twice as one that could go, but is there once."""
    consumer = Consumer.of([Clip(1, 1), Clip(1, 2)], 1)
    batches = _uses(consumer, [[(0, 0), (0, 1)], [(0, 1)], [(1, 0)], [(1, 0), (0, 1)]])
    consumer.ahead.extend(use for batch in batches for use in batch)
    for batch in batches:
        for key in consumer.open(batch):
            consumer.release(key)
    assert consumer.budget.taken == 0


# --- what it costs ---

NUM_FRAMES = 20_000


def _cost(order: NDArray[np.int64], gop: int, share: float, *, batch: int = 1) -> float:
    """Packets decoded for each frame of an epoch, with memory for a share of all frames."""
    count = len(order)
    ahead = LookAhead(Budget(int(NUM_FRAMES * share)), lambda _: 1, soon=3 * batch)
    uses = [Use(time, 0, frame, frame // gop * gop) for time, frame in enumerate(order.tolist())]
    window = max(int(1.25 * ahead.term(0)), 16 * batch)
    known = decoded = 0
    running: dict[int, int] = {}  # by group, the next packet of a decoder that was left in it
    for first in range(0, count, batch):
        if known < min(count, first + window):
            known, before = min(count, first + window + 1024), known
            ahead.extend(uses[before:known])
            ahead.last = count - 1 if known == count else None
        opening = ahead.open(uses[first : first + batch])
        for job in opening.jobs:
            place = running.pop(job.start, job.start)
            decoded += job.frames[-1] + 1 - (place if place <= job.frames[0] else job.start)
            if job.goes_on:
                running[job.start] = job.frames[-1] + 1
        for key in opening.held[0]:
            ahead.release(key)
        ahead.take_dropped()
    return decoded / count


def _layout(gop: int) -> Layout:
    return Layout.of([[gop] * (NUM_FRAMES // gop)])


def _order(order: Order, gop: int) -> NDArray[np.int64]:
    return order.indices(_layout(gop), seed=0, epoch=0)


@pytest.mark.parametrize(
    ("gop", "share", "most"),
    [
        (30, 0, 15.6),
        (30, 0.01, 11.2),
        (30, 0.1, 4.8),
        (30, 0.25, 2.9),
        (30, 0.5, 1.9),
        (30, 0.7, 1.3),
        (30, 0.8, 1.15),
        (250, 0, 126.0),
        (250, 0.01, 41.0),
        (250, 0.1, 7.0),
        (250, 0.25, 3.5),
        (250, 0.5, 2.1),
        (250, 0.8, 1.45),
    ],
)
def test_cost_of_shuffled_single_frames(gop: int, share: float, most: float) -> None:
    cost = _cost(np.random.default_rng(0).permutation(NUM_FRAMES), gop, share)
    assert cost <= most
    if share == 0:  # what it is without any look-ahead: the place of a frame in its group
        assert cost == pytest.approx((gop + 1) / 2, rel=0.02)


@pytest.mark.parametrize(
    ("gop", "share", "most"),
    [
        (30, 0.1, 4.1),
        (30, 0.25, 2.1),
        (30, 0.5, 1.25),
        (30, 1.0, 0.21),
        (250, 0.1, 5.7),
        (250, 0.25, 2.5),
        (250, 0.5, 1.25),
        (250, 1.0, 0.21),
    ],
)
def test_cost_across_epochs(gop: int, share: float, most: float) -> None:
    """Of five epochs that are one future: what is used in this one will be needed in the next."""
    rng = np.random.default_rng(0)
    order = np.concatenate([rng.permutation(NUM_FRAMES) for _ in range(5)])
    assert _cost(order, gop, share) <= most


def test_memory_for_everything_decodes_everything_once() -> None:
    for gop in (30, 250):
        assert _cost(np.random.default_rng(0).permutation(NUM_FRAMES), gop, 1.0) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("gop", [100])
def test_more_memory_never_costs_more(gop: int) -> None:
    order = np.random.default_rng(1).permutation(NUM_FRAMES)
    costs = [_cost(order, gop, share) for share in (0, 0.02, 0.3, 1.0)]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("share", [0, 0.01, 0.1])
@pytest.mark.parametrize(("gop", "batch"), [(10, 1), (30, 1), (30, 32), (250, 1), (250, 32), (250, 128)])
def test_sequential_decodes_once(gop: int, batch: int, share: float) -> None:
    assert _cost(np.arange(NUM_FRAMES), gop, share, batch=batch) == 1.0


@pytest.mark.parametrize("gop", [10, 30, 250])
def test_buffered_decodes_once_with_enough_memory(gop: int) -> None:
    assert _cost(_order(Buffered(1000), gop), gop, 0.08, batch=16) <= 1.01


@pytest.mark.parametrize("gop", [30, 250])
def test_chunked_lies_between(gop: int) -> None:
    shuffled, chunked = (_cost(_order(order, gop), gop, 0.01) for order in (Shuffle(), Chunked(8)))
    assert chunked < 0.5 * shuffled
