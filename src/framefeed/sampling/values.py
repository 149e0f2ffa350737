"""``FrameValues``: a number per frame, given by the user or measured as mean luma."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed.catalog.catalog import Catalog
from framefeed.errors import FramefeedError, FrameIndexError, InvalidFile, SourceError
from framefeed.index.table import PacketTable
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.estimate import estimate_correlation

__all__ = ["FrameValues", "measure_luma", "read_values"]

COLUMNS = ("video", "frame", "value")

# Sample for luma: enough groups for two digits of a correlation, few enough to decode in seconds.
NUM_VIDEOS = 64
REACH = 64  # frames from the start of a group
SIZE = (36, 64)  # sufficient for the mean of a picture
LUMA = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True, eq=False)
class FrameValues:
    """One number for each of some frames of a catalog.

    Attributes:
        videos: Video number of each frame.
        frames: Frame number in its video.
        values: The number.
        groups: Its group; groups of different videos have different numbers.
        skipped: Videos that could not be read, with reasons.
    """

    videos: NDArray[np.int64]
    frames: NDArray[np.int64]
    values: NDArray[np.float64]
    groups: NDArray[np.int64]
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, catalog: Catalog, values: Mapping[str | int, ArrayLike]) -> FrameValues:
        """Creates values from the numbers of all frames of some videos, by path or number; NaN marks unknown frames.

        Raises:
            NotInCatalog: There is no such video.
            ValueError: A video has another number of frames.
        """
        videos, frames, numbers = [], [], []
        for key, given in values.items():
            number = catalog.number_of(key) if isinstance(key, str) else key
            of_video = np.asarray(given, np.float64).reshape(-1)
            expected = catalog[number].num_frames
            if len(of_video) != expected:
                raise ValueError(f"{key}: got {len(of_video)} values for {expected} frames; use NaN for unknown ones")
            videos.append(np.full(expected, number % len(catalog)))
            frames.append(np.arange(expected))
            numbers.append(of_video)
        if not videos:
            raise ValueError("no values given")
        return cls.at(catalog, np.concatenate(videos), np.concatenate(frames), np.concatenate(numbers))

    @classmethod
    def at(
        cls,
        catalog: Catalog,
        videos: NDArray[np.int64],
        frames: NDArray[np.int64],
        values: NDArray[np.float64],
        skipped: tuple[str, ...] = (),
    ) -> FrameValues:
        """Creates values from the numbers of single frames; unknown ones (NaN) are left out.

        Raises:
            FrameIndexError: A video has no such frame.
            ValueError: A frame has two values.
        """
        known = np.isfinite(values)
        order = np.lexsort((frames[known], videos[known]))
        videos, frames, values = videos[known][order], frames[known][order], values[known][order]
        twice = np.flatnonzero((np.diff(videos) == 0) & (np.diff(frames) == 0))
        if len(twice):
            path = catalog[int(videos[twice[0]])].path
            raise ValueError(f"{path}: frame {frames[twice[0]]} has two values")
        groups = np.empty(len(videos), np.int64)
        first = 0
        bounds = np.flatnonzero(np.diff(videos, prepend=-1, append=-1))
        for start, stop in pairwise(bounds.tolist()):
            index = catalog[int(videos[start])]
            wrong = [int(frame) for frame in frames[[start, stop - 1]] if not 0 <= frame < index.num_frames]
            if wrong:
                raise FrameIndexError(index.path, f"no frame {wrong[0]}; frames are 0..{index.num_frames - 1}")
            of_video = _groups(index.packets)
            groups[start:stop] = of_video[frames[start:stop]] + first
            first += int(of_video[-1]) + 1
        return cls(videos, frames, values, groups, skipped)

    def __len__(self) -> int:
        return len(self.values)

    def correlation(self, *, seed: int = 0) -> Correlation:
        """Estimates the correlation of values within groups and files.

        Raises:
            ValueError: No group has two values, or all values are equal.
        """
        return estimate_correlation(self.values, self.videos, self.groups, self.frames, seed=seed)


def _groups(table: PacketTable) -> NDArray[np.int64]:
    """Returns the group number of each frame in its video."""
    starts = table.start[table.frames]
    return np.concatenate([[0], np.cumsum(np.diff(starts) != 0)])


def read_values(path: str | os.PathLike[str], catalog: Catalog) -> FrameValues:
    """Reads frame values from a CSV or Parquet file with the columns ``video``, ``frame`` and ``value``.

    Args:
        path: The file.
        catalog: The videos, referred to by number or by any spelling of the path.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: The file has another format.
        NotInCatalog: There is no such video.
        FrameIndexError: A video has no such frame.
    """
    name = os.fspath(path)
    columns = _read_columns(name)
    try:
        frames = columns["frame"].to_numpy(zero_copy_only=False).astype(np.int64)
        values = columns["value"].to_numpy(zero_copy_only=False).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise InvalidFile(name, f"column frame must have integers, and value numbers ({error})") from error
    keys, places = np.unique(columns["video"].to_numpy(zero_copy_only=False), return_inverse=True)
    numbers = [_video_number(catalog, key) for key in keys.tolist()]
    videos = np.array(numbers, np.int64)[places.reshape(-1)]
    try:
        return FrameValues.at(catalog, videos, frames, values)
    except FramefeedError:
        raise
    except ValueError as error:
        raise InvalidFile(name, str(error)) from error


def _read_columns(name: str) -> dict[str, Any]:
    import pyarrow as pa

    try:
        if Path(name).suffix == ".parquet":
            import pyarrow.parquet

            table = pyarrow.parquet.read_table(name)
        else:
            import pyarrow.csv

            table = pyarrow.csv.read_csv(name)
    except OSError as error:
        raise SourceError(name, f"cannot be read ({error.strerror or error})") from error
    except pa.ArrowException as error:
        raise InvalidFile(name, f"is not a CSV or Parquet table ({str(error).splitlines()[0]})") from error
    missing = [column for column in COLUMNS if column not in table.column_names]
    if missing or not table.num_rows:
        what = f"lacks the column {missing[0]}" if missing else "has no rows"
        raise InvalidFile(name, f"{what}; expected the columns video (path or number), frame and value")
    nulls = [column for column in COLUMNS[:2] if table[column].null_count]
    if nulls:
        raise InvalidFile(name, f"column {nulls[0]} has empty cells; only value may have them")
    return {column: table[column].combine_chunks() for column in COLUMNS}


def _video_number(catalog: Catalog, key: Any) -> int:
    if isinstance(key, int):
        _ = catalog[key]  # checks that it exists
        return key % len(catalog)
    return catalog.number_of(str(key))


def measure_luma(
    catalog: Catalog,
    *,
    num_videos: int = NUM_VIDEOS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> FrameValues:
    """Measures the mean luma of frames of some groups of some videos, by decoding them.

    Uses two adjacent groups and a random one of each video. Videos are chosen by length, so that each frame is equally
    likely to be used.

    Args:
        catalog: The videos.
        num_videos: Largest number of videos to use.
        seed: Seed of the choice of videos and groups.
        progress: Called with the number of videos done, and their total.

    Raises:
        FramefeedError: None of the videos can be read.
    """
    rng = np.random.default_rng(seed)
    total = catalog.total_frames
    videos, _ = catalog.locate(np.floor((np.arange(num_videos) + rng.random()) * total / num_videos).astype(np.int64))
    chosen = np.unique(videos).tolist()
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
    errors: list[FramefeedError] = []
    for done, number in enumerate(chosen):
        progress(done, len(chosen))
        index = catalog[number]
        frames = _some_frames(index.packets, int(np.sum(videos == number)), rng)
        try:
            values = _mean_luma(catalog, index.path, frames)
        except FramefeedError as error:
            errors.append(error)
            continue
        parts.append((np.full(len(frames), number), frames, values))
    progress(len(chosen), len(chosen))
    if not parts:
        raise errors[0]
    videos, frames, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    return FrameValues.at(catalog, videos, frames, values, tuple(str(error) for error in errors))


def _some_frames(table: PacketTable, times: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Returns frames of some random groups: the first ones of each, and others at growing distances."""
    groups = _groups(table)
    firsts: NDArray[np.int64] = np.append(np.flatnonzero(np.diff(groups, prepend=-1)), len(groups))
    count = len(firsts) - 1
    chosen: set[int] = set()
    for _ in range(times):
        one = int(rng.integers(count))
        chosen |= {one, min(one + 1, count - 1), int(rng.integers(count))}
    steps = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, REACH])
    found = [firsts[group] + steps[steps < firsts[group + 1] - firsts[group]] for group in sorted(chosen)]
    frames: NDArray[np.int64] = np.concatenate(found).astype(np.int64)
    return frames


def _mean_luma(catalog: Catalog, path: str, frames: NDArray[np.int64]) -> NDArray[np.float64]:
    from framefeed.decoder.video_decoder import Resize, VideoDecoder

    decoder = VideoDecoder(path, index=catalog, transforms=[Resize(SIZE)])
    pictures = decoder.get_frames_at(frames.tolist()).data.numpy()
    means: NDArray[np.float64] = pictures.mean(axis=(2, 3), dtype=np.float64) @ LUMA
    return means
