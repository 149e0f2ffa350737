"""``MultiCameraDataset``: clips that several cameras recorded at the same time."""

from __future__ import annotations

import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from framefeed._util.lazy_property import cached_property
from framefeed._util.text import printable
from framefeed.batch.assembly import MASK, MISSING, FrameLayout, SampleRef, Samples, SampleShape, with_cameras
from framefeed.batch.videos import Videos
from framefeed.catalog import Catalog
from framefeed.convert.desc import Changes, ProcessDesc
from framefeed.dataset.camera_index import DescribedClip, choose_cameras, describe_clips
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.dataset.orders import Layout
from framefeed.device import Fallback
from framefeed.errors import FramefeedError, InvalidFile
from framefeed.index import VideoIndex

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Clip", "GetClipLabel", "MultiCameraDataset"]

GetClipLabel = Callable[[str, int, Mapping[str, Changes]], Any]
"""``get_label(clip, frame_index, changes)``: returns the label of the sample that starts at that frame of the clip."""

DEFAULT_TOLERANCE = 0.5  # of a frame's duration


class Clip(NamedTuple):
    """A clip of the dataset.

    Attributes:
        name: Its folder, or its key in the dict.
        files: One file for each camera; None where it is missing.
        num_frames: Number of moments: frames of each camera, or of the first camera with ``synchronise="time"``.
    """

    name: str
    files: tuple[str | None, ...]
    num_frames: int


class MultiCameraDataset(FrameDataset):
    """Clips recorded by several cameras at the same time. A sample has the frames of all cameras.

    A sample is a dict with one tensor for each name in ``processing``. Tensors have a leading dimension for cameras:
    (cameras, frames, 3, height, width) in the default order of dimensions. With ``missing="mask"`` the sample also has
    ``"mask"``: True for each camera that is present. Read it with ``VideoLoader`` or ``torch.utils.data.DataLoader``.

    Args:
        clips: A JSON file ``{video_dir: {clip_id: num_frames}}``, or the same as a dict: each clip is a folder
            ``video_dir/clip_id`` with one video file for each camera, named after it. Or ``{clip: {camera: file}}``.
            Relative paths are resolved against the folder of the JSON file, then against the working directory.
        cameras: The cameras to use, in this order; None uses all cameras of all clips, sorted by name.
        sequence_length: Number of frames of each camera in a sample.
        frame_stride: Distance between consecutive frames of a sample.
        synchronise: ``"number"`` combines frames of equal number. ``"time"`` takes the frames of the first camera that
            is present, and from every other camera the frame nearest in time; the clip's number of frames then counts
            for the first camera.
        tolerance_seconds: Largest time difference for ``"time"``; None allows half of the slower camera's frame
            duration.
        missing: Handling of a camera whose file is missing, cannot be indexed, is too short or has no frame near
            enough: ``"error"`` raises, ``"mask"`` fills in zeros (black in RGB) and sets the mask. A frame that fails
            to decode is always an error.
        processing: Output descriptions, by name.
        get_label: ``get_label(clip, frame_index, changes)`` with the clip's name and the number of the first frame.
        catalog: A ``Catalog`` or its path; avoids scanning the files.
        seed: Seed of random crops and flips; all cameras of a sample share them.
        device, fallback: As for ``VideoDataset``.

    Attributes:
        cameras: Camera names.
        clips: The clips found. Clips shorter than one sequence have no samples and cause a warning.
        missing_cameras: Messages about missing cameras and frames, with ``missing="mask"``.

    Raises:
        SourceError: The JSON file or a folder does not exist.
        InvalidFile: The JSON file has the wrong structure, or a camera is missing.
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        clips: str | os.PathLike[str] | Mapping[str, Any],
        *,
        cameras: Sequence[str] | None = None,
        sequence_length: int = 1,
        frame_stride: int = 1,
        synchronise: Literal["number", "time"] = "number",
        tolerance_seconds: float | None = None,
        missing: Literal["error", "mask"] = "error",
        processing: Mapping[str, ProcessDesc] | None = None,
        get_label: GetClipLabel | None = None,
        catalog: Catalog | str | os.PathLike[str] | None = None,
        seed: int = 0,
        device: str | torch.device = "cpu",
        fallback: Fallback = None,
    ) -> None:
        if synchronise not in ("number", "time"):
            raise ValueError(f'synchronise must be "number" or "time", got {synchronise!r}')
        if missing not in ("error", "mask"):
            raise ValueError(f'missing must be "error" or "mask", got {missing!r}')
        length, stride = operator.index(sequence_length), operator.index(frame_stride)
        if length < 1 or stride < 1:
            raise ValueError(f"sequence_length and frame_stride must be at least 1, got {length}, {stride}")
        if tolerance_seconds is not None and not tolerance_seconds >= 0:
            raise ValueError(f"tolerance_seconds must be at least 0, got {tolerance_seconds}")
        described = describe_clips(clips)
        self.cameras = choose_cameras(described, cameras)
        super().__init__(SampleShape(length, len(self.cameras)), processing, seed, device, fallback)
        if MASK in self.processing:
            raise ValueError(f"processing cannot use the name {MASK!r}: it is reserved for masks")
        self.sequence_length = length
        self.get_label = get_label
        self.missing = missing
        self.missing_cameras: list[str] = []
        if catalog is not None and not isinstance(catalog, Catalog):
            catalog = Catalog.open(catalog)
        find = _Finder(catalog, self.cameras, missing, synchronise, self.missing_cameras)
        match = _Matching(synchronise, tolerance_seconds, missing, self.missing_cameras)
        self.clips: list[Clip] = []
        files, tables = [], []
        for each in described:
            numbers, num_frames = find.clip(each)
            known = [find.indexes[number] if number != MISSING else None for number in numbers]
            table = match.table(each.folder, known, num_frames)
            names = tuple(index.path if index is not None else None for index in known)
            self.clips.append(Clip(each.folder, names, len(table)))
            files.append(numbers)
            tables.append(table)
        self._indexes = find.indexes
        self.filenames = tuple(index.path for index in self._indexes)
        self._camera_frames = _CameraFrames(files, tables, length, stride)
        short = [self.clips[clip].name for clip in np.flatnonzero(self._camera_frames.counts == 0).tolist()]
        if short:
            more = f" and {len(short) - 3} more" if len(short) > 3 else ""
            text = f"{len(short)} clips are shorter than one sequence: {', '.join(short[:3])}{more}"
            warnings.warn(printable(text), stacklevel=2)
        self.videos = self._open_videos()

    @property
    def frame_layout(self) -> FrameLayout:
        """Mapping of samples to files and frames."""
        return self._camera_frames

    @cached_property
    def layout(self) -> Layout:
        """Positions of samples, for orders: clips are files, and the first camera's GOPs are groups."""
        counts = self._camera_frames.counts
        return Layout(int(counts.sum()), (np.cumsum(counts) - counts)[counts > 0], self._groups)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of samples of each clip."""
        return self._camera_frames.counts

    def index_of(self, file: int) -> VideoIndex:
        """Returns the index of a file, by its number."""
        return self._indexes[file]

    @property
    def has_cameras(self) -> bool:
        """Samples have a dimension for cameras."""
        return True

    @property
    def has_mask(self) -> bool:
        """True if samples may have missing frames."""
        return self.missing == "mask"

    def locate(self, sample: int) -> tuple[str, int]:
        """Returns the clip of a sample and the number of its first frame."""
        clips, firsts = self._camera_frames.locate([self.checked_number(sample)])
        return self.clips[int(clips[0])].name, int(firsts[0])

    def label(self, sample: SampleRef, changes: Mapping[str, Changes]) -> Any:
        """Calls ``get_label``."""
        assert self.get_label is not None
        clip, first = self.locate(sample.number)
        return self.get_label(clip, first, changes)

    def finish(self, batch: dict[str, Tensor], samples: Samples) -> dict[str, Any]:
        """Adds the camera dimension after the sample dimension, and masks."""
        finished: dict[str, Any] = dict(with_cameras(batch, self.processing, len(self.cameras)))
        if self.has_mask:
            finished[MASK] = torch.from_numpy(self.shape.mask(samples.frames, self.shown)).to(self.device)
        return finished

    def _open_videos(self) -> Videos:
        return Videos(self.filenames, self._indexes.__getitem__, self.processing, self.device, self.fallback)

    def _groups(self) -> NDArray[np.int64]:
        parts, first = [], 0
        for clip, count in enumerate(self._camera_frames.counts.tolist()):
            if not count:
                continue
            file, frames = self._camera_frames.first_camera(clip)
            packets = self._indexes[file].packets
            starts = packets.start[packets.frames[np.maximum(frames[:count], 0)]]
            groups = np.concatenate([[0], np.cumsum(np.diff(starts) != 0)])
            parts.append(groups + first)
            first += int(groups[-1]) + 1
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    def __repr__(self) -> str:
        return f"MultiCameraDataset({len(self.clips)} clips, {len(self.cameras)} cameras, {len(self)} samples)"


# --- samples -------------------------------------------------------------------------------------------------------


class _CameraFrames:
    """Maps samples to files and frames.

    Args:
        files: For each clip, the file numbers of its cameras.
        tables: For each clip, one row for each moment with the frame of each camera.
        length, stride: Length and stride of sequences.
    """

    def __init__(self, files: list[list[int]], tables: list[NDArray[np.int64]], length: int, stride: int) -> None:
        self._files = np.array(files, np.int64)
        self._tables = tables
        self._moments = np.concatenate(tables) if tables else np.zeros((0, 0), np.int64)
        self._first_moments = np.cumsum([0, *map(len, tables)], dtype=np.int64)
        self._steps = np.arange(length, dtype=np.int64) * stride
        self.counts: NDArray[np.int64] = np.array(
            [max(0, len(table) - int(self._steps[-1])) for table in tables], np.int64
        )
        self._ends = np.cumsum(self.counts, dtype=np.int64)

    def locate(self, samples: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the clip of each sample and its first moment."""
        numbers = np.asarray(samples, np.int64)
        clips = np.searchsorted(self._ends, numbers, side="right").astype(np.int64, copy=False)
        return clips, numbers - (self._ends[clips] - self.counts[clips])

    def frame_refs(self, samples: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the files and the frames of samples, one row for each sample."""
        clips, firsts = self.locate(samples)
        moments = (self._first_moments[clips] + firsts)[:, None] + self._steps
        frames = self._moments[moments].swapaxes(1, 2).reshape(len(clips), self._files.shape[1] * len(self._steps))
        files = np.repeat(self._files[clips], len(self._steps), axis=1)
        return np.where(frames == MISSING, MISSING, files), frames

    def first_camera(self, clip: int) -> tuple[int, NDArray[np.int64]]:
        """Returns the file of a clip's first present camera, and its frame at each moment."""
        camera = int(np.argmax(self._files[clip] != MISSING))
        return int(self._files[clip, camera]), self._tables[clip][:, camera]


class _Finder:
    """Finds and indexes the files of clips.

    Args:
        catalog: Catalog of the files, or None.
        cameras: Camera names.
        missing: ``"error"`` or ``"mask"``.
        by: ``"number"`` or ``"time"``.
        report: Receives messages about missing cameras.

    Attributes:
        indexes: Indexes of all files found.
    """

    def __init__(
        self, catalog: Catalog | None, cameras: Sequence[str], missing: str, by: str, report: list[str]
    ) -> None:
        self._catalog = catalog
        self._cameras = cameras
        self._missing = missing
        self._by = by
        self._report = report
        self.indexes: list[VideoIndex] = []

    def clip(self, described: DescribedClip) -> tuple[list[int], int]:
        """Returns the file number of each camera of a clip, and the clip's number of moments."""
        numbers: list[int] = []
        lengths: list[int] = []
        for camera in self._cameras:
            try:
                index = self._find(described, camera)
            except FramefeedError as error:
                self._miss(error)
                numbers.append(MISSING)
                continue
            if self._by == "number" or not lengths:  # by time, only the length of the first camera counts
                self._check_length(described, index)
                lengths.append(index.num_frames)
            numbers.append(len(self.indexes))
            self.indexes.append(index)
        if not lengths:
            raise InvalidFile(described.folder, f"has none of the cameras {', '.join(self._cameras)}")
        length = max(lengths) if self._missing == "mask" else min(lengths)
        return numbers, length if described.num_frames is None else min(length, described.num_frames)

    def _find(self, described: DescribedClip, camera: str) -> VideoIndex:
        file = described.files.get(camera)
        if file is None:
            has = ", ".join(sorted(described.files)) or "none"
            raise InvalidFile(described.folder, f"has no file for camera {camera!r}; found {has}")
        return VideoIndex.scan(file) if self._catalog is None else self._catalog[file]

    def _check_length(self, described: DescribedClip, index: VideoIndex) -> None:
        expected = described.num_frames
        if expected is not None and index.num_frames < expected:
            self._miss(InvalidFile(index.path, f"has {index.num_frames} frames, but {described.where} says {expected}"))

    def _miss(self, error: FramefeedError) -> None:
        if self._missing == "error":
            raise error
        self._report.append(str(error))


class _Matching:
    """Matches the frames of several cameras.

    Args:
        by: ``"number"`` or ``"time"``.
        tolerance_seconds: Largest time difference.
        missing: ``"error"`` or ``"mask"``, for frames without a match.
        report: Receives messages about frames without a match.
    """

    def __init__(self, by: str, tolerance_seconds: float | None, missing: str, report: list[str]) -> None:
        self._by = by
        self._tolerance = tolerance_seconds
        self._missing = missing
        self._report = report

    def table(self, clip: str, indexes: Sequence[VideoIndex | None], num_frames: int) -> NDArray[np.int64]:
        """Returns one row for each moment, with the frame number of each camera."""
        if self._by == "number":
            return np.stack([self._by_number(index, num_frames) for index in indexes], 1)
        leader = next(index for index in indexes if index is not None)
        moments = np.arange(min(num_frames, leader.num_frames))
        return np.stack([self._by_time(clip, leader, moments, index) for index in indexes], 1)

    def _by_number(self, index: VideoIndex | None, num_frames: int) -> NDArray[np.int64]:
        column = np.full(num_frames, MISSING, np.int64)
        if index is not None:
            there = min(num_frames, index.num_frames)
            column[:there] = np.arange(there)
        return column

    def _by_time(
        self, clip: str, leader: VideoIndex, moments: NDArray[np.int64], index: VideoIndex | None
    ) -> NDArray[np.int64]:
        """Returns, for each moment, the frame nearest in time."""
        if index is None:
            return np.full(len(moments), MISSING, np.int64)
        times = leader.pts_seconds(moments)
        own = index.pts_seconds(np.arange(index.num_frames))
        after = np.clip(np.searchsorted(own, times), 1, max(1, len(own) - 1))
        before = after - 1
        after = np.minimum(after, len(own) - 1)
        nearest = np.where(times - own[before] <= own[after] - times, before, after).astype(np.int64)
        tolerance = _tolerance(leader, index) if self._tolerance is None else self._tolerance
        far = np.abs(own[nearest] - times) > tolerance + 1e-9
        if far.any():
            moment = int(np.argmax(far))
            reason = (
                f"has no frame within {tolerance:.4g} s of {times[moment]:.4g} s, the time of frame {moment} of "
                f"{leader.path}; the nearest is at {own[nearest[moment]]:.4g} s"
            )
            if self._missing == "error":
                raise InvalidFile(index.path, f'{reason}; increase tolerance_seconds or use missing="mask"')
            self._report.append(f"{index.path}: {reason} ({int(far.sum())} frames of {clip} affected)")
            nearest[far] = MISSING
        return nearest


def _tolerance(leader: VideoIndex, index: VideoIndex) -> float:
    """Returns half of the slower frame duration, plus the rounding of container timestamps."""
    pair = (leader, index)
    seconds = max(float(np.median(each.frame_seconds(np.arange(each.num_frames)))) for each in pair)
    return DEFAULT_TOLERANCE * seconds + float(max(each.stream.time_base for each in pair))
