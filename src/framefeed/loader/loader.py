"""``VideoLoader``: batches of a dataset, decoded ahead by threads that know the epoch's order."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal

from framefeed._util.limits import budget_bytes, parse_bytes
from framefeed.batch.workshop import CpuWorkshop, Workshop
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.dataset.orders import Order, resolve
from framefeed.errors import StateError
from framefeed.loader.epochs import Epochs, OrderedEpochs, SampledEpochs
from framefeed.loader.feed import Feed
from framefeed.loader.loader_iterator import BetweenEpochs, EpochProgress, LoaderIterator, SkippedSample
from framefeed.loader.packet_workers import PacketWorkerEpoch, PacketWorkers
from framefeed.loader.state import VERSION, check_state, read_state, write_state
from framefeed.loader.stats import LoaderStats
from framefeed.plan.lookahead import Budget

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["SkippedSample", "VideoLoader"]

# A quarter of the memory available to the process.
DEFAULT_MEMORY_SHARE = 4

# Seconds a new epoch waits for the workers of an abandoned one.
MAX_WAIT_FOR_WORKERS = 10.0


class VideoLoader:
    """Loads batches of a ``VideoDataset`` or another framefeed dataset.

    The loader plans ahead in the order of the epoch. When it decodes a group, it takes out every frame that is needed
    soon and caches it, resized, until its batch comes. The batches are bit for bit the same as without look-ahead.

    Threads of this process do the work: decoders release the GIL, frames are not copied between processes, and the
    memory of released batches is reused.

    A batch is a dict. Each name of the dataset's ``processing`` maps to a tensor of the shape (batch, dimensions in
    ``dimension_order``), and ``"labels"`` to a list of labels if the dataset has a ``get_label``.

    Each ``iter(loader)`` starts the next epoch. Several iterators may exist at once, and each may be abandoned early.

    Args:
        dataset: The dataset.
        batch_size: Samples in a batch.
        shuffle: Shuffles all samples: every permutation is equally likely.
        distributed: Shards the epoch over the ranks of ``torch.distributed``. All ranks together have every sample
            once.
        sampler: A torch sampler, instead of an order.
        batch_sampler: A torch batch sampler, instead of an order, ``batch_size`` and ``drop_last``.
        drop_last: Drops the last, short batch; the default, as in NVVL. All ranks then have equally many batches. Use
            False where every sample counts, as in validation.
        buffer_length: Number of batches prepared ahead.
        order: ``"sequential"``, ``"shuffle"``, ``"chunked:16"``, ``"buffered:1024"`` or an ``Order``, instead of
            ``shuffle``. Buffered decodes no more than sequential, given memory for its buffer and a group.
        seed: Seed of the order and of random crops and flips; None uses the dataset's.
        memory_budget: Memory for cached frames, in bytes or as ``"8GiB"``. None is a quarter of the memory available to
            this process (the machine's memory or its container's limit), shared by the ranks on the machine; on a GPU,
            a quarter of its memory, and at most half of its free memory. The budget excludes ``buffer_length`` + 1
            batches and the decoders: the process takes at most what it takes with a budget of 0, plus the budget, plus
            96 MB.
        num_epochs: Number of epochs. With more than 1, the loader also prefetches across epoch boundaries: it caches
            what the next epoch needs and decodes its first batches, so memory stays in use between epochs. Batches are
            the same. Only with framefeed's orders, without workers.
        num_threads: Number of decoding threads; None for one per CPU, or a few more than the GPU has decoding units.
        num_workers: Number of worker processes that read packets; with 0, the decoding threads read. Workers need no
            GPU. They persist from epoch to epoch; each of several concurrent iterators has its own.
        packet_cache: Bytes of received packets to cache, so that workers need not send them again.
        multiprocessing_context: Start method of workers: ``"fork"`` or ``"spawn"``; None for torch's default.
        pin_memory: Puts batches into page-locked memory, for copies to a GPU.
        timeout: Time limit for decoding a sample, in seconds; 0 for no limit. Exceeding it is an error.
        on_error: Handling of samples that fail to decode: ``"raise"`` the error in place of the batch (the following
            batches remain available), or ``"skip"`` the sample: its batch is shorter, and ``skipped`` lists it.
        progress: Shows a progress line.

    Attributes:
        skipped: The samples skipped so far, with reasons.
        epoch: Epoch of the latest iterator, or of the next one if there is none.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        batch_size: int = 1,
        shuffle: bool = False,
        distributed: bool = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        drop_last: bool = True,
        buffer_length: int = 3,
        *,
        order: str | Order | None = None,
        seed: int | None = None,
        memory_budget: int | str | None = None,
        num_epochs: int = 1,
        num_threads: int | None = None,
        num_workers: int = 0,
        packet_cache: int | str = "1GiB",
        multiprocessing_context: str | None = None,
        pin_memory: bool = False,
        timeout: float = 0.0,
        on_error: Literal["raise", "skip"] = "raise",
        progress: bool = False,
    ) -> None:
        if not isinstance(dataset, FrameDataset):
            raise TypeError(
                f"VideoLoader needs a VideoDataset or another framefeed dataset, got {type(dataset).__name__}; for a "
                "subset, pass sample numbers as sampler=, or create a dataset of some of the files"
            )
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
        for name, value in (("batch_size", batch_size), ("buffer_length", buffer_length), ("num_epochs", num_epochs)):
            if operator.index(value) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if num_threads is not None and operator.index(num_threads) < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        if operator.index(num_workers) < 0:
            raise ValueError(f"num_workers must be at least 0, got {num_workers}")
        if not timeout >= 0:
            raise ValueError(f"timeout must be at least 0, got {timeout}")
        self.dataset = dataset
        self.batch_size = operator.index(batch_size)
        self.drop_last = bool(drop_last)
        self.seed = dataset.seed if seed is None else operator.index(seed)
        self.skipped: list[SkippedSample] = []
        self._rank, self._world = _rank_and_world() if distributed else (0, 1)
        self._epochs = self._make_epochs(shuffle, distributed, order, sampler, batch_sampler)
        self._buffer_length = buffer_length
        on_gpu = dataset.device.type == "cuda"
        self._pin_memory = pin_memory and not on_gpu and _can_pin()
        self._timeout = float(timeout)
        self._on_error = on_error
        self._progress = progress
        self.memory_budget = budget_bytes(memory_budget, dataset.device, DEFAULT_MEMORY_SHARE)
        self.num_epochs = operator.index(num_epochs)
        self._num_workers = operator.index(num_workers)
        if self.num_epochs > 1 and (self._num_workers or not isinstance(self._epochs, OrderedEpochs)):
            what = "num_workers > 0" if self._num_workers else "a sampler"
            raise ValueError(f"num_epochs > 1 cannot be combined with {what}")
        self._packet_cache = parse_bytes(packet_cache)
        self._worker_context = multiprocessing_context
        self._set_up()
        self._num_threads = num_threads or self._workshop.num_threads
        self._stats = LoaderStats()
        self._next_epoch = 0
        self._skip_batches = 0
        self._latest: EpochProgress | None = None

    def _set_up(self) -> None:
        """Creates the state shared by all iterators of this process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._budget = Budget(self.memory_budget)
        self._resting: list[PacketWorkerEpoch] = []  # finished epochs, whose workers can be reused
        self._going_on: BetweenEpochs | None = None
        self._workshop: Workshop
        if self.dataset.device.type == "cuda":
            from framefeed.batch.workshop_cuda import CudaWorkshop

            self._workshop = CudaWorkshop(self.dataset.device, self.memory_budget)
        else:
            self._workshop = CpuWorkshop(self.memory_budget)

    def _make_epochs(
        self,
        shuffle: bool,
        distributed: bool,
        order: str | Order | None,
        sampler: Iterable[int] | None,
        batch_sampler: Iterable[list[int]] | None,
    ) -> Epochs:
        given = sampler if batch_sampler is None else batch_sampler
        if given is None:
            chosen = resolve(order, shuffle)
            layout = self.dataset.layout
            return OrderedEpochs(chosen, layout, self.batch_size, self.drop_last, self.seed, self._rank, self._world)
        if sampler is not None and batch_sampler is not None:
            raise ValueError("sampler and batch_sampler cannot be combined")
        if shuffle or order is not None:
            raise ValueError("a sampler cannot be combined with shuffle or order")
        if distributed:
            raise ValueError("a sampler cannot be combined with distributed=True: it shards the epoch itself")
        if batch_sampler is not None and self.batch_size != 1:
            raise ValueError("batch_sampler cannot be combined with batch_size: it forms the batches itself")
        size = None if batch_sampler is not None else self.batch_size
        return SampledEpochs(given, size, self.drop_last, self.seed, len(self.dataset))

    # --- epochs ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the number of batches of an epoch on this rank."""
        return len(self._epochs)

    def __iter__(self) -> LoaderIterator:
        if self._epochs.leaves_out_all:
            warnings.warn(
                f"an epoch has no batches: fewer than {self.batch_size} samples, and short batches are dropped; use "
                "drop_last=False to keep them",
                stacklevel=2,
            )
        if self._process != os.getpid():
            self._set_up()  # forked: locks may be held by threads that do not exist here
        with self._lock:
            progress = EpochProgress(self._next_epoch, self._skip_batches)
            going_on, self._going_on = self._going_on, None
            iterator = LoaderIterator(self, progress, None if going_on is None else going_on.take())
            self._next_epoch, self._skip_batches = progress.epoch + 1, 0
            self._latest = progress  # not the iterator: it ends when the caller releases it
            return iterator

    @property
    def epoch(self) -> int:
        """Epoch of the latest iterator, or of the next one if there is none."""
        return self._next_epoch if self._latest is None else self._latest.epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iterator, which starts at its beginning."""
        if operator.index(epoch) < 0:
            raise ValueError(f"epoch must be at least 0, got {epoch}")
        with self._lock:
            self._forget_others(operator.index(epoch), 0)
            self._next_epoch, self._skip_batches, self._latest = operator.index(epoch), 0, None

    def _go_on(self, epoch: int, feed: Feed) -> None:
        """Keeps a feed that has prefetched an epoch, for that epoch's iterator."""
        with self._lock:
            if epoch < self.num_epochs and (epoch, 0) == (self._next_epoch, self._skip_batches):
                self._forget_others(-1, 0)
                self._going_on = BetweenEpochs(self, epoch, feed)
                return
        feed.close()

    def _forget_others(self, epoch: int, skip: int) -> None:
        """Closes feeds that have prefetched another epoch than the next one."""
        going_on = self._going_on
        if going_on is not None and (going_on.epoch, 0) != (epoch, skip):
            self._going_on = None
            going_on.take().close()

    def _separate(self, batches: Iterator[NDArray[np.int64]]) -> PacketWorkerEpoch:
        """Starts reading an epoch's packets in worker processes."""
        workers = None
        while workers is None and self._resting:
            before = self._resting.pop()
            if not before.join(MAX_WAIT_FOR_WORKERS):
                continue  # still in use
            if not before.failed and before.workers.are_alive:
                workers = before.workers
            else:
                before.workers.end()
        if workers is None:
            workers = PacketWorkers(self.dataset, self._num_workers, self._packet_cache, self._worker_context)
        return PacketWorkerEpoch(workers, self.dataset, batches, self._stats)

    # --- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the latest iterator, after its delivered batches, as a small dict of plain values."""
        with self._lock:
            latest = self._latest
            epoch = self._next_epoch if latest is None else latest.epoch
            batch = self._skip_batches if latest is None else latest.position
            finished = latest is not None and (latest.finished or batch >= self._num_batches())
            return {
                **self._identity(),
                "epoch": epoch,
                "batch": batch,
                "finished": finished,
                "sampler": self._epochs.state(finished),
            }

    def _num_batches(self) -> float:
        """Returns the number of batches of an epoch; infinite if the sampler has no length."""
        try:
            return len(self._epochs)
        except TypeError:
            return math.inf

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes the next iterator at a saved position, with the very next batch.

        Raises:
            StateError: The state belongs to another loader, or was saved in mid-epoch with another number of ranks.
        """
        check_state(state, self._identity())
        finished = state["finished"]
        if not finished and state["batch"] > self._num_batches():
            raise StateError("state", f"is damaged: {state['batch']} batches are done, more than the epoch has")
        self._epochs.load_state(state["sampler"])
        with self._lock:
            self._next_epoch = state["epoch"] + finished
            self._skip_batches = 0 if finished else state["batch"]
            self._forget_others(self._next_epoch, self._skip_batches)
            self._latest = None

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes ``state_dict()`` to a file, atomically.

        With ``on_error="skip"``, a failed write is a warning, and the run continues.

        Raises:
            StateError: The file cannot be written; an existing file is unchanged.
        """
        try:
            write_state(path, self.state_dict())
        except StateError as error:
            if self._on_error == "raise":
                raise
            warnings.warn(str(error), stacklevel=2)

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Resumes at the position saved by ``save_state``."""
        try:
            self.load_state_dict(read_state(path))
        except StateError as error:
            raise error if error.path != "state" else StateError(path, error.reason) from error

    def _identity(self) -> dict[str, Any]:
        digest = blake2b(self.dataset.counts.tobytes(), digest_size=8)
        for name in _below_common_folder(self.dataset.filenames):
            digest.update(os.fsencode(name) + b"\0")
        return {
            "version": VERSION,
            "seed": self.seed,
            "order": self._epochs.name,
            "batch_size": self.batch_size,
            "drop_last": self.drop_last,
            "num_samples": len(self.dataset),
            "dataset": digest.hexdigest(),
            "world": self._world,
        }

    # --- statistics -----------------------------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """Returns counters of all iterators since the loader was created."""
        return dataclasses.replace(
            self._stats, memory_held=self._workshop.memory_held, memory_peak=self._workshop.memory_peak
        )

    def __repr__(self) -> str:
        return f"VideoLoader({self.dataset!r}, batch_size={self.batch_size}, order={self._epochs.name})"


def _below_common_folder(names: Sequence[str]) -> list[str]:
    """Returns paths relative to their common folder: the files may be elsewhere on another machine."""
    paths = [os.path.abspath(name) for name in names]
    common = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    return [path[len(common) :] for path in paths]


def _rank_and_world() -> tuple[int, int]:
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        raise RuntimeError("distributed=True needs torch.distributed: call init_process_group() first")
    return distributed.get_rank(), distributed.get_world_size()


def _can_pin() -> bool:
    import torch

    if torch.cuda.is_available():
        return True
    warnings.warn("pin_memory=True has no effect: torch found no GPU", stacklevel=3)
    return False
