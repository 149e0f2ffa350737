"""Mapping of samples to files and frames, for sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed._util.lazy_property import cached_property
from framefeed.dataset.orders import Layout
from framefeed.index.video_index import VideoIndex

__all__ = ["Sequences", "resampled"]


def resampled(index: VideoIndex, length: int, fps: Fraction) -> tuple[NDArray[np.int64], int]:
    """Computes sequences of ``length`` frames at another frame rate.

    Returns:
        Time offsets of the frames of a sequence from its first, in the stream's time base, and the number of frames
        that can start a whole sequence.
    """
    period = 1 / (fps * index.stream.time_base)
    packets = index.packets
    durations = packets.frame_duration
    # Containers round times to their time base: accept a frame that comes less than one unit late.
    late = 1 if min(float(np.median(durations)), float(period)) >= 3 else 0
    offsets = np.array([0] + [int(k * period) + late for k in range(1, length)], np.int64)
    end = int(packets.frame_pts[-1] + durations[-1])
    return offsets, int(np.searchsorted(packets.frame_pts, end - offsets[-1]))


class Sequences:
    """Samples of a dataset, numbered through its files: every frame that can start a whole sequence is one.

    Args:
        num_frames: Number of frames of each file.
        length: Frames in a sequence.
        stride: Distance between consecutive frames of a sequence.
        fps: Frame rate of a sequence, instead of a stride.
        find: Returns the index of a file by its number.
    """

    def __init__(
        self,
        num_frames: Sequence[int] | NDArray[np.int64],
        length: int,
        stride: int,
        fps: Fraction | None,
        find: Callable[[int], VideoIndex],
    ) -> None:
        self.length = length
        self._steps = np.arange(length, dtype=np.int64) * stride
        self._fps = fps
        self._find = find
        if fps is None:
            counts = np.asarray(num_frames, np.int64) - self._steps[-1]
        else:
            counts = np.array([resampled(find(file), length, fps)[1] for file in range(len(num_frames))], np.int64)
        self.counts: NDArray[np.int64] = np.maximum(0, counts)
        self._ends = np.cumsum(self.counts, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def locate(self, samples: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the file of each sample and the number of its first frame."""
        numbers = np.asarray(samples, np.int64)
        files = np.searchsorted(self._ends, numbers, side="right").astype(np.int64, copy=False)
        return files, numbers - (self._ends[files] - self.counts[files])

    def frame_refs(self, samples: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the files and the frames of samples, one row for each sample."""
        files, firsts = self.locate(samples)
        frames = self.frames(files, firsts)
        return np.broadcast_to(files[:, None], frames.shape), frames

    def frames(self, files: NDArray[np.int64], firsts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns all frame numbers of samples given by file and first frame, one row for each sample."""
        if self._fps is None:
            rows: NDArray[np.int64] = firsts[:, None] + self._steps
            return rows
        found = np.empty((len(files), self.length), np.int64)
        for file in np.unique(files).tolist():
            of_file = files == file
            found[of_file] = self._resampled(file, firsts[of_file])
        return found

    def _resampled(self, file: int, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
        assert self._fps is not None
        index = self._find(file)
        offsets, _ = resampled(index, self.length, self._fps)
        times = index.packets.frame_pts
        found = np.searchsorted(times, times[firsts][:, None] + offsets, side="right") - 1
        found[:, 0] = firsts
        return found.astype(np.int64, copy=False)

    @cached_property
    def layout(self) -> Layout:
        """Positions of samples, for orders."""
        used = self.counts > 0
        return Layout(len(self), (self._ends - self.counts)[used], self._groups)

    def _groups(self) -> NDArray[np.int64]:
        parts = []
        first = 0
        for file, count in enumerate(self.counts.tolist()):
            if count:
                packets = self._find(file).packets
                starts = packets.start[packets.frames[:count]]
                groups = np.concatenate([[0], np.cumsum(np.diff(starts) != 0)])
                parts.append(groups + first)
                first += int(groups[-1]) + 1
        return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.zeros(0, np.int64)
