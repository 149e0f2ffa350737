"""``framefeed demo``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cli.conftest import Run
from framefeed.cli.commands import demo
from framefeed.testing import samples


def test_every_clip_is_right(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TIMED_RUNS", 1)
    began = time.perf_counter()
    ran = run("demo", "--folder", tmp_path / "clips", "--json")
    seconds = time.perf_counter() - began
    print(f"framefeed demo took {seconds:.1f} s")
    assert seconds < 50
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["right"] is True
    assert [item["clip"] for item in ran.json["clips"]] == list(samples.SAMPLES)
    for item in ran.json["clips"]:
        assert item["equal"] and item["numbers_right"] and item["first_problem"] is None
        assert item["frames"] == samples.SAMPLES[item["clip"]]["frames"]
        assert item["frames_read"] == demo.RANDOM_FRAMES <= item["packets_decoded"]
        assert 0 <= item["share_not_decoded"] < 1
        assert item["rgb_frames_per_second"] > 0
    assert sorted(path.name for path in (tmp_path / "clips").iterdir()) == sorted(samples.SAMPLES)


def test_wrong_number_is_noticed(run: Run, tmp_path: Path, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = samples.read_number
    monkeypatch.setattr(samples, "write_samples", lambda _: [clip])
    monkeypatch.setattr(samples, "read_number", lambda picture: max(1, right(picture)))
    ran = run("demo", "--folder", tmp_path)
    assert ran.code == 1
    assert "NO" in ran.out
    assert f"{clip.name}: frame 0 shows the number 1" in ran.out


def test_table(run: Run, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "write_samples", lambda _: [clip])
    ran = run("demo")
    assert ran.code == 0
    for words in (
        *"\n".join(demo.COLUMNS).split("\n"),
        clip.name,
        "48 frames at random and 48 in order",
        "linear decode",
    ):
        assert words in ran.out
