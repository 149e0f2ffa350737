"""PyNvVideoCodec's own readers, in a process of their own: one that crashes or hangs ends neither ours nor the run.

Each gets what it gains from: decoders stay open and are reconfigured from file to file, only as many frames are asked
for as there are, and its frames are not put together into a batch. They are full-size planar RGB in device memory, as
framefeed's.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from benchmarks.clips import expected_numbers, read_numbers
from benchmarks.gpu.device import Device, Gpu, Threaded

__all__ = ["BATCH", "InProcess", "PeerFailed", "PeerProcess", "PeerTask", "RandomNumbers", "library", "message"]

BATCH = 64
BUFFER = 2 * BATCH  # frames that a ThreadedDecoder decodes ahead
CHECKED_FILES = 2  # by each thread, in order
ANSWER_SECONDS = 60.0  # what a call may take beyond the time that it was given


class PeerFailed(Exception):
    """A peer has raised, died or not answered."""


def library() -> Any:
    """PyNvVideoCodec."""
    return importlib.import_module("PyNvVideoCodec")


@dataclass(frozen=True)
class PeerTask:
    """Work of a peer.

    Attributes:
        reader: Which class of PyNvVideoCodec.
        way: All frames of all files, or batches of random frames.
        threads: How many, each with a decoder of its own.
        files: The files; a thread begins with the one that has its number.
        frames: Of each file.
    """

    reader: Literal["SimpleDecoder", "ThreadedDecoder"]
    way: Literal["in order", "random"]
    threads: int
    files: tuple[str, ...]
    frames: int


class RandomNumbers:
    """Different random numbers of frames, batch after batch: the same ones for everybody."""

    def __init__(self, thread: int, frames: int) -> None:
        self._rng = np.random.default_rng(thread)
        self._frames = frames

    def next(self) -> list[int]:
        """A batch's."""
        chosen: list[int] = self._rng.permutation(self._frames)[:BATCH].tolist()
        return chosen


# --- in the peers' process ----------------------------------------------------------------------------------------


class _Reader(Protocol):
    """One thread's decoder. ``files`` are numbers in the task's list."""

    def in_order(self, file: int) -> Iterator[list[Any]]:
        """All frames of a file."""

    def random(self, file: int, numbers: list[int]) -> list[Any]:
        """Some of them."""

    def close(self) -> None:
        """Ends it."""


class _Simple:
    """A SimpleDecoder."""

    def __init__(self, task: PeerTask, file: int) -> None:
        nvc = library()
        self._files = task.files
        self._decoder = nvc.SimpleDecoder(
            task.files[file], gpu_id=0, use_device_memory=True, output_color_type=nvc.OutputColorType.RGBP
        )
        self._file = file
        self._begun = False

    def in_order(self, file: int) -> Iterator[list[Any]]:
        if self._begun or file != self._file:
            self._decoder.reconfigure_decoder(self._files[file])
        self._begun, self._file = True, file
        return _batches(self._decoder)

    def random(self, file: int, numbers: list[int]) -> list[Any]:
        if file != self._file:
            self._decoder.reconfigure_decoder(self._files[file])
            self._file = file
        frames: list[Any] = self._decoder.get_batch_frames_by_index(numbers)
        return frames

    def close(self) -> None:
        self._decoder = None


class _Threaded:
    """A ThreadedDecoder: goes through a file once, then has to be given the next."""

    def __init__(self, task: PeerTask, file: int) -> None:
        self._files = task.files
        self._decoder: Any = None

    def in_order(self, file: int) -> Iterator[list[Any]]:
        if self._decoder is None:
            nvc = library()
            self._decoder = nvc.ThreadedDecoder(
                self._files[file],
                BUFFER,
                gpu_id=0,
                use_device_memory=True,
                output_color_type=nvc.OutputColorType.RGBP,
            )
        else:
            self._decoder.reconfigure_decoder(self._files[file])
        return _batches(self._decoder)

    def random(self, file: int, numbers: list[int]) -> list[Any]:
        raise NotImplementedError("a ThreadedDecoder gives frames in order only")

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.end()
        self._decoder = None


def _batches(decoder: Any) -> Iterator[list[Any]]:
    left = len(decoder)
    while left > 0:
        frames = decoder.get_batch_frames(min(BATCH, left))
        if not frames:
            return
        yield frames
        left -= len(frames)


class _Opened(Threaded):
    """A task with its decoders."""

    def __init__(self, task: PeerTask, device: Device) -> None:
        super().__init__(device, task.threads)
        self._task = task
        make: type[_Simple] | type[_Threaded] = _Simple if task.reader == "SimpleDecoder" else _Threaded
        self._readers: list[_Reader] = [make(task, thread % len(task.files)) for thread in range(task.threads)]
        # A thread alone goes through all files, one of several through its own.
        own = [[thread % len(task.files)] for thread in range(task.threads)]
        self._own = own if task.threads > 1 or task.way == "random" else [list(range(len(task.files)))]
        self._next = [itertools.cycle(files) for files in self._own]
        self._numbers = [RandomNumbers(thread, task.frames) for thread in range(task.threads)]

    def work(self, thread: int) -> int:
        """A file in order, or a batch at random."""
        reader, file = self._readers[thread], next(self._next[thread])
        if self._task.way == "random":
            return len(reader.random(file, self._numbers[thread].next()))
        count = 0
        for frames in reader.in_order(file):
            count += len(frames)
        if count != self._task.frames:
            raise PeerFailed(f"{count} frames of {self._task.frames}")
        return count

    def check_one(self, thread: int) -> int:
        """Counts wrong frames of a file, or of two batches."""
        reader, wrong = self._readers[thread], 0
        if self._task.way == "random":
            file = self._own[thread][0]
            for _ in range(2):
                numbers = self._numbers[thread].next()
                wrong += self._count_wrong(reader.random(file, numbers), expected_numbers(file, numbers))
            return wrong
        for file in self._own[thread][:CHECKED_FILES]:
            expected = expected_numbers(file, range(self._task.frames))
            at = 0
            for frames in reader.in_order(file):
                wrong += self._count_wrong(frames, expected[at : at + len(frames)])
                at += len(frames)
            wrong += self._task.frames - at
        return wrong

    def _count_wrong(self, frames: list[Any], expected: NDArray[np.int64]) -> int:
        self._device.synchronize()  # the decoder writes on a stream of its own
        wrong = abs(len(frames) - len(expected))
        for frame, pair in zip(frames, expected, strict=False):
            found = read_numbers(_planes(from_dlpack(frame))[None])
            wrong += int((found[0] != pair).any())
        return wrong

    def close(self) -> None:
        """Ends its decoders."""
        for reader in self._readers:
            reader.close()


def _planes(frame: torch.Tensor) -> torch.Tensor:
    """A frame as (3, height, width), however it lies."""
    if frame.ndim == 2:
        return frame.reshape(3, -1, frame.shape[1])
    return frame if frame.shape[0] == 3 else frame.permute(2, 0, 1)


def peer_calls(device: Device) -> Callable[..., Any]:
    """A function that does what it is told: ``call("check" | "run" | "close", task, ...)``."""
    opened: dict[PeerTask, _Opened] = {}

    def call(what: str, task: PeerTask, *arguments: Any) -> Any:
        if what == "close":
            found = opened.pop(task, None)
            return None if found is None else found.close()
        if task not in opened:
            opened[task] = _Opened(task, device)
        return getattr(opened[task], what)(*arguments)

    return call


def _serve(pipe: Any, make_calls: Callable[[], Callable[..., Any]]) -> None:
    """Answers calls until there are no more."""
    call: Callable[..., Any] | None = None
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            return
        try:
            call = call or make_calls()
            answer = (True, call(*arguments))
        except BaseException as error:
            answer = (False, message(error))
        pipe.send(answer)


def message(error: BaseException) -> str:
    """Returns an error in a line."""
    if isinstance(error, PeerFailed):
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def gpu_calls() -> Callable[..., Any]:
    """On the GPU."""
    return peer_calls(Gpu())


# --- in the benchmark's process -----------------------------------------------------------------------------------


class PeerProcess:
    """A process that answers calls. It is started when it is needed, and again after it has failed.

    Args:
        make_calls: Makes, in that process, the function that does what it is told.
        answer_seconds: What a call may take beyond the time that it was given.
    """

    def __init__(
        self, make_calls: Callable[[], Callable[..., Any]] = gpu_calls, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._make_calls = make_calls
        self._answer_seconds = answer_seconds
        self._process: Any = None
        self._pipe: Any = None

    def call(self, what: str, task: Any, *arguments: Any, seconds: float = 0.0) -> Any:
        """Has something done.

        Raises:
            PeerFailed: It was not.
        """
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self._make_calls), daemon=True)
            self._process.start()
            theirs.close()
        try:
            self._pipe.send((what, task, *arguments))
            if not self._pipe.poll(seconds + self._answer_seconds):
                self.close()
                raise PeerFailed(f"no answer within {seconds + self._answer_seconds:.0f} s")
            good, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self._process.join(5)
            code = self._process.exitcode
            self.close()
            raise PeerFailed(f"its process died with code {code}") from error
        if not good:
            raise PeerFailed(answer)
        return answer

    def close(self) -> None:
        """Ends the process, whatever it does."""
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None


class InProcess:
    """The same without a process."""

    def __init__(self, device: Device) -> None:
        self._call = peer_calls(device)

    def call(self, what: str, task: Any, *arguments: Any, seconds: float = 0.0) -> Any:
        """Has something done.

        Raises:
            PeerFailed: It was not.
        """
        try:
            return self._call(what, task, *arguments)
        except Exception as error:
            raise PeerFailed(message(error)) from error

    def close(self) -> None:
        """Has nothing to end."""
