"""Worker processes that prepare videos side by side. None can take the others, or the run, down with it.

Workers are plain subprocesses: they import neither the caller's main module nor anything that it has loaded, so that
they start safely from a script without a main guard, from a notebook, and from a process that uses CUDA. One that dies
is replaced, and its video is tried once more. When the run's own process is gone, in whatever way, they end at once.
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
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait

from framefeed._util.long_wait import Patience, process_state
from framefeed.errors import OutputError
from framefeed.prepare.encoding.task import Task, TaskResult, prepare_video

__all__ = ["prepare_all", "serve"]

TELL_SECONDS = 0.2  # how often a worker tells how far it has got
END_SECONDS = 2.0

_COMMAND = """
import signal, sys, json
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes of a terminal: the parent decides
sys.path[:] = json.loads(sys.argv[1])
from framefeed.prepare.workers import serve
serve(int(sys.argv[2]))
"""

Advance = Callable[[int, int], None]
"""``advance(task, steps)``: so many more steps of a task are done."""


class _Worker:
    """A process, and the task it is at."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.connection = Connection(ours.detach())
            search_path = json.dumps([os.fspath(entry) for entry in sys.path])
            command = [os.fsdecode(spawn.get_executable() or sys.executable), "-c", _COMMAND, search_path]
            try:
                self._process = subprocess.Popen(
                    [*command, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,  # what a library prints is not the caller's output
                    # SVT-AV1 has no other switch for what it prints about itself.
                    env={"SVT_LOG": "1", **os.environ},
                )
            except OSError as error:
                self.connection.close()
                raise OutputError("worker process", f"could not be started ({error.strerror})") from error
        self.task: Task | None = None
        self.steps = 0
        self.patience = Patience(self._describe)

    def _describe(self) -> list[str]:
        stem = "nothing" if self.task is None else self.task.stem
        return [f"{stem}, encoded by {process_state(self._process.pid)}"]

    def start(self, task: Task) -> None:
        self.task, self.steps = task, 0
        self.patience.reset()
        with suppress(OSError):  # it has died already, which is noticed when it is listened to
            self.connection.send(task)

    def end(self, *, kill: bool = False) -> int:
        """Ends the process; returns the status that it ended with."""
        self.connection.close()
        if kill:
            self._process.kill()
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def prepare_all(tasks: Sequence[Task], num_workers: int, advance: Advance) -> Generator[TaskResult, None, None]:
    """Prepares videos side by side.

    Args:
        tasks: In the order in which they are begun.
        num_workers: How many at once.
        advance: Told of progress.

    Yields:
        What became of each, as they end. Where the iterator is closed early, all processes are ended.
    """
    todo = deque(tasks)
    tried: set[int] = set()
    workers: list[_Worker] = []
    try:
        for _ in range(min(num_workers, len(tasks))):
            worker = _Worker()
            workers.append(worker)
            _give(worker, todo)
        while any(worker.task is not None for worker in workers):
            busy = {worker.connection: worker for worker in workers if worker.task is not None}
            for connection in wait(list(busy), min(worker.patience.seconds() for worker in busy.values())):
                worker = busy[connection]  # type: ignore[index]  # they are all connections
                outcome = _hear(worker, advance)
                if isinstance(outcome, int):  # it died: of this video, or killed from outside; a second time tells
                    assert worker.task is not None
                    task = worker.task
                    workers.remove(worker)
                    advance(task.number, -worker.steps)
                    if task.number not in tried:
                        tried.add(task.number)
                        todo.appendleft(task)
                    else:
                        yield TaskResult(task.number, error=f"encoding it crashed twice ({_death(outcome)})")
                    if todo:
                        worker = _Worker()
                        workers.append(worker)
                        _give(worker, todo)
                elif outcome is not None:
                    yield outcome
                    _give(worker, todo)
            for worker in busy.values():
                worker.patience.tell_if_due()
    finally:
        for worker in workers:
            worker.end(kill=True)


def _give(worker: _Worker, todo: deque[Task]) -> None:
    worker.task = None
    if todo:
        worker.start(todo.popleft())


def _hear(worker: _Worker, advance: Advance) -> TaskResult | int | None:
    """An outcome; None for news of progress; the status of a process that died."""
    assert worker.task is not None
    try:
        said = worker.connection.recv()
    except (EOFError, OSError):
        return worker.end()
    worker.patience.reset()
    if isinstance(said, TaskResult):
        return said
    advance(worker.task.number, said)
    worker.steps += said
    return None


def _death(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def serve(descriptor: int) -> None:
    """What a worker process does: answers tasks with outcomes until the other side is gone."""
    connection = Connection(descriptor)
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()

    def listen() -> None:
        try:
            while True:
                tasks.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)  # the parent is gone; nobody would take what is being written

    threading.Thread(target=listen, daemon=True).start()
    while True:
        task = tasks.get()
        try:
            connection.send(prepare_video(task, _Teller(connection)))
        except OSError:
            os._exit(0)


class _Teller:
    """Tells the parent of progress, not too often."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._steps = 0
        self._told_at = time.monotonic()

    def __call__(self, steps: int) -> None:
        self._steps += steps
        now = time.monotonic()
        if now - self._told_at >= TELL_SECONDS:
            self._connection.send(self._steps)
            self._steps, self._told_at = 0, now
