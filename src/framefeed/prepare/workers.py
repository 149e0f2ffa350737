"""Prepares videos side by side in worker processes; one that dies is replaced, and its video is tried once more."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from framefeed._util.process.worker_process import Advance, Lost, WorkerError, answer_requests, ask_workers
from framefeed.errors import OutputError
from framefeed.prepare.encoding.task import Task, TaskResult, prepare_video

__all__ = ["prepare_all", "serve"]

_COMMAND = """
from framefeed.prepare.workers import serve
serve(descriptor)
"""


def prepare_all(tasks: Sequence[Task], num_workers: int, advance: Advance) -> Generator[TaskResult, None, None]:
    """Prepares videos side by side.

    Args:
        tasks: In the order in which they are begun.
        num_workers: How many at once.
        advance: Told of progress, by the tasks' numbers.

    Yields:
        What became of each, as they end. Where the iterator is closed early, all processes are ended.

    Raises:
        OutputError: Worker processes cannot be started.
    """
    answers = ask_workers(
        _COMMAND,
        tasks,
        num_workers,
        describe=lambda place: f"{tasks[place].stem}, encoded",
        advance=lambda place, steps: advance(tasks[place].number, steps),
        environment={"SVT_LOG": "1"},  # SVT-AV1 has no other switch for what it prints about itself
    )
    with closing(answers):
        try:
            for found in answers:
                if found is not None:
                    place, answer = found
                    lost = isinstance(answer, Lost)
                    yield TaskResult(tasks[place].number, error=f"encoding it {answer.reason}") if lost else answer
        except WorkerError as error:
            raise OutputError("worker process", error.reason) from error


def serve(descriptor: int) -> None:
    """Prepares videos in a worker process."""
    answer_requests(descriptor, lambda task, advance: prepare_video(task, advance))
