"""``framefeed prepare``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import clips
from cli.conftest import Run
from framefeed import Catalog
from framefeed.prepare import api
from framefeed.prepare.gop import gop_clips
from framefeed.testing.samples import write_clip
from prepare.helpers import in_this_process

QUICK = ("--preset", "ultrafast", "--gop", "8")


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other processes: they are tested elsewhere."""
    for module in (api, gop_clips):
        monkeypatch.setattr(module, "prepare_all", in_this_process)


@pytest.fixture
def videos(clip_folder: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "videos"
    folder.mkdir()
    for kind in ("mp4_vfr", "h264_mbaff"):
        shutil.copy(clips.make(kind, clip_folder), folder)
    return folder


def test_a_folder(run: Run, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for new in (2, 0):
        ran = run("prepare", videos, out, *QUICK, "--short-side", "48", "--json")
        assert (ran.code, ran.err) == (0, "")
        facts = ran.json
        assert (facts["out"], facts["videos"], facts["new"], facts["bad"]) == (str(out), 2, new, [])
        assert facts["warnings"][0]["file"].endswith("h264_mbaff.mp4")
        assert facts["catalog"] == str(out / "catalog.arrow") and facts["kept"] == 0
    assert run("verify", out / "mp4_vfr.mp4").code == 0
    assert len(Catalog.open(out / "catalog.arrow")) == 2
    ran = run("prepare", videos, out, *QUICK)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"framefeed: {out}: was made, or begun, with other options: short_side 48 -> null; choose another folder, or "
        "restart=True (--restart) to begin anew\n"
    )
    ran = run("prepare", videos / "mp4_vfr.mp4", out, "--gop", "12", "--restart", "--catalog", tmp_path / "c.arrow")
    assert ran.code == 0 and len(Catalog.open(tmp_path / "c.arrow")) == 1


def test_as_a_table(run: Run, videos: Path, tmp_path: Path) -> None:
    (videos / "broken.mp4").write_bytes(b"no video")
    ran = run("prepare", videos, tmp_path / "out", *QUICK)
    assert (ran.code, ran.err) == (1, "")
    assert all(words in ran.out for words in ("kept as they were", "is interlaced", "bad video", "broken.mp4"))
    quiet = run("prepare", videos, tmp_path / "out", *QUICK, "--quiet")
    assert quiet.code == 1 and "broken.mp4" in quiet.out and "kept as they were" not in quiet.out


def test_scenes(run: Run, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("prepare", videos, out, *QUICK, "--scenes", "--min-scene-seconds", "0.5", "--audio", "copy", "--json")
    assert ran.code == 0 and ran.json["files"] == 2
    assert sorted(path.name for path in out.glob("*.mp4")) == ["h264_mbaff_0001.mp4", "mp4_vfr_0001.mp4"]


def test_a_report(run: Run, tmp_path: Path) -> None:
    write_clip(tmp_path / "a.mp4", width=96, height=64, frames=40)
    options = ("--gops", "1,4,20", "--sample", "1", "--seconds", "1", "--preset", "ultrafast")
    files = ("--output", tmp_path / "report.json", "--plot", tmp_path / "deep" / "report.svg")
    ran = run("prepare", "--report", tmp_path / "a.mp4", *options, *files)
    assert (ran.code, ran.err) == (0, "")
    assert all(words in ran.out for words in ("packets/frame", "as it is", "Single random frames: GOP "))
    said = json.loads((tmp_path / "report.json").read_text())
    assert [row["gop"] for row in said["rows"]] == [1, 4, 20] and said["recommendation"] in ran.out
    assert (tmp_path / "deep" / "report.svg").read_text().startswith("<svg ")
    assert run("prepare", "--report", tmp_path / "a.mp4", *options, "--json").json["rows"][0]["packets_per_frame"] == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("v",), "SOURCE and OUT are required, or --report SOURCE"),
        (("v", "o", "--size", "640"), "640x360"),
        (("v", "o", "--size", "640x361"), "sides must be even"),
        (("v", "o", "--size", "640x360", "--short-side", "256"), "not allowed with"),
        (("v", "o", "--codec", "mpeg4"), "choose from"),
        (("v", "o", "--gop", "0"), "1, 2, 3"),
        (("v", "o", "--crf", "60"), "0 to 51"),
        (("v", "o", "--preset", "swift"), "ultrafast"),
        (("v", "o", "--fps", "many"), "30000/1001"),
        (("v", "o", "--codec", "h264", "--container", "webm"), "not supported in webm"),
        (("v", "o", "--sample", "4"), "--sample needs --report"),
        (("v", "--report", "--gop", "4"), "--gop cannot be combined with --report"),
        (("v", "--report", "--scenes"), "cannot be combined with --report"),
        (("v", "--report", "--gops", "1,x"), "1, 2, 3"),
        (("v", "--report", "--seconds", "0"), "above 0"),
    ],
)
def test_bad_arguments_say_what_is_possible(run: Run, argv: tuple[str, ...], words: str) -> None:
    ran = run("prepare", *argv)
    assert (ran.code, ran.out) == (2, "") and words in ran.err


def test_what_cannot_be_used(run: Run, videos: Path, tmp_path: Path) -> None:
    ran = run("prepare", tmp_path / "nowhere", tmp_path / "out")
    assert (ran.code, ran.err) == (2, f"framefeed: {tmp_path / 'nowhere'}: no such file\n")
    ran = run("prepare", videos, tmp_path / "out", "--pixel-format", "yuv410p")
    assert ran.code == 2 and "h264: its encoder does not support the pixel format yuv410p; use auto" in ran.err
    assert not (tmp_path / "out").exists()


def test_interrupted(run: Run, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "prepare_all", interrupted)
    ran = run("prepare", videos, tmp_path / "out", *QUICK)
    assert (ran.code, ran.err) == (130, "framefeed: interrupted; rerun the same command to resume\n")
