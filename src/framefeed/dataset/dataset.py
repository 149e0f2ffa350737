"""``VideoDataset``: fixed-length frame sequences from many files."""

from __future__ import annotations

import math
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed._util.text import printable
from framefeed.batch.assembly import FrameLayout, SampleRef, SampleShape
from framefeed.batch.videos import Videos
from framefeed.catalog import Catalog
from framefeed.catalog.catalog import BadFile
from framefeed.catalog.paths import files_meant
from framefeed.convert.desc import Changes, ProcessDesc
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.dataset.orders import Layout
from framefeed.dataset.sequences import Sequences
from framefeed.dataset.time_offsets import DEFAULT_TOLERANCE_S, Anchored, Offsets, check_times
from framefeed.device import Fallback
from framefeed.errors import FramefeedError, FrameTimeError, InvalidFile
from framefeed.index import VideoIndex

__all__ = ["GetLabel", "VideoDataset", "VideoSize", "video_size_from_file"]

GetLabel = Callable[[str, int, Mapping[str, Changes]], Any]
"""``get_label(filename, frame_index, changes)``: returns the label of the sample that starts at that frame."""


class VideoSize(NamedTuple):
    """Displayed width and height of a video's frames, in pixels."""

    width: int
    height: int


def video_size_from_file(filename: str | os.PathLike[str]) -> VideoSize:
    """Returns the display size of a video's frames, with the file's rotation applied."""
    height, width = VideoIndex.scan(filename).stream.display_size
    return VideoSize(width, height)


@dataclass(frozen=True)
class _Files:
    """Files of a dataset, and lookup of their indexes."""

    names: tuple[str, ...]
    num_frames: NDArray[np.int64]
    indexes: tuple[VideoIndex, ...] = ()
    catalog: Catalog | None = None
    numbers: tuple[int, ...] = ()

    def find(self, file: int) -> VideoIndex:
        """Returns the index of a file."""
        if self.catalog is not None:
            return self.catalog[self.numbers[file]]
        return self.indexes[file]

    def only(self, chosen: Sequence[int]) -> _Files:
        """Returns a copy with the chosen files only."""
        return _Files(
            tuple(self.names[file] for file in chosen),
            self.num_frames[list(chosen)],
            tuple(self.indexes[file] for file in chosen) if self.catalog is None else (),
            self.catalog,
            tuple(self.numbers[file] for file in chosen) if self.catalog is not None else (),
        )


class VideoDataset(FrameDataset):
    """Fixed-length frame sequences from many video files.

    Every frame that can start a whole sequence is a sample. With two files of 100 frames and ``sequence_length=5``,
    samples 0 to 95 are in the first file and 96 to 191 in the second. With ``sequence_length=1``, sample numbers are
    frame numbers, counted through all files.

    A sample is a dict with one tensor for each name in ``processing``, and ``"labels"`` with a ``get_label``.
    ``VideoLoader`` is the fast way to read a dataset. It also works as a map-style dataset for
    ``torch.utils.data.DataLoader``, with forked or spawned worker processes; ``__getitems__`` then plans each batch as
    a whole.

    Args:
        filenames: Files, folders (all video files below them) and patterns such as ``"clips/**/*.mp4"``; None uses
            all files of ``catalog``.
        sequence_length: Number of frames in a sample.
        frame_stride: Distance between consecutive frames of a sequence: 2 takes every other frame.
        fps: Frame rate of a sequence, instead of a stride: at each time, the frame shown then is taken.
        delta_timestamps: Times in seconds relative to an anchor frame, instead of a sequence, by the names of
            ``processing``: ``{"observation": [-0.2, -0.1, 0.0]}``. Every frame of a file is the anchor of one sample;
            names without times have the anchor frame only. Frames are looked up by exact time. Before the start and
            after the end of a file the first and the last frame are repeated, and ``"observation_is_pad"`` is True.
            Same meaning as in LeRobot's datasets.
        tolerance_s: Largest distance in seconds between a time in ``delta_timestamps`` and its frame. Checked for all
            samples when the dataset is created.
        processing: Output descriptions, by name: each gives one tensor. None gives ``"default"``: all frames in full
            size, RGB, float values from 0 to 255.
        get_label: ``get_label(filename, frame_index, changes)``, called with the file as given, the number of the
            sequence's first frame (with ``delta_timestamps``, of the anchor), and by name the random changes applied.
        catalog: A ``Catalog`` or its path; avoids scanning the files.
        seed: Seed of random crops and flips. They depend only on the seed, the epoch and the sample.
        on_error: Handling of files that cannot be indexed, or lack frames at the times of ``delta_timestamps``:
            ``"raise"``, or ``"skip"`` to leave them out and list them in ``unreadable``.
        device: Device of the samples: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``, decoded there, or ``"auto"`` for a GPU
            if one is usable.
        fallback: ``"cpu"`` decodes files that the GPU does not support on the CPU and uploads their frames; None
            raises. With ``device="auto"`` it is ``"cpu"``.

    Attributes:
        filenames: The files in use. Files shorter than one sequence are left out, with a warning.
        unreadable: Files left out because of ``on_error="skip"``, with reasons.

    Raises:
        FrameTimeError: A file has no frame within ``tolerance_s`` of a time.
        FramefeedError: A file cannot be indexed.
        ValueError: An argument is invalid, or arguments exclude each other.
    """

    def __init__(
        self,
        filenames: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
        sequence_length: int = 1,
        *,
        frame_stride: int = 1,
        fps: float | Fraction | None = None,
        delta_timestamps: Mapping[str, Sequence[float]] | None = None,
        tolerance_s: float = DEFAULT_TOLERANCE_S,
        processing: Mapping[str, ProcessDesc] | None = None,
        get_label: GetLabel | None = None,
        catalog: Catalog | str | os.PathLike[str] | None = None,
        seed: int = 0,
        on_error: Literal["raise", "skip"] = "raise",
        device: str | torch.device = "cpu",
        fallback: Fallback = None,
    ) -> None:
        length = _whole("sequence_length", sequence_length)
        stride = _whole("frame_stride", frame_stride)
        rate = _rate(fps)
        if rate is not None and stride != 1:
            raise ValueError("frame_stride and fps cannot be combined")
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
        if not (tolerance_s >= 0 and math.isfinite(tolerance_s)):
            raise ValueError(f"tolerance_s must be at least 0, got {tolerance_s}")
        self._offsets: Offsets | None = None
        if delta_timestamps is not None:
            if (length, stride, rate) != (1, 1, None):
                raise ValueError("delta_timestamps cannot be combined with sequence_length, frame_stride or fps")
            self._offsets, processing = Offsets.of(delta_timestamps, processing)
            length = len(self._offsets.seconds)
        super().__init__(SampleShape(length), processing, seed, device, fallback)
        self.sequence_length = length
        self.get_label = get_label
        self.unreadable: list[BadFile] = []
        files = self._collect(filenames, catalog, on_error)
        if self._offsets is not None:
            files = self._with_times(files, self._offsets, tolerance_s, on_error)

        def arranged(files: _Files) -> Sequences:
            if self._offsets is not None:
                return Anchored(files.num_frames, self._offsets.seconds, tolerance_s, files.find)
            return Sequences(files.num_frames, length, stride, rate, files.find)

        sequences = arranged(files)
        short = np.flatnonzero(sequences.counts == 0).tolist()
        if short:
            _warn_short([files.names[file] for file in short], length, stride)
            files = files.only(np.flatnonzero(sequences.counts).tolist())
            sequences = arranged(files)
        self._files = files
        self.sequences = sequences
        self.filenames = files.names
        self.videos = self._open_videos()

    @property
    def frame_layout(self) -> FrameLayout:
        """Mapping of samples to files and frames."""
        return self.sequences

    @property
    def layout(self) -> Layout:
        """Positions of samples, for orders."""
        return self.sequences.layout

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of samples of each file."""
        return self.sequences.counts

    def _collect(
        self,
        filenames: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
        catalog: Catalog | str | os.PathLike[str] | None,
        on_error: str,
    ) -> _Files:
        if catalog is not None and not isinstance(catalog, Catalog):
            catalog = Catalog.open(catalog)
        if filenames is None:
            if catalog is None:
                raise ValueError("no filenames: pass filenames, or a catalog to use all of its files")
            return _Files(catalog.paths, catalog.num_frames, (), catalog, tuple(range(len(catalog))))
        names = _names(filenames)
        found: list[Any] = []
        kept: list[str] = []
        for name in names:
            try:
                found.append(VideoIndex.scan(name) if catalog is None else catalog.number_of(name))
                kept.append(name)
            except FramefeedError as error:
                if on_error == "raise":
                    raise
                self.unreadable.append(BadFile(name, error.reason))
        _warn_bad(self.unreadable, len(names))
        if catalog is None:
            return _Files(tuple(kept), np.array([index.num_frames for index in found], np.int64), tuple(found))
        return _Files(tuple(kept), catalog.num_frames[found], (), catalog, tuple(found))

    def _with_times(self, files: _Files, offsets: Offsets, tolerance_s: float, on_error: str) -> _Files:
        """Returns the files that have frames at all requested times."""
        good: list[int] = []
        bad: list[BadFile] = []
        for file, name in enumerate(files.names):
            try:
                check_times(files.find(file), offsets.seconds, tolerance_s)
                good.append(file)
            except FrameTimeError as error:
                if on_error == "raise":
                    raise
                bad.append(BadFile(name, error.reason))
        _warn_bad(bad, len(files.names))
        self.unreadable += bad
        return files.only(good) if bad else files

    def _open_videos(self) -> Videos:
        return Videos(self._files.names, self._files.find, self.processing, self.device, self.fallback)

    def __repr__(self) -> str:
        return f"VideoDataset({len(self.filenames)} files, {len(self)} samples of {self.sequence_length} frames)"

    def index_of(self, file: int) -> VideoIndex:
        """Returns the index of a file, by its number."""
        return self._files.find(file)

    def label(self, sample: SampleRef, changes: Mapping[str, Changes]) -> Any:
        """Calls ``get_label``."""
        assert self.get_label is not None
        if self._offsets is not None:
            return self.get_label(*self.locate(sample.number), changes)
        return self.get_label(self.filenames[sample.files[0]], sample.frames[0], changes)

    def extra_columns(self, samples: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Returns the padding masks."""
        if not isinstance(self.sequences, Anchored) or self._offsets is None:
            return {}
        return self._offsets.masks(self.sequences.padded(samples))

    def locate(self, sample: int) -> tuple[str, int]:
        """Returns the file of a sample and the number of its first frame, or of its anchor."""
        files, firsts = self.sequences.locate([self.checked_number(sample)])
        return self.filenames[int(files[0])], int(firsts[0])


def _whole(name: str, value: int) -> int:
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return number


def _rate(fps: float | Fraction | None) -> Fraction | None:
    if fps is None:
        return None
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f"fps must be positive, got {fps}")
    # 29.97002997 stands for 30000/1001.
    rate = Fraction(fps).limit_denominator(100_000)
    if rate <= 0:
        raise ValueError(f"fps must be at least 0.00001, got {fps}")
    return rate


def _names(filenames: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    names: list[str] = []
    for given in [filenames] if isinstance(filenames, str | os.PathLike) else filenames:
        name = os.fsdecode(given)
        files = files_meant(name)
        if not files:
            raise InvalidFile(name, "no video files match")
        names += files
    return names


def _warn_bad(bad: Sequence[BadFile], count: int) -> None:
    if bad:
        more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
        what = "; ".join(f"{each.path}: {each.reason}" for each in bad[:3])
        warnings.warn(printable(f"left out {len(bad)} of {count} files: {what}{more}"), stacklevel=4)


def _warn_short(names: Sequence[str], length: int, stride: int) -> None:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    strided = f" with a stride of {stride}" if stride > 1 else ""
    text = f"left out {len(names)} files that are too short for {length} frames{strided}: {', '.join(names[:3])}{more}"
    warnings.warn(printable(text), stacklevel=3)
