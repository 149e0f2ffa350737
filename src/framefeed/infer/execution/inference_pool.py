"""How batches get through the model while the next ones are decoded: several side by side on the CPU, one after the
other without a pause on a GPU.

Threads within one run of a model wait for each other at the end of every layer. Beside threads that decode, one of
them is always late, and the others waste their time. So on the CPU a run has few threads, one where possible, and
several batches are run at a time.
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

MAX_LANES = 8  # each has an input of its own


def split_threads(num_threads: int) -> tuple[int, int]:
    """How many batches are run at a time with so many threads, and how many threads each has."""
    lanes = min(num_threads, MAX_LANES)
    return lanes, num_threads // lanes


class RunningBatch(Protocol):
    """A batch that is being run."""

    def result(self) -> Detections:
        """Waits for what was found."""

    def cancel(self) -> object:
        """Nobody will ask; it need not be begun."""


class BatchRunner(Protocol):
    """Runs batches.

    Attributes:
        depth: Batches that may be waited for before the first of them has to be fetched.
        seconds: How long the model, and what is done with its outputs, took; of all lanes together.
    """

    depth: int
    seconds: float

    def submit(self, frames: Tensor, fit: Fit) -> RunningBatch:
        """Runs a batch."""

    def close(self) -> None:
        """Ends its threads."""


class InferencePool:
    """Batches side by side, each in a thread of its own.

    Args:
        make: Makes a detector; each lane has one. They share the model.
        lanes: How many.
        threads: Torch's threads within a lane; 0 leaves them as they are.
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
            torch.set_num_threads(self._threads)  # of this thread, and of those that begin after it
        self._local.detector = self._make()

    def submit(self, frames: Tensor, fit: Fit) -> Future[Detections]:
        """Runs a batch."""
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
        self._pool = None  # it leads back to this, and to the model: they go at once, and not with a collection
        if self._threads:
            torch.set_num_threads(self._before)


class InferenceStream:
    """Batches one after the other: two are launched before what was found in the first is fetched.

    Args:
        make: Makes the detector.
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
        """Fetches what was found."""
        began = time.perf_counter()
        found = self._detector.collect(launched)
        self.seconds += time.perf_counter() - began
        return found

    def close(self) -> None:
        """Nothing to do."""


class _LaunchedBatch:
    def __init__(self, stream: InferenceStream, launched: Launched) -> None:
        self._inference = stream
        self._launched = launched

    def result(self) -> Detections:
        return self._inference.collect(self._launched)

    def cancel(self) -> None:
        pass
