"""Segments of a run: pending ones, finished ones, and assembly of the output."""

from __future__ import annotations

import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from framefeed.catalog.catalog import BadFile
from framefeed.catalog.paths import absolute
from framefeed.infer.execution.segments import Piece, Segment, cut_segments, limit_batches
from framefeed.infer.execution.work import BadFrame, Finished, VideoRef
from framefeed.infer.journal import Done, MemoryJournal, SegmentJournal
from framefeed.infer.options import InferOptions
from framefeed.infer.rows import COLUMNS, FOUND, finish_rows
from framefeed.infer.videos import InputVideo

__all__ = ["InferenceJob", "Writer", "plan_segments"]

ROWS_AT_ONCE = 1 << 16
CACHED = 16
QUEUED = 16


def plan_segments(videos: Sequence[InputVideo], options: InferOptions) -> list[Segment]:
    """Cuts videos into segments; videos of equal size and catalog may share one."""
    alike: dict[tuple[str, tuple[int, int]], list[int]] = {}
    for number, video in enumerate(videos):
        alike.setdefault((video.catalog.path, video.size), []).append(number)
    segments: list[Segment] = []
    for numbers in alike.values():
        places = ((number, videos[number].places) for number in numbers)
        segments += cut_segments(places, options.batch_size, options.segment_frames)
    return limit_batches(segments, options.batch_size, options.max_batches)


@dataclass(frozen=True)
class _PieceRows:
    """Location of a piece's rows: its segment, and its position in the segment."""

    segment: int
    place: int
    piece: Piece


class InferenceJob:
    """A run.

    Args:
        videos: The videos.
        segments: All segments.
        journal: Finished segments.

    Attributes:
        todo: Numbers of pending segments.
    """

    def __init__(
        self, videos: Sequence[InputVideo], segments: Sequence[Segment], journal: SegmentJournal | MemoryJournal
    ) -> None:
        self.videos = videos
        self.segments = segments
        self._journal = journal
        self._keys = [self._key(segment) for segment in segments]
        done = set(journal.keys())
        self.todo = [number for number, key in enumerate(self._keys) if key not in done]

    def _key(self, segment: Segment) -> str:
        """Identifies the frames of a segment by file, not by numbers that depend on the other inputs."""
        digest = blake2b(digest_size=16)
        for piece in segment.pieces:
            video = self.videos[piece.video]
            digest.update(repr((video.name, video.fingerprint, piece.first, piece.count)).encode("utf-8", "replace"))
        return digest.hexdigest()

    def refs(self) -> list[VideoRef]:
        """Returns references of the pending videos, for workers."""
        wanted = dict.fromkeys(piece.video for number in self.todo for piece in self.segments[number].pieces)
        return [
            VideoRef(number, absolute(video.name), video.catalog.path, video.size, video.num_frames)
            for number, video in ((number, self.videos[number]) for number in wanted)
        ]

    def done_frames(self) -> Iterator[tuple[int, int]]:
        """Yields videos and their numbers of finished frames."""
        missing = set(self.todo)
        for number, segment in enumerate(self.segments):
            if number not in missing:
                yield from ((piece.video, piece.count) for piece in segment.pieces)

    def note(self, finished: Finished) -> None:
        """Stores the result of a segment of ``todo``; videos are numbered by position in the segment."""
        number = self.todo[finished.segment]
        places = {piece.video: place for place, piece in enumerate(self.segments[number].pieces)}
        videos = finished.found["video"].to_numpy()
        numbers = np.array([places[video] for video in videos.tolist()], np.int32)
        found = finished.found.set_column(0, FOUND.field(0), pa.array(numbers, pa.int32()))
        bad = [replace(each, video=places[each.video]) for each in finished.bad]
        self._journal.add(Done(self._keys[number], found, finished.num_frames, bad, finished.classes))

    def missing(self) -> int:
        """Number of segments without a result."""
        return sum(key not in self._journal for key in self._keys)

    # --- output ---------------------------------------------------------------------------------------------------

    def _parts(self) -> dict[int, list[_PieceRows]]:
        parts: dict[int, list[_PieceRows]] = {}
        for number, segment in enumerate(self.segments):
            for place, piece in enumerate(segment.pieces):
                parts.setdefault(piece.video, []).append(_PieceRows(number, place, piece))
        return parts

    def rows(self, classes: Sequence[str] | None) -> Iterator[pa.Table]:
        """Yields all rows in tables: by video in input order, by frame, by falling score."""
        read = _Recent(self._read)
        names = [video.name.encode("utf-8", "backslashreplace").decode() for video in self.videos]
        waiting: list[pa.Table] = []
        for number, parts in sorted(self._parts().items()):
            pieces = []
            for part in sorted(parts, key=lambda part: part.piece.first):
                found = read(part.segment).found
                pieces.append(found.filter(pc.equal(found["video"], part.place)))
            found = pa.concat_tables(pieces)
            found = found.set_column(0, FOUND.field(0), pa.array(np.full(found.num_rows, number, np.int32)))
            seconds = self.videos[number].seconds(found["frame_index"].to_numpy())
            waiting.append(finish_rows(found, names, seconds, classes))
            if sum(table.num_rows for table in waiting) >= ROWS_AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    def _read(self, segment: int) -> Done:
        done = self._journal.read(self._keys[segment])
        if isinstance(self._journal, SegmentJournal):
            self._check(done, self.segments[segment], self._journal)
        return done

    def _check(self, done: Done, segment: Segment, journal: SegmentJournal) -> None:
        """Checks that a record read back belongs to its segment."""
        places = done.found["video"].to_numpy()
        count = len(segment.pieces)
        if done.num_frames > segment.num_frames or any(each.video >= count for each in done.bad):
            raise journal.damaged("a record has frames that are not in its segment")
        if len(places):
            lengths = np.array([self.videos[piece.video].num_frames for piece in segment.pieces])
            frames, classes = done.found["frame_index"].to_numpy(), done.found["class"].to_numpy()
            if places.min() < 0 or places.max() >= count or frames.min() < 0 or classes.min() < 0:
                raise journal.damaged("a row has invalid values")
            if (frames >= lengths[places]).any() or (done.classes and classes.max() >= len(done.classes)):
                raise journal.damaged("a row has invalid values")

    def classes(self) -> tuple[str, ...] | None:
        """Returns the class names stored in the model."""
        return (self._read(0).classes or None) if self.segments else None

    def counts(self) -> tuple[int, list[BadFile], int]:
        """Returns the number of processed frames, failed files with reasons, and the number of lost frames."""
        frames = lost = 0
        bad: dict[int, list[BadFrame]] = {}
        for number, segment in enumerate(self.segments):
            done = self._read(number)
            frames += done.num_frames
            lost += segment.num_frames - done.num_frames
            for each in done.bad:
                bad.setdefault(segment.pieces[each.video].video, []).append(each)
        return frames, [self._reported(number, each) for number, each in sorted(bad.items())], lost

    def _reported(self, number: int, bad: Sequence[BadFrame]) -> BadFile:
        video = self.videos[number]
        first = min(bad, key=lambda each: each.frame)
        if first.frame < 0:
            return BadFile(video.name, first.reason)
        return BadFile(video.name, f"{len(bad)} of {video.num_sampled} frames failed; the first: {first.reason}")


class _Recent:
    """Caches the last record read."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self._kept: OrderedDict[int, Done] = OrderedDict()

    def __call__(self, number: int) -> Done:
        if number not in self._kept:
            self._kept[number] = self._read(number)
            if len(self._kept) > CACHED:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return self._kept[number]


def schema_of(classes: Sequence[str] | None) -> pa.Schema:
    """Returns the columns of the output."""
    return COLUMNS if classes is not None else COLUMNS.remove(COLUMNS.get_field_index("class_name"))


class Writer:
    """Stores finished segments in a thread of its own, so that neither decoding nor the model waits for the disk.

    Args:
        job: The job.

    Attributes:
        seconds: Time spent writing.
    """

    def __init__(self, job: InferenceJob) -> None:
        self._job = job
        self._queue: queue.Queue[Finished | None] = queue.Queue(QUEUED)
        self._error: BaseException | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._work, name="framefeed-writer", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (finished := self._queue.get()) is not None:
            if self._error is not None:
                continue  # so that the producer does not block on a full queue
            began = time.perf_counter()
            try:
                self._job.note(finished)
            except BaseException as error:
                self._error = error
            self.seconds += time.perf_counter() - began

    def write_all(self, results: Iterable[Finished]) -> None:
        """Writes results as they arrive; those before an error are written as well."""
        try:
            for finished in results:
                if self._error is not None:
                    break
                self._queue.put(finished)
        finally:
            self._queue.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error
