"""``delta_timestamps``: frames at given times around an anchor frame, as in robot learning."""

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

# Times are rounded to the stream's time base, so a difference of two times is off by up to one unit. Where a frame
# lasts only one or two units, times are exact, and one more unit would be another frame.
MIN_UNITS = 3
MAX_FLOAT_ERROR = 1e-9

IS_PAD = "_is_pad"
"""Suffix of a tensor's name that gives the name of its mask."""


class Offsets(NamedTuple):
    """Requested times, and their assignment to names.

    Attributes:
        seconds: All times relative to the anchor, name after name: one for each position in a sample.
        slots: For each name, the positions of its times in ``seconds``.
        masked: Names with a mask. Names without times have the anchor frame only, and no mask.
    """

    seconds: tuple[float, ...]
    slots: dict[str, slice]
    masked: tuple[str, ...]

    @classmethod
    def of(
        cls, delta_timestamps: Mapping[str, Sequence[float]], processing: Mapping[str, ProcessDesc] | None
    ) -> tuple[Offsets, dict[str, ProcessDesc]]:
        """Checks times by name, and restricts each description to the positions of its name.

        Raises:
            ValueError: Times and descriptions do not match.
        """
        times = {name: _checked_times(name, given) for name, given in delta_timestamps.items()}
        if not times:
            raise ValueError("delta_timestamps is empty: pass at least one name with its times")
        descs = checked_processing({name: ProcessDesc() for name in times} if processing is None else processing, None)
        for name in times:
            if name not in descs:
                raise ValueError(f"delta_timestamps has {name!r}, but processing has {', '.join(map(repr, descs))}")
            if name + IS_PAD in descs:
                raise ValueError(f"processing cannot use the name {name + IS_PAD!r}: it is the mask of {name!r}")
        seconds: list[float] = []
        slots: dict[str, slice] = {}
        for name, desc in descs.items():
            if desc.index_map is not None:
                raise ValueError(
                    f"processing[{name!r}] has an index_map, which delta_timestamps excludes; pass the times in "
                    "the desired order"
                )
            wanted = times.get(name, [0.0])
            slots[name] = slice(len(seconds), len(seconds) + len(wanted))
            seconds += wanted
        own = {name: _taking(desc, slots[name]) for name, desc in descs.items()}
        return cls(tuple(seconds), slots, tuple(times)), own

    def masks(self, padded: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
        """Returns masks by name, one row for each sample, from the padding of all positions."""
        return {name + IS_PAD: np.ascontiguousarray(padded[:, self.slots[name]]) for name in self.masked}


class Near(NamedTuple):
    """Nearest frames to some times: one row for each anchor, one column for each offset.

    Attributes:
        frames: The nearest frame.
        padded: True if the time is before the first frame or after the last, which is repeated there.
        away: Distance in seconds; 0 where padded.
    """

    frames: NDArray[np.int64]
    padded: NDArray[np.bool_]
    away: NDArray[np.float64]


def frames_near(index: VideoIndex, anchors: NDArray[np.int64], seconds: Sequence[float], tolerance_s: float) -> Near:
    """Finds the frames nearest to times around anchors.

    Args:
        index: The video.
        anchors: Frame numbers.
        seconds: Times relative to an anchor.
        tolerance_s: Times up to this far before the first frame or after the last are not padded. Where frames last
            several units of the time base, one unit more is allowed: containers round times to it.
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
    nearest[:, np.array(seconds) == 0] = anchors[:, None]  # also where two frames share a time
    padded = (wanted < times[0] - tolerance) | (wanted > times[-1] + tolerance)
    away = np.where(padded, 0.0, np.abs(times[nearest] - wanted) * unit)
    return Near(nearest, padded, away)


def check_times(index: VideoIndex, seconds: Sequence[float], tolerance_s: float) -> None:
    """Checks that a video has frames at all times around each of its frames.

    Raises:
        FrameTimeError: No frame is near enough.
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
        f"no frame within {tolerance_s:g} s of {seconds[slot]:+g} s from frame {anchor} at {times[anchor]:.6g} s; the "
        f"nearest is frame {found} at {times[found]:.6g} s. This affects {int(wrong.any(1).sum())} of {len(anchors)} "
        f"frames; choose times that match the frame rate ({_rate(index)} frames/s), or use "
        f"tolerance_s={_rounded_up(float(near.away.max()))} to accept the nearest frames",
    )


class Anchored(Sequences):
    """Samples of frames at given times around an anchor: every frame of a file is the anchor of one sample.

    Args:
        num_frames: Number of frames of each file.
        seconds: Times relative to the anchor, one for each position in a sample.
        tolerance_s: Largest distance of a frame from its time.
        find: Returns the index of a file by its number.
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
        """Returns all frame numbers of samples given by file and anchor, one row for each sample."""
        return self._near(files, firsts)[0]

    def padded(self, samples: ArrayLike) -> NDArray[np.bool_]:
        """Returns, for each position of each sample, True if its time is outside of the file."""
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
        raise ValueError(f"delta_timestamps[{name!r}] must be a list of seconds, got {given!r}") from None
    if not times or not all(map(math.isfinite, times)):
        raise ValueError(f"delta_timestamps[{name!r}] must have one or more finite times, got {times}")
    return times


def _taking(desc: ProcessDesc, slots: slice) -> ProcessDesc:
    """Returns a description that uses some positions of a sample, in order."""
    return dataclasses.replace(desc, index_map=[-1] * slots.start + list(range(slots.stop - slots.start)))


def _allowed(index: VideoIndex, tolerance_s: float) -> float:
    """Returns the allowed distance in seconds, with the rounding of container times and floats."""
    rounded = float(np.median(index.packets.frame_duration)) >= MIN_UNITS
    return tolerance_s + (float(index.stream.time_base) if rounded else 0.0) + MAX_FLOAT_ERROR


def _rate(index: VideoIndex) -> str:
    seconds = float(np.median(index.packets.frame_duration)) * float(index.stream.time_base)
    return f"{1 / seconds:.6g}" if seconds else "unknown"


def _rounded_up(seconds: float) -> str:
    """Formats seconds with three digits, rounded up."""
    scale = 10 ** (2 - math.floor(math.log10(seconds)))
    return f"{math.ceil(seconds * scale) / scale:.3g}"
