"""Preparation of one video in a worker process; the task contains everything it needs."""

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
    """A video to prepare.

    Attributes:
        number: Number of the task.
        catalog: Path of the catalog with its index.
        video: Its number in the catalog.
        stem: Name of its outputs, without suffix.
        work: Path prefix of unfinished files.
        options: Options of the outputs.
        num_threads: Number of decoding threads.
        span: First frame and end of the frames to use; None uses all.
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
    """Result of a task.

    Attributes:
        number: Number of the task.
        how: ``"encoded"``, ``"remuxed"``, or ``""`` if it failed.
        outputs: The written files.
        files: Current path of each of ``outputs``.
        warnings: Unexpected properties of the outputs.
        error: Reason of a failure.
        stops: True if all other tasks would fail too, as with a full disk.
    """

    number: int
    how: str = ""
    outputs: tuple[PreparedFile, ...] = ()
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    stops: bool = False


def num_steps(num_frames: int, options: PrepareOptions) -> int:
    """Returns the approximate number of progress steps of a video: frames analysed and frames written."""
    return num_frames * 2 if options.scenes else num_frames


def prepare_video(task: Task, progress: Progress = lambda frames: None) -> TaskResult:
    """Prepares a video; errors are returned, not raised."""
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
    """A task in progress."""

    def __init__(self, task: Task, progress: Progress) -> None:
        self._task = task
        self._progress = progress
        self._files: list[Path] = []
        self._warnings: list[str] = []

    def clear(self) -> None:
        """Removes the written files."""
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
            self._warn(f"starts before 0: all times were shifted by {float(timeline.shift):g} s")
        before = index.stream.pix_fmt
        if before is not None and before != "pal8" and bits_of(before) > bits_of(target.pix_fmt):
            self._warn(f"{bits_of(before)} bits per sample were reduced to {bits_of(target.pix_fmt)}")

    def _parts(self, index: VideoIndex, timeline: OutputTimeline) -> list[OutputTimeline]:
        """Returns the timelines of its outputs."""
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
            # Audio before the first frame and after the last one belongs to these.
            begins = float(times[0]) if first else -math.inf
            ends = end if last < index.num_frames - 1 else math.inf
            if index.stored is None:
                sound = open_audio(index.path, shift=part.shift, span=(begins, ends))
            else:
                self._warn("has no audio: packet stores contain none")
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
            self._warn("is interlaced and remains so: each frame has the lines of two moments")
        others = sorted(converter.sizes - {(index.stream.width, index.stream.height)})
        if others:
            sizes = ", ".join(f"{width}x{height}" for width, height in others)
            self._warn(f"changes its size to {sizes}; all frames were scaled to one size")

    def _warn(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.append(text)
