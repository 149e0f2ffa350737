"""Contenders of the GPU benchmark: framefeed's loader and decoder, and PyNvVideoCodec's readers."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks.clips import count_wrong, expected_numbers
from benchmarks.gpu.device import Device, Threaded
from benchmarks.gpu.peers import BATCH, InProcess, PeerProcess, PeerTask, RandomNumbers
from benchmarks.harness import Contender, Run
from framefeed import LoaderStats, ProcessDesc, VideoDataset, VideoDecoder, VideoLoader

__all__ = ["FULL", "HALF", "Loader", "PeerContender", "RandomBatches", "Singles"]

FULL = ProcessDesc(type="byte")
HALF = ProcessDesc(type="half", scale_width=224, scale_height=224, normalized=True)

LEAD_SECONDS = 0.7  # of an epoch that are not timed
WAVES = 8  # all decoders begin together, and give their groups together: as often at least in a timing
CHECKED_BATCHES = 8
CHECKED_SINGLES = 4  # of each thread
CHECKED_RANDOM = 2  # batches of each thread


# --- framefeed ----------------------------------------------------------------------------------------------------


MANY_EPOCHS = 1 << 30


class Loader(Contender):
    """A VideoLoader.

    Args:
        device: Where.
        files: The files.
        desc: What is made of frames.
        order: Of the epoch.
        memory_budget: Bytes of frames that are kept; None for the loader's own choice.
        copies: How often the data set has each file; with several, an epoch is left when it is time, and the time is
            taken from when it is well under way.
        whole: Whether epochs are gone through to their ends even then.
        wave: Frames of a group of each decoder, which may all come at once. What is timed is many times as much.
        known: Whether the loader knows that more epochs will follow. The time is taken after the first one, over whole
            epochs.
    """

    def __init__(
        self,
        device: Device,
        files: Sequence[Path],
        desc: ProcessDesc,
        *,
        order: str = "sequential",
        memory_budget: int | None = None,
        copies: int = 1,
        whole: bool = False,
        wave: int = 1,
        known: bool = False,
        batch_size: int = BATCH,
    ) -> None:
        self._device = device
        self._files = {str(path): number for number, path in enumerate(files)}
        self._desc = desc
        self._order = order
        self._memory_budget = memory_budget
        self._whole = whole or copies == 1
        self._wave = wave
        self._known = known
        self._batch_size = batch_size
        self.loader: Any = self._make(copies, None)

    def _make(self, copies: int, get_label: Callable[..., Any] | None) -> Any:
        names = [*self._files] * copies
        processing = {"default": self._desc}
        dataset = VideoDataset(names, processing=processing, device=self._device.name, get_label=get_label)
        return VideoLoader(
            dataset,
            self._batch_size,
            order=self._order,
            buffer_length=8,
            memory_budget=self._memory_budget,
            drop_last=False,
            num_epochs=MANY_EPOCHS if self._known else 1,
        )

    def check(self) -> int:
        """All frames in order, or the first batches, by a loader that names its frames."""
        loader = self._make(1, lambda path, frame, changes: (self._files[path], frame))
        batches = iter(loader)
        chosen = batches if self._order == "sequential" else itertools.islice(batches, CHECKED_BATCHES)
        wrong = place = 0
        for batch in chosen:
            expected = np.array(batch["labels"], np.int64)
            if self._order == "sequential":  # labels could be wrong too
                places = np.arange(place, place + len(expected))
                length = len(loader.dataset) // len(self._files)
                wrong += int((np.stack(np.divmod(places, length), 1) != expected).any(1).sum())
                place += len(expected)
            wrong += count_wrong(batch["default"].flatten(0, 1), expected)
        batches.close()
        if self._order == "sequential":
            wrong += len(loader.dataset) - place
        return wrong

    def run(self, seconds: float) -> Run:
        """Whole epochs, or a part of one."""
        if self._known:
            return self._later_epochs(seconds)
        return self._whole_epochs(seconds) if self._whole else self._part(seconds)

    def _whole_epochs(self, seconds: float) -> Run:
        self._device.synchronize()
        before = self.loader.stats()
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            count += sum(len(batch["default"]) for batch in self.loader)
            self._device.synchronize()
        return self._timing(count, time.perf_counter() - start, before)

    def _part(self, seconds: float) -> Run:
        """Times the middle of an epoch: as much is under way before as after."""
        begin = time.perf_counter()
        batches = self._endless()
        lead = len(next(batches)["default"])
        first = time.perf_counter() - begin
        while lead < self._wave or time.perf_counter() - begin < first + min(LEAD_SECONDS, seconds):
            lead += len(next(batches)["default"])
        timing = self._time(batches, seconds, lambda count: count >= WAVES * self._wave)
        return dataclasses.replace(timing, first_seconds=first)

    def _later_epochs(self, seconds: float) -> Run:
        """Times the epochs behind the first."""
        batches = self._endless()
        length = len(self.loader.dataset)
        lead = 0
        while lead < length:
            lead += len(next(batches)["default"])
        return self._time(batches, seconds, lambda count: count % length == 0)

    def _time(self, batches: Generator[Any, None, None], seconds: float, may_end: Callable[[int], bool]) -> Run:
        """Times batches for so long, to a number of frames that may be the end."""
        self._device.synchronize()
        before = self.loader.stats()
        start, count = time.perf_counter(), 0
        for batch in batches:
            count += len(batch["default"])
            if may_end(count) and time.perf_counter() - start >= seconds:
                break
        self._device.synchronize()
        timing = self._timing(count, time.perf_counter() - start, before)
        batches.close()
        return timing

    def _endless(self) -> Generator[Any, None, None]:
        while True:
            yield from self.loader  # an epoch that is too short is followed by another

    def _timing(self, count: int, seconds: float, before: LoaderStats) -> Run:
        after = self.loader.stats()
        decoded = (after.packets_decoded - before.packets_decoded) / (after.frames_delivered - before.frames_delivered)
        return Run(count, seconds, count / seconds, decoded)

    def close(self) -> None:
        """Drops the loader and its memory."""
        self.loader = None


class _Readers(Threaded):
    """Threads that each read from decoders."""

    checked = CHECKED_SINGLES
    _decoders: list[VideoDecoder]

    def read(self, thread: int) -> tuple[int, list[int], torch.Tensor]:
        """Reads one request of a thread: the file, the numbers of frames, the frames."""
        raise NotImplementedError

    def work(self, thread: int) -> int:
        """Returns the number of frames of one request."""
        return len(self.read(thread)[1])

    def check_one(self, thread: int) -> int:
        """Counts wrong frames of a few requests."""
        wrong = 0
        for _ in range(self.checked):
            file, numbers, frames = self.read(thread)
            wrong += count_wrong(frames, expected_numbers(file, numbers))
        return wrong

    def close(self) -> None:
        """Drops the decoders."""
        self._decoders = []


class Singles(_Readers):
    """Single frames at random, many requests at a time, by decoders that all threads share."""

    def __init__(self, device: Device, files: Sequence[Path], num_threads: int) -> None:
        super().__init__(device, num_threads)
        self._decoders = [VideoDecoder(path, device=device.name) for path in files]
        self._rngs = [np.random.default_rng((99, thread)) for thread in range(num_threads)]

    def read(self, thread: int) -> tuple[int, list[int], torch.Tensor]:
        """Reads a frame."""
        rng = self._rngs[thread]
        file = int(rng.integers(len(self._decoders)))
        number = int(rng.integers(len(self._decoders[file])))
        return file, [number], self._decoders[file].get_frame_at(number).data[None]


class RandomBatches(_Readers):
    """Batches of random frames of a file, by threads that have one each."""

    checked = CHECKED_RANDOM

    def __init__(self, device: Device, files: Sequence[Path], num_threads: int) -> None:
        super().__init__(device, num_threads)
        self._files = [thread % len(files) for thread in range(num_threads)]
        self._decoders = [VideoDecoder(files[file], device=device.name) for file in self._files]
        self._numbers = [RandomNumbers(thread, len(decoder)) for thread, decoder in enumerate(self._decoders)]

    def read(self, thread: int) -> tuple[int, list[int], torch.Tensor]:
        """Reads a batch."""
        numbers = self._numbers[thread].next()
        return self._files[thread], numbers, self._decoders[thread].get_frames_at(numbers).data


# --- others -------------------------------------------------------------------------------------------------------


class PeerContender(Contender):
    """A reader of PyNvVideoCodec, wherever it runs."""

    def __init__(self, process: PeerProcess | InProcess, task: PeerTask) -> None:
        self._process = process
        self._task = task

    def check(self) -> int:
        """Returns the peer's own count of wrong frames."""
        return cast(int, self._process.call("check", self._task))

    def run(self, seconds: float) -> Run:
        """A timing."""
        return cast(Run, self._process.call("run", self._task, seconds, seconds=seconds))

    def close(self) -> None:
        """Ends its decoders."""
        self._process.call("close", self._task)
