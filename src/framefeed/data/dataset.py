"""``VideoDataset``: sequences of frames of many files, numbered through."""

from __future__ import annotations

import math
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from framefeed.data.assembly import Assembly, SampleRef, Samples, empty_bases, locate_samples, write_bases
from framefeed.data.sequences import Sequences
from framefeed.data.videos import Videos
from framefeed.decode.default import cpu_engine
from framefeed.decode.engine import available_cpus
from framefeed.devices import Fallback, resolve_device
from framefeed.errors import FramefeedError, InvalidFile
from framefeed.index import Catalog, VideoIndex
from framefeed.index.catalog import BadFile
from framefeed.index.catalog_paths import files_meant
from framefeed.process.desc import Changes, ProcessDesc

__all__ = ["GetLabel", "VideoDataset", "VideoSize", "video_size_from_file"]

GetLabel = Callable[[str, int, Mapping[str, Changes]], Any]
"""``get_label(filename, frame_index, changes)``: the label of the sample that begins with that frame."""

LABELS = "labels"


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


class VideoDataset(Dataset[dict[str, Any]]):
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
        processing: What is made of a sequence, by name: each description gives one tensor. None gives ``"default"``:
            all frames in full size, RGB, float values from 0 to 255.
        get_label: ``get_label(filename, frame_index, changes)`` with the file as it was given, the number of the
            sequence's first frame, and by name what was done to it at random.
        catalog: A ``Catalog``, or its path, so that files are not scanned.
        seed: For random crops and flips: these depend on the seed, the epoch and the sample, and on nothing else.
        on_error: What a file does that cannot be indexed: ``"raise"``, or ``"skip"`` to leave it out and note it in
            ``report``.
        device: Where samples are: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``, decoded there, or ``"auto"`` for a GPU where
            one can be used.
        fallback: ``"cpu"`` decodes files that the GPU cannot decode on the CPU, and uploads their frames; None raises.
            With ``device="auto"`` it is ``"cpu"``.

    Attributes:
        filenames: The files that are used. Those without a whole sequence are left out, with a warning.
        report: Files that could not be indexed, and why.
    """

    def __init__(
        self,
        filenames: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
        sequence_length: int = 1,
        *,
        frame_stride: int = 1,
        fps: float | Fraction | None = None,
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
        self.device = resolve_device(device)
        self._fallback: Fallback = "cpu" if device == "auto" else fallback
        self.processing = _checked_processing(processing, length)
        self.sequence_length = length
        self.get_label = get_label
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed is in 0..2**64-1, got {seed}")
        self.report: list[BadFile] = []
        files = self._collect(filenames, catalog, on_error)
        sequences = Sequences(files.num_frames, length, stride, rate, files.find)
        short = np.flatnonzero(sequences.counts == 0).tolist()
        if short:
            _warn_short([files.names[file] for file in short], length, stride)
            files = files.only(np.flatnonzero(sequences.counts).tolist())
            sequences = Sequences(files.num_frames, length, stride, rate, files.find)
        self._files = files
        self.sequences = sequences
        self.filenames = files.names
        self.videos = self._open_videos()
        places = [desc.places(length) for desc in self.processing.values()]
        self.shown = np.flatnonzero(np.max(places, axis=0) >= 0).tolist()
        self.draws = any(desc.random_crop or desc.random_flip for desc in self.processing.values())
        # In shared memory, so that worker processes that live on are told of a new epoch too.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

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
                self.report.append(BadFile(name, error.reason))
        if self.report:
            more = f" and {len(self.report) - 3} more" if len(self.report) > 3 else ""
            what = "; ".join(f"{bad.path}: {bad.reason}" for bad in self.report[:3])
            warnings.warn(f"left out {len(self.report)} of {len(names)} files: {what}{more}", stacklevel=3)
        if catalog is None:
            return _Files(tuple(kept), np.array([index.num_frames for index in found], np.int64), tuple(found))
        return _Files(tuple(kept), catalog.num_frames[found], (), catalog, tuple(found))

    def _open_videos(self) -> Videos:
        return Videos(self._files.names, self._files.find, self.processing, self.device, self._fallback)

    def __len__(self) -> int:
        return len(self.sequences)

    def __repr__(self) -> str:
        return f"VideoDataset({len(self.filenames)} files, {len(self)} samples of {self.sequence_length} frames)"

    @property
    def epoch(self) -> int:
        """The epoch that random crops and flips belong to."""
        return int(self._epoch[0])

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: random crops and flips are drawn anew."""
        if epoch < 0:
            raise ValueError(f"epochs are counted from 0, got {epoch}")
        self._epoch[0] = epoch

    def locate(self, sample: int) -> tuple[str, int]:
        """The file of a sample and the number of its first frame."""
        files, firsts = self.sequences.locate([self._number(sample)])
        return self.filenames[int(files[0])], int(firsts[0])

    def __getitem__(self, sample: int) -> dict[str, Any]:
        """A sample; negative numbers count from the end."""
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[dict[str, Any]]:
        """Several samples; each frame that they need is decoded once."""
        numbers = np.array([self._number(sample) for sample in samples], np.int64)
        refs = locate_samples(self.sequences, numbers, self.seed, self.epoch, draws=self.draws)
        if self.device.type == "cuda":
            return self._read_on_gpu(refs)
        assembly = Assembly(self.videos, refs, self.sequence_length, stacked=False)
        wanted: dict[int, list[int]] = {}
        for file, frame in assembly.targets:
            wanted.setdefault(file, []).append(frame)
        for file, frames in wanted.items():
            self._decode(file, frames, assembly)
        return [self._sample(assembly, row, ref) for row, ref in enumerate(refs)]

    def label(self, sample: SampleRef, changes: Mapping[str, Changes]) -> Any:
        """What ``get_label`` says of a sample."""
        assert self.get_label is not None
        return self.get_label(self.filenames[sample.file], sample.frames[0], changes)

    # --- how ------------------------------------------------------------------------------------------------------

    def _number(self, sample: int) -> int:
        number = operator.index(sample)
        if not -len(self) <= number < len(self):
            raise IndexError(f"no sample {number}; samples are 0..{len(self) - 1}")
        return number % len(self)

    def _decode(self, file: int, frames: list[int], assembly: Assembly) -> None:
        video = self.videos[file]
        local = threading.local()

        def sink(row: int, picture: Any) -> None:
            bases = getattr(local, "bases", None)
            if bases is None:
                bases = local.bases = empty_bases(video.base_shapes)
            write_bases(video, picture, bases, frames[row])
            assembly.put(bases, assembly.targets[file, frames[row]])

        cpu_engine().decode(video.index, video.source, frames, sink, num_threads=_num_threads())

    def _read_on_gpu(self, refs: Samples) -> list[dict[str, Any]]:
        from framefeed.data.workshop_cuda import CudaWorkshop

        resolve_device(self.device)  # in a forked process it cannot be used any more
        workshop = CudaWorkshop(self.device, 0)
        samples = []
        for row, ref in enumerate(refs):
            assembly = workshop.assemble(self.videos, refs.pick([row]), self.sequence_length)
            workshop.read(assembly)
            workshop.hand_out(assembly)
            sample: dict[str, Any] = {name: tensor[0] for name, tensor in assembly.batch.items()}
            if self.get_label is not None:
                sample[LABELS] = self.label(ref, assembly.changes(0))
            samples.append(sample)
        return samples

    def _sample(self, assembly: Assembly, row: int, ref: SampleRef) -> dict[str, Any]:
        sample: dict[str, Any] = dict(assembly.rows[row])
        if self.get_label is not None:
            sample[LABELS] = self.label(ref, assembly.changes(row))
        return sample

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "videos"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.videos = self._open_videos()


def _num_threads() -> int:
    return 1 if get_worker_info() is not None else available_cpus()


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


def _checked_processing(processing: Mapping[str, ProcessDesc] | None, length: int) -> dict[str, ProcessDesc]:
    if processing is None:
        return {"default": ProcessDesc()}
    if isinstance(processing, ProcessDesc):
        return {"default": processing}
    if not processing:
        raise ValueError("processing is empty: give at least one description")
    for name, desc in processing.items():
        if not isinstance(desc, ProcessDesc):
            raise TypeError(f"processing[{name!r}] is a {type(desc).__name__}, not a ProcessDesc")
        if name == LABELS:
            raise ValueError(f"{LABELS!r} is where labels go; choose another name")
        desc.places(length)
    return dict(processing)


def _warn_short(names: Sequence[str], length: int, stride: int) -> None:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    strided = f" with a stride of {stride}" if stride > 1 else ""
    warnings.warn(
        f"left out {len(names)} files that are too short for {length} frames{strided}: {', '.join(names[:3])}{more}",
        stacklevel=3,
    )
