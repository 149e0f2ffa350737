"""Frames at given times around an anchor frame, as robot learning asks for them: ``delta_timestamps``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed.convert.desc import ProcessDesc
from framefeed.dataset.frame_dataset import checked_processing
from framefeed.dataset.sequences import Sequences
from framefeed.errors import FrameTimeError
from framefeed.index.video_index import VideoIndex

__all__ = ["DEFAULT_TOLERANCE_S", "Anchored", "Offsets", "check_times", "frames_near"]

DEFAULT_TOLERANCE_S = 1e-4  # LeRobot's

# A distance of two times that were rounded to the stream's unit is off by up to a unit. Where a frame lasts only one or
# two of these, the times are exact, and a unit more would be another frame.
MIN_UNITS = 3
MAX_FLOAT_ERROR = 1e-9

IS_PAD = "_is_pad"
"""What the name of a tensor gets for the name of its mask."""


class Offsets(NamedTuple):
    """Which times are wanted, and by which name each goes.

    Attributes:
        seconds: All times relative to the anchor, name after name: one for each slot of a sample.
        slots: By name, where its times are in there.
        masked: Names that have a mask. Those whose times were not given show the anchor alone, and have none.
    """

    seconds: tuple[float, ...]
    slots: dict[str, slice]
    masked: tuple[str, ...]

    @classmethod
    def of(
        cls, delta_timestamps: Mapping[str, Sequence[float]], processing: Mapping[str, ProcessDesc] | None
    ) -> tuple[Offsets, dict[str, ProcessDesc]]:
        """Times by name, and descriptions that take the slots of their name out of a sample.

        Raises:
            ValueError: Times and descriptions do not fit together.
        """
        times = {name: _checked_times(name, given) for name, given in delta_timestamps.items()}
        if not times:
            raise ValueError("delta_timestamps is empty: give at least one name with its times")
        descs = checked_processing({name: ProcessDesc() for name in times} if processing is None else processing, None)
        for name in times:
            if name not in descs:
                raise ValueError(f"delta_timestamps has {name!r}, and processing has {', '.join(map(repr, descs))}")
            if name + IS_PAD in descs:
                raise ValueError(f"{name + IS_PAD!r} is where the mask of {name!r} goes; choose another name")
        seconds: list[float] = []
        slots: dict[str, slice] = {}
        for name, desc in descs.items():
            if desc.index_map is not None:
                raise ValueError(
                    f"processing[{name!r}] has an index_map; with delta_timestamps, give the times in the order that "
                    "you want"
                )
            wanted = times.get(name, [0.0])
            slots[name] = slice(len(seconds), len(seconds) + len(wanted))
            seconds += wanted
        own = {name: _taking(desc, slots[name]) for name, desc in descs.items()}
        return cls(tuple(seconds), slots, tuple(times)), own

    def masks(self, padded: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
        """By name, the masks of samples whose slots are padded as told, a row for each sample."""
        return {name + IS_PAD: np.ascontiguousarray(padded[:, self.slots[name]]) for name in self.masked}


class Near(NamedTuple):
    """What frames there are at some times, a row for each anchor and a column for each offset.

    Attributes:
        frames: The nearest frame.
        padded: Whether the time lies before the first frame or after the last, which is shown in its place.
        away: How far it is away, in seconds; 0 where it is padded.
    """

    frames: NDArray[np.int64]
    padded: NDArray[np.bool_]
    away: NDArray[np.float64]


def frames_near(index: VideoIndex, anchors: NDArray[np.int64], seconds: Sequence[float], tolerance_s: float) -> Near:
    """The frames that are nearest to times around anchors.

    Args:
        index: The video.
        anchors: Numbers of frames.
        seconds: Times relative to an anchor.
        tolerance_s: A time that is no more than this before the first frame or after the last is theirs. One unit of
            the stream's time more, where frames last several: containers round times to it.
    """
    packets = index.packets
    times = packets.frame_pts - packets.frame_pts[0]
    unit = float(index.stream.time_base)
    tolerance = _allowed(index, tolerance_s) / unit
    wanted = times[anchors][:, None] + np.array(seconds, np.float64) / unit
    after = np.clip(np.searchsorted(times, wanted), 1, max(1, len(times) - 1))
    before = after - 1
    after = np.minimum(after, len(times) - 1)
    nearest = np.where(times[after] - wanted < wanted - times[before], after, before).astype(np.int64)
    nearest[:, np.array(seconds) == 0] = anchors[:, None]  # of two frames at one time too
    padded = (wanted < times[0] - tolerance) | (wanted > times[-1] + tolerance)
    away = np.where(padded, 0.0, np.abs(times[nearest] - wanted) * unit)
    return Near(nearest, padded, away)


def check_times(index: VideoIndex, seconds: Sequence[float], tolerance_s: float) -> None:
    """Checks that a video has frames at all times around each of its frames.

    Raises:
        FrameTimeError: It has none that is near enough.
    """
    if not index.num_frames:
        return
    anchors = np.arange(index.num_frames, dtype=np.int64)
    near = frames_near(index, anchors, seconds, tolerance_s)
    wrong = near.away > _allowed(index, tolerance_s)
    if not wrong.any():
        return
    anchor, slot = divmod(int(near.away.argmax()), len(seconds))
    times = index.packets.frame_pts * float(index.stream.time_base)
    found = int(near.frames[anchor, slot])
    raise FrameTimeError(
        index.path,
        f"{seconds[slot]:+g} s from frame {anchor} at {times[anchor]:.6g} s there is no frame within {tolerance_s:g} "
        f"s: the nearest is frame {found} at {times[found]:.6g} s. That is so for {int(wrong.any(1).sum())} of "
        f"{len(anchors)} frames; choose times at which there are frames (of a stream of {_rate(index)} frames/s), or "
        f"tolerance_s={_rounded_up(float(near.away.max()))} to take the nearest",
    )


class Anchored(Sequences):
    """Samples that are frames at given times around an anchor: every frame of a file is the anchor of one.

    Args:
        num_frames: Number of frames of each file.
        seconds: Times relative to the anchor, one for each slot of a sample.
        tolerance_s: How far frames may be away from them.
        find: Gives the index of a file by its number.
    """

    def __init__(
        self,
        num_frames: Sequence[int] | NDArray[np.int64],
        seconds: Sequence[float],
        tolerance_s: float,
        find: Callable[[int], VideoIndex],
    ) -> None:
        super().__init__(num_frames, 1, 1, None, find)
        self.length = len(seconds)
        self._seconds = seconds
        self._tolerance_s = tolerance_s

    def frames(self, files: NDArray[np.int64], firsts: NDArray[np.int64]) -> NDArray[np.int64]:
        """For each sample, given by its file and anchor, the numbers of all its frames, one row each."""
        return self._near(files, firsts)[0]

    def padded(self, samples: ArrayLike) -> NDArray[np.bool_]:
        """For each slot of each sample, whether its time lies outside of the file."""
        return self._near(*self.locate(samples))[1]

    def _near(
        self, files: NDArray[np.int64], anchors: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        frames = np.empty((len(files), self.length), np.int64)
        padded = np.empty((len(files), self.length), np.bool_)
        for file in np.unique(files).tolist():
            of_file = files == file
            near = frames_near(self._find(file), anchors[of_file], self._seconds, self._tolerance_s)
            frames[of_file], padded[of_file] = near.frames, near.padded
        return frames, padded


def _checked_times(name: str, given: Sequence[float]) -> list[float]:
    try:
        times = [float(time) for time in given]
    except (TypeError, ValueError):
        raise ValueError(f"delta_timestamps[{name!r}] is a list of seconds, not {given!r}") from None
    if not times or not all(map(math.isfinite, times)):
        raise ValueError(f"delta_timestamps[{name!r}] has to have one or more finite times, got {times}")
    return times


def _taking(desc: ProcessDesc, slots: slice) -> ProcessDesc:
    """A description that takes some slots of a sample, in order."""
    return dataclasses.replace(desc, index_map=[-1] * slots.start + list(range(slots.stop - slots.start)))


def _allowed(index: VideoIndex, tolerance_s: float) -> float:
    """How far a frame may be away, in seconds, if containers round times and sums of floats are not exact."""
    rounded = float(np.median(index.packets.frame_duration)) >= MIN_UNITS
    return tolerance_s + (float(index.stream.time_base) if rounded else 0.0) + MAX_FLOAT_ERROR


def _rate(index: VideoIndex) -> str:
    seconds = float(np.median(index.packets.frame_duration)) * float(index.stream.time_base)
    return f"{1 / seconds:.6g}" if seconds else "unknown"


def _rounded_up(seconds: float) -> str:
    """With three digits, and not less."""
    scale = 10 ** (2 - math.floor(math.log10(seconds)))
    return f"{math.ceil(seconds * scale) / scale:.3g}"
