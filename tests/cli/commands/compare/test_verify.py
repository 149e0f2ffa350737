"""``framefeed verify``: says equal where it is, and which frame where it is not."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import av
import av.error
import numpy as np
import pytest

import clips
import damaged
from cli.conftest import Run
from framefeed import DecodeError, FramefeedError, VideoDecoder, VideoIndex
from framefeed.compare.verify import VerifyResult, verify_file
from random_damage import make_loss, make_mutant

_MUTANTS = [
    "hevc_closed_bframes",
    "h264_bframes",
    "vp8_plain",
    "mpeg4_mp4",
    "png.mov",
    "av1_mp4",
    "mjpeg.avi",
    "mpeg1.mpg",
]


def test_equal(run: Run, clip: Path, clip_folder: Path) -> None:
    other = clips.make("vp9_alt_ref", clip_folder)
    ran = run("verify", clip, other, "--sample", "20", "--seed", "3", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [(item["file"], item["equal"], item["differences"]) for item in ran.json] == [
        (str(clip), True, []),
        (str(other), True, []),
    ]
    assert [item["random_frames"] for item in ran.json] == [20, 20]
    ran = run("verify", clip)
    assert ran.code == 0
    assert "yes" in ran.out


def test_every_frame_is_read_at_random(clip: Path) -> None:
    result = verify_file(clip, sample=None, seed=1)
    assert result.equal
    assert sorted(result.random_frames) == list(range(48))
    assert list(result.random_frames) != list(range(48))
    assert result.random_frames != verify_file(clip, sample=None, seed=2).random_frames


def test_progress_rises_to_its_end(clip: Path) -> None:
    seen: list[tuple[int, int]] = []
    verify_file(clip, sample=10, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (106, 106)


@pytest.fixture
def swapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that takes frame 5 for frame 6, and flips a bit of frame 9."""
    right = VideoDecoder.get_native_frames_at

    def wrong(self: VideoDecoder, indices: Any) -> Any:
        found = right(self, [6 if number == 5 else number for number in indices])
        for place, number in enumerate(indices):
            if number == 9:
                planes = tuple(np.array(plane) for plane in found[place].planes)
                planes[1][0, 0] ^= 1
                found[place] = dataclasses.replace(found[place], planes=planes)
        return found

    monkeypatch.setattr(VideoDecoder, "get_native_frames_at", wrong)


@pytest.mark.usefixtures("swapped")
def test_difference_is_named(run: Run, clip: Path) -> None:
    ran = run("verify", clip, "--sample", "all", "--json")
    assert ran.code == 1
    (item,) = ran.json
    assert item["equal"] is False
    found = sorted(
        (difference["frame"], difference["access"], difference["reason"]) for difference in item["differences"]
    )
    other = "its picture differs from the linear decode's"
    assert found == [
        (5, "random", "is frame 6 of the linear decode"),
        (5, "sequential", "is frame 6 of the linear decode"),
        (9, "random", other),
        (9, "sequential", other),
    ]
    ran = run("verify", clip)
    assert ran.code == 1
    assert "NO" in ran.out
    assert f"{clip}: frame 9 (sequential access): {other}" in ran.out


def test_wrong_number_of_frames_is_a_difference(monkeypatch: pytest.MonkeyPatch, run: Run, clip: Path) -> None:
    index = VideoIndex.scan(clip)
    short = dataclasses.replace(index.packets, frames=index.packets.frames[:-1], frame_pts=index.packets.frame_pts[:-1])
    shorter = dataclasses.replace(index, packets=short)
    monkeypatch.setattr(VideoIndex, "scan_media", lambda *_, **__: shorter)
    ran = run("verify", clip)
    assert ran.code == 1
    assert "47 frames by the index, 48 by the linear decode" in ran.out


def _refused_frames(path: Path) -> list[int]:
    """Those that cannot be had, each asked for by itself."""
    decoder = VideoDecoder(path, num_ffmpeg_threads=1)
    refused = []
    for frame in range(len(decoder)):
        try:
            decoder.get_native_frames_at([frame])
        except DecodeError:
            refused.append(frame)
    return refused


def test_damaged_frames_are_listed(run: Run, tmp_path: Path) -> None:
    path = damaged.flipped_group(tmp_path)
    result = verify_file(path, sample=None)
    assert [damage.frame for damage in result.damaged] == _refused_frames(path)
    assert result.damaged
    assert all(frame.frame in range(12, 24) for frame in result.damaged)
    assert not result.differences
    assert not result.equal
    ran = run("verify", path)
    assert ran.code == 2
    assert f"{path}: {result.damaged[0]}" in ran.out
    assert [entry["frame"] for entry in run("verify", path, "--json").json[0]["damaged"]] == _refused_frames(path)


@pytest.mark.parametrize("what", ["mutants", "losses"])
@pytest.mark.parametrize("seed", range(6))
def test_the_list_is_what_the_decoder_refuses(what: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"{what} {seed}")
    found = 0
    while found < 2:
        try:
            path = make_loss(tmp_path, rng)[0] if what == "losses" else make_mutant(tmp_path, rng, _MUTANTS)[0]
            result = verify_file(path, sample=16)
        except (av.error.FFmpegError, FramefeedError):  # cannot be made, or cannot be read at all
            continue
        assert [damage.frame for damage in result.damaged] == _refused_frames(path)
        assert not result.differences
        found += 1


def test_bad_file_does_not_hide_the_others(run: Run, clip: Path, tmp_path: Path) -> None:
    bad = damaged.text(tmp_path)
    ran = run("verify", bad, clip, "--json")
    assert ran.code == 2
    assert [(item["file"], item["equal"]) for item in ran.json] == [(str(clip), True), (str(bad), None)]
    assert ran.err.startswith(f"framefeed: {bad}: ")
    assert ran.err.count("\n") == 1


def test_result_without_frames_in_common() -> None:
    assert not VerifyResult("x", 3, 4, (), 0, ()).equal
    assert VerifyResult("x", 3, 3, (), 0, ()).equal
