"""Streams that wait for one another: for all that they have to, and hardly more often."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest

from framefeed.cuda import timelines
from framefeed.cuda.timelines import Moment, Timeline, default_timeline


class Driver:
    """Streams as lists of numbered work; for each, how far it is behind which work of others."""

    def __init__(self) -> None:
        self.queued: Counter[int] = Counter()
        self.after: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self.waits = 0

    def work(self, stream: int) -> None:
        self.queued[stream] += 1

    def state(self, stream: int) -> Counter[int]:
        return self.after[stream] | Counter({stream: self.queued[stream]})


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    found = Driver()

    class Event:
        def __init__(self, stream: int) -> None:
            self.state = found.state(stream)

        def wait(self, stream: int) -> None:
            found.waits += 1
            found.after[stream] |= self.state

    monkeypatch.setattr(timelines, "Event", Event)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_left_out(seed: int, driver: Driver) -> None:
    rng = random.Random(seed)
    handles = range(1, 6)
    streams = {handle: Timeline(handle) for handle in handles}
    taken: list[tuple[Moment, Counter[int]]] = []
    for _ in range(300):
        handle = rng.choice(handles)
        driver.work(handle)
        if rng.random() < 0.5:
            taken.append((streams[handle].now(), driver.state(handle)))
        elif taken:
            chosen = rng.choices(taken, k=rng.randrange(1, 9))
            streams[handle].wait_for(moment for moment, _ in chosen)
            for _, state in chosen:
                assert driver.state(handle) | state == driver.state(handle)


def test_only_the_last_moment_of_a_stream_is_waited_for(driver: Driver) -> None:
    one, other, third = Timeline(1), Timeline(2), Timeline(3)
    moments = [one.now() for _ in range(10)] + [third.now()]
    other.wait_for(moments)
    assert driver.waits == 2
    other.wait_for(moments[3:])
    assert driver.waits == 2
    other.wait_for([one.now()])
    assert driver.waits == 3


def test_no_stream_waits_for_itself(driver: Driver) -> None:
    one = Timeline(1)
    one.wait_for([one.now(), one.now()])
    assert driver.waits == 0


def test_each_gpu_has_a_default_stream() -> None:
    assert default_timeline(0) is default_timeline(0) is not default_timeline(1)
