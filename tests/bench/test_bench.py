"""The benchmark runs with framefeed alone, and catches wrong frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import decoder as bench
from benchmarks.peers.readers import PEERS, Framefeed
from benchmarks.tables import numbers
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import sources
from framefeed.testing import scenes as bench_clips


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = {name: dict(spec, frames=36) for name, spec in bench_clips._REFERENCES.items()}
    monkeypatch.setattr(bench_clips, "_REFERENCES", specs)
    monkeypatch.setattr(bench, "NUM_SHORT_FILES", 2)
    monkeypatch.setattr(bench, "RANDOM_SETS", 1)


@pytest.mark.usefixtures("small")
def test_all_cases_run(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    arguments = ["--clips", "h264_360p_gop30.mp4", "--repeat", "1", "--folder", str(tmp_path), "--output", str(output)]
    assert bench.main(arguments) == 0
    document = json.loads(output.read_text())
    assert set(sources(document).values()) == {source_digest()}
    assert {result["case"] for result in document["results"]} == set(bench.GROUPS)
    assert document["versions"]["framefeed"] and document["machine"]["cpus_used"] == 2
    for result in document["results"]:
        ours = [row for row in result["readers"] if row["reader"].startswith("framefeed")]
        assert ours and all(row["wrong"] == 0 and row["median"] > 0 for row in ours)
    assert "| 32 random frames" in numbers(document)


@pytest.mark.usefixtures("small")
def test_wrong_frames_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bench_clips.write_reference_clip("h264_360p_gop30.mp4", tmp_path)

    class OffByOne(Framefeed):
        def read(self, opened: Any, numbers: list[int]) -> Any:
            return super().read(opened, [(number + 1) % len(opened) for number in numbers])

    monkeypatch.setattr(bench, "PEERS", [*PEERS, OffByOne("off by one", "framefeed")])
    wrong = {entry.name: entry.contender.check() for entry in bench._random_case(path).entries}
    assert wrong["off by one"] == bench.RANDOM_SETS * bench.NUM_RANDOM
    assert wrong["framefeed"] == 0


def test_strip_survives_resizing_and_is_checked() -> None:
    painter = bench_clips.scene_painter(640, 360)
    for number in (0, 1, 77, 4095):
        picture = np.asarray(painter(number).to_ndarray(format="rgb24"), np.uint8)
        assert bench_clips.read_strip(picture) == number
        assert bench_clips.read_strip(picture[::3, ::3]) == number
    with pytest.raises(ValueError, match="no clear number"):
        bench_clips.read_strip(np.full((360, 640, 3), 128, np.uint8))
