"""Every frame of every kind of clip, in any order, is the frame of a linear decode, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import clips
from framefeed import VideoDecoder
from framefeed.decoder import reading_cpu
from framefeed.media.native import NativeFrame

KINDS = sorted(clips.KINDS)


def _truth(path: Path) -> list[NativeFrame]:
    return [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]


def _same(got: list[NativeFrame], truth: list[NativeFrame], wanted: list[int]) -> None:
    wrong = [frame for picture, frame in zip(got, wanted, strict=True) if picture != truth[frame]]
    assert not wrong, f"frames {wrong} differ from the linear decode"


def test_there_are_enough_kinds() -> None:
    assert len(KINDS) >= 40


@pytest.mark.parametrize("name", KINDS)
def test_frames_equal_the_linear_decode(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    truth = _truth(path)
    decoder = VideoDecoder(path)
    count = len(truth)
    assert len(decoder) == count
    rng = np.random.default_rng(7)

    shuffled = rng.permutation(count).tolist()
    everything = decoder.get_native_frames_at(shuffled)
    _same(everything, truth, shuffled)

    numbers = clips.KINDS[name].numbers
    if numbers is not None:
        # The same pictures as the linear decode's, so the numbers painted into those are the ones that were read.
        assert clips.painted_numbers(clips.linear_decode(path)) == list(numbers)

    some = rng.integers(0, count, min(count, 17)).tolist()  # with repetitions
    _same(decoder.get_native_frames_at(some), truth, some)

    for frame in rng.permutation(count)[:8].tolist():
        _same(decoder.get_native_frames_at([frame]), truth, [frame])

    for frame in range(count):  # one after the other
        _same(decoder.get_native_frames_at([frame]), truth, [frame])


@pytest.mark.parametrize("name", ["h264_b_pyramid", "hevc_open_gop", "vp9_alt_ref", "mpeg2_ts", "av1_mp4"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_threads_change_nothing(name: str, threads: int, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    truth = _truth(path)
    decoder = VideoDecoder(path, num_ffmpeg_threads=threads)
    for wanted in ([3, 40, 12, 30], list(range(len(truth))), [len(truth) - 1], [0, 1, 2]):
        wanted = [frame for frame in wanted if frame < len(truth)]
        _same(decoder.get_native_frames_at(wanted), truth, wanted)


@pytest.mark.parametrize("name", ["h264_bframes", "hevc_defaults", "h264_one_group", "mpeg4_avi"])
@pytest.mark.parametrize("length", [1, 3, 7])
def test_reading_in_order_in_steps(name: str, length: int, clip_folder: Path) -> None:
    """RGB, where reading ahead is at work, equals what single requests give."""
    path = clips.make(name, clip_folder)
    truth = VideoDecoder(path, num_ffmpeg_threads=1)
    reader = VideoDecoder(path, num_ffmpeg_threads=2)
    for start in range(0, len(reader), length):
        got = reader.get_frames_in_range(start, start + length).data
        for offset, frame in enumerate(got):
            assert (frame == truth[start + offset]).all(), f"frame {start + offset}"
    # Jumping away and back must not bring up anything stale.
    assert (reader[0] == truth[0]).all()
    assert (reader[5] == truth[5]).all()
    assert (reader[6] == truth[6]).all()


@pytest.mark.parametrize(
    "name", ["h264_bframes", "hevc_open_gop", "h264_one_group", "vp9_alt_ref", "mpeg2_ts", "h264_ts"]
)
@pytest.mark.parametrize("budget", [0, 10, 20, 1000])
def test_iterating(name: str, budget: int, clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All frames in order, with so little memory that groups are long, and with plenty."""
    path = clips.make(name, clip_folder)
    truth = VideoDecoder(path, num_ffmpeg_threads=1)
    expected = [truth[number] for number in range(len(truth))]
    monkeypatch.setattr(reading_cpu, "MAX_AHEAD_BYTES", budget * expected[0].numel())
    monkeypatch.setattr(reading_cpu, "MIN_WINDOW_FRAMES", 4)
    monkeypatch.setattr(reading_cpu, "MIN_WINDOW_BYTES", 0)
    for _ in range(2):
        got = list(VideoDecoder(path, num_ffmpeg_threads=2))
        assert len(got) == len(expected)
        assert all((frame == other).all() for frame, other in zip(got, expected, strict=True))
