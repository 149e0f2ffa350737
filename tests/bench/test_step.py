"""A training step beside decoders: all cases run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.camera_clips import write_camera_clips
from benchmarks.step import main
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import sources


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
