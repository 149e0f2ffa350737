"""One video -> its outputs. What a worker process does; everything that is needed comes with the task."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framefeed.catalog import Catalog
from framefeed.errors import FramefeedError
from framefeed.index import VideoIndex
from framefeed.media.ffmpeg import quiet
from framefeed.prepare.encoding.audio import open_audio
from framefeed.prepare.encoding.check import check_output
from framefeed.prepare.encoding.convert import Converter
from framefeed.prepare.encoding.picture_format import PictureFormat, bits_of, plan_format
from framefeed.prepare.encoding.pictures import pictures
from framefeed.prepare.encoding.remux import can_be_kept, remux
from framefeed.prepare.encoding.scenes import Shrink, find_cuts, measure
from framefeed.prepare.encoding.timeline import OutputTimeline, make_timeline, part_of
from framefeed.prepare.encoding.write import WriteFailed, encode
from framefeed.prepare.options import PrepareOptions
from framefeed.prepare.values import PreparedFile
from framefeed.source import CutOff

__all__ = ["Task", "TaskResult", "num_steps", "prepare_video"]

quiet()

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """A video to be prepared.

    Attributes:
        number: Of the task.
        catalog: Path of the catalog that has its index.
        video: Its number there.
        stem: Of its outputs.
        work: Where files lie that are not complete: how their names begin, folder and all.
        options: What it is to become.
        num_threads: Threads that may decode.
        span: The frames of the source that are taken, the second one not included; None takes all.
    """

    number: int
    catalog: str
    video: int
    stem: str
    work: str
    options: PrepareOptions
    num_threads: int = 1
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class TaskResult:
    """What became of a task.

    Attributes:
        number: Of the task.
        how: ``"encoded"`` or ``"remuxed"``, or ``""`` where it failed.
        outputs: What was written.
        files: Where it is, for each of ``outputs``.
        warnings: What could not be as one might expect.
        error: Why it failed.
        stops: Whether all others would fail likewise: the disk is full.
    """

    number: int
    how: str = ""
    outputs: tuple[PreparedFile, ...] = ()
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    stops: bool = False


def num_steps(num_frames: int, options: PrepareOptions) -> int:
    """How many steps the progress of a video has, about: frames that are written, and before that looked at."""
    return num_frames * 2 if options.scenes else num_frames


def prepare_video(task: Task, progress: Progress = lambda frames: None) -> TaskResult:
    """Prepares a video; whatever goes wrong is returned and not raised."""
    job = _TaskRun(task, progress)
    try:
        return job.run()
    except Exception as error:
        job.clear()
        if isinstance(error, WriteFailed):
            return TaskResult(task.number, error=str(error), stops=True)
        if isinstance(error, FramefeedError | CutOff):
            return TaskResult(task.number, error=error.reason)
        return TaskResult(task.number, error=f"could not be encoded ({type(error).__name__}: {error})")


class _TaskRun:
    """A task while it is being done."""

    def __init__(self, task: Task, progress: Progress) -> None:
        self._task = task
        self._progress = progress
        self._files: list[Path] = []
        self._warnings: list[str] = []

    def clear(self) -> None:
        """Removes what was written."""
        for file in self._files:
            file.unlink(missing_ok=True)

    def run(self) -> TaskResult:
        options = self._task.options
        with Catalog.open(self._task.catalog) as catalog:
            index = catalog[self._task.video]
        target = plan_format(index.path, index.stream, options)
        timeline = make_timeline(index, options.fps)
        self._warn_of_changes(index, target, timeline)
        parts = self._parts(index, timeline)
        keep = len(parts) == 1 and can_be_kept(index, target, options)
        outputs = []
        for number, part in enumerate(parts, start=1):
            suffix = f"_{number:04d}" if options.scenes else ""
            outputs.append(self._write(index, target, part, suffix, keep=keep))
        files = tuple(map(str, self._files))
        how = "remuxed" if keep else "encoded"
        return TaskResult(self._task.number, how, tuple(outputs), files, tuple(self._warnings))

    def _warn_of_changes(self, index: VideoIndex, target: PictureFormat, timeline: OutputTimeline) -> None:
        if timeline.shift:
            self._warn(f"begins before 0: all times are {float(timeline.shift):g} s later")
        before = index.stream.pix_fmt
        if before is not None and before != "pal8" and bits_of(before) > bits_of(target.pix_fmt):
            self._warn(f"{bits_of(before)} bits of a sample became {bits_of(target.pix_fmt)}")

    def _parts(self, index: VideoIndex, timeline: OutputTimeline) -> list[OutputTimeline]:
        """The timelines of its outputs."""
        if self._task.span is not None:
            return [part_of(timeline, *self._task.span)]
        if not self._task.options.scenes:
            return [timeline]
        shrink = Shrink()
        every = np.arange(index.num_frames)

        def small() -> Iterator[Any]:
            for _, picture in pictures(index, every, num_threads=self._task.num_threads):
                yield shrink(picture)
                self._progress(1)

        seconds = np.append(index.pts_seconds(every), index.end_seconds)
        cuts = find_cuts(measure(small()), seconds, self._task.options.min_scene_seconds)
        edges = [0, *cuts, index.num_frames]
        parts = [part_of(timeline, *edge) for edge in itertools.pairwise(edges)]
        return [part for part in parts if len(part)]

    def _write(
        self, index: VideoIndex, target: PictureFormat, part: OutputTimeline, suffix: str, *, keep: bool
    ) -> PreparedFile:
        options = self._task.options
        name = f"{self._task.stem}{suffix}.{options.container}"
        file = Path(f"{self._task.work}{self._task.number}{suffix}.{options.container}")
        self._files.append(file)
        first, last = int(part.frames[0]), int(part.frames[-1])
        times = index.pts_seconds(part.frames[[0, -1]])
        end = float(times[1] + index.frame_seconds(part.frames[-1:])[0])
        sound: Any = nullcontext()
        if options.audio == "copy":
            # Sound before the first frame and after the last one belongs to these.
            begins = float(times[0]) if first else -math.inf
            ends = end if last < index.num_frames - 1 else math.inf
            if index.stored is None:
                sound = open_audio(index.path, shift=part.shift, span=(begins, ends))
            else:
                self._warn("has no sound: packet stores keep none")
        with sound as audio:
            if keep:
                remux(file, index, part, options, audio=audio, progress=self._progress)
            else:
                self._encode(file, index, target, part, audio)
        check_output(file, name, part, target, options)
        return PreparedFile(name, len(part), file.stat().st_size, first, last, float(times[0]), end)

    def _encode(self, file: Path, index: VideoIndex, target: PictureFormat, part: OutputTimeline, audio: Any) -> None:
        converter = Converter(target, self._task.options.threads)
        repeats = np.bincount(part.frames - part.frames[0])

        def ready() -> Iterator[Any]:
            frames = np.flatnonzero(repeats) + part.frames[0]
            for number, picture in pictures(index, frames, num_threads=self._task.num_threads):
                converted = converter(picture)
                for _ in range(repeats[number - part.frames[0]]):
                    yield converted
                self._progress(1)

        encode(file, ready(), part, target, self._task.options, audio=audio)
        self._warn_of_pictures(index, converter)

    def _warn_of_pictures(self, index: VideoIndex, converter: Converter) -> None:
        if converter.interlaced:
            self._warn("is interlaced, and was left so: each frame shows two moments, line by line")
        others = sorted(converter.sizes - {(index.stream.width, index.stream.height)})
        if others:
            sizes = ", ".join(f"{width}x{height}" for width, height in others)
            self._warn(f"changes its size to {sizes}; all frames were given the same")

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)
