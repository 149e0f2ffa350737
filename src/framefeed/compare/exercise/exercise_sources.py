"""Batch readers of the exercise: PyAV in torch's ``DataLoader`` as commonly written, and framefeed's loader."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from framefeed.sampling import OneFile, Population, SlidingWindow

__all__ = ["FRAME_BYTES", "SIZE", "Batch", "BatchReader", "FramefeedSource", "Material", "PyavSource"]

SIZE = 224
FRAME_BYTES = 3 * SIZE * SIZE
PREFETCH = 2  # batches that each worker prepares ahead

Batch = tuple[torch.Tensor, "NDArray[np.int64] | None"]
"""Frames, (batch, 3, height, width) in 0..1; and the expected file and frame number of each, where known."""

Named = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Material:
    """Inputs shared by all strategies.

    Attributes:
        files: The files.
        catalog: Their catalog.
        population: Their frames.
        batch_size: Frames in a batch.
        workers: Number of worker processes or threads.
    """

    files: tuple[Path, ...]
    catalog: Any
    population: Population
    batch_size: int
    workers: int


class BatchReader(Protocol):
    """Reads batches."""

    whole: bool
    """True if only a whole epoch gives the rate."""

    def batches(self, *, named: bool = False) -> Iterator[Batch]:
        """Yields batches from a fresh start.

        Args:
            named: Also yields the expected frames, if that costs extra work.
        """
        ...

    def decoded_per_delivered(self) -> float | None:
        """Packets decoded per frame since the last start, if known."""
        ...

    def close(self) -> None:
        """Ends its workers."""
        ...


# --- PyAV and torch's DataLoader ----------------------------------------------------------------------------------


class _File:
    """An open file; every request seeks."""

    def __init__(self, path: Path) -> None:
        self._container = av.open(str(path))
        self._stream = self._container.streams.video[0]
        duration, count = self._stream.duration, self._stream.frames
        assert duration is not None and count
        self._step = duration // count

    def read(self, first: int, count: int) -> list[torch.Tensor]:
        """Reads frames: seeks to the keyframe before the first, then decodes forward."""
        target = first * self._step
        self._container.seek(target, stream=self._stream)
        shown = (frame for frame in self._container.decode(self._stream) if (frame.pts or 0) >= target)
        return [_picture(frame) for frame in itertools.islice(shown, count)]

    def read_all(self) -> Iterator[torch.Tensor]:
        """Yields all frames in order."""
        self._container.seek(0, stream=self._stream)
        return map(_picture, self._container.decode(self._stream))


def _picture(frame: av.VideoFrame) -> torch.Tensor:
    return torch.from_numpy(frame.reformat(width=SIZE, height=SIZE, format="rgb24").to_ndarray())


@dataclass(eq=False)
class _Runs(Dataset[Named]):
    """Runs of frames, by the number of their first frame, counted through all files."""

    files: tuple[Path, ...]
    starts: NDArray[np.int64]
    length: int
    total: int
    opened: dict[int, _File] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, number: int) -> Named:
        file = int(np.searchsorted(self.starts, number, side="right")) - 1
        first = number - int(self.starts[file])
        if file not in self.opened:
            self.opened[file] = _File(self.files[file])
        frames = torch.stack(self.opened[file].read(first, self.length))
        return frames, torch.tensor([(file, first + place) for place in range(self.length)])


@dataclass(eq=False)
class _SequentialFrames(IterableDataset[Named]):
    """All frames in order; each worker reads its own files."""

    files: tuple[Path, ...]

    def __iter__(self) -> Iterator[Named]:
        worker = get_worker_info()
        place, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        while True:
            for file in range(place, len(self.files), count):
                for number, frame in enumerate(_File(self.files[file]).read_all()):
                    yield frame[None], torch.tensor([(file, number)])


class _SampleNumbers(Sampler[int]):
    """Endless frame numbers."""

    def __init__(self, draw: Callable[[int], NDArray[np.int64]]) -> None:
        self._draw = draw
        self._times = 0

    def __iter__(self) -> Iterator[int]:
        while True:
            self._times += 1
            yield from self._draw(self._times).tolist()


class PyavSource:
    """torch's DataLoader over PyAV.

    Args:
        material: The files.
        method: ``"shuffle"``, ``"sequential"``, or a model.
        workers: Number of worker processes; 0 for none.
    """

    whole = False

    def __init__(self, material: Material, method: str | OneFile | SlidingWindow, *, workers: int) -> None:
        population, size = material.population, material.batch_size
        count = population.num_frames
        length = method.window if isinstance(method, SlidingWindow) else 1
        if size % length:
            raise ValueError(f"batch_size must be a multiple of the run length {length}, got {size}")
        ahead: dict[str, Any] = {}
        if workers:  # forked from a process that has loaded torch and has no threads
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
            ahead = {"prefetch_factor": PREFETCH, "persistent_workers": True, "multiprocessing_context": context}
        data: Any = _Runs(material.files, population.file_starts, length, count)
        sampler: _SampleNumbers | None = None
        if method == "sequential":
            data = _SequentialFrames(material.files)
        elif isinstance(method, str):
            sampler = _SampleNumbers(lambda epoch: np.random.default_rng(epoch).permutation(count))
        else:
            model = method
            sampler = _SampleNumbers(lambda seed: model.draw(population, length, 1024, seed)[:, 0])
        self._loader: DataLoader[Any] | None = DataLoader(
            data, batch_size=size // length, sampler=sampler, num_workers=workers, drop_last=True, **ahead
        )
        self._workers = workers

    def batches(self, *, named: bool = False) -> Iterator[Batch]:
        """Yields batches endlessly."""
        assert self._loader is not None
        threads = torch.get_num_threads()
        if self._workers:
            torch.set_num_threads(1)  # the workers keep the CPUs busy
        try:
            for frames, which in self._loader:
                # Here, not in the workers: transfers less data between processes.
                yield frames.flatten(0, 1).permute(0, 3, 1, 2).to(torch.float32).div_(255), which.flatten(0, 1).numpy()
        finally:
            torch.set_num_threads(threads)

    def decoded_per_delivered(self) -> float | None:
        """Unknown."""
        return None

    def close(self) -> None:
        """Ends the workers."""
        self._loader = None


# --- framefeed ----------------------------------------------------------------------------------------------------


class FramefeedSource:
    """framefeed's loader.

    Args:
        material: The files.
        order: Name of the order.
        memory_frames: Number of frames it may cache. With a cache, only a whole epoch gives the rate: the cache fills
            up first, and is used up at the end.
    """

    def __init__(self, material: Material, order: str, memory_frames: int) -> None:
        self.whole = memory_frames > 0
        self._material = material
        self._order = order
        self._memory_frames = memory_frames
        self._starts = 0
        self._decoded: float | None = None
        self._datasets = {named: self._dataset(named) for named in (False, True)}

    def _dataset(self, named: bool) -> Any:
        import framefeed

        files = {str(path): number for number, path in enumerate(self._material.files)}
        desc = framefeed.ProcessDesc(type="float", scale_width=SIZE, scale_height=SIZE, normalized=True)
        return framefeed.VideoDataset(
            list(files),
            sequence_length=1,
            catalog=self._material.catalog,
            processing={"default": desc},
            get_label=(lambda path, frame, changes: (files[path], frame)) if named else None,
        )

    def batches(self, *, named: bool = False) -> Iterator[Batch]:
        """Yields the batches of an epoch."""
        import framefeed

        loader = framefeed.VideoLoader(
            self._datasets[named],
            batch_size=self._material.batch_size,
            order=self._order,
            seed=self._starts,
            memory_budget=self._memory_frames * FRAME_BYTES,
            num_threads=self._material.workers,
        )
        self._starts += 1
        batches = iter(loader)
        try:
            for batch in batches:
                yield batch["default"].flatten(0, 1), np.array(batch["labels"], np.int64) if named else None
        finally:
            self._decoded = loader.stats().decoded_per_delivered
            batches.close()

    def decoded_per_delivered(self) -> float | None:
        """As counted by the loader."""
        return self._decoded

    def close(self) -> None:
        """Does nothing: every start has a loader of its own."""
