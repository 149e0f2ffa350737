"""Cuts the sampled frames of videos into segments: what is decoded, resumed, written and sent to a worker as one.

A segment ends where a group of frames does, so that cutting costs nothing: the packets that all segments of a video
need, taken together, are those that the plan for the whole video has. Batches do not reach from one segment into the
next: what a model is given never depends on what was done before an interruption, or on which worker it is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.index.table import PacketTable

__all__ = ["Piece", "Segment", "cut_places", "cut_segments", "limit_batches", "sampled_frames"]

# Frames of a segment, about: enough that the beginning of a segment does not count, and few enough that not much is
# lost when a run is interrupted.
SEGMENT_FRAMES = 256


@dataclass(frozen=True)
class Piece:
    """A run of sampled frames of one video.

    Attributes:
        video: Number of the video.
        first: Which of the video's sampled frames is the first.
        count: How many.
    """

    video: int
    first: int
    count: int

    @property
    def end(self) -> int:
        """The sampled frame after the last one."""
        return self.first + self.count


@dataclass(frozen=True)
class Segment:
    """Frames that are done together: a part of a video, or several whole videos that are short.

    Attributes:
        pieces: The frames, by video.
    """

    pieces: tuple[Piece, ...]

    @property
    def num_frames(self) -> int:
        """How many."""
        return sum(piece.count for piece in self.pieces)


def sampled_frames(num_frames: int, frame_skip: int) -> NDArray[np.int64]:
    """The frames that a model is to see: the first and every ``frame_skip``-th after it."""
    return np.arange(0, num_frames, frame_skip, dtype=np.int64)


def cut_places(table: PacketTable, frames: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where a video's sampled frames can be cut: before which of them no group is begun that is not finished.

    Args:
        table: The video's packets.
        frames: Numbers of the sampled frames, rising.

    Returns:
        Rising numbers in 1..len(frames); the last is len(frames).
    """
    _, groups = np.unique(table.start[table.frames[frames]], return_inverse=True)
    last = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(last, groups, np.arange(len(frames)))
    # With edit lists a group may come back: a place is fine when all groups before it are over.
    reached = np.maximum.accumulate(last[groups])
    return np.flatnonzero(reached == np.arange(len(frames))) + 1


def cut_segments(
    videos: Iterable[tuple[int, NDArray[np.int64]]], batch_size: int, target: int = SEGMENT_FRAMES
) -> Iterator[Segment]:
    """Cuts videos whose frames can share batches.

    Long videos are cut near every ``target`` frames, where the last batch is as full as can be. Short ones are put
    together.

    Args:
        videos: The number of each video, and where its sampled frames can be cut.
        batch_size: Frames of a batch.
        target: About how many frames a segment has.
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
    """Where a video is cut; the last place is always one of them."""
    total = int(places[-1])
    cuts: list[int] = []
    begin = 0
    while total - begin > target * 3 // 2:
        low = int(np.searchsorted(places, begin + max(1, target // 2)))
        high = int(np.searchsorted(places, begin + target * 3 // 2, side="right"))
        if low < high:
            lengths = places[low:high] - begin
            short = -lengths % batch_size  # what the last batch lacks
            chosen = low + int(np.lexsort((np.abs(lengths - target), short))[0])
        else:
            chosen = int(np.searchsorted(places, begin + target))  # a long group: the first place behind
        begin = int(places[chosen])
        cuts.append(begin)
    if begin < total:
        cuts.append(total)
    return cuts


def limit_batches(segments: Sequence[Segment], batch_size: int, max_batches: int | None) -> list[Segment]:
    """The first segments that have so many batches together; the last of them may be shortened."""
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
