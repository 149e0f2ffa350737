"""Execution of a run: finds videos, plans segments, runs them, and assembles the output."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from framefeed._util.progress import TaskBars
from framefeed._util.run_state import RESUME
from framefeed.catalog.catalog import BadFile
from framefeed.errors import CatalogError, InvalidFile, OutputError
from framefeed.infer.execution.job import InferenceJob, Writer, plan_segments, schema_of
from framefeed.infer.execution.segments import Segment
from framefeed.infer.execution.work import Finished, VideoRef, WorkerStats
from framefeed.infer.journal import MemoryJournal
from framefeed.infer.options import InferOptions
from framefeed.infer.output import Output
from framefeed.infer.videos import InputVideos, Paths, find_videos

__all__ = ["Executor", "InferResult", "execute"]

Advance = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class InferResult:
    """Result of a run.

    Attributes:
        rows: All rows as a pyarrow table if no output was given; otherwise None.
        output: The file with all rows, or None.
        num_rows: Number of detections.
        num_frames: Number of frames the model processed.
        num_videos: Number of videos.
        errors: Videos that could not be used, or lack frames, with reasons.
        frames_lost: Frames of these that the model did not process.
        resumed_frames: Frames done by an earlier run.
        seconds: Duration in seconds.
        stats: Counters of this time: ``packets_decoded``, ``wait_seconds`` (the model for frames), ``model_seconds``,
            ``write_seconds`` and more.
        device: Device of decoding and the model.
    """

    rows: pa.Table | None
    output: Path | None
    num_rows: int
    num_frames: int
    num_videos: int
    errors: list[BadFile]
    frames_lost: int = 0
    resumed_frames: int = 0
    seconds: float = 0.0
    stats: dict[str, float] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def frames_per_second(self) -> float:
        """Frames per second of this run, over its whole duration."""
        return (self.num_frames - self.resumed_frames) / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        bad = f", {len(self.errors)} with errors" if self.errors else ""
        return f"InferResult({self.num_videos} videos{bad}, {self.num_frames} frames, {self.num_rows} rows)"


class Executor(Protocol):
    """Runs segments, locally or elsewhere."""

    @property
    def stats(self) -> WorkerStats:
        """Counters so far."""

    def run(self, segments: Sequence[Segment], videos: Sequence[VideoRef], advance: Advance) -> Iterator[Finished]:
        """Yields each segment when it is finished."""

    def close(self) -> None:
        """Releases its resources."""


def execute(
    videos: Paths,
    options: InferOptions,
    identity: dict[str, Any],
    make_executor: Callable[[], Executor],
    *,
    output: str | os.PathLike[str] | None = None,
    restart: bool = False,
    progress: bool | None = None,
) -> InferResult:
    """Executes a run; the arguments are those of ``framefeed.infer.run``.

    Args:
        videos: The videos.
        options: Sampling and detection options.
        identity: What must be equal to resume the run.
        make_executor: Creates the executor once there is work to do.
        output: The file; None returns rows.
        restart: Discards an earlier run.
        progress: Shows progress.
    """
    began = time.perf_counter()
    with ExitStack() as stack:
        target = None
        if output is not None:
            target = stack.enter_context(_opened(output, identity, restart))
            folder = target.folder
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="framefeed-infer-")))
        found = _find(videos, folder, options.frame_skip, progress)
        if not found.good:
            raise _none_usable(found)
        stamps = _stamps(found)
        if target is not None and target.begin(stamps):
            target.leave()
            return _done_before(target, found)
        segments = plan_segments(found.good, options)
        job = InferenceJob(found.good, segments, MemoryJournal() if target is None else target.journal)
        resumed = sum(count for _, count in job.done_frames())
        executor = make_executor()
        writer = _work(job, executor, found, progress)
        names = options.classes or job.classes()
        frames, bad, lost = job.counts()
        errors = [*found.bad, *bad]
        rows, num_rows = _put_together(job, names, target)
        result = InferResult(
            rows,
            None if target is None else target.path,
            num_rows,
            frames,
            len(found.good),
            errors,
            lost,
            resumed,
            time.perf_counter() - began,
            {**asdict(executor.stats), "write_seconds": writer.seconds},
            options.device,
        )
        if target is not None:
            target.finish(stamps, _summary(result), complete=not errors)
        return result


def _put_together(job: InferenceJob, names: Sequence[str] | None, target: Output | None) -> tuple[pa.Table | None, int]:
    """Returns all rows, in memory or in the output, and their number."""
    schema = schema_of(names)
    if target is None:
        rows = pa.concat_tables([schema.empty_table(), *job.rows(names)])
        return rows, rows.num_rows
    count = 0
    with target.rows(schema) as file:
        for table in job.rows(names):
            file.write(table)
            count += table.num_rows
    return None, count


@contextmanager
def _opened(path: str | os.PathLike[str], identity: dict[str, Any], restart: bool) -> Iterator[Output]:
    target = Output(path, identity, restart=restart)
    try:
        yield target
    except Exception:  # keeps an interrupted scan of many videos
        target.give_up()
        raise
    finally:
        target.close()


def _work(job: InferenceJob, executor: Executor, found: InputVideos, show: bool | None) -> Writer:
    """Runs the missing segments."""
    totals = [0] * len(found.good)
    for segment in job.segments:
        for piece in segment.pieces:
            totals[piece.video] += piece.count
    bars = TaskBars([video.name for video in found.good], totals, show)
    for video, count in job.done_frames():
        bars.done_before(video, count)
    writer = Writer(job)
    with bars:
        todo = [job.segments[number] for number in job.todo]
        writer.write_all(executor.run(todo, job.refs(), bars.advance))
    if job.missing():  # a bug, or a cluster that lost segments; no output is better than a partial one
        raise RuntimeError(f"{job.missing()} of {len(job.segments)} segments failed; rerun the same command to resume")
    return writer


def _find(videos: Paths, folder: Path, frame_skip: int, progress: bool | None) -> InputVideos:
    try:
        return find_videos(videos, folder, frame_skip, progress=progress)
    except CatalogError as error:
        if Path(error.path).parent == folder.absolute():  # not the user's catalog
            raise OutputError(error.path, f"{error.reason}; {RESUME}") from error
        raise


def _none_usable(found: InputVideos) -> InvalidFile:
    if not found.bad:
        return InvalidFile("videos", "the catalog is empty")
    first = found.bad[0]
    more = f" (and {len(found.bad) - 1} more unusable files)" if len(found.bad) > 1 else ""
    return InvalidFile(first.path, f"{first.reason}{more}")


def _stamps(found: InputVideos) -> dict[str, tuple[int, int] | None]:
    good = {video.name: video.fingerprint for video in found.good}
    return {**dict.fromkeys(bad.path for bad in found.bad), **good}


def _summary(result: InferResult) -> dict[str, Any]:
    return {
        "num_videos": result.num_videos,
        "num_frames": result.num_frames,
        "num_rows": result.num_rows,
        "frames_lost": result.frames_lost,
        "errors": [{"file": bad.path, "reason": bad.reason} for bad in result.errors],
        "seconds": round(result.seconds, 3),
        "stats": {name: round(value, 3) for name, value in result.stats.items()},
        "device": result.device,
    }


def _done_before(target: Output, found: InputVideos) -> InferResult:
    """Returns the result stored in a complete run's record."""
    said = target.summary
    frames = int(said.get("num_frames", 0))
    return InferResult(
        None,
        target.path,
        int(said.get("num_rows", 0)),
        frames,
        len(found.good),
        [],
        0,
        frames,
        0.0,
        {},
        said.get("device", ""),
    )
