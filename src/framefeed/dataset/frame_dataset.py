"""What all datasets of video frames have in common: samples by number, decoded where they are asked for."""

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
    """Samples that are made of frames of video files.

    Args:
        shape: What samples consist of.
        processing: What is made of them, by name.
        seed: For random crops and flips.
        device: Where samples are.
        fallback: ``"cpu"`` where videos that a GPU cannot decode are decoded on the CPU.

    Attributes:
        device: Where samples are.
        fallback: ``"cpu"`` where videos that a GPU cannot decode are decoded on the CPU.
        processing: The descriptions by name.
        shape: What samples consist of.
        shown: The slots of a sample that any description shows.
        draws: Whether anything is done at random.
        seed: For random crops and flips.
        filenames: The files.
        videos: Opens them.
        get_label: Makes labels, or None.
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
            raise ValueError(f"seed is in 0..2**64-1, got {seed}")
        # In shared memory, so that worker processes that live on are told of a new epoch too.
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    # --- what each kind of dataset says ---------------------------------------------------------------------------

    @property
    @abstractmethod
    def frame_layout(self) -> FrameLayout:
        """Which frames of which files samples are made of."""

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Where samples lie, for orders."""

    @property
    @abstractmethod
    def counts(self) -> NDArray[np.int64]:
        """Samples of each part of it."""

    @abstractmethod
    def label(self, sample: SampleRef, changes: Mapping[str, Changes]) -> Any:
        """What ``get_label`` says of a sample."""

    @abstractmethod
    def _open_videos(self) -> Videos:
        """What opens its files."""

    @abstractmethod
    def index_of(self, file: int) -> VideoIndex:
        """The index of a file, by its number. Nothing is opened, and no device is asked."""

    @property
    def has_cameras(self) -> bool:
        """Whether samples have a dimension for cameras."""
        return False

    @property
    def has_mask(self) -> bool:
        """Whether slots of samples may be empty."""
        return False

    def extra_columns(self, samples: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """What is told of samples beside their frames, by name, a row for each; they are given by number."""
        return {}

    def finish(self, batch: dict[str, Tensor], samples: Samples) -> dict[str, Any]:
        """What is handed out for a batch of these samples, labels apart."""
        extra = {
            name: torch.from_numpy(rows).to(self.device) for name, rows in self.extra_columns(samples.numbers).items()
        }
        return {**batch, **extra}

    def label_of(self, sample: SampleRef) -> Any:
        """The label of a sample that nobody has decoded.

        Raises:
            FrameSizeError: A description does not fit to the frames.
        """
        index = self.index_of(next(file for file in sample.files if file != MISSING))
        bound = {name: bind(name, desc, index) for name, desc in self.processing.items()}
        return self.label(sample, {name: each.changes(sample.draw) for name, each in bound.items()})

    # --- samples --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.layout.num_samples

    @property
    def epoch(self) -> int:
        """The epoch that random crops and flips belong to."""
        return int(self._epoch[0])

    def set_epoch(self, epoch: int) -> None:
        """Begins an epoch: random crops and flips are drawn anew."""
        if epoch < 0:
            raise ValueError(f"epochs are counted from 0, got {epoch}")
        self._epoch[0] = epoch

    def __getitem__(self, sample: int) -> dict[str, Any]:
        """A sample; negative numbers count from the end."""
        return self.__getitems__([sample])[0]

    def __getitems__(self, samples: Sequence[int]) -> list[dict[str, Any]]:
        """Several samples; each frame that they need is decoded once."""
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

    # --- how ------------------------------------------------------------------------------------------------------

    def checked_number(self, sample: int) -> int:
        """The number of a sample; negative ones count from the end."""
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
    """Descriptions by name; with a length, whether they fit to sequences of it."""
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
        if length is not None:
            desc.places(length)
    return dict(processing)
