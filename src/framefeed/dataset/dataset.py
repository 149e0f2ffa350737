"""``VideoDataset``: sequences of frames of many files, numbered through."""

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
"""``get_label(filename, frame_index, changes)``: the label of the sample that begins with that frame."""


class VideoSize(NamedTuple):
    """Width and height of a video's frames as they are shown, in pixels."""

    width: int
    height: int


def video_size_from_file(filename: str | os.PathLike[str]) -> VideoSize:
    """The size of a video's frames, turned as the file says."""
    height, width = VideoIndex.scan(filename).stream.display_size
    return VideoSize(width, height)


@dataclass(frozen=True)
class _Files:
    """The files of a dataset, and how to find the index of each."""

    names: tuple[str, ...]
    num_frames: NDArray[np.int64]
    indexes: tuple[VideoIndex, ...] = ()
    catalog: Catalog | None = None
    numbers: tuple[int, ...] = ()

    def find(self, file: int) -> VideoIndex:
        """The index of a file."""
        if self.catalog is not None:
            return self.catalog[self.numbers[file]]
        return self.indexes[file]

    def only(self, chosen: Sequence[int]) -> _Files:
        """Without the others."""
        return _Files(
            tuple(self.names[file] for file in chosen),
            self.num_frames[list(chosen)],
            tuple(self.indexes[file] for file in chosen) if self.catalog is None else (),
            self.catalog,
            tuple(self.numbers[file] for file in chosen) if self.catalog is not None else (),
        )


class VideoDataset(FrameDataset):
    """Sequences of frames of many video files.

    Every frame that a whole sequence can begin with is a sample. Of two files of 100 frames and sequences of 5, samples
    0 to 95 are the first file's and 96 to 191 the second's. With ``sequence_length=1`` the numbers of samples are those
    of frames, counted through all files.

    A sample is a dict with one tensor for each name in ``processing``, and ``"labels"`` where there is a
    ``get_label``. ``VideoLoader`` is the fast way to read a dataset. It also is a plain map-style dataset for
    ``torch.utils.data.DataLoader``, with worker processes that are forked or spawned; ``__getitems__`` then plans each
    batch as a whole.

    Args:
        filenames: Files, folders (all video files below them) and patterns such as ``"clips/**/*.mp4"``; None takes
            all of ``catalog``.
        sequence_length: Frames of a sample.
        frame_stride: From one frame of a sequence to the next: 2 takes every other frame.
        fps: Frames a second of a sequence, instead of a stride: for each the frame that is shown at its time.
        delta_timestamps: Times in seconds around an anchor frame, instead of a sequence, by the names of
            ``processing``: ``{"observation": [-0.2, -0.1, 0.0]}``. Every frame of a file is the anchor of a sample;
            names without times show the anchor alone. Frames are found by their exact times. Before the beginning and
            after the end of a file its first and its last frame are shown, and ``"observation_is_pad"`` is True there.
            LeRobot's datasets mean the same by it.
        tolerance_s: How far from its time a frame of ``delta_timestamps`` may be, in seconds. Checked for all samples
            when the dataset is made.
        processing: What is made of a sequence, by name: each description gives one tensor. None gives ``"default"``:
            all frames in full size, RGB, float values from 0 to 255.
        get_label: ``get_label(filename, frame_index, changes)`` with the file as it was given, the number of the
            sequence's first frame (with ``delta_timestamps``, of the anchor), and by name what was done at random.
        catalog: A ``Catalog``, or its path, so that files are not scanned.
        seed: For random crops and flips: these depend on the seed, the epoch and the sample, and on nothing else.
        on_error: What a file does that cannot be indexed, or has no frames at the times of ``delta_timestamps``:
            ``"raise"``, or ``"skip"`` to leave it out and note it in ``report``.
        device: Where samples are: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``, decoded there, or ``"auto"`` for a GPU where
            one can be used.
        fallback: ``"cpu"`` decodes files that the GPU cannot decode on the CPU, and uploads their frames; None raises.
            With ``device="auto"`` it is ``"cpu"``.

    Attributes:
        filenames: The files that are used. Those without a whole sequence are left out, with a warning.
        unreadable: Files that were left out by ``on_error``, and why.

    Raises:
        FrameTimeError: A file has no frame within ``tolerance_s`` of a time.
        FramefeedError: A file cannot be indexed.
        ValueError: An argument is not possible, or not together with another one.
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
            raise ValueError("give either frame_stride or fps")
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error is "raise" or "skip", not {on_error!r}')
        if not (tolerance_s >= 0 and math.isfinite(tolerance_s)):
            raise ValueError(f"tolerance_s is at least 0, got {tolerance_s}")
        self._offsets: Offsets | None = None
        if delta_timestamps is not None:
            if (length, stride, rate) != (1, 1, None):
                raise ValueError("give either delta_timestamps, or sequence_length with frame_stride or fps")
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
        """Which frames of which files samples are made of."""
        return self.sequences

    @property
    def layout(self) -> Layout:
        """Where samples lie, for orders."""
        return self.sequences.layout

    @property
    def counts(self) -> NDArray[np.int64]:
        """Samples of each file."""
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
                raise ValueError("give filenames, or a catalog to take all of its files")
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
        """The files that have frames at the times that are wanted."""
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
        """The index of a file, by its number."""
        return self._files.find(file)

    def label(self, sample: SampleRef, changes: Mapping[str, Changes]) -> Any:
        """What ``get_label`` says of a sample."""
        assert self.get_label is not None
        if self._offsets is not None:
            return self.get_label(*self.locate(sample.number), changes)
        return self.get_label(self.filenames[sample.files[0]], sample.frames[0], changes)

    def extra_columns(self, samples: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Masks of frames that are shown in the place of others."""
        if not isinstance(self.sequences, Anchored) or self._offsets is None:
            return {}
        return self._offsets.masks(self.sequences.padded(samples))

    def locate(self, sample: int) -> tuple[str, int]:
        """The file of a sample and the number of its first frame, or of its anchor."""
        files, firsts = self.sequences.locate([self.checked_number(sample)])
        return self.filenames[int(files[0])], int(firsts[0])


def _whole(name: str, value: int) -> int:
    number = operator.index(value)
    if number < 1:
        raise ValueError(f"{name} is at least 1, got {value}")
    return number


def _rate(fps: float | Fraction | None) -> Fraction | None:
    if fps is None:
        return None
    if not (fps > 0 and math.isfinite(fps)):
        raise ValueError(f"fps must be positive, got {fps}")
    # 29.97002997 stands for 30000/1001.
    rate = Fraction(fps).limit_denominator(100_000)
    if rate <= 0:
        raise ValueError(f"fps is at least 0.00001, got {fps}")
    return rate


def _names(filenames: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    names: list[str] = []
    for given in [filenames] if isinstance(filenames, str | os.PathLike) else filenames:
        name = os.fsdecode(given)
        files = files_meant(name)
        if not files:
            raise InvalidFile(name, "leads to no video file")
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
