"""Builds that are killed, run twice at once, or find no room on the disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import clips
from framefeed import Catalog, CatalogError
from framefeed.catalog import build as catalog_build
from framefeed.catalog import parts as catalog_parts
from framefeed.catalog.arrow_file import CatalogFile
from framefeed.index.video_index import VideoIndex

from .catalog_help import SMALL, assert_same, copies, odd_worker
from .catalog_help import scanned as scanned  # a fixture

COUNT = 40

# Slow scans and frequent saving, so that there is something to interrupt. Where the tests run in the background,
# interrupts are ignored, and children inherit that.
_BUILD = """
import os, signal, sys
from framefeed import Catalog
from framefeed.catalog import build as catalog_build, catalog_scan
signal.signal(signal.SIGINT, signal.default_int_handler)
catalog_build.SAVE_SECONDS = 0.1
catalog_scan.THREAD_FILES = 16
catalog_scan._COMMAND = sys.argv[3]
catalog = Catalog.build(sys.argv[1], sys.argv[2], num_workers=2)
print(len(catalog), catalog[0].num_frames, len(catalog.report))
"""


@pytest.fixture
def videos(clip_folder: Path, tmp_path: Path) -> list[Path]:
    return copies(clips.make(SMALL, clip_folder), tmp_path / "videos", COUNT)


def start_build(folder: Path, target: Path, seconds: float = 0.03) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _BUILD, str(folder), str(target), odd_worker(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition: Callable[[], bool], build: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert build is None or build.poll() is None, build.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task").glob("*/children")  # of each of its threads
    return [int(child) for path in found for child in path.read_text().split()]


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_build_goes_on(
    videos: list[Path], tmp_path: Path, scanned: list[str], how: signal.Signals
) -> None:
    target, parts = tmp_path / "c.arrow", tmp_path / "c.arrow.parts"
    with start_build(tmp_path / "videos", target, 0.1) as build:
        wait_for(lambda: parts.is_dir() and any(parts.glob("*.arrow")), build)
        workers = children(build.pid)
        assert len(workers) == 2
        build.send_signal(how)
        build.communicate()
    assert not target.exists()
    wait_for(lambda: not any(map(is_running, workers)))
    # An interruption between saving and noting that it is saved saves something twice.
    saved = len({video for path in parts.glob("*.arrow") for video in CatalogFile(str(path)).paths()})
    assert 0 < saved < COUNT
    (parts / "half.arrow").write_bytes(next(parts.glob("*.arrow")).read_bytes()[:1000])
    (tmp_path / f".c.arrow.{os.uname().nodename}-{build.pid}-0.tmp").write_bytes(b"half")

    catalog = Catalog.build(tmp_path / "videos", target)
    assert len(scanned) == COUNT - saved
    assert catalog.paths == tuple(map(str, videos))
    for path in videos[::9]:
        assert_same(catalog[path], VideoIndex.scan(str(path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.arrow", "videos"]


def test_ctrl_c_in_the_same_process(
    videos: list[Path], tmp_path: Path, scanned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = catalog_build._Known.add

    def interrupted(known: catalog_build._Known, *found: object) -> None:
        add(known, *found)  # type: ignore[arg-type]
        if len(known._pending) == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(catalog_build._Known, "add", interrupted)
        Catalog.build(videos, tmp_path / "c.arrow", num_workers=1)
    scanned.clear()
    assert len(Catalog.build(videos, tmp_path / "c.arrow")) == COUNT
    assert len(scanned) == COUNT - 7
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.arrow", "videos"]


def test_two_builds_at_once(videos: list[Path], tmp_path: Path, scanned: list[str]) -> None:
    videos[7].write_bytes(b"no video")
    target = tmp_path / "c.arrow"
    with start_build(tmp_path / "videos", target) as first:
        wait_for(lambda: (tmp_path / "c.arrow.parts").is_dir(), first)
        with start_build(tmp_path / "videos", target, 0.01) as second:
            results = [build.communicate(timeout=60) for build in (first, second)]
    for output, errors in results:
        assert (output.split(), errors) == ([str(COUNT - 1), "1", "1"], "")
    catalog = Catalog.build(tmp_path / "videos", target)
    assert scanned == []
    assert catalog.paths == tuple(str(path) for path in videos if path != videos[7])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.arrow", "videos"]


def test_many_parts_are_put_together(
    videos: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scanned: list[str]
) -> None:
    videos[3].write_bytes(b"no video")
    monkeypatch.setattr(catalog_build, "SAVE_FILES", 1)
    monkeypatch.setattr(catalog_parts, "MAX_SMALL_PARTS", 4)
    with monkeypatch.context() as patch, pytest.raises(CatalogError):
        patch.setattr(catalog_build, "write_file", _no_room)
        Catalog.build(videos, tmp_path / "c.arrow")
    assert 0 < len(list((tmp_path / "c.arrow.parts").iterdir())) <= 5
    scanned.clear()
    catalog = Catalog.build(videos, tmp_path / "c.arrow")
    assert scanned == []
    assert len(catalog) == COUNT - 1 and len(catalog.report) == 1


def _no_room(path: str, *_: object) -> CatalogFile:
    raise CatalogError(path, "cannot be written (No space left on device)")


_FULL = """
import resource, sys
from framefeed import Catalog
from framefeed.catalog import build as catalog_build
catalog_build.SAVE_FILES = int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # a disk that takes this much of a file
Catalog.build(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("save_files", [1000, 15])
def test_a_full_disk(clip_folder: Path, tmp_path: Path, save_files: int) -> None:
    copies(clips.make("h264_bframes", clip_folder), tmp_path / "videos", 16)
    target = tmp_path / "c.arrow"
    small = Catalog.build(tmp_path / "videos/000.mp4", target)
    before = target.read_bytes()
    command = [sys.executable, "-c", _FULL, str(tmp_path / "videos"), str(target), str(save_files)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"framefeed.errors.CatalogError: {target}: ")
    assert "cannot be written (File too large)" in message
    assert target.read_bytes() == before
    assert len(small) == 1
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".mp4"]
    assert left == [target]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_not_writable(videos: list[Path], tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(CatalogError, match=r"c.arrow: cannot be written \(Permission denied\)"):
        Catalog.build(videos, closed / "c.arrow")
    assert list(closed.iterdir()) == []
