"""Worker processes: answers, crashes, hangs, progress, and the end of either side."""

from __future__ import annotations

import multiprocessing.spawn
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from framefeed._util.process import worker_process
from framefeed._util.process.worker_process import Lost, WorkerError, ask_workers, death

# A request is a text: what to do, and the file that tells whether it was done before.
CODE = """
import os, signal, sys, time
from framefeed._util.process.worker_process import answer_requests
def answer(request, tell):
    what, _, path = request.partition(" ")
    if what == "crash" or (what == "once" and not os.path.exists(path)):
        if path:
            tell(2)
            open(path, "w").close()
            time.sleep(0.3)
            tell(3)
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "sleep":
        time.sleep(float(path))
    print("not an answer")
    return request.upper(), os.getpid(), os.environ.get("FRAMEFEED_TEST_LEVEL")
answer_requests(descriptor, answer)
"""


def ask(requests: list[str], num_workers: int = 2, **options: Any) -> dict[int, Any]:
    with closing(ask_workers(CODE, requests, num_workers, **options)) as answers:
        found = [each for each in answers if each is not None]
    assert len(found) == len({number for number, _ in found}) == len(requests)
    return dict(found)


@pytest.mark.parametrize("in_advance", [0, 1, 5])
def test_each_request_is_answered_once(in_advance: int, capfd: pytest.CaptureFixture[str]) -> None:
    requests = [f"a{number}" for number in range(30)]
    found = ask(requests, in_advance=in_advance, environment={"FRAMEFEED_TEST_LEVEL": "3"})
    assert {number: text for number, (text, *_) in found.items()} == {n: f"A{n}" for n in range(30)}
    assert len({pid for _, pid, _ in found.values()} - {os.getpid()}) == 2
    assert {level for *_, level in found.values()} == {"3"}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("in_advance", [0, 3])
def test_a_crash_costs_its_own_request(in_advance: int, tmp_path: Path) -> None:
    requests = ["a", "crash", f"once {tmp_path / 'done'}", *"bcdef"]
    found = ask(requests, 1, in_advance=in_advance)
    assert found.pop(1) == Lost("crashed twice (SIGSEGV)")
    assert [found[number][0] for number in sorted(found)] == [each.upper() for each in requests if each != "crash"]


@pytest.mark.parametrize("in_advance", [0, 3])
def test_a_hang_costs_its_own_request(in_advance: int) -> None:
    begin = time.monotonic()
    found = ask(["a", "sleep 60", "b", "c"], 1, in_advance=in_advance, timeout_seconds=0.5)
    assert found.pop(1) == Lost("took longer than 0.5 s", timed_out=True)
    assert [text for text, *_ in found.values()] == ["A", "B", "C"]
    assert time.monotonic() - begin < 30


def test_progress_of_a_crash_is_taken_back(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    ask([f"once {tmp_path / 'done'}"], 1, advance=lambda *each: steps.append(each))
    assert steps == [(0, 5), (0, -5)]


def test_control_comes_back_while_nothing_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "TICK_SECONDS", 0.05)
    with closing(ask_workers(CODE, ["sleep 1"], 1)) as answers:
        assert next(answers) is None


def test_closing_kills_workers() -> None:
    with closing(ask_workers(CODE, ["a", "sleep 60", "sleep 60"], 1)) as answers:
        found = next(each for each in answers if each is not None)
    with pytest.raises(ProcessLookupError):
        os.kill(found[1][1], 0)


def test_workers_end_with_their_caller() -> None:
    code = f"""
from framefeed._util.process.worker_process import ask_workers
answers = ask_workers({CODE!r}, ["a", "sleep 60"], 1)
print(next(each for each in answers if each is not None)[1][1], flush=True)
import os, signal, time
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60)
    worker = int(ran.stdout)
    assert all(_states(worker))


def _states(process: int) -> Iterator[bool]:
    """Ends with True when the process is gone."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        except OSError:
            break
        time.sleep(0.1)
    else:
        yield False


@pytest.mark.parametrize(("code", "how"), [("import sys; sys.exit(3)", "exit status 3"), ("1 / 0", "exit status 1")])
def test_workers_that_do_not_start(code: str, how: str) -> None:
    with pytest.raises(WorkerError, match=rf"a worker process could not be started \({how}\)"):
        list(ask_workers(code, ["a"], 1))


def test_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.spawn, "get_executable", lambda: "/nowhere/python")
    with pytest.raises(WorkerError, match="No such file"):
        list(ask_workers(CODE, ["a"], 1))


def test_names_of_deaths() -> None:
    assert [death(status) for status in (0, 3, -11, -64, -100)] == [
        "exit status 0",
        "exit status 3",
        "SIGSEGV",
        "SIGRTMAX",
        "signal 100",
    ]
