"""Frames at the ticks of a steady rate, against fractions."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from framefeed import VideoDecoder
from framefeed.plan.ticks import Ticks, exact_fraction, exact_time
from framefeed.testing import samples

BASES = [Fraction(1, n) for n in (1000, 10240, 11988, 12800, 15360, 30000, 90000, 44100, 10**9)] + [
    Fraction(1001, 24000)
]
RATES = [Fraction(n) for n in (1, 2, 5, 7, 10, 12, 15, 24, 25, 30, 50, 60, 120)] + [
    Fraction(24000, 1001),
    Fraction(30000, 1001),
    Fraction(60000, 1001),
    Fraction(2997, 100),
    Fraction(25, 2),
    Fraction(1, 3),
]


@pytest.mark.parametrize("seed", range(300))
def test_each_tick_shows_what_fractions_say(seed: int) -> None:
    chance = random.Random(seed)
    base, rate = chance.choice(BASES), chance.choice(RATES)
    step = max(1, round(1 / chance.choice(RATES) / base))  # often a whole number of frames a tick, or ticks a frame
    steps = [step] * 400 if chance.random() < 0.7 else [chance.randint(1, 2 * step) for _ in range(400)]
    pts = np.cumsum([chance.choice([0, chance.randint(-(10**6), 10**8)]), *steps])
    begins = [int(each) * base for each in pts]
    place = chance.randrange(300)
    start = begins[place] if chance.random() < 0.7 else begins[place] + chance.randrange(step) * base
    stop = begins[-1]
    ticks = Ticks(exact_time(float(start), base), exact_time(float(stop), base), exact_fraction(float(rate)))
    times = [start + Fraction(tick) / rate for tick in range(ticks.count)]
    assert abs((stop - start) * rate - ticks.count) <= Fraction(1, 2)
    assert ticks.seconds().tolist() == [float(time) for time in times]
    expected = [max(number for number, begin in enumerate(begins) if begin <= time) for time in times[:40]]
    assert ticks.frames(pts, base).tolist()[:40] == expected


@pytest.mark.parametrize(
    ("value", "fraction"),
    [
        (29.97, Fraction(2997, 100)),
        (30000 / 1001, Fraction(30000, 1001)),
        (1 / 3, Fraction(1, 3)),
        (25, Fraction(25)),
        (0.1, Fraction(1, 10)),
        (Fraction(22, 7), Fraction(22, 7)),
        (1e-30, Fraction(1e-30)),
    ],
)
def test_what_a_float_stands_for(value: float, fraction: Fraction) -> None:
    assert exact_fraction(value) == fraction


def test_any_float_keeps_its_value() -> None:
    chance = random.Random(1)
    for _ in range(2000):
        value = chance.uniform(0, 10 ** chance.randint(-6, 6))
        assert float(exact_fraction(value)) == value == float(exact_time(value, chance.choice(BASES)))


@pytest.fixture(scope="module", params=[(30, None), (Fraction(30000, 1001), None), (25, Fraction(1, 90000))], ids=str)
def steady(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[VideoDecoder, Fraction]:
    """A video of 13 s, and its rate."""
    fps, base = Fraction(request.param[0]), request.param[1]
    path: Path = tmp_path_factory.mktemp("ticks") / "steady.mp4"
    units = None if base is None else int(1 / fps / base)
    pts = None if units is None else (lambda place: place * units)
    samples.write_clip(path, frames=390, fps=fps, time_base=base, pts=pts, width=96, height=64, gop=30)
    return VideoDecoder(path), fps


def test_resampling_a_video(steady: tuple[VideoDecoder, Fraction]) -> None:
    decoder, fps = steady
    every = decoder.get_all_frames().data
    chance = random.Random(8)
    for rate in (Fraction(15), fps / 2, fps / 3, 2 * fps, Fraction(10), chance.choice(RATES)):
        for start in (0, chance.randrange(300)):
            batch = decoder.get_frames_played_in_range(float(start / fps), 390 / float(fps) - 1e-9, fps=float(rate))
            exact = [start + tick * fps / rate for tick in range(len(batch))]
            wrong = [
                tick for tick, place in enumerate(exact) if not np.array_equal(batch.data[tick], every[int(place)])
            ]
            assert not wrong, (rate, start)
            assert batch.pts_seconds.tolist() == [float(place / fps) for place in exact]
    assert len(decoder.get_all_frames(fps=float(fps))) == 390
