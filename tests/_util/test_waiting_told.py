"""A process that is stopped is told of on stderr, and all goes on when it is continued."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from framefeed import VideoDataset, VideoLoader
from framefeed import prepare as preparing
from framefeed._util import long_wait as waiting
from framefeed._util.long_wait import Patience, process_state
from framefeed.prepare import workers as prepare_workers
from framefeed.testing import samples
from waiting import soon


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("videos")
    for number in range(3):
        samples.write_clip(folder / f"clip{number}.mp4", frames=24, gop=4, seed=number)
    return folder


def test_words_come_at_growing_distances(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    asked = []
    patience = Patience(lambda: asked.append(now[0]) or [f"\x1b{n}" for n in range(9)])  # type: ignore[func-returns-value]
    while now[0] < 1000:
        now[0] += min(10.0, patience.seconds())
        patience.tell_if_due()
    assert asked == [130.0, 190.0, 310.0, 550.0]
    assert capsys.readouterr().err.splitlines() == [
        f"framefeed: waiting for {n} s: \\x1b0; \\x1b1; \\x1b2; \\x1b3; and 5 more" for n in (30, 90, 210, 450)
    ]
    patience.reset()
    assert patience.seconds() == 30.0 and patience.seconds(2.0) == 2.0


def test_states() -> None:
    assert process_state(os.getpid()) == f"process {os.getpid()} (running)"
    assert process_state(None) == "process None"


def test_a_stopped_worker_of_a_loader(
    videos: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.3)
    files = sorted(videos.iterdir())
    loader = VideoLoader(VideoDataset(files), batch_size=4, num_workers=2, seed=1)
    whole = [len(batch["default"]) for batch in loader]
    capfd.readouterr()
    stopped = [child.pid for child in multiprocessing.active_children()][1]
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    found: list[Any] = []
    try:
        thread = threading.Thread(target=lambda: found.extend(len(batch["default"]) for batch in loader))
        thread.start()
        said = ""

        def told() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return "kill -CONT" in said

        assert soon(told, 20), said
    finally:
        os.kill(stopped, signal.SIGCONT)
    thread.join(60)
    assert found == whole
    line = said.splitlines()[0]
    assert line.startswith("framefeed: waiting for ") and f"process {stopped} (stopped" in line, said


def test_a_stopped_worker_of_prepare(
    videos: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.3)
    begun: list[int] = []
    make = prepare_workers._Worker

    def worker() -> Any:
        made = make()
        begun.append(made._process.pid)
        os.kill(made._process.pid, signal.SIGSTOP)
        return made

    monkeypatch.setattr(prepare_workers, "_Worker", worker)
    said: list[str] = []

    def go_on() -> None:
        def told() -> bool:
            said.append(capfd.readouterr().err)
            return any("kill -CONT" in text for text in said)

        soon(told, 20)
        for process in begun:
            os.kill(process, signal.SIGCONT)

    thread = threading.Thread(target=go_on)
    thread.start()
    result = preparing.run(videos / "clip0.mp4", tmp_path / "out", gop=2, force=True, workers=1, progress=False)
    thread.join()
    assert len(result.videos) == 1
    text = "".join(said)
    assert f"clip0, encoded by process {begun[0]} (stopped: kill -CONT" in text


def test_a_thread_that_hangs(videos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that does not answer."""
    from framefeed.source import packets

    monkeypatch.setattr(waiting, "FIRST_SECONDS", 0.2)
    free, real = threading.Event(), packets.ByteRanges.read

    def read(source: Any, numbers: Any) -> Any:
        free.wait(20)
        return real(source, numbers)

    monkeypatch.setattr(packets.ByteRanges, "read", read)
    loader = VideoLoader(VideoDataset(videos / "clip1.mp4"), batch_size=4)
    timer = threading.Timer(0.7, free.set)
    timer.start()
    assert len(next(iter(loader))["default"]) == 4
    text = capsys.readouterr().err
    assert "waiting for 0 s: a batch that needs" in text and "clip1.mp4, for 0 s" in text
