"""Whole collections: names, records, what is done again and what is not, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import clips
from catalog.catalog_help import close_folder
from framefeed import Catalog, InvalidFile, OutputError, StateError, VideoDataset, prepare
from framefeed.catalog.catalog import BadFile
from framefeed.compare.verify import verify_file
from framefeed.prepare import api, workers
from framefeed.store.store import pack
from framefeed.testing.samples import write_clip
from prepare.helpers import content, in_this_process

TINY: dict[str, Any] = {"width": 64, "height": 48, "frames": 12, "options": {"preset": "ultrafast"}}
QUICK: dict[str, Any] = {"preset": "ultrafast", "gop": 5, "progress": False}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five videos, two of them in folders."""
    folder = tmp_path_factory.mktemp("made") / "videos"
    for seed, name in enumerate(("a.mp4", "b.mkv", "day 1/c.mp4", "day 1/d.e.mp4", "night/a.mp4")):
        write_clip(folder / name, seed=seed, **TINY)
    return folder


@pytest.fixture
def videos(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "videos"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other processes."""
    monkeypatch.setattr(api, "prepare_all", in_this_process)


NAMES = ["a.mp4", "b.mp4", "day 1/c.mp4", "day 1/d.e.mp4", "night/a.mp4"]


def names(folder: Path) -> list[str]:
    return [name for name in content(folder) if name != "prepared.json"]


# --- with worker processes ----------------------------------------------------------------------------------------


def test_a_folder(videos: Path, tmp_path: Path) -> None:
    (videos / "broken.mp4").write_bytes(b"no video")
    cut = (videos / "a.mp4").read_bytes()
    (videos / "cut.mp4").write_bytes(cut[: len(cut) - 3000])
    out = tmp_path / "out"
    result = prepare.run(videos, out, workers=2, **QUICK)
    assert names(out) == NAMES
    assert (len(result.videos), result.num_new, result.num_frames, result.num_outputs) == (5, 5, 60, 5)
    assert result.num_bytes == sum(len(content(out)[name]) for name in NAMES)
    assert sorted(Path(bad.path).name for bad in result.bad) == ["broken.mp4", "cut.mp4"]
    assert not (out / ".prepare").exists()
    for name in NAMES:
        checked = verify_file(out / name)
        assert checked.equal and checked.num_frames == 12
    assert result.catalog == out / "catalog.arrow"
    with Catalog.open(result.catalog) as catalog:
        assert [Path(path) for path in catalog.paths] == [out / name for name in NAMES]
        assert catalog.report == [] and catalog[0].packets.keyframes.tolist() == [0, 5, 10]
    assert len(VideoDataset(None, catalog=result.catalog)) == 60
    # Another number of workers, and another folder: the same bytes.
    again = prepare.run(videos, tmp_path / "again", workers=1, **QUICK)
    assert again.num_new == 5 and content(tmp_path / "again") == content(out)


def test_a_worker_that_dies(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and its video is tried again; twice, and it is a bad one. None of them loads torch."""
    marker, loaded = tmp_path / "died", tmp_path / "loaded"
    script = f"""
import os, framefeed.prepare.workers as workers
def dying(task, progress):
    if task.stem == "b" or (task.stem == "a" and not os.path.exists({str(marker)!r})):
        open({str(marker)!r}, "w").close() if task.stem == "a" else None
        os.kill(os.getpid(), 9)
    outcome = prepare_video(task, progress)
    print("torch" in sys.modules, file=open({str(loaded)!r}, "w"))
    return outcome
prepare_video, workers.prepare_video = workers.prepare_video, dying
"""
    monkeypatch.setattr(workers, "_COMMAND", script + workers._COMMAND)
    result = prepare.run([videos / "a.mp4", videos / "b.mkv"], tmp_path / "out", workers=1, **QUICK)
    assert [video.stem for video in result.videos] == ["a"]
    assert [(Path(bad.path).name, bad.reason) for bad in result.bad] == [
        ("b.mkv", "encoding it crashed twice (SIGKILL)")
    ]
    assert loaded.read_text() == "False\n"


def test_a_full_disk(videos: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the system refuses to write more."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = write_clip(videos / "large.mp4", seed=9, width=192, height=160, frames=40)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        with pytest.raises(
            OutputError, match=r"cannot be written .*; finished work is kept, rerun the same command to resume"
        ):
            prepare.run([videos / "a.mp4", large], tmp_path / "out", workers=1, crf=1, **QUICK)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    result = prepare.run([videos / "a.mp4", large], tmp_path / "out", workers=1, crf=1, **QUICK)
    assert result.bad == [] and names(tmp_path / "out") == ["a.mp4", "large.mp4"]


# --- names --------------------------------------------------------------------------------------------------------


def test_names_of_outputs(here: None, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cases: list[tuple[Any, list[str]]] = [
        (["videos/night/a.mp4", "videos/b.mkv"], ["a.mp4", "b.mp4"]),
        ("videos/*/c.mp4", ["day 1/c.mp4"]),
        (str(videos / "**" / "*.mp4"), [name for name in NAMES if name != "b.mp4"]),
        (["videos", "videos/a.mp4"], NAMES),  # each once
    ]
    for number, (sources, expected) in enumerate(cases):
        prepare.run(sources, f"out{number}", **QUICK)
        assert names(Path(f"out{number}")) == expected
    Catalog.build("videos/day 1", tmp_path / "day.arrow", progress=False)
    prepare.run("day.arrow", "by catalog", **QUICK)
    assert names(Path("by catalog")) == ["videos/day 1/c.mp4", "videos/day 1/d.e.mp4"]
    Catalog.build([videos.absolute()], tmp_path / "elsewhere.arrow", progress=False)
    shutil.move("elsewhere.arrow", tmp_path / "out0")
    prepare.run(tmp_path / "out0" / "elsewhere.arrow", "by another", **QUICK)
    assert names(Path("by another")) == NAMES
    # The output folder may lie among the sources, and relative paths in its catalog stay so.
    prepare.run("videos", "videos/ready", **QUICK)
    prepare.run("videos", "videos/ready", **QUICK)
    assert names(Path("videos/ready")) == NAMES
    shutil.move("videos/ready", "moved")
    assert Path(Catalog.open("moved/catalog.arrow").paths[0]) == tmp_path / "moved" / "a.mp4"


def test_names_that_are_hard_to_print(here: None, videos: Path, tmp_path: Path) -> None:
    hard = [os.fsdecode(b"caf\xe9"), "two\nlines", "[bold]", "a*"]
    for name in hard:
        shutil.copy(videos / "a.mp4", tmp_path / f"{name}.mp4")
    for new in (4, 0):
        result = prepare.run([tmp_path / f"{name}.mp4" for name in hard], tmp_path / "out", **QUICK)
        assert result.num_new == new and result.bad == []
    assert names(tmp_path / "out") == sorted(f"{name}.mp4" for name in hard)
    assert len(Catalog.open(result.catalog)) == 4


def test_a_packet_store(here: None, videos: Path, tmp_path: Path) -> None:
    Catalog.build(videos, tmp_path / "c.arrow", progress=False)
    pack(tmp_path / "c.arrow", tmp_path / "store", progress=False)
    prepare.run(videos, tmp_path / "expected", force=True, audio="copy", **QUICK)
    shutil.rmtree(videos)
    result = prepare.run(tmp_path / "store", tmp_path / "out", force=True, audio="copy", **QUICK)
    assert result.bad == [] and {text for _, text in result.warnings} == {"has no audio: packet stores contain none"}
    found, expected = content(tmp_path / "out"), content(tmp_path / "expected")
    assert [found[name] for name in NAMES] == [expected[name] for name in NAMES]


def test_what_is_no_source(here: None, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_clip(videos / "a.mkv", **TINY)
    for sources, words in (
        (
            videos,
            r"videos/a\.mp4: and .*videos/a\.mkv would both become 'a' in the output folder; rename one of them, or "
            r"prepare them into different folders, using patterns such as \*\.mkv and \*\.mp4$",
        ),
        (
            [videos / "a.mp4", videos / "night" / "a.mp4"],
            "would both become 'a' .* prepare them into different folders, or give a folder above both$",
        ),
        ([], "none given"),
        (tmp_path / "*.avi", "no file matches this pattern"),
        (tmp_path / "nowhere.mp4", "no such file"),
    ):
        with pytest.raises((InvalidFile, OSError, ValueError), match=words):
            prepare.run(sources, out, **QUICK)
        assert not out.exists()
    with pytest.raises(InvalidFile, match="is also the output folder"):
        prepare.run(videos, videos, **QUICK)
    with pytest.raises(InvalidFile, match="is inside the output folder"):
        prepare.run(videos / "a.mp4", videos, **QUICK)
    with pytest.raises(OutputError, match="is a file"):
        prepare.run(videos / "b.mkv", videos / "a.mp4", **QUICK)


def test_folders_that_cannot_be_read(here: None, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    close_folder(monkeypatch, videos / "night")
    bad = [BadFile(str(videos / "night"), "a folder that cannot be read (Permission denied)")]
    asked: list[Any] = [videos, videos / "**" / "*.mp4", [videos, videos]]
    for number, given in enumerate(asked):
        result = prepare.run(given, tmp_path / f"out{number}", **QUICK)
        assert result.bad == bad and len(result.videos) == (3 if number == 1 else 4)
    for nothing in (videos / "night", videos / "night" / "*.mp4"):
        with pytest.raises(InvalidFile, match=r"night: a folder that cannot be read \(Permission denied\)"):
            prepare.run(nothing, tmp_path / "none", **QUICK)
    # What is in the output folder is no source, whether it can be read or not.
    (videos / "ready").mkdir()
    close_folder(monkeypatch, videos / "ready")
    assert prepare.run(videos, videos / "ready", **QUICK).bad == bad


def test_the_last_good_file_gets_bad(here: None, videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog of an interrupted run has videos; that is no reason to go on with them."""

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(api, "prepare_all", interrupted)
        prepare.run(videos / "a.mp4", tmp_path / "out", **QUICK)
    assert len(Catalog.open(tmp_path / "out" / ".prepare" / "sources.arrow")) == 1
    (videos / "a.mp4").write_bytes(b"no video")
    result = prepare.run(videos / "a.mp4", tmp_path / "out", **QUICK)
    assert [bad.path for bad in result.bad] == [str(videos / "a.mp4")]


# --- once, and once more ------------------------------------------------------------------------------------------


def test_only_what_is_missing_is_done(here: None, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert prepare.run(videos, out, **QUICK).num_new == 5
    before = content(out)
    assert prepare.run(videos, out, **QUICK).num_new == 0
    (out / "a.mp4").unlink()
    os.truncate(out / "b.mp4", 100)
    assert prepare.run(videos, out, **QUICK).num_new == 2
    assert content(out) == before
    write_clip(videos / "day 1" / "c.mp4", seed=8, **TINY)  # another video of the same name
    write_clip(videos / "new.mp4", seed=9, **TINY)
    result = prepare.run(videos, out, **QUICK)
    assert result.num_new == 2 and result.new_stems == {"day 1/c", "new"}
    assert content(out)["day 1/c.mp4"] != before["day 1/c.mp4"]
    # Of a part: the others stay, and stay in the catalog. A folder that was moved is the same folder.
    videos = videos.rename(tmp_path / "moved")
    result = prepare.run(videos / "a.mp4", out, **QUICK)
    assert (result.num_new, len(result.videos)) == (0, 1)
    assert (
        len(Catalog.open(result.catalog)) == 6 and len(json.loads((out / "prepared.json").read_text())["videos"]) == 6
    )


def test_other_options_are_refused(here: None, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare.run(videos, out, **QUICK)
    before = content(out)
    for change, words in (
        ({"gop": 7}, "gop 5 -> 7"),
        ({"crf": 30, "codec": "hevc"}, 'codec "h264" -> "hevc"; crf 23 -> 30'),
    ):
        with pytest.raises(
            StateError, match=rf"out: was made, or begun, with other options: {words}; choose .*--restart"
        ):
            prepare.run(videos, out, **{**QUICK, **change})
        assert content(out) == before and not (out / ".prepare").exists()
    (out / "note.txt").write_text("mine")
    result = prepare.run(videos / "day 1", out, restart=True, **{**QUICK, "gop": 7})
    assert names(out) == ["c.mp4", "d.e.mp4", "note.txt"]  # all others belonged to the run before
    assert result.num_new == 2 and len(Catalog.open(result.catalog)) == 2
    assert [video["stem"] for video in json.loads((out / "prepared.json").read_text())["videos"]] == ["c", "d.e"]


def test_files_of_others_are_not_replaced(here: None, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "b.mp4").write_bytes(b"somebody's work")
    with pytest.raises(StateError, match=r"b\.mp4: is there without a record of how it was made"):
        prepare.run(videos, out, **QUICK)
    assert content(out) == {"b.mp4": b"somebody's work"} and not (out / ".prepare").exists()
    (out / "b.mp4").rename(out / "x_0001.mp4")
    prepare.run(videos, out, **QUICK)
    with pytest.raises(StateError, match=r"called 'a' there was made from .*videos/a\.mp4, not from .*night/a\.mp4"):
        prepare.run(videos / "night" / "a.mp4", out, **QUICK)
    write_clip(videos / "x.mp4", **TINY)
    with pytest.raises(StateError, match="other options: scenes false -> true"):
        prepare.run(videos / "x.mp4", out, scenes=True, **QUICK)
    with pytest.raises(StateError, match=r"x_0001\.mp4: is there without a record"):
        (out / "prepared.json").unlink()
        prepare.run(videos / "x.mp4", out, scenes=True, **QUICK)
    assert (out / "x_0001.mp4").read_bytes() == b"somebody's work"


def test_a_record_that_cannot_be_read(here: None, videos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare.run(videos / "a.mp4", out, **QUICK)
    (out / "prepared.json").write_text("{")
    with pytest.raises(StateError, match=r"prepared\.json: cannot be used .*--restart"):
        prepare.run(videos / "a.mp4", out, **QUICK)
    assert prepare.run(videos / "a.mp4", out, restart=True, **QUICK).num_new == 1


def test_only_one_process_at_a_time(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = []

    def another(*arguments: Any) -> Any:
        with pytest.raises(StateError, match="another process is preparing videos into this folder") as caught:
            prepare.run(videos, tmp_path / "out", **QUICK)
        errors.append(caught.value)
        yield from in_this_process(*arguments)

    monkeypatch.setattr(api, "prepare_all", another)
    assert prepare.run(videos, tmp_path / "out", **QUICK).num_new == 5
    assert len(errors) == 1


def test_none_that_can_be_used(here: None, tmp_path: Path) -> None:
    (tmp_path / "x.mp4").write_bytes(b"no video")
    result = prepare.run(tmp_path / "x.mp4", tmp_path / "out", **QUICK)
    assert (result.videos, len(result.bad)) == ([], 1)
    # Nothing was made with these options, so others are fine.
    shutil.copy(clips.make("mp4_vfr", tmp_path / "clips"), tmp_path / "x.mp4")
    assert prepare.run(tmp_path / "x.mp4", tmp_path / "out", **{**QUICK, "gop": 9}).num_new == 1


def test_a_catalog_elsewhere(here: None, videos: Path, tmp_path: Path) -> None:
    result = prepare.run(videos, tmp_path / "out", catalog=tmp_path / "mine.arrow", **QUICK)
    assert result.catalog == tmp_path / "mine.arrow" and len(Catalog.open(tmp_path / "mine.arrow")) == 5
    assert not (tmp_path / "out" / "catalog.arrow").exists()
