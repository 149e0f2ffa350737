"""Worker processes that answer requests side by side. None can take the others, or the caller, down with it.

Workers are plain subprocesses: they import neither the caller's main module nor anything that it has loaded, so that
they start safely from a script without a main guard, from a notebook, from a process that has threads or uses CUDA, and
from a worker of another pool. One that dies is replaced, and its request is tried once more. One that takes too long is
killed. When the caller's process is gone, in whatever way, they end at once.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from framefeed._util.process.long_wait import Patience, process_state

__all__ = ["Advance", "Lost", "WorkerError", "WorkerProcess", "answer_requests", "ask_workers", "death", "too_slow"]

START_SECONDS = 120.0  # a worker imports libraries, which takes its time on a cold network disk
TICK_SECONDS = 1.0  # how often the caller gets control while nothing is answered
TELL_SECONDS = 0.2  # how often a worker tells how far it has got
END_SECONDS = 2.0

_PREAMBLE = """
import signal, sys, json
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the parent decides
sys.path[:] = json.loads(sys.argv[1])
descriptor = int(sys.argv[2])
"""

Advance = Callable[[int, int], None]
"""``advance(number, steps)``: so many more steps of a request are done; negative where they have to be repeated."""


class WorkerError(RuntimeError):
    """A worker process cannot be started.

    Attributes:
        reason: Why, without a subject.
    """

    def __init__(self, why: object) -> None:
        self.reason = f"could not be started ({why})"
        super().__init__(f"a worker process {self.reason}")


@dataclass(frozen=True)
class Lost:
    """A request without an answer.

    Attributes:
        reason: What became of it, without a subject.
        timed_out: Whether it took too long.
    """

    reason: str
    timed_out: bool = False


def too_slow(seconds: float) -> Lost:
    """Returns what becomes of a request that takes longer."""
    return Lost(f"took longer than {seconds:g} s", timed_out=True)


class WorkerProcess:
    """A process at the other end of a connection.

    Args:
        code: What it runs, with ``descriptor`` as the number of the connection's other end.
        environment: Variables that it gets where the caller's environment does not have them.

    Attributes:
        connection: To it.
        pid: Its number.

    Raises:
        WorkerError: It cannot be started.
    """

    def __init__(self, code: str, environment: Mapping[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.connection = Connection(ours.detach())
            search_path = json.dumps([os.fspath(entry) for entry in sys.path])
            command = [os.fsdecode(spawn.get_executable() or sys.executable), "-c", _PREAMBLE + code, search_path]
            try:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # what a library prints is not the caller's output
                    env={**(environment or {}), **os.environ},
                )
            except OSError as error:
                self.connection.close()
                raise WorkerError(error.strerror) from error
        self.pid = self._process.pid

    def kill(self) -> None:
        """Kills it."""
        self._process.kill()

    def end(self) -> str:
        """Waits for its end, and kills it where that takes long; returns how it died."""
        self.connection.close()
        try:
            return death(self._process.wait(END_SECONDS))
        except subprocess.TimeoutExpired:
            self._process.kill()
            return death(self._process.wait())


def death(status: int) -> str:
    """Returns the name of the signal that ended a process, or its exit status, in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def answer_requests(descriptor: int, answer: Callable[[Any, Callable[[int], None]], Any]) -> NoReturn:
    """Answers requests, in a worker process, until the other side is gone.

    Args:
        descriptor: Of the connection.
        answer: Called with each request, and with a function to call as steps of it are done.
    """
    connection = Connection(descriptor)
    requests: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                requests.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; an answer that hangs must not outlive it
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def send(kind: str, value: Any) -> None:
        try:
            connection.send((kind, value))
        except OSError:
            os._exit(0)

    steps, told_at = 0, time.monotonic()

    def tell(more: int) -> None:
        nonlocal steps, told_at
        steps += more
        if time.monotonic() - told_at >= TELL_SECONDS:
            send("steps", steps)
            steps, told_at = 0, time.monotonic()

    send("ready", None)
    threading.Thread(target=listen, daemon=True).start()
    while True:
        request = requests.get()
        steps = 0
        send("answer", answer(request, tell))


def ask_workers(
    code: str,
    requests: Sequence[Any],
    num_workers: int,
    *,
    timeout_seconds: float | None = None,
    in_advance: int = 0,
    describe: Callable[[int], str] = str,
    advance: Advance = lambda number, steps: None,
    environment: Mapping[str, str] | None = None,
) -> Generator[tuple[int, Any] | None, None, None]:
    """Has requests answered by worker processes, side by side.

    Args:
        code: What workers run: something that calls ``answer_requests(descriptor, ...)``.
        requests: In the order in which they are begun.
        num_workers: How many at once.
        timeout_seconds: How long a worker may be silent before it is killed; None waits, and tells of it on stderr.
        in_advance: Requests that each worker gets while it is at another one.
        describe: Describes a request, by its number, to those who wait for it.
        advance: Told of progress.
        environment: See ``WorkerProcess``.

    Yields:
        The number of each request with its answer or a ``Lost``, as they end, and now and then None. Where the iterator
        is closed early, all processes are killed.

    Raises:
        WorkerError: Workers cannot be started.
    """
    pool = _Pool(code, requests, timeout_seconds, in_advance, describe, advance, environment)
    try:
        yield from pool.run(num_workers)
    finally:
        pool.close()


class _Worker:
    """A process of a pool, and the numbers of the requests that it has got; it is at the first one."""

    def __init__(self, process: WorkerProcess, describe: Callable[[int], str]) -> None:
        self.process = process
        self.numbers: deque[int] = deque()
        self.steps = 0  # of the first one
        self.is_ready = False
        self.since = time.monotonic()  # when it gave the last sign of life
        self.patience = Patience(lambda: [f"{describe(self.numbers[0])} by {process_state(process.pid)}"])

    def is_overdue(self, timeout_seconds: float) -> bool:
        """Returns whether it has been silent for too long."""
        return time.monotonic() - self.since > (timeout_seconds if self.is_ready else START_SECONDS)

    def gave_a_sign(self) -> None:
        """Notes that it lives."""
        self.since = time.monotonic()
        self.patience.reset()


@dataclass
class _Pool:
    code: str
    requests: Sequence[Any]
    timeout_seconds: float | None
    in_advance: int
    describe: Callable[[int], str]
    advance: Advance
    environment: Mapping[str, str] | None

    def __post_init__(self) -> None:
        self._todo = deque(range(len(self.requests)))
        self._tried: set[int] = set()
        self._workers: list[_Worker] = []

    def run(self, num_workers: int) -> Generator[tuple[int, Any] | None, None, None]:
        """See ``ask_workers``."""
        for _ in range(num_workers):
            self._start()
        while busy := [worker for worker in self._workers if worker.numbers]:
            heard = set(wait([worker.process.connection for worker in busy], self._seconds(busy)))
            for worker in busy:
                found = None
                if worker.process.connection in heard:
                    found = self._hear(worker)
                elif self.timeout_seconds is None:
                    worker.patience.tell_if_due()
                elif worker.is_overdue(self.timeout_seconds):
                    found = self._give_up(worker, self.timeout_seconds)
                if found is not None:
                    yield found
            if not heard:
                yield None

    def _seconds(self, busy: Sequence[_Worker]) -> float:
        if self.timeout_seconds is not None:
            return min(TICK_SECONDS, self.timeout_seconds)
        return min(worker.patience.seconds(TICK_SECONDS) for worker in busy)

    def _start(self) -> None:
        if self._todo:
            worker = _Worker(WorkerProcess(self.code, self.environment), self.describe)
            self._workers.append(worker)
            self._give(worker, 1)

    def _give(self, worker: _Worker, most: int) -> None:
        while self._todo and len(worker.numbers) < most:
            worker.numbers.append(self._todo.popleft())
            with suppress(OSError):  # it has died already, which is noticed when it is listened to
                worker.process.connection.send(self.requests[worker.numbers[-1]])

    def _hear(self, worker: _Worker) -> tuple[int, Any] | None:
        try:
            kind, value = worker.process.connection.recv()
        except (EOFError, OSError):
            return self._bury(worker)
        worker.gave_a_sign()
        if kind == "ready":
            worker.is_ready = True
        elif kind == "steps":
            worker.steps += value
            self.advance(worker.numbers[0], value)
        else:
            number = worker.numbers.popleft()
            worker.steps = 0
            # The last ones are for workers that would have nothing to do.
            self._give(worker, 1 + self.in_advance if len(self._todo) > len(self._workers) else 1)
            return number, value
        return None

    def _bury(self, worker: _Worker) -> tuple[int, Any] | None:
        """Replaces a worker that died: of its request, or killed from outside; a second time tells."""
        number, how = self._remove(worker)
        is_first = number not in self._tried
        if is_first:
            self._tried.add(number)
            self._todo.appendleft(number)
        self._start()
        return None if is_first else (number, Lost(f"crashed twice ({how})"))

    def _give_up(self, worker: _Worker, seconds: float) -> tuple[int, Any]:
        worker.process.kill()
        number, _ = self._remove(worker)
        self._start()
        return number, too_slow(seconds)

    def _remove(self, worker: _Worker) -> tuple[int, str]:
        """Removes a worker; returns the request that it was at, and how it died."""
        self._workers.remove(worker)
        how = worker.process.end()
        if not worker.is_ready:
            raise WorkerError(how)
        number, *others = worker.numbers
        self._todo.extendleft(reversed(others))
        self.advance(number, -worker.steps)
        return number, how

    def close(self) -> None:
        """Kills all processes."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.end()
