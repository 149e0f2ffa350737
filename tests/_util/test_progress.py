"""Progress bars: what they show and where, and that they are silent elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import threading

import pytest

from framefeed._util import progress
from framefeed._util.progress import ProgressBar, TaskBars, is_shown


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "150")


def test_on_a_terminal_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert (is_shown(None), is_shown(True), is_shown(False)) == (False, True, False)
    with ProgressBar("reading", 2) as bar, TaskBars(["a"], [1], None) as bars:
        bar.advance(2, "note")
        bar.update(1, 2)
        bars.advance(0, 1)
        assert bar.elapsed_seconds == 0
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert (is_shown(None), is_shown(False)) == (True, False)
    monkeypatch.setattr(sys, "stderr", None)
    assert not is_shown(None)


def test_steps_rate_and_note(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("reading", 5, show=True, unit="files", done=1, keep=True) as bar:
        bar.advance(2, "0 bad")
        bar.advance(1, "1 bad\x1b[8m")  # too early to be shown at once
        bar.advance(1)
    out, err = capsys.readouterr()
    assert out == "" and "reading" in err and "5/5" in err and "1 bad\\x1b[8m" in err


def test_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("packing", 4 << 20, show=True, unit="bytes", keep=True) as bar:
        bar.advance(1 << 20)
    assert re.search(r"packing .*1\.0/4\.0 MiB", capsys.readouterr().err)


def test_a_bar_in_a_loop_needs_no_thread(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    bar = ProgressBar("epoch 0", None, show=True, keep=True, in_loop=True)
    bar.start()
    bar.advance(1, "3 frames/s")
    assert threading.active_count() == before and bar.elapsed_seconds > 0
    bar.close()
    assert "3 frames/s" in capsys.readouterr().out


def test_updates_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    with ProgressBar("packing", 1000, show=True) as bar:
        calls: list[int] = []
        update = bar._update

        def counted() -> None:
            calls.append(1)
            update()

        monkeypatch.setattr(bar, "_update", counted)
        for _ in range(1000):
            bar.advance(1)
        assert len(calls) < 100


def test_bars_of_tasks() -> None:
    names = [f"task{number}" for number in range(8)]
    with TaskBars(names, [10] * 8, True) as bars:
        assert bars._bars is not None

        def shown() -> dict[str, float]:
            assert bars._bars is not None
            return {task.description: task.completed for task in bars._bars.tasks}

        for task in range(6):
            bars.advance(task, 3)
        assert shown() == {"8 videos": 18, "task2": 3, "task3": 3, "task4": 3, "task5": 3}
        bars.advance(5, -3)  # to be repeated
        bars.complete(2)
        assert shown() == {"8 videos": 22, "task3": 3, "task4": 3, "task5": 0}


def test_what_was_done_before_counts() -> None:
    bars = TaskBars(["x" * 50], [10], True)
    bars.done_before(0, 4)
    with bars:
        bars.advance(0, 1)
        assert bars._bars is not None
        assert [(task.description, task.completed) for task in bars._bars.tasks] == [
            ("1 videos", 5),
            (f"...{'x' * (progress.NAME_LENGTH - 3)}", 5),
        ]


@pytest.mark.parametrize("show", [False, True])
def test_rich_is_loaded_when_a_bar_is_shown(show: bool) -> None:
    code = (
        f"import sys; from framefeed._util.progress import ProgressBar\nwith ProgressBar('x', 1, show={show}): pass\n"
    )
    code += "print('rich' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert ran.stdout.strip().endswith(str(show))
