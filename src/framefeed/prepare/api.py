"""``framefeed.prepare.run``: prepares a collection of videos for training."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from framefeed._util.limits import available_cpus
from framefeed._util.progress import TaskBars
from framefeed._util.run_state import cannot_write
from framefeed._util.versions import installed_version
from framefeed.catalog.build import build_file
from framefeed.catalog.catalog import BadFile
from framefeed.catalog.paths import STORE_CATALOG, absolute
from framefeed.errors import InvalidFile, OutputError
from framefeed.prepare.codecs import CodecName
from framefeed.prepare.encoding.picture_format import check_pixel_format
from framefeed.prepare.encoding.task import Task, TaskResult, num_steps
from framefeed.prepare.options import Audio, Container, PrepareOptions, Size, parse_fps, parse_size
from framefeed.prepare.record import Record
from framefeed.prepare.sources import Paths, SourceVideo, catalog_of, find_sources, with_indexes
from framefeed.prepare.values import Prepared
from framefeed.prepare.workers import prepare_all

__all__ = ["PrepareResult", "run"]


@dataclass(frozen=True, eq=False)
class PrepareResult:
    """Result of a run.

    Attributes:
        out: The output folder.
        catalog: The catalog of all its videos.
        videos: The requested videos that are prepared, in the order of their names.
        num_new: Number of videos prepared by this run.
        bad: Videos that could not be prepared, with reasons.
        num_frames: Number of frames written by this run.
        seconds: Duration in seconds.
    """

    out: Path
    catalog: Path
    videos: list[Prepared]
    num_new: int
    bad: list[BadFile]
    num_frames: int = 0
    seconds: float = 0.0
    new_stems: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def num_outputs(self) -> int:
        """Number of files of ``videos``."""
        return sum(len(video.outputs) for video in self.videos)

    @property
    def num_bytes(self) -> int:
        """Total size of these files."""
        return sum(output.num_bytes for video in self.videos for output in video.outputs)

    @property
    def warnings(self) -> list[tuple[str, str]]:
        """(video, warning) pairs."""
        return [(video.source, text) for video in self.videos for text in video.warnings]

    def __repr__(self) -> str:
        bad = f", {len(self.bad)} bad" if self.bad else ""
        return f"PrepareResult({str(self.out)!r}, {len(self.videos)} videos{bad}, {self.num_new} of them new)"


def run(
    sources: Paths,
    out: str | os.PathLike[str],
    *,
    size: Size | None = None,
    short_side: int | None = None,
    codec: CodecName = "h264",
    gop: int = 30,
    b_frames: int = 0,
    crf: int | None = None,
    preset: str | int | None = None,
    fps: str | float | Fraction | None = None,
    pixel_format: str = "auto",
    container: Container = "mp4",
    audio: Audio = "drop",
    scenes: bool = False,
    min_scene_seconds: float = 1.0,
    force: bool = False,
    threads: int = 1,
    workers: int | None = None,
    catalog: str | os.PathLike[str] | None = None,
    restart: bool = False,
    progress: bool | None = None,
) -> PrepareResult:
    """Prepares videos for training: re-encodes each with a keyframe exactly every ``gop`` frames.

    GOPs are closed. Frames are those of framefeed's index, decoded exactly, and each keeps its time; both are checked
    in the written file. Pictures are stored upright. Rerun the same call to resume an interrupted run: the result has
    the same bytes, and finished videos are not encoded again. A video that cannot be prepared is reported, and the
    others continue.

    Args:
        sources: Files, folders, patterns, catalogs and packet stores.
        out: The output folder. Videos keep their paths relative to a given folder.
        size: Size of all pictures: ``"640x360"`` (width x height) or (height, width). If a picture has another shape,
            its pixels are marked as not square.
        short_side: Length of the shorter side in pixels; the other one follows from the picture's shape. Pixels become
            square.
        codec: ``"h264"``, ``"hevc"``, ``"vp9"`` or ``"av1"``.
        gop: Distance of keyframes, in frames; 1 makes every frame a keyframe.
        b_frames: Most B-frames in a row. With AV1, 0 allows no hidden frames, and other values are up to the encoder;
            VP9 has none.
        crf: Quality on the encoder's scale, lower is better; None is the encoder's default.
        preset: The encoder's speed: ``"veryfast"`` to ``"veryslow"``, 0 to 8 for VP9, 0 to 13 for AV1.
        fps: A constant frame rate; None keeps the time of each frame.
        pixel_format: ``"auto"`` for 4:2:0, with 10 bits if the source has more than 8 and the codec is HEVC or AV1;
            ``"keep"``; or FFmpeg's name of a format.
        container: ``"mp4"``, ``"mov"``, or, with times rounded to milliseconds, ``"mkv"`` or ``"webm"``.
        audio: ``"drop"``, or ``"copy"`` to copy the audio stream.
        scenes: Splits videos at cuts: each scene becomes a file.
        min_scene_seconds: Shortest scene.
        force: Re-encodes videos that already have the requested codec, size, pixel format and keyframes; otherwise
            their packets are copied.
        threads: Threads of each encoder. Other numbers give other bytes.
        workers: Number of videos encoded at the same time; None is as many as there are CPUs for these threads.
        catalog: The catalog to write; None is ``catalog.arrow`` in the output folder.
        restart: Discards an output folder made with other options.
        progress: Shows progress; None does on a terminal.

    Raises:
        ValueError: Options are invalid.
        UnsupportedCodec: The encoder is missing, or does not support the pixel format.
        InvalidFile: None of the sources can be used, or two of them would get the same name.
        StateError: The output folder was made with other options, or contains files of other origin.
        OutputError: The output cannot be written; finished videos are kept.
    """
    options = PrepareOptions(
        size=parse_size(size),
        short_side=short_side,
        codec=codec,
        gop=gop,
        b_frames=b_frames,
        crf=crf,
        preset=None if preset is None else str(preset),
        fps=parse_fps(fps),
        pixel_format=pixel_format,
        container=container,
        audio=audio,
        scenes=scenes,
        min_scene_seconds=min_scene_seconds,
        force=force,
        threads=threads,
    )
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    check_pixel_format(options)
    began = time.perf_counter()
    found = find_sources(sources, out)
    if not found.good:
        first = found.bad[0] if found.bad else BadFile("sources", "the catalog has no videos")
        raise InvalidFile(first.path, first.reason)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise OutputError(out, "is a file; expected a folder")
    record = Record(folder, options.identity(), _made_with(), f".{container}", restart=restart)
    prepared = _Run(record, options, found.good, list(found.bad), workers, progress)
    try:
        prepared.do()
        record.finish({bad.path: bad.reason for bad in prepared.bad})
    except BaseException:
        record.give_up()
        raise
    target = Path(catalog) if catalog is not None else folder / STORE_CATALOG
    files = [os.path.join(os.fspath(out), file) for file in record.outputs()]
    build_file(files, target, progress=progress, is_own=catalog is None)
    videos = [record.done[source.stem] for source in found.good if source.stem in record.done]
    return PrepareResult(
        folder,
        target,
        sorted(videos, key=lambda video: video.stem),
        len(prepared.new),
        prepared.bad,
        prepared.num_frames,
        time.perf_counter() - began,
        frozenset(prepared.new),
    )


def _made_with() -> dict[str, str]:
    return {name: installed_version(name) or "unknown" for name in ("framefeed", "av")}


class _Run:
    """A run in progress."""

    def __init__(
        self,
        record: Record,
        options: PrepareOptions,
        sources: Sequence[SourceVideo],
        bad: list[BadFile],
        workers: int | None,
        progress: bool | None,
    ) -> None:
        self._record = record
        self._options = options
        self._sources = sources
        self.bad = bad
        self._workers = workers
        self._progress = progress
        self.new: set[str] = set()
        self.num_frames = 0

    def do(self) -> None:
        """Prepares the pending videos."""
        todo = [source for source in self._sources if not self._record.is_done(source)]
        if not todo:
            return
        self._record.clear_work()
        self._record.claim(todo, scenes=self._options.scenes)
        indexed = with_indexes(todo, self._record.work, self._progress)
        self.bad += indexed.bad
        # Longest first, so that all workers end at about the same time.
        lengths = {item.stem: int(catalog_of(item).num_frames[item.number]) for item in indexed.good}
        ready = sorted(indexed.good, key=lambda item: -lengths[item.stem])
        steps = [num_steps(lengths[item.stem], self._options) for item in ready]
        cpus = available_cpus()
        workers = min(self._workers or max(1, cpus // self._options.threads), max(1, len(ready)))
        prefix = os.path.join(tempfile.mkdtemp(dir=absolute(os.fspath(self._record.work))), "")
        tasks = [
            Task(
                number,
                catalog_of(item).path,
                item.number,
                item.stem,
                prefix,
                self._options,
                max(self._options.threads, cpus // workers),  # decoding is exact for any number of threads
            )
            for number, item in enumerate(ready)
        ]
        bars = TaskBars([item.path for item in ready], steps, self._progress)
        with bars, closing(prepare_all(tasks, workers, bars.advance)) as outcomes:
            for outcome in outcomes:
                self._take(ready[outcome.number], outcome)
                bars.complete(outcome.number)

    def _take(self, source: SourceVideo, outcome: TaskResult) -> None:
        if outcome.stops:
            raise OutputError(self._record.out, cannot_write(outcome.error))
        if outcome.error:
            self.bad.append(BadFile(source.path, outcome.error))
            return
        prepared = Prepared(
            source.stem, absolute(source.path), source.fingerprint, outcome.how, outcome.outputs, outcome.warnings
        )
        self._record.place(prepared, [Path(file) for file in outcome.files])
        self.new.add(source.stem)
        self.num_frames += sum(output.num_frames for output in outcome.outputs)
