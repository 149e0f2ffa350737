"""A training step beside decoders: all cases run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framefeed.bench.camera_clips import write_camera_clips
from framefeed.bench.stamps import sources
from framefeed.bench.step import main
from framefeed.versions import source_digest


def test_all_cases_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = write_camera_clips(tmp_path, clips=4, cameras=2, frames=12, width=64, height=64, gop=6, kilobits=60)
    words = ["--index_file", str(index), "--device", "cpu", "--seconds", "0.1", "--workers", "0"]
    assert main([*words, "--output", str(tmp_path / "out" / "step.json")]) == 0
    document = json.loads((tmp_path / "out" / "step.json").read_text())
    assert set(sources(document).values()) == {source_digest()}
    assert list(document["results"]) == ["alone", "decoders in threads", "decoders in a process", "loader"]
    for name, row in document["results"].items():
        assert row["step_ms"] > 0 and row["frames_per_second"] > 0, name
    assert "median" in capsys.readouterr().out
