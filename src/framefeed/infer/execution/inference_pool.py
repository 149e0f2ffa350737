"""Scheduling of model batches beside decoding: several at the same time on the CPU, back to back on a GPU.

Threads within one model run wait for each other at the end of every layer. Beside decoding threads, one of them is
always late and the others idle. So on the CPU a run has few threads, one if possible, and several batches run at the
same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

from framefeed.infer.detection.detect import Detector, Launched
from framefeed.infer.detection.fit import Fit
from framefeed.infer.detection.suppress import Detections

__all__ = ["BatchRunner", "InferencePool", "InferenceStream", "RunningBatch", "split_threads"]

MAX_LANES = 8  # each has an input buffer of its own


def split_threads(num_threads: int) -> tuple[int, int]:
    """Returns the number of concurrent batches for a number of threads, and the threads of each."""
    lanes = min(num_threads, MAX_LANES)
    return lanes, num_threads // lanes


class RunningBatch(Protocol):
    """A submitted batch."""

    def result(self) -> Detections:
        """Waits for the detections."""

    def cancel(self) -> object:
        """Cancels the batch if it has not started."""


class BatchRunner(Protocol):
    """Runs batches.

    Attributes:
        depth: Number of batches to submit before waiting for the first.
        seconds: Time spent in the model and in postprocessing, summed over all concurrent batches.
    """

    depth: int
    seconds: float

    def submit(self, frames: Tensor, fit: Fit) -> RunningBatch:
        """Submits a batch."""

    def close(self) -> None:
        """Ends its threads."""


class InferencePool:
    """Runs several batches at the same time, each in a thread of its own.

    Args:
        make: Creates a detector for each thread; they share the model.
        lanes: Number of concurrent batches.
        threads: torch threads of each; 0 leaves torch's setting unchanged.
    """

    def __init__(self, make: Callable[[], Detector], lanes: int, threads: int) -> None:
        self.depth = lanes
        self.seconds = 0.0
        self._make = make
        self._threads = threads
        self._before = torch.get_num_threads()
        self._local = threading.local()
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = ThreadPoolExecutor(lanes, "framefeed-model", self._begin)

    def _begin(self) -> None:
        if self._threads:
            torch.set_num_threads(self._threads)  # for this thread and those that start after it
        self._local.detector = self._make()

    def submit(self, frames: Tensor, fit: Fit) -> Future[Detections]:
        """Submits a batch."""
        assert self._pool is not None, "closed"
        return self._pool.submit(self._run, frames, fit)

    def _run(self, frames: Tensor, fit: Fit) -> Detections:
        began = time.perf_counter()
        detector: Detector = self._local.detector
        found = detector.collect(detector.launch(frames, fit))
        with self._lock:
            self.seconds += time.perf_counter() - began
        return found

    def close(self) -> None:
        """Ends its threads."""
        if self._pool is None:
            return
        self._pool.shutdown(cancel_futures=True)
        self._pool = None  # breaks a cycle through the model, which is then freed at once
        if self._threads:
            torch.set_num_threads(self._before)


class InferenceStream:
    """Runs batches back to back: two are launched before the first is collected.

    Args:
        make: Creates the detector.
    """

    def __init__(self, make: Callable[[], Detector]) -> None:
        self.depth = 2
        self.seconds = 0.0
        self._detector = make()

    def submit(self, frames: Tensor, fit: Fit) -> RunningBatch:
        """Launches a batch."""
        began = time.perf_counter()
        launched = self._detector.launch(frames, fit)
        self.seconds += time.perf_counter() - began
        return _LaunchedBatch(self, launched)

    def collect(self, launched: Launched) -> Detections:
        """Waits for the detections."""
        began = time.perf_counter()
        found = self._detector.collect(launched)
        self.seconds += time.perf_counter() - began
        return found

    def close(self) -> None:
        """Does nothing."""


class _LaunchedBatch:
    def __init__(self, stream: InferenceStream, launched: Launched) -> None:
        self._inference = stream
        self._launched = launched

    def result(self) -> Detections:
        return self._inference.collect(self._launched)

    def cancel(self) -> None:
        pass
