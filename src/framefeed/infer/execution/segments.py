"""Segments: parts of videos that are decoded, resumed, written and sent to a worker as a unit.

A segment ends where a GOP ends, so that cutting costs nothing: together, all segments of a video need the packets of
the plan for the whole video. Batches do not cross segments: the model's batches never depend on what was done before an
interruption, or on the worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.index.table import PacketTable

__all__ = ["Piece", "Segment", "cut_places", "cut_segments", "limit_batches", "sampled_frames"]

# Approximate frames of a segment: large enough to amortise its start, small enough to lose little in an interruption.
SEGMENT_FRAMES = 256


@dataclass(frozen=True)
class Piece:
    """A run of sampled frames of one video.

    video: Number of the video.
    first: Position of its first frame among the video's sampled frames.
    count: Number of frames.
    """

    video: int
    first: int
    count: int

    @property
    def end(self) -> int:
        """Position after the last sampled frame."""
        return self.first + self.count


@dataclass(frozen=True)
class Segment:
    """Frames processed as a unit: a part of a video, or several whole short videos.

    Attributes:
        pieces: The frames, by video.
    """

    pieces: tuple[Piece, ...]

    @property
    def num_frames(self) -> int:
        """Number of frames."""
        return sum(piece.count for piece in self.pieces)


def sampled_frames(num_frames: int, frame_skip: int) -> NDArray[np.int64]:
    """Returns every ``frame_skip``-th frame, starting with the first."""
    return np.arange(0, num_frames, frame_skip, dtype=np.int64)


def cut_places(table: PacketTable, frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the sampled frames at which a video can be cut without splitting a GOP.

    Args:
        table: The video's packets.
        frames: Sampled frame numbers, rising.

    Returns:
        Rising numbers in 1..len(frames); the last is len(frames).
    """
    _, groups = np.unique(table.start[table.frames[frames]], return_inverse=True)
    last = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(last, groups, np.arange(len(frames)))
    # With edit lists a group may return: a cut is valid after the end of all groups before it.
    reached = np.maximum.accumulate(last[groups])
    return np.flatnonzero(reached == np.arange(len(frames))) + 1


def cut_segments(
    videos: Iterable[tuple[int, NDArray[np.int64]]], batch_size: int, target: int = SEGMENT_FRAMES
) -> Iterator[Segment]:
    """Cuts videos whose frames can share batches.

    Long videos are cut near every ``target`` frames, where the last batch is fullest. Short ones are joined.

    Args:
        videos: Number of each video, and the positions where it can be cut.
        batch_size: Frames in a batch.
        target: Approximate number of frames in a segment.
    """
    waiting: list[Piece] = []
    for video, places in videos:
        cuts = _best_cuts(places, batch_size, target)
        if len(cuts) > 1:
            yield from _flush(waiting)
            waiting = []
            yield from (Segment((Piece(video, low, high - low),)) for low, high in zip([0, *cuts], cuts, strict=False))
            continue
        waiting.append(Piece(video, 0, cuts[0]))
        if sum(piece.count for piece in waiting) >= target:
            yield from _flush(waiting)
            waiting = []
    yield from _flush(waiting)


def _flush(waiting: Sequence[Piece]) -> Iterator[Segment]:
    if waiting:
        yield Segment(tuple(waiting))


def _best_cuts(places: NDArray[np.int64], batch_size: int, target: int) -> list[int]:
    """Returns the cuts of a video, including its end."""
    total = int(places[-1])
    cuts: list[int] = []
    begin = 0
    while total - begin > target * 3 // 2:
        low = int(np.searchsorted(places, begin + max(1, target // 2)))
        high = int(np.searchsorted(places, begin + target * 3 // 2, side="right"))
        if low < high:
            lengths = places[low:high] - begin
            short = -lengths % batch_size  # frames missing in the last batch
            chosen = low + int(np.lexsort((np.abs(lengths - target), short))[0])
        else:
            chosen = int(np.searchsorted(places, begin + target))  # a long group: the first position after it
        begin = int(places[chosen])
        cuts.append(begin)
    if begin < total:
        cuts.append(total)
    return cuts


def limit_batches(segments: Sequence[Segment], batch_size: int, max_batches: int | None) -> list[Segment]:
    """Returns the first segments up to a total number of batches; the last may be shortened."""
    if max_batches is None:
        return list(segments)
    found = []
    left = max_batches
    for segment in segments:
        if left <= 0:
            break
        needed = -(-segment.num_frames // batch_size)
        found.append(segment if needed <= left else _first_frames(segment, left * batch_size))
        left -= needed
    return found


def _first_frames(segment: Segment, count: int) -> Segment:
    pieces = []
    for piece in segment.pieces:
        taken = min(count, piece.count)
        if taken:
            pieces.append(Piece(piece.video, piece.first, taken))
        count -= taken
    return Segment(tuple(pieces))
