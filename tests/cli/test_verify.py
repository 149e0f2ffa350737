"""``framefeed verify``: says equal where it is, and which frame where it is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clips
import damaged
from cli.conftest import Run
from framefeed import DecodeError, VideoDecoder, VideoIndex
from framefeed.verify import VerifyResult, verify_file


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


def test_damaged_frame_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DecodeError) as caught:
        verify_file(damaged.flipped_group(tmp_path))
    assert caught.value.frame in range(12, 24)


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
