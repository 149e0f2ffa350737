"""Ranges for profilers: balanced in every thread, and around everything that takes time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

import clips
from framefeed import VideoDataset, VideoLoader
from framefeed._util import nvtx as marks


class Recorder:
    """Stands for NVTX."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.open: dict[int, list[str]] = {}
        self.wrong = 0

    def push(self, name: str) -> None:
        self.names.add(name)
        self.open.setdefault(threading.get_ident(), []).append(name)

    def pop(self) -> None:
        stack = self.open.get(threading.get_ident())
        if not stack:
            self.wrong += 1
        else:
            stack.pop()

    def all_closed(self, seconds: float = 0.0) -> bool:
        """Whether every range has ended, after some seconds at the latest."""
        deadline = time.monotonic() + seconds
        while any(list(self.open.values())):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(marks, "_found", (recorder.push, recorder.pop))
    return recorder


def test_a_loader_is_marked(recorder: Recorder, clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    for _ in VideoLoader(VideoDataset([path], processing=None), 4, shuffle=True):
        pass
    assert recorder.names >= {"framefeed.plan", "framefeed.decode", "framefeed.process", "framefeed.assemble"}
    # The last batch is out before the thread that has filled it leaves its range.
    assert recorder.all_closed(seconds=30) and recorder.wrong == 0


def test_ranges_end_where_errors_pass(recorder: Recorder) -> None:
    with pytest.raises(RuntimeError, match="inside"), marks.PLAN, marks.READ:
        raise RuntimeError("inside")
    assert recorder.names == {"framefeed.plan", "framefeed.read"}
    assert recorder.all_closed() and recorder.wrong == 0


def test_without_cuda_they_are_nothing() -> None:
    with marks.PLAN:
        pass
