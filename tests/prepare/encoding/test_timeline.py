"""Times are whole numbers, and those of the source."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import clips
from framefeed import VideoDecoder, VideoIndex
from framefeed.prepare.encoding.timeline import OutputTimeline, make_timeline, nominal_rate, part_of


@pytest.mark.parametrize("name", ["mp4_vfr", "mp4_ntsc", "mkv_start_10s", "edit_empty", "h264_raw"])
def test_times_of_frames(name: str, clip_folder: Path) -> None:
    index = VideoIndex.scan(clips.make(name, clip_folder))
    timeline = make_timeline(index, None)
    seconds = [tick * timeline.time_base for tick in timeline.pts.tolist()]
    assert seconds == [tick * index.stream.time_base for tick in index.packets.frame_pts.tolist()]
    assert timeline.time_base.numerator == 1 and timeline.shift == 0
    assert timeline.frames.tolist() == list(range(index.num_frames))


def test_what_begins_before_zero_is_moved(clip_folder: Path) -> None:
    index = VideoIndex.scan(clips.make("ts_wraps", clip_folder))
    timeline = make_timeline(index, None)
    assert timeline.pts[0] == 0 and timeline.shift == Fraction(2, 3) == -index.packets.frame_pts[0] * Fraction(1, 90000)
    assert np.array_equal(np.diff(timeline.pts), np.diff(index.packets.frame_pts))


@pytest.mark.parametrize("name", ["mp4_vfr", "mp4_ntsc", "mkv_start_10s"])
@pytest.mark.parametrize("fps", [Fraction(7), Fraction(24000, 1001), Fraction(100)])
def test_a_steady_rate(name: str, fps: Fraction, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    decoder = VideoDecoder(path)
    timeline = make_timeline(decoder.index, fps)
    expected = decoder.get_all_frames(fps=float(fps))
    times = [float(tick * timeline.time_base) for tick in timeline.pts.tolist()]
    assert times == pytest.approx(expected.pts_seconds.tolist(), abs=1e-9)
    assert {tick * timeline.time_base for tick in np.diff(timeline.pts).tolist()} == {1 / fps}
    assert torch.equal(decoder.get_frames_at(timeline.frames.tolist()).data, expected.data)


def test_ticks_that_fall_on_a_frame() -> None:
    """Exact where floating point is not: 0.1 s are three frames of 1/30 s."""
    timeline = make_timeline(_index(np.arange(300) * 512, Fraction(1, 15360)), Fraction(10))
    assert timeline.frames.tolist() == list(range(0, 300, 3))


def _index(pts: NDArray[np.int64], time_base: Fraction) -> VideoIndex:
    """As much of an index as a timeline is made from."""
    packets = SimpleNamespace(frame_pts=pts, frame_duration=np.append(np.diff(pts), pts[1] - pts[0]))
    return cast(VideoIndex, SimpleNamespace(packets=packets, stream=SimpleNamespace(time_base=time_base)))


def test_nanoseconds_become_fewer() -> None:
    timeline = make_timeline(_index(np.arange(10) * 40_000_000, Fraction(1, 10**9)), None)
    assert timeline.time_base == Fraction(1, 25) and timeline.pts.tolist() == list(range(10))
    odd = make_timeline(_index(np.array([0, 33_333_333, 66_666_667]), Fraction(1, 10**9)), None)
    assert odd.time_base == Fraction(1, 10**9)


def test_parts_begin_at_zero() -> None:
    whole = OutputTimeline(np.array([0, 0, 1, 2, 2, 3]), np.arange(6) * 10 + 5, np.full(6, 10), Fraction(1, 100))
    part = part_of(whole, 1, 3)
    assert part.frames.tolist() == [1, 2, 2]
    assert part.pts.tolist() == [0, 10, 20] and part.shift == Fraction(-25, 100)
    assert nominal_rate(whole) == 10
