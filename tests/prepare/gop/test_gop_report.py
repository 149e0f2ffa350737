"""What the distance of keyframes costs and gains: the numbers are those of the files, and the plot shows them."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framefeed import InvalidFile, VideoDecoder, VideoIndex, prepare
from framefeed.prepare.gop import gop_clips
from framefeed.prepare.gop.gop_cost import FRAMES_EACH, VideoPart, measure_costs
from framefeed.prepare.gop.gop_report import GopReport, GopRow
from framefeed.prepare.options import PrepareOptions
from framefeed.prepare.plot import report_plot
from framefeed.testing.samples import write_clip
from prepare.helpers import in_this_process

GOPS = [1, 6, 24]


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for seed in range(3):
        one_group: dict[str, Any] = {"gop": 90, "bframes": 0, "options": {"x264-params": "scenecut=0"}}
        write_clip(folder / f"{seed}.mp4", seed=seed, width=96, height=64, frames=90, **one_group)
    (folder / "broken.mp4").write_bytes(b"no video")
    return folder


@pytest.fixture(scope="module")
def found(videos: Path) -> GopReport:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gop_clips, "prepare_all", in_this_process)
        return prepare.report(videos, sample=8, seconds=2, gops=GOPS, preset="ultrafast", short_side=48, progress=False)


def test_numbers(found: GopReport, videos: Path) -> None:
    assert [Path(path).name for path in found.files] == ["0.mp4", "1.mp4", "2.mp4"]
    assert [Path(bad.path).name for bad in found.bad] == ["broken.mp4"]
    assert found.seconds == pytest.approx(6.0)
    rows = found.rows
    assert [row.gop for row in rows] == GOPS
    # A frame in the middle of a group of n needs (n + 1) / 2 packets.
    assert [row.packets_per_frame for row in rows] == [1.0, 3.5, 12.5]
    assert rows[0].packets_per_clip == 16.0 < rows[1].packets_per_clip < rows[2].packets_per_clip
    assert rows[0].relative_size > rows[1].relative_size > rows[2].relative_size == 1.0
    assert all(min(row.frame_ms, row.clip_ms, row.frames_per_second) > 0 for row in rows)
    assert rows[0].frame_ms < rows[2].frame_ms
    # The videos as they are: one long group.
    assert found.source.gop is None and found.source.packets_per_frame > 25
    said = found.as_json()
    assert json.loads(json.dumps(said)) == said and "gop" not in said["options"]
    assert said["options"]["short_side"] == 48


def test_the_same_sample_again(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gop_clips, "prepare_all", in_this_process)
    chosen = []
    for seed in (1, 1, 2):
        some = prepare.report(
            [videos / f"{n}.mp4" for n in range(3)], sample=1, seconds=1, gops=[4], seed=seed, preset="ultrafast"
        )
        chosen.append((some.files, some.rows[0].bytes_per_second))
    assert chosen[0] == chosen[1] != chosen[2]


def test_costs_are_measured_on_the_frames_asked_for(videos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = VideoDecoder.get_frame_at

    def noted(decoder: VideoDecoder, number: int) -> Any:
        asked.append(number)
        return real(decoder, number)

    monkeypatch.setattr(VideoDecoder, "get_frame_at", noted)
    index = VideoIndex.scan(videos / "0.mp4")
    (cost,) = measure_costs([[VideoPart(index, 30, 50, 1000, 2.0)]], 0)
    assert cost.bytes_per_second == 500
    assert cost.packets_per_frame == np.arange(31, 51).mean()
    assert len(asked) == 2 * (FRAMES_EACH + 1) and set(asked) <= set(range(30, 50))


def row(gop: int | None, size: float, ms: float, clip_ms: float, fps: float) -> GopRow:
    return GopRow(gop, 1000.0 * size, size, (gop or 1) / 2, ms, 16.0, clip_ms, fps)


def test_what_is_recommended() -> None:
    rows = (row(1, 4.0, 1.0, 12.0, 900.0), row(8, 1.6, 2.0, 10.0, 1000.0), row(250, 1.0, 40.0, 14.0, 950.0))
    text = GopReport(rows, row(None, 1, 1, 1, 1), ("a",), 1.0, PrepareOptions()).recommendation()
    assert (
        "Single random frames: GOP 8 (1.60 times the bytes of GOP 250; a frame takes 2.0 ms, with GOP 250 40.0 ms)"
        in text
    )
    assert "Clips of 16 frames: GOP 250 (the smallest files; a clip takes 14.0 ms" in text
    assert "In order: GOP 250 (95% of the highest speed)" in text


def test_the_plot(found: GopReport) -> None:
    text = report_plot(found)
    page = ET.fromstring(text)
    assert "prefers-color-scheme: dark" in text
    words = [node.text for node in page.iter() if node.tag.endswith("text")]
    assert {"1", "6", "24", "a random frame", "a frame of a clip of 16", "a frame in order"} <= set(words)
    _, _, width, height = map(float, page.attrib["viewBox"].split())
    places = [(float(node.attrib["x"]), float(node.attrib["y"])) for node in page.iter() if "y" in node.attrib]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)
    lines = [node.attrib["d"] for node in page.iter() if node.attrib.get("class") in ("line", "line strong")]
    assert len(lines) == 3 and all(len(line.split("L")) == len(GOPS) for line in lines)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"gops": []}, "gops"), ({"gops": [0, 5]}, "gops"), ({"sample": 0}, "must be above 0"), ({"seconds": 0}, "must be above 0")],
)
def test_what_is_not_possible(wrong: dict[str, Any], words: str, videos: Path) -> None:
    with pytest.raises(ValueError, match=words):
        prepare.report(videos, **wrong)


def test_none_that_can_be_used(videos: Path) -> None:
    with pytest.raises(InvalidFile, match=r"broken\.mp4: not a video"):
        prepare.report(videos / "broken.mp4", progress=False)
