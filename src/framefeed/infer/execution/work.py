"""Batches of a worker's segments, and their collected detections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from framefeed.dataset import VideoDataset
from framefeed.infer.detection.fit import Fit
from framefeed.infer.detection.suppress import Detections
from framefeed.infer.execution.segments import Piece, Segment
from framefeed.infer.options import InferOptions
from framefeed.infer.rows import FOUND, sorted_found
from framefeed.loader import VideoLoader
from framefeed.loader.stats import LoaderStats

__all__ = ["BadFrame", "Finished", "SegmentBatches", "VideoRef", "WorkerStats"]


@dataclass(frozen=True)
class VideoRef:
    """A video as a worker needs it, on any machine.

    Attributes:
        number: Number in the run.
        name: Absolute path of the file.
        catalog: Path of a catalog with its index; if missing there, the file is scanned.
        size: (height, width) of its upright frames.
        num_frames: Number of frames.
    """

    number: int
    name: str
    catalog: str
    size: tuple[int, int]
    num_frames: int


@dataclass(frozen=True)
class BadFrame:
    """A failed frame.

    Attributes:
        video: Number of its video.
        frame: Frame number; -1 for all frames of the segment.
        reason: The error message.
    """

    video: int
    frame: int
    reason: str


@dataclass(eq=False)
class Finished:
    """A finished segment.

    Attributes:
        segment: Its position among the given segments.
        found: Detections with the columns of ``FOUND``, in order.
        num_frames: Number of frames the model processed.
        bad: Failed frames.
        classes: Class names stored in the model.
    """

    segment: int
    found: pa.Table
    num_frames: int = 0
    bad: list[BadFrame] = field(default_factory=list)
    classes: tuple[str, ...] = ()


@dataclass
class WorkerStats:
    """Counters of a worker.

    Attributes:
        frames: Frames the model processed.
        packets_decoded: Packets fed to decoders.
        bytes_read: Compressed bytes read.
        wait_seconds: Time the model waited for frames.
        model_seconds: Time of the model and of suppression, summed over concurrent batches.
        batches: Number of batches.
        full_batches: Number of batches of full size.
    """

    frames: int = 0
    packets_decoded: int = 0
    bytes_read: int = 0
    wait_seconds: float = 0.0
    model_seconds: float = 0.0
    batches: int = 0
    full_batches: int = 0

    def add(self, loader: LoaderStats) -> None:
        """Adds the counters of a loader."""
        self.packets_decoded += loader.packets_decoded
        self.bytes_read += loader.bytes_read
        self.wait_seconds += loader.wait_seconds


class SegmentBatches:
    """Batches of segments, and their collected detections. Serves as the loader's batch sampler.

    Args:
        segments: Segments and their numbers.
        refs: Their videos.
        dataset: Dataset of their frames, or None.
        unusable: Unusable videos, with reasons.
        options: Sampling options.
        advance: Called with each video and its number of newly finished frames.
    """

    def __init__(
        self,
        segments: Sequence[tuple[int, Segment]],
        refs: Sequence[VideoRef],
        dataset: VideoDataset | None,
        unusable: dict[int, str],
        options: InferOptions,
        advance: Callable[[int, int], None],
    ) -> None:
        self._advance = advance
        self._skip = options.frame_skip
        self._size = options.batch_size
        self._numbers = {ref.name: ref.number for ref in refs}
        self._begins: dict[int, int] = {}
        if dataset is not None:
            ends = np.cumsum(dataset.counts)
            for name, end, count in zip(dataset.filenames, ends.tolist(), dataset.counts.tolist(), strict=True):
                if self._numbers[name] not in unusable:
                    self._begins[self._numbers[name]] = end - count
        self._open = [
            (segment, Finished(number, FOUND.empty_table(), 0, _left_out(segment, unusable)))
            for number, segment in segments
        ]
        self._parts: dict[int, list[pa.Table]] = {}
        self._ends: list[int] = []
        total = 0
        for segment, _ in self._open:
            usable = sum(piece.count for piece in segment.pieces if piece.video in self._begins)
            total += -(-usable // self._size)
            self._ends.append(total)
        self.batches = total
        self._done = 0
        self._noted = 0
        self._segments_of: dict[int, list[tuple[Piece, Finished]]] = {}
        for segment, finished in self._open:
            for piece in segment.pieces:
                self._segments_of.setdefault(piece.video, []).append((piece, finished))

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the samples of each batch."""
        for segment, _ in self._open:
            samples = [self._samples(piece) for piece in segment.pieces if piece.video in self._begins]
            joined = np.concatenate(samples) if samples else np.empty(0, np.int64)
            for low in range(0, len(joined), self._size):
                yield joined[low : low + self._size].tolist()

    def _samples(self, piece: Piece) -> NDArray[np.int64]:
        return self._begins[piece.video] + np.arange(piece.first, piece.end, dtype=np.int64) * self._skip

    def note_bad(self, loader: VideoLoader) -> None:
        """Records frames that the loader skipped."""
        for skipped in loader.skipped[self._noted :]:
            video, sampled = self._numbers[skipped.path], skipped.frame // self._skip
            reason = skipped.reason.removeprefix(f"{skipped.path}: ")
            for piece, finished in self._segments_of[video]:
                if piece.first <= sampled < piece.end:
                    finished.bad.append(BadFrame(video, skipped.frame, reason))
                    self._advance(video, 1)
        self._noted = len(loader.skipped)

    def add(self, batch: int, labels: Sequence[tuple[str, int]], found: Detections, fit: Fit) -> None:
        """Adds the detections of a batch."""
        place = int(np.searchsorted(self._ends, batch, side="right"))
        self._open[place][1].num_frames += len(labels)
        videos = np.array([self._numbers[name] for name, _ in labels], np.int32)
        frames = np.array([frame for _, frame in labels], np.int64)
        for video, count in zip(*np.unique(videos, return_counts=True), strict=True):
            self._advance(int(video), int(count))
        boxes = fit.undo(found.boxes)
        whole = np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(1))  # drops boxes inside the padding
        columns = [videos[found.frames], frames[found.frames], *boxes.T, found.scores, found.classes.astype(np.int32)]
        table = pa.table([pa.array(np.ascontiguousarray(column[whole])) for column in columns], FOUND)
        self._parts.setdefault(place, []).append(table)

    def finish_up_to(self, batches: int | None) -> Iterator[Finished]:
        """Yields segments whose batches are all done after that many batches; all remaining ones for None."""
        while self._done < len(self._open) and (batches is None or self._ends[self._done] <= batches):
            finished = self._open[self._done][1]
            parts = self._parts.pop(self._done, [])
            finished.found = sorted_found(pa.concat_tables([FOUND.empty_table(), *parts]))
            self._done += 1
            yield finished


def _left_out(segment: Segment, unusable: dict[int, str]) -> list[BadFrame]:
    return [BadFrame(piece.video, -1, unusable[piece.video]) for piece in segment.pieces if piece.video in unusable]
