"""Timelines: the source frames of an output and their times, in exact integer arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from framefeed.index.video_index import VideoIndex
from framefeed.plan.ticks import Ticks

__all__ = ["OutputTimeline", "make_timeline", "nominal_rate", "part_of"]

MAX_SCALE = 1_000_000  # ticks per second above which a coarser time base is tried
MAX_TICKS = (1 << 31) - 1  # MP4's limit

# Encoders get a constant rate, which affects quality a little; they reject higher ones.
MAX_RATE = 240


@dataclass(frozen=True, eq=False)
class OutputTimeline:
    """Frames of an output.

    Attributes:
        frames: Source frame of each output frame: rising, with repeats if the rate is higher.
        pts: Times in units of ``time_base``; strictly rising, at least 0.
        duration: Durations in the same unit.
        time_base: In seconds; one divided by an integer.
        shift: Seconds added to the source's times.
    """

    frames: NDArray[np.int64]
    pts: NDArray[np.int64]
    duration: NDArray[np.int64]
    time_base: Fraction
    shift: Fraction = Fraction(0)

    def __len__(self) -> int:
        return len(self.frames)


def make_timeline(index: VideoIndex, fps: Fraction | None) -> OutputTimeline:
    """Returns all frames of a video, at their own times or at a constant rate.

    With a rate there is one frame per tick from the first frame's time on: the one shown then, as in
    ``VideoDecoder.get_all_frames(fps=...)``. Outputs never start before 0: if the source does, times are shifted.
    """
    packets = index.packets
    base = index.stream.time_base
    scale = base.denominator
    pts, duration = packets.frame_pts * base.numerator, packets.frame_duration * base.numerator
    shift = max(0, -int(pts[0]))
    if fps is not None:
        return _resampled(pts + shift, int(pts[-1] + duration[-1]) + shift, scale, fps, Fraction(shift, scale))
    common = 1
    if scale > MAX_SCALE:
        common = math.gcd(scale, int(np.gcd.reduce(pts)), int(np.gcd.reduce(duration)), shift)
    return OutputTimeline(
        np.arange(len(pts)),
        (pts + shift) // common,
        duration // common,
        Fraction(1, scale // common),
        Fraction(shift, scale),
    )


def _resampled(pts: NDArray[np.int64], end: int, scale: int, fps: Fraction, shift: Fraction) -> OutputTimeline:
    begin = Fraction(int(pts[0]), scale)
    ticks = Ticks(begin, max(Fraction(end, scale), begin + 1 / fps), fps)  # at least one
    chosen = ticks.frames(pts, Fraction(1, scale))
    # Ticks and the first frame's time as integers of one unit, if MP4 can store such a unit.
    unit = math.lcm(begin.denominator, fps.numerator)
    if unit > MAX_TICKS:
        unit = fps.numerator * max(1, MAX_SCALE // fps.numerator)
    each = unit // fps.numerator * fps.denominator
    first = round(begin * unit)
    times = first + np.arange(ticks.count, dtype=np.int64) * each
    return OutputTimeline(chosen, times, np.full(ticks.count, each), Fraction(1, unit), shift)


def part_of(timeline: OutputTimeline, first: int, stop: int) -> OutputTimeline:
    """Returns the part of a timeline with the source frames from ``first`` up to ``stop``, starting at 0."""
    low, high = np.searchsorted(timeline.frames, [first, stop]).tolist()
    begin = int(timeline.pts[low]) if low < high else 0
    return OutputTimeline(
        timeline.frames[low:high],
        timeline.pts[low:high] - begin,
        timeline.duration[low:high],
        timeline.time_base,
        timeline.shift - begin * timeline.time_base,
    )


def nominal_rate(timeline: OutputTimeline) -> Fraction:
    """Returns the approximate frame rate, for the encoder."""
    ticks = int(timeline.pts[-1] + timeline.duration[-1] - timeline.pts[0])
    if ticks <= 0:
        return Fraction(30)
    rate = len(timeline) / (ticks * timeline.time_base)
    if rate.denominator > 1001 or rate.numerator > 1 << 20:
        rate = rate.limit_denominator(1001)
    return min(max(rate, Fraction(1)), Fraction(MAX_RATE))
