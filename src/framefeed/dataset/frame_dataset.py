"""Base class of datasets: samples by number, decoded on request."""

from __future__ import annotations

import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, get_worker_info

from framefeed._util.limits import available_cpus
from framefeed.batch.assembly import (
    MISSING,
    Assembly,
    FrameLayout,
    SampleRef,
    Samples,
    SampleShape,
    empty_bases,
    locate_samples,
    write_bases,
)
from framefeed.batch.videos import Videos, bind
from framefeed.convert.desc import Changes, ProcessDesc
from framefeed.dataset.orders import Layout
from framefeed.decode.default import cpu_engine
from framefeed.device import Fallback, resolve_device
from framefeed.index.video_index import VideoIndex
from framefeed.request import decode_frames

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LABELS", "FrameDataset", "checked_processing"]

LABELS = "labels"


class FrameDataset(Dataset[dict[str, Any]], ABC):
    """Samples made of frames of video files.

    Args:
        shape: Frames and cameras of a sample.
        processing: Output descriptions, by name.
        seed: Seed of random crops and flips.
        device: Device of the samples.
        fallback: ``"cpu"`` to decode videos that the GPU does not support on the CPU.

    Attributes:
        device: Device of the samples.
        fallback: ``"cpu"`` to decode videos that the GPU does not support on the CPU.
        processing: Output descriptions, by name.
        shape: Frames and cameras of a sample.
        shown: Positions in a sample that any description uses.
        draws: True if any description is random.
        seed: Seed of random crops and flips.
        filenames: The files.
        videos: Opens the files.
        get_label: Label function, or None.
    """

    filenames: tuple[str, ...]
    videos: Videos
    get_label: Any = None

    def __init__(
        self,
        shape: SampleShape,
        processing: Mapping[str, ProcessDesc] | None,
        seed: int,
        device: str | torch.device,
        fallback: Fallback,
    ) -> None:
        self.device = resolve_device(device)
        self.fallback: Fallback = "cpu" if device == "auto" else fallback
        self.processing = checked_processing(processing, shape.length)
        self.shape = shape
        self.shown = shape.shown(self.processing.values())
        self.draws = any(desc.random_crop or desc.random_flip for desc in self.processing.values())
        self.seed = operator.index(seed)
        if not 0 <= self.seed < 1 << 64:
            raise ValueError(f"seed must be in 0..2**64-1, got {seed}")
        # In shared memory, so that persistent worker processes see a new epoch.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    # --- for subclasses -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def frame_layout(self) -> FrameLayout:
        """Mapping of samples to files and frames."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Positions of samples, for orders."""

    @property
    @abstractmethod
    def counts(self) -> NDArray[np.int64]:
        """Number of samples of each file or clip."""

    @abstractmethod
    def label(self, sample: SampleRef, changes: Mapping[str, Changes]) -> Any:
        """Calls ``get_label``."""

    @abstractmethod
    def _open_videos(self) -> Videos:
        """Returns the opener of the dataset's files."""

    @abstractmethod
    def index_of(self, file: int) -> VideoIndex:
        """Returns the index of a file, by its number, without opening it."""

    @property
    def has_cameras(self) -> bool:
        """True if samples have a dimension for cameras."""
        return False

    @property
    def has_mask(self) -> bool:
        """True if samples may have missing frames."""
        return False

    def extra_columns(self, samples: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """Returns extra per-sample columns (masks) by name, one row for each of the given sample numbers."""
        return {}

    def finish(self, batch: dict[str, Tensor], samples: Samples) -> dict[str, Any]:
        """Adds extra columns to the tensors of a batch; labels are added elsewhere."""
        extra = {
            name: torch.from_numpy(rows).to(self.device) for name, rows in self.extra_columns(samples.numbers).items()
        }
        return {**batch, **extra}

    def label_of(self, sample: SampleRef) -> Any:
        """Returns the label of a sample without decoding it.

        Raises:
            FrameSizeError: A description does not fit the frame size.
        """
        index = self.index_of(next(file for file in sample.files if file != MISSING))
        bound = {name: bind(name, desc, index) for name, desc in self.processing.items()}
        return self.label(sample, {name: each.changes(sample.draw) for name, each in bound.items()})

    # --- samples --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.layout.num_samples

    @property
    def epoch(self) -> int:
        """Epoch that random crops and flips belong to."""
        return int(self._epoch[0])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, and with it the random crops and flips."""
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}")
        self._epoch[0] = epoch

    def __getitem__(self, sample: int) -> dict[str, Any]:
        """Returns a sample; negative numbers count from the end."""
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[dict[str, Any]]:
        """Returns several samples; each frame is decoded once."""
        numbers = np.array([self.checked_number(sample) for sample in samples], np.int64)
        refs = locate_samples(self.frame_layout, numbers, self.seed, self.epoch, draws=self.draws)
        if self.device.type == "cuda":
            return self._read_on_gpu(refs)
        assembly = Assembly(self.videos, refs, self.shape, stacked=False)
        wanted: dict[int, list[int]] = {}
        for file, frame in assembly.targets:
            wanted.setdefault(file, []).append(frame)
        for file, frames in wanted.items():
            self._decode(file, frames, assembly)
        return [self._sample(assembly, row, ref) for row, ref in enumerate(refs)]

    # --- decoding -------------------------------------------------------------------------------------------------

    def checked_number(self, sample: int) -> int:
        """Returns the sample number; negative numbers count from the end."""
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

        decode_frames(cpu_engine(), video.index, video.source, frames, sink, num_threads=_num_threads())

    def _read_on_gpu(self, refs: Samples) -> list[dict[str, Any]]:
        from framefeed.batch.workshop_cuda import CudaWorkshop

        resolve_device(self.device)  # in a forked process it cannot be used any more
        workshop = CudaWorkshop(self.device, 0)
        samples = []
        for row, ref in enumerate(refs):
            assembly = workshop.assemble(self.videos, refs.pick([row]), self.shape)
            workshop.read(assembly)
            workshop.hand_out(assembly)
            sample = _first(self.finish(assembly.batch, assembly.samples))
            if self.get_label is not None:
                sample[LABELS] = self.label(ref, assembly.changes(0))
            samples.append(sample)
        return samples

    def _sample(self, assembly: Assembly, row: int, ref: SampleRef) -> dict[str, Any]:
        batch = {name: tensor[None] for name, tensor in assembly.rows[row].items()}
        sample = _first(self.finish(batch, assembly.samples.pick([row])))
        if self.get_label is not None:
            sample[LABELS] = self.label(ref, assembly.changes(row))
        return sample

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "videos"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.videos = self._open_videos()


def _first(batch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[0] for name, values in batch.items()}


def _num_threads() -> int:
    return 1 if get_worker_info() is not None else available_cpus()


def checked_processing(processing: Mapping[str, ProcessDesc] | None, length: int | None) -> dict[str, ProcessDesc]:
    """Checks descriptions, and with a length that they fit sequences of that length."""
    if processing is None:
        return {"default": ProcessDesc()}
    if isinstance(processing, ProcessDesc):
        return {"default": processing}
    if not processing:
        raise ValueError("processing is empty: pass at least one description")
    for name, desc in processing.items():
        if not isinstance(desc, ProcessDesc):
            raise TypeError(f"processing[{name!r}] must be a ProcessDesc, got {type(desc).__name__}")
        if name == LABELS:
            raise ValueError(f"processing cannot use the name {LABELS!r}: it is reserved for labels")
        if length is not None:
            desc.places(length)
    return dict(processing)
