"""Building catalogs: which files are meant, what is scanned again, what happens to bad ones."""

from __future__ import annotations

import errno
import multiprocessing.spawn
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import clips
import damaged
from framefeed import Catalog, CatalogError, InvalidFile, SourceError, VideoDataset
from framefeed.catalog import build as catalog_build
from framefeed.catalog import catalog_scan
from framefeed.catalog import parts as catalog_parts
from framefeed.catalog.arrow_file import CatalogFile
from framefeed.index.video_index import VideoIndex

from .catalog_help import SMALL, assert_same, close_folder, copies, odd_worker
from .catalog_help import scanned as scanned  # a fixture

MANY = catalog_scan.THREAD_FILES + 8


@pytest.fixture
def videos(clip_folder: Path, tmp_path: Path) -> list[Path]:
    return copies(clips.make(SMALL, clip_folder), tmp_path / "videos", 5)


def change(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))


def names(catalog: Catalog) -> list[str]:
    return [Path(path).name for path in catalog]


# --- which files ------------------------------------------------------------------------------------------------------


def test_files_folders_and_patterns(videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "videos" / "deep"
    deep.mkdir()
    shutil.copy(videos[0], deep / "B.MP4")
    shutil.copy(videos[0], deep / ".half_written.mp4")
    (tmp_path / "videos" / "notes.txt").write_text("no video by its name")
    (deep / "loop").symlink_to(tmp_path / "videos")
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "c.arrow"
    everything = [f"{number:03d}.mp4" for number in range(5)] + ["B.MP4"]
    assert names(Catalog.build("videos", target)) == everything
    assert names(Catalog.build(Path("videos"), target)) == everything
    assert names(Catalog.build("videos/*.mp4", target)) == everything[:5]
    assert names(Catalog.build(["videos/**/*.MP4"], target)) == ["B.MP4"]
    mixed = Catalog.build([videos[3], "videos/00[0-3].mp4", tmp_path / "videos/../videos/003.mp4", "videos"], target)
    assert names(mixed) == ["003.mp4", "000.mp4", "001.mp4", "002.mp4", "004.mp4", "B.MP4"]
    assert mixed.report == []
    generated = Catalog.build((path for path in videos[:2]), target)
    assert names(generated) == everything[:2]
    (tmp_path / "empty").mkdir()
    some = Catalog.build(["empty", "*.mkv", "empty", "videos"], target)
    assert [bad.reason for bad in some.report] == ["no video file below this folder", "no file matches this pattern"]


@pytest.fixture
def closed(videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder among the videos that cannot be read."""
    folder = tmp_path / "videos" / "closed"
    folder.mkdir()
    shutil.copy(videos[0], folder / "lost.mp4")
    close_folder(monkeypatch, folder)
    return folder


WHY = "a folder that cannot be read (Permission denied)"


@pytest.mark.parametrize("given", ["", "*", "**", "**/*.mp4", "*/*.mp4", "clos*/**/*.mp4"])
def test_folders_that_cannot_be_read(closed: Path, videos: list[Path], tmp_path: Path, given: str) -> None:
    asked = tmp_path / "videos" / given
    catalog = Catalog.build([videos[0], asked, asked], tmp_path / "c.arrow")
    assert [(bad.path, bad.reason) for bad in catalog.report] == [(str(closed), WHY)]
    with pytest.raises(SourceError, match=r"closed: a folder that cannot be read \(Permission denied\)"):
        Catalog.build([videos[0], asked], tmp_path / "d.arrow", on_error="raise")


def test_a_pattern_into_a_folder_that_cannot_be_searched(
    videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.lstat

    def lstat(path: str, **more: int) -> os.stat_result:
        if str(path).endswith("deep/a.mp4"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, **more)

    (tmp_path / "videos" / "deep").mkdir()
    monkeypatch.setattr(os, "lstat", lstat)
    catalog = Catalog.build([videos[0], tmp_path / "videos" / "*" / "a.mp4"], tmp_path / "c.arrow")
    assert [(bad.path, bad.reason) for bad in catalog.report] == [(str(tmp_path / "videos" / "deep"), WHY)]


def test_a_root_that_cannot_be_read(closed: Path, videos: list[Path], tmp_path: Path) -> None:
    for asked in (closed, closed / "*.mp4"):
        with pytest.raises(CatalogError, match=r"not written: .*closed: a folder that cannot be read \(Permission"):
            Catalog.build(asked, tmp_path / "c.arrow")
        with pytest.raises(SourceError, match=r"closed: a folder that cannot be read \(Permission denied\)"):
            VideoDataset(asked)


def test_datasets_have_a_bad_file_for_a_folder_that_cannot_be_read(
    closed: Path, videos: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match="closed: "):
        VideoDataset(tmp_path / "videos")
    with pytest.warns(UserWarning, match=r"left out 1 of 6 files: .*closed: "):
        dataset = VideoDataset(tmp_path / "videos" / "**" / "*.mp4", on_error="skip")
    assert dataset.filenames == tuple(map(str, videos))
    assert [bad.path for bad in dataset.unreadable] == [str(closed)]
    catalog = Catalog.build(tmp_path / "videos", tmp_path / "c.arrow")
    with pytest.warns(UserWarning, match="cannot be read"):
        dataset = VideoDataset(tmp_path / "videos", catalog=catalog, on_error="skip")
    assert WHY in dataset.unreadable[0].reason


def test_disks_that_fail(videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "videos" / "bad").mkdir()
    (tmp_path / "videos" / "gone").mkdir()
    close_folder(monkeypatch, tmp_path / "videos" / "bad", errno.EIO)
    close_folder(monkeypatch, tmp_path / "videos" / "gone", errno.ENOENT)  # removed by somebody meanwhile
    catalog = Catalog.build(tmp_path / "videos", tmp_path / "c.arrow")
    assert len(catalog) == 5
    assert [bad.reason for bad in catalog.report] == ["a folder that cannot be read (Input/output error)"]
    assert names(Catalog.build(tmp_path / "videos" / "**", tmp_path / "c.arrow")) == names(catalog)


def test_urls_are_not_read(videos: list[Path], tmp_path: Path) -> None:
    catalog = Catalog.build([videos[0], "https://example.org/a.mp4?key=[1]"], tmp_path / "c.arrow")
    assert "URLs are not supported" in catalog.report[0].reason


# --- what is scanned --------------------------------------------------------------------------------------------------


def test_only_what_has_changed_is_scanned(videos: list[Path], tmp_path: Path, scanned: list[str]) -> None:
    target = tmp_path / "c.arrow"
    before = Catalog.build(videos, target)
    assert scanned == [path.name for path in videos]
    scanned.clear()

    written = target.stat().st_mtime_ns
    Catalog.build(videos, target)
    assert scanned == [] and target.stat().st_mtime_ns == written

    change(videos[1])
    videos[2].write_bytes(videos[2].read_bytes() + bytes(8))
    after = Catalog.build([videos[4], *videos[:4]], target)
    assert scanned == ["001.mp4", "002.mp4"]
    assert names(after) == ["004.mp4", "000.mp4", "001.mp4", "002.mp4", "003.mp4"]
    for number in range(5):
        assert_same(after[number], VideoIndex.scan(after.paths[number]))
    assert names(before) == [path.name for path in videos]  # still mapped, still whole

    scanned.clear()
    assert names(Catalog.build(videos[:2], target)) == ["000.mp4", "001.mp4"]
    assert len(Catalog.open(target)) == 2
    assert scanned == []
    Catalog.build(videos, target)
    assert scanned == ["002.mp4", "003.mp4", "004.mp4"]  # what was not asked for was dropped


def test_respelled_paths_are_not_scanned_again(
    videos: list[Path], tmp_path: Path, scanned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Catalog.build(videos, "c.arrow")
    scanned.clear()
    assert Catalog.build("videos", "c.arrow").paths == tuple(map(str, videos))
    assert scanned == []
    assert CatalogFile(str(tmp_path / "c.arrow")).paths()[0] == "videos/000.mp4"


def test_rows_of_many_sources_keep_their_order(videos: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "c.arrow"
    rng = np.random.default_rng(0)
    for _ in range(8):
        chosen = [videos[number] for number in rng.permutation(5)[: rng.integers(1, 6)]]
        for path in chosen[::2]:
            change(path)
        catalog = Catalog.build(chosen, target)
        assert catalog.paths == tuple(map(str, chosen))
        for path in chosen:
            assert_same(catalog[path], VideoIndex.scan(str(path)))


def test_batches_are_bounded(videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_parts, "MAX_BATCH_ROWS", 2)
    Catalog.build(videos, tmp_path / "rows.arrow")
    found = CatalogFile(str(tmp_path / "rows.arrow"))
    assert [batch.num_rows for batch in found.batches] == [2, 2, 1]
    assert Catalog.open(tmp_path / "rows.arrow").paths == tuple(map(str, videos))
    monkeypatch.setattr(catalog_parts, "MAX_BATCH_BYTES", 1)
    change(videos[0])
    Catalog.build(videos, tmp_path / "rows.arrow")
    assert len(CatalogFile(str(tmp_path / "rows.arrow")).batches) == 4  # one new, and what is left of each


def test_a_damaged_catalog_is_built_anew(videos: list[Path], tmp_path: Path, scanned: list[str]) -> None:
    target = tmp_path / "c.arrow"
    Catalog.build(videos, target)
    good = target.read_bytes()
    for data in (good[: len(good) // 2], good[:-1], good[:3], good[:8] + b"garbage", b""):
        target.write_bytes(data)
        scanned.clear()
        assert names(Catalog.build(videos, target)) == [path.name for path in videos]
        assert len(scanned) == len(videos)


def test_other_files_are_not_replaced(videos: list[Path], tmp_path: Path) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(tmp_path / "mine.arrow", pa.schema([("a", pa.int32())])):
        pass
    with pytest.raises(CatalogError, match=r"mine.arrow: another Arrow file"):
        Catalog.build(videos, tmp_path / "mine.arrow")
    for name, data in (("notes.txt", b"notes"), ("c.arrow", b"garbage"), ("short", b"A\n")):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CatalogError, match=f"{name}: not a catalog; writing would replace it: choose another name"):
            Catalog.build(videos, tmp_path / name)
        assert (tmp_path / name).read_bytes() == data
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CatalogError, match=r"pipe: a device or a pipe, which the catalog would replace"):
        Catalog.build(videos, tmp_path / "pipe")
    with pytest.raises(CatalogError, match=r"000.mp4: named like a video file"):
        Catalog.build(videos, videos[0])
    with pytest.raises(CatalogError, match="a folder; name a file in it"):
        Catalog.build(videos, tmp_path)
    with pytest.raises(CatalogError, match=r"nowhere.c.arrow: cannot be written: its folder does not exist"):
        Catalog.build(videos, tmp_path / "nowhere" / "c.arrow")
    with pytest.raises(CatalogError, match=r"c.arrow: cannot be written \(Not a directory\)"):
        Catalog.build(videos, videos[0] / "c.arrow")


def test_a_file_that_cannot_be_read_is_not_replaced(
    videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(path: str) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    (tmp_path / "c.arrow").write_bytes(b"whatever")
    monkeypatch.setattr(catalog_build, "begins_as_catalog", unreadable)
    with pytest.raises(CatalogError, match=r"c.arrow: cannot be read \(Permission denied\).*choose another name"):
        Catalog.build(videos, tmp_path / "c.arrow")
    assert (tmp_path / "c.arrow").read_bytes() == b"whatever"


# --- nothing to index -------------------------------------------------------------------------------------------------


def test_a_good_catalog_is_not_replaced_by_an_empty_one(videos: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "c.arrow"
    Catalog.build(videos, target)
    good = target.read_bytes()
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    for asked in ("vidoes", "empty", "*.mkv", "bad.mp4"):
        with pytest.raises(CatalogError) as caught:
            Catalog.build(tmp_path / asked, target)
        assert caught.value.path == str(target)
        assert caught.value.reason.startswith(f"no video could be indexed ({tmp_path / asked}: ")
        assert caught.value.reason.endswith(
            "; this catalog is kept, with 5 videos: delete it first if you want an empty catalog"
        )
    for nothing in ([], [target]):
        with pytest.raises(CatalogError, match=r"no video could be indexed \(no paths were given\); this cat"):
            Catalog.build(nothing, target)
    with pytest.raises(CatalogError, match=r"2.mp4: no such file and 2 more\); this catalog is kept"):
        Catalog.build([tmp_path / f"{number}.mp4" for number in range(5)], target)
    assert target.read_bytes() == good
    for damaged_one in (good[: len(good) // 2], good[:-1]):
        target.write_bytes(damaged_one)
        with pytest.raises(CatalogError, match=r"this file, a damaged or old catalog, is kept"):
            Catalog.build(tmp_path / "vidoes", target)
        assert target.read_bytes() == damaged_one
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.mp4", "c.arrow", "empty", "videos"]
    # As the error says.
    target.unlink()
    assert len(Catalog.build(tmp_path / "bad.mp4", target)) == 0


def test_no_empty_catalog_for_paths_that_lead_nowhere(videos: list[Path], tmp_path: Path) -> None:
    target = tmp_path / "c.arrow"
    for asked in ("vidoes", "*.mkv"):
        with pytest.raises(CatalogError, match=r"c.arrow: not written: no video could be indexed \(.*: no "):
            Catalog.build(tmp_path / asked, target)
    assert not target.exists()
    assert len(Catalog.build([], target)) == 0  # as asked


def test_what_is_known_of_finished_scans_survives(
    videos: list[Path], tmp_path: Path, scanned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong name between an interrupted build and the next one."""
    monkeypatch.setattr(catalog_build, "write_file", _fails)
    with pytest.raises(CatalogError, match="cannot be written"):
        Catalog.build(videos, tmp_path / "c.arrow")
    monkeypatch.undo()
    with pytest.raises(CatalogError, match="not written"):
        Catalog.build(tmp_path / "vidoes", tmp_path / "c.arrow")
    scanned.clear()
    assert len(Catalog.build(videos, tmp_path / "c.arrow")) == 5
    assert scanned == []


def _fails(path: str, *_: object) -> CatalogFile:
    raise CatalogError(path, "cannot be written (No space left on device)")


def test_arguments_are_checked(videos: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_error='ignore'"):
        Catalog.build(videos, tmp_path / "c.arrow", on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_workers=0"):
        Catalog.build(videos, tmp_path / "c.arrow", num_workers=0)


# --- bad files --------------------------------------------------------------------------------------------------------


def test_bad_files_are_left_out_and_remembered(videos: list[Path], tmp_path: Path, scanned: list[str]) -> None:
    videos[1].write_bytes(b"no video")
    videos[3].write_bytes(b"")
    asked = [*videos, tmp_path / "missing.mp4"]
    catalog = Catalog.build(asked, tmp_path / "c.arrow")
    assert names(catalog) == ["000.mp4", "002.mp4", "004.mp4"]
    found = {Path(bad.path).name: bad.reason for bad in catalog.report}
    assert list(found) == ["001.mp4", "003.mp4", "missing.mp4"]
    assert "not a video" in found["001.mp4"] and "empty" in found["003.mp4"] and found["missing.mp4"] == "no such file"

    scanned.clear()
    again = Catalog.build(asked, tmp_path / "c.arrow")
    assert scanned == [] and again.report == catalog.report
    shutil.copy(videos[0], videos[3])
    change(videos[4])
    mended = Catalog.build(asked, tmp_path / "c.arrow")
    assert scanned == ["003.mp4", "004.mp4"]
    assert names(mended) == ["000.mp4", "002.mp4", "003.mp4", "004.mp4"]
    assert [Path(bad.path).name for bad in mended.report] == ["001.mp4", "missing.mp4"]


def test_bad_files_get_another_chance_after_an_update(
    videos: list[Path], tmp_path: Path, scanned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    videos[1].write_bytes(b"no video")
    Catalog.build(videos, tmp_path / "c.arrow")
    scanned.clear()
    monkeypatch.setattr(catalog_build, "installed_version", lambda name: "99")
    Catalog.build(videos, tmp_path / "c.arrow")
    assert scanned == ["001.mp4"]


def test_on_error_raise(videos: list[Path], tmp_path: Path, scanned: list[str]) -> None:
    target = tmp_path / "c.arrow"
    videos[4].write_bytes(b"no video")
    with pytest.raises(InvalidFile, match=r"004.mp4: not a video"):
        Catalog.build(videos, target, on_error="raise", num_workers=1)
    assert not target.exists()
    scanned.clear()
    with pytest.raises(InvalidFile, match=r"004.mp4: not a video"):
        Catalog.build(videos, target, on_error="raise")
    assert scanned == []  # the others were not lost, and the bad one is known
    assert len(Catalog.build(videos, target)) == 4
    with pytest.raises(SourceError, match=r"missing.mp4: no such file"):
        Catalog.build([tmp_path / "missing.mp4"], target, on_error="raise")
    assert len(Catalog.open(target)) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.arrow", "videos"]


def test_a_scan_that_raises_anything_is_a_bad_file(
    videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trip(path: str) -> VideoIndex:
        raise RecursionError("too deep") if path.endswith("002.mp4") else OverflowError("too big")

    monkeypatch.setattr(VideoIndex, "scan", trip)
    catalog = Catalog.build(videos, tmp_path / "c.arrow")
    assert len(catalog) == 0
    assert catalog.report[2].reason == "could not be indexed (RecursionError: too deep)"


def test_a_scan_that_hangs_is_a_bad_file(videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, gone_on = VideoIndex.scan, threading.Event()

    def hang(path: str) -> VideoIndex:
        if path.endswith(("001.mp4", "002.mp4")):
            gone_on.wait(60)
        return real(path)

    monkeypatch.setattr(VideoIndex, "scan", hang)
    begin = time.monotonic()
    catalog = Catalog.build(videos, tmp_path / "c.arrow", num_workers=2, timeout_seconds=0.3)
    assert time.monotonic() - begin < 20
    gone_on.set()
    assert catalog.paths == tuple(str(path) for path in videos if path.name not in ("001.mp4", "002.mp4"))
    assert [Path(bad.path).name for bad in catalog.report] == ["001.mp4", "002.mp4"]
    assert {bad.reason for bad in catalog.report} == {"the scan took longer than 0.3 s"}


# --- worker processes -------------------------------------------------------------------------------------------------


def test_processes_give_what_threads_give(clip_folder: Path, tmp_path: Path) -> None:
    videos = copies(clips.make("h264_bframes", clip_folder), tmp_path / "videos", MANY)
    videos[5].write_bytes(b"no video")
    catalog = Catalog.build(videos, tmp_path / "c.arrow", num_workers=2)
    assert len(catalog) == MANY - 1
    assert "not a video" in catalog.report[0].reason
    for path in videos[6::7]:
        assert_same(catalog[path], VideoIndex.scan(str(path)))


def test_crashes_and_hangs_cost_one_file_each(
    clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: list[str]
) -> None:
    monkeypatch.setattr(catalog_scan, "_COMMAND", odd_worker())
    videos = copies(clips.make(SMALL, clip_folder), tmp_path / "videos", MANY)
    odd = [Path(shutil.copy(videos[0], tmp_path / f"videos/{name}.mp4")) for name in ("001_crash", "003_slow")]
    target = tmp_path / "c.arrow"
    catalog = Catalog.build(tmp_path / "videos", target, num_workers=2, timeout_seconds=1)
    assert catalog.paths == tuple(map(str, videos))
    assert [(bad.path, bad.reason) for bad in catalog.report] == [
        (str(odd[0]), "the scan crashed twice (SIGSEGV)"),
        (str(odd[1]), "the scan took longer than 1 s"),
    ]
    scanned.clear()
    Catalog.build(tmp_path / "videos", target, timeout_seconds=1)
    assert scanned == []
    Catalog.build(tmp_path / "videos", target, timeout_seconds=2)  # few files: by threads, with the real scan
    assert scanned == ["003_slow.mp4"]


def test_workers_that_cannot_start(
    clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalog_scan, "_COMMAND", "import sys; sys.exit(3)")
    videos = copies(clips.make(SMALL, clip_folder), tmp_path / "videos", MANY)
    with pytest.raises(CatalogError, match=r"c.arrow: cannot be built: .* could not be started \(exit status 3\)"):
        Catalog.build(videos, tmp_path / "c.arrow")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no_python"))
    monkeypatch.setattr(multiprocessing.spawn, "get_executable", lambda: None)
    with pytest.raises(CatalogError, match=r"c.arrow: cannot be built: .* \(No such file or directory\)"):
        Catalog.build(videos, tmp_path / "c.arrow")
    assert [path.name for path in tmp_path.iterdir()] == ["videos"]


def test_progress(
    videos: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    videos[0].write_bytes(b"no video")
    Catalog.build(videos, tmp_path / "quiet.arrow")
    assert capsys.readouterr() == ("", "")
    Catalog.build(videos, tmp_path / "loud.arrow", progress=True)
    output = capsys.readouterr()
    assert output.out == "" and "5/5" in output.err and "1 bad" in output.err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Catalog.build(videos, tmp_path / "few.arrow")
    Catalog.build(videos, tmp_path / "off.arrow", progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(catalog_build, "MIN_FILES", 4)
    Catalog.build(videos, tmp_path / "many.arrow")
    assert "5/5" in capsys.readouterr().err


def test_a_file_that_is_cut_off_is_reported(tmp_path: Path, clip_folder: Path) -> None:
    good = clips.make("h264_bframes", clip_folder)
    cut = damaged.DAMAGED["cut_in_data"](tmp_path)
    catalog = Catalog.build([good, cut], tmp_path / "catalog.arrow", progress=False)
    assert len(catalog) == 1
    (bad,) = catalog.report
    assert "cut off: 23 of 48 frames are missing" in bad.reason
