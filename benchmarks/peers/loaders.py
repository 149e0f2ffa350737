"""Loaders that the training benchmark compares: framefeed's own, and torch's DataLoader over other readers.

The other readers get what they gain from: decoders stay open in their workers (unless opening them again is quicker), a
batch's frames are read file by file and in order, frames travel as bytes, and a worker that reads in order has files of
its own.
"""

from __future__ import annotations

import importlib.util
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from benchmarks.clips import count_wrong
from benchmarks.harness import Contender, Run

__all__ = [
    "CHECKED_BATCHES",
    "FRAME_BYTES",
    "PREFETCH",
    "READERS",
    "SIZE",
    "WORKERS",
    "Batch",
    "KeepGoing",
    "Reader",
    "Source",
    "Task",
    "installed",
]

SIZE = (224, 224)
FRAME_BYTES = SIZE[0] * SIZE[1] * 3
WORKERS = 2
CHECKED_BATCHES = 2 * WORKERS
PREFETCH = 2  # batches that each worker of a DataLoader prepares ahead
POOLS = 10  # framefeed reads at least as many frames as its memory holds this many times: filling it weighs little

KeepGoing = Callable[[], bool]
Batch = tuple[torch.Tensor, "NDArray[np.int64] | None"]
"""Frames, (batch, sequence, 3, height, width) in 0..1; and for each the file and number it should be, where known."""

Read = Callable[[list[int]], torch.Tensor]
"""From frame numbers, ascending, to (n, height, width, 3) bytes."""

Named = tuple[list[torch.Tensor], "NDArray[np.int64]"]
"""Frames of a batch, and for each its file and number."""


@dataclass(frozen=True)
class Task:
    """Request for batches.

    Attributes:
        order: ``shuffle``, ``sequential`` or ``buffered``.
        files: The data set.
        frames: Of each file.
        length: Frames of a sample.
        stride: From a sample's frame to its next.
        batch_size: Samples.
        pool: Share of the data set's frames that framefeed may keep in memory.
        buffer: Frames among which ``buffered`` chooses.
        catalog: Of the files.
        whole: Whether framefeed delivers whole epochs, however long these are.
    """

    order: str
    files: tuple[Path, ...]
    frames: int
    length: int = 1
    stride: int = 1
    batch_size: int = 128
    pool: float = 0.1
    buffer: int = 1024
    catalog: Any = None
    whole: bool = False

    @property
    def starts(self) -> int:
        """Samples of a file: one starts at every frame that leaves room for it."""
        return self.frames - (self.length - 1) * self.stride

    @property
    def samples(self) -> int:
        """Of the data set."""
        return self.starts * len(self.files)

    def which(self, firsts: NDArray[np.int64]) -> NDArray[np.int64]:
        """File and number of all frames of samples, (n, length, 2), from those of their first frames, (n, 2)."""
        steps = np.stack([np.zeros(self.length, np.int64), self.stride * np.arange(self.length)], -1)
        return np.asarray(firsts[:, None] + steps)

    @property
    def pool_frames(self) -> int:
        """Frames that framefeed may keep in memory."""
        return round(self.pool * self.frames * len(self.files))

    def described(self) -> dict[str, Any]:
        """Returns what results say of it."""
        buffer = {"buffer": self.buffer} if self.order == "buffered" else {}
        return {
            "order": self.order,
            "batch_size": self.batch_size,
            "sequence_length": self.length,
            "frame_stride": self.stride,
            "share_in_memory": self.pool,
            **buffer,
        }


class Source(Contender):
    """A loader that has been made for a task."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def batches(self, keep_going: KeepGoing, *, named: bool = False) -> Iterator[Batch]:
        """Yields batches from a fresh start, until it should not keep going; then those that have been begun.

        Args:
            keep_going: Called now and then.
            named: Say which frames these should be, if that is any work.
        """
        raise NotImplementedError

    def decoded_per_delivered(self) -> float | None:
        """Returns packets decoded for each frame of the last start, where the loader knows it."""
        return None

    def check(self) -> int:
        """Counts wrong frames of the first batches; this also warms workers and caches."""
        asked = itertools.count(1)
        batches = self.batches(lambda: next(asked) <= CHECKED_BATCHES, named=True)
        wrong = 0
        for frames, which in itertools.islice(batches, CHECKED_BATCHES):
            assert which is not None
            wrong += count_wrong(frames.flatten(0, 1), which.reshape(-1, 2))
        return wrong

    def run(self, seconds: float) -> Run:
        """Times all batches from a start to its end, so that all work is counted."""
        count = 0
        start = time.perf_counter()
        for frames, _ in self.batches(lambda: time.perf_counter() - start < seconds):
            count += frames.shape[0] * frames.shape[1]
        took = time.perf_counter() - start
        return Run(count, took, count / took, self.decoded_per_delivered())


@dataclass(frozen=True)
class Reader:
    """A loader.

    Attributes:
        name: What tables call it.
        package: What has to be installed.
        make: Makes it for a task.
    """

    name: str
    package: str
    make: Callable[[Task], Source]


def installed(reader: Reader) -> bool:
    """Returns True where the reader can be used."""
    return importlib.util.find_spec(reader.package) is not None


# --- framefeed ----------------------------------------------------------------------------------------------------


class FramefeedSource(Source):
    """framefeed's loader: a whole epoch, or as much of it as tells its rate."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._datasets = {named: self._make_dataset(named) for named in (False, True)}
        self._starts = 0
        self._decoded_per_delivered: float | None = None

    def _make_dataset(self, named: bool) -> Any:
        import framefeed

        task = self.task
        files = {str(path): number for number, path in enumerate(task.files)}
        desc = framefeed.ProcessDesc(type="float", scale_width=SIZE[1], scale_height=SIZE[0], normalized=True)
        return framefeed.VideoDataset(
            list(files),
            sequence_length=task.length,
            frame_stride=task.stride,
            catalog=task.catalog,
            processing={"default": desc},
            get_label=(lambda path, frame, changes: (files[path], frame)) if named else None,
        )

    def batches(self, keep_going: KeepGoing, *, named: bool = False) -> Iterator[Batch]:
        """One epoch from its start, with a loader of its own."""
        import framefeed

        task = self.task
        loader = framefeed.VideoLoader(
            self._datasets[named],
            batch_size=task.batch_size,
            order=f"buffered:{task.buffer}" if task.order == "buffered" else task.order,
            seed=self._starts,
            memory_budget=task.pool_frames * FRAME_BYTES,
            num_threads=WORKERS,
            drop_last=True,
        )
        self._starts += 1
        least = POOLS * task.pool_frames
        delivered = 0
        batches = iter(loader)
        try:
            for batch in batches:
                frames = batch["default"]
                delivered += frames.shape[0] * frames.shape[1]
                yield frames, task.which(np.array(batch["labels"], np.int64)) if named else None
                if delivered >= least and not task.whole and not keep_going():
                    break
        finally:
            self._decoded_per_delivered = loader.stats().decoded_per_delivered
            batches.close()

    def decoded_per_delivered(self) -> float | None:
        """Returns the loader's own figure."""
        return self._decoded_per_delivered


# --- torch's DataLoader over a reader of files --------------------------------------------------------------------


class FileDataset(Dataset[Named]):
    """Samples of many files; reads a whole batch at once, file by file.

    Args:
        task: What to read.
        open_file: Opens a file.
        stay_open: Whether each worker opens each file once, and not for each batch.
    """

    def __init__(self, task: Task, open_file: Callable[[Path], Read], stay_open: bool) -> None:
        self._task = task
        self._open_file = open_file
        self._stay_open = stay_open
        self._open: dict[int, Read] = {}
        self._kept: list[tuple[torch.Tensor, tuple[int, int]]] = []
        self._rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return self._task.samples

    def __getitem__(self, sample: int) -> Named:
        return self.__getitems__([sample])

    def __getitems__(self, samples: list[int]) -> Named:
        task = self._task
        which = task.which(np.stack(np.divmod(np.asarray(samples, np.int64), task.starts), -1)).reshape(-1, 2)
        frames: dict[int, torch.Tensor] = {}
        for file in np.unique(which[:, 0]).tolist():
            read = self._open.get(file) or self._open_file(task.files[file])
            if self._stay_open:
                self._open[file] = read
            places = np.flatnonzero(which[:, 0] == file)
            places = places[np.argsort(which[places, 1], kind="stable")]
            frames.update(zip(places.tolist(), read(which[places, 1].tolist()), strict=True))
        named = [(frames[place], (file, number)) for place, (file, number) in enumerate(which.tolist())]
        if task.order == "buffered":
            named = self._exchange(named)
        return [frame for frame, _ in named], np.array([names for _, names in named], np.int64)

    def _exchange(self, named: list[Any]) -> list[Any]:
        """A shuffle buffer: what exceeds a batch fills it; a new frame takes the place of one that is drawn."""
        size = self._task.batch_size
        if len(named) > size:
            named, self._kept = named[:size], named[size:]
        for place, one in enumerate(named):
            drawn = int(self._rng.integers(len(self._kept)))
            named[place], self._kept[drawn] = self._kept[drawn], one
        return named


class TaskBatches(Sampler[list[int]]):
    """The samples of one batch after another, epoch after epoch, until told to stop."""

    def __init__(self, task: Task) -> None:
        self.keep_going: KeepGoing = lambda: True
        self._task = task
        self._shares = max(1, min(WORKERS, len(task.files)))
        self._filled = task.order != "buffered"
        self._epoch = 0

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._shuffled() if self._task.order == "shuffle" else self._in_order()
        while self.keep_going():
            yield next(batches)

    def _shuffled(self) -> Iterator[list[int]]:
        size = min(self._task.batch_size, self._task.samples)
        while True:
            order = np.random.default_rng(self._epoch).permutation(self._task.samples)
            self._epoch += 1
            for start in range(0, len(order) - size + 1, size):
                yield order[start : start + size].tolist()

    def _in_order(self) -> Iterator[list[int]]:
        """Batches of each worker's own files in turn, as torch's DataLoader hands them out."""
        task = self._task
        shares = np.array_split(np.arange(task.samples), self._shares)
        places = [0] * self._shares
        # The first batches of all fill the workers' shuffle buffers.
        size = task.batch_size if self._filled else task.batch_size + task.buffer // self._shares
        self._filled = True
        while True:
            for worker, share in enumerate(shares):
                yield np.take(share, np.arange(places[worker], places[worker] + size), mode="wrap").tolist()
                places[worker] += size
            size = task.batch_size


def _collate(named: Any) -> Batch:
    """Puts frames into memory that processes share, as torch does by itself."""
    return default_collate(named[0]), named[1]


class DataLoaderSource(Source):
    """torch's DataLoader whose workers stay, with their open files, from one start to the next."""

    def __init__(self, task: Task, open_file: Callable[[Path], Read], *, stay_open: bool, workers: int) -> None:
        super().__init__(task)
        self._sampler = TaskBatches(task)
        ahead: dict[str, Any] = {}
        if workers:
            # Workers are forked from a process that has torch already and no threads.
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
            ahead = {"prefetch_factor": PREFETCH, "persistent_workers": True, "multiprocessing_context": context}
        self._loader: DataLoader[Any] | None = DataLoader(
            FileDataset(task, open_file, stay_open),
            batch_sampler=self._sampler,
            num_workers=workers,
            collate_fn=_collate,
            **ahead,
        )

    def batches(self, keep_going: KeepGoing, *, named: bool = False) -> Iterator[Batch]:
        """Batches that were begun while it should keep going."""
        assert self._loader is not None
        self._sampler.keep_going = keep_going
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the workers keep the CPUs busy
        try:
            for frames, which in self._loader:
                # Here and not in the workers: less has to pass from process to process.
                floats = frames.permute(0, 3, 1, 2).to(torch.float32).div_(255)
                yield floats.unflatten(0, (-1, self.task.length)), which
        finally:
            torch.set_num_threads(threads)

    def close(self) -> None:
        """Ends the workers."""
        self._loader = None


def _open_torchcodec(path: Path) -> Read:
    from torchcodec.decoders import VideoDecoder

    decoder = VideoDecoder(str(path), num_ffmpeg_threads=1, seek_mode="exact")

    def read(numbers: list[int]) -> torch.Tensor:
        # Quicker than TorchCodec's own Resize, which goes through a filter graph for every frame.
        frames = decoder.get_frames_at(numbers).data
        resized = torch.nn.functional.interpolate(frames, size=SIZE, mode="bilinear", antialias=True)
        return resized.permute(0, 2, 3, 1)

    return read


def _open_decord(path: Path) -> Read:
    import decord

    reader = decord.VideoReader(str(path), width=SIZE[1], height=SIZE[0], num_threads=1)

    def read(numbers: list[int]) -> torch.Tensor:
        return torch.from_numpy(reader.get_batch(numbers).asnumpy())

    return read


def _make_torchcodec(task: Task) -> Source:
    return DataLoaderSource(task, _open_torchcodec, stay_open=True, workers=WORKERS)


def _make_decord(task: Task) -> Source:
    # After a jump, an open reader decodes frames that were not asked for: opening again is two to four times as fast.
    return DataLoaderSource(task, _open_decord, stay_open=task.order != "shuffle", workers=WORKERS)


READERS: list[Reader] = [
    Reader("framefeed", "framefeed", FramefeedSource),
    Reader("TorchCodec", "torchcodec", _make_torchcodec),
    Reader("decord2", "decord", _make_decord),
]
