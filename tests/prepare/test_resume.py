"""Whatever ends a run, the same command completes it: the same files, byte for byte, and nothing half done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from framefeed import prepare
from framefeed.prepare import api
from framefeed.prepare.encoding.task import Task, TaskResult, prepare_video
from framefeed.prepare.record import Record
from framefeed.testing.samples import write_clip
from prepare.helpers import content, in_this_process

QUICK: dict[str, Any] = {"preset": "ultrafast", "gop": 5, "progress": False}
KILLS = 2
VIDEOS = 10


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "videos"
    for seed in range(VIDEOS):
        write_clip(folder / f"{seed}.mp4", seed=seed, width=96, height=64, frames=40, options={"preset": "ultrafast"})
    return folder


def start(videos: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """A run of its own, in a session of its own: the workers are in it, too."""
    # Where tests run in the background, interrupts are ignored, and children inherit that.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from framefeed.cli import main; sys.exit(main())"
    arguments = ["prepare", str(videos), str(out), "--preset", "slow", "--gop", "5", "--quiet", *more]
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(out: Path, count: int) -> None:
    """Waits until so many videos are done."""
    deadline = time.monotonic() + 60
    while len(list(out.glob("*.mp4"))) < count and time.monotonic() < deadline:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def expected(videos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run comes to that is left alone."""
    out = tmp_path_factory.mktemp("whole") / "out"
    prepare.run(videos, out, workers=1, **{**QUICK, "preset": "slow"})
    return content(out)


def test_killed_and_repeated(videos: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = 0
    for number in range(KILLS):
        process = start(videos, out, "--workers", "2")
        wait_for(out, done + 1 + number % 2)
        process.kill()  # the run's own process: its workers have to notice
        process.communicate()
        done = len(list(out.glob("*.mp4")))
    assert 0 < done < VIDEOS and (out / ".prepare" / "journal").exists()
    found = content(out)
    assert all(found[name] == expected[name] for name in found if not name.startswith("."))
    # What was done is not done again.
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*.mp4")}
    result = prepare.run(videos, out, workers=1, **{**QUICK, "preset": "slow"})
    assert content(out) == expected
    unchanged = [path for path, stamp in stamps.items() if path.stat().st_mtime_ns == stamp]
    assert len(unchanged) >= done - KILLS and 0 <= result.num_new - (VIDEOS - done) <= KILLS


def test_interrupted(videos: Path, expected: dict[str, bytes], tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(videos, out, "--workers", "1")
    wait_for(out, 1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers as well
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "framefeed: interrupted; rerun the same command to resume\n")
    found = content(out)
    assert all(found[name] == expected[name] for name in found if not name.startswith("."))
    assert [name for name in found if name.startswith(".") and name.endswith(".mp4")] == []  # no half file
    prepare.run(videos, out, workers=1, **{**QUICK, "preset": "slow"})
    assert content(out) == expected


class Killed(BaseException):
    """Stands for the end of the process."""


def test_ended_before_each_change_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "prepare_all", in_this_process)
    # Nothing is cleared up, as by a kill.
    monkeypatch.setattr(Record, "give_up", lambda record: record._journal.close())
    some = [write_clip(tmp_path / f"{n}.mp4", seed=n, width=64, height=48, frames=6, gop=2) for n in range(2)]
    before = tmp_path / "before"
    other = write_clip(tmp_path / "other.mp4", width=64, height=48, frames=6, gop=2)
    prepare.run([some[0], other], before, **{**QUICK, "gop": 7})
    prepare.run(some, tmp_path / "whole", **QUICK)
    whole = content(tmp_path / "whole")
    left = [0]

    def counted(call: Any) -> Any:
        def instead(*arguments: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return call(*arguments, **named)

        return instead

    for restart in (False, True):
        for step in range(1, 200):
            out = tmp_path / f"{restart}{step}"
            if restart:
                shutil.copytree(before, out)
            with monkeypatch.context() as patched:
                for name in ("replace", "unlink", "mkdir", "write", "ftruncate", "fsync"):
                    patched.setattr(os, name, counted(getattr(os, name)))
                left[0] = step
                try:
                    prepare.run(some, out, restart=restart, catalog=tmp_path / "c.arrow", **QUICK)
                    ended = False
                except Killed:
                    ended = True
            left[0] = 0
            begun = (out / ".prepare" / "journal").exists() and '"gop": 5' in (out / ".prepare" / "journal").read_text()
            prepare.run(some, out, restart=restart and not begun, catalog=tmp_path / "c.arrow", **QUICK)
            assert content(out) == whole, step
            if not ended:
                break
        assert 8 < step < 100


def test_what_fails_is_tried_again(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(tasks: list[Task], *_: Any) -> Generator[TaskResult, None, None]:
        for task in tasks:
            yield TaskResult(task.number, error="out of luck") if task.stem == "1" else prepare_video(task)

    monkeypatch.setattr(api, "prepare_all", failing)
    result = prepare.run(videos, tmp_path / "out", **QUICK)
    assert [(Path(bad.path).name, bad.reason) for bad in result.bad] == [("1.mp4", "out of luck")]
    monkeypatch.setattr(api, "prepare_all", in_this_process)
    result = prepare.run(videos, tmp_path / "out", **QUICK)
    assert (result.num_new, result.bad, len(result.videos)) == (1, [], VIDEOS)
