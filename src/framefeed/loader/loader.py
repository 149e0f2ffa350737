"""``VideoLoader``: batches of a dataset, decoded ahead by threads that know what will be needed."""

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

# Of the memory that a process may use: a quarter.
DEFAULT_MEMORY_SHARE = 4

# How long a new epoch waits for the workers of one that was left.
MAX_WAIT_FOR_WORKERS = 10.0


class VideoLoader:
    """Batches of a ``VideoDataset`` or another dataset of framefeed's.

    The loader looks ahead in the order of the epoch. While a group of frames is decoded, it takes out every frame that
    will be needed soon and keeps it, resized, until its batch comes. What it yields is, bit for bit, what it would
    yield without any of that.

    Work is done by threads of this process: decoders release Python's lock, no frame is copied between processes, and
    batches that the consumer has let go of are written again.

    A batch is a dict: by each name of the dataset's ``processing`` a tensor of the shape (batch, dimensions in
    ``dimension_order``), and under ``"labels"`` a list of labels where the dataset has a ``get_label``.

    Each ``iter(loader)`` begins the next epoch. Several iterators may live at once, and any may be left early.

    Args:
        dataset: The dataset.
        batch_size: Samples of a batch.
        shuffle: Whether the order is random: the plain permutation of all samples.
        distributed: Whether the epoch is shared out to the ranks of ``torch.distributed``. Together they have every
            sample once.
        sampler: A torch sampler, instead of an order.
        batch_sampler: A torch batch sampler, instead of an order, ``batch_size`` and ``drop_last``.
        drop_last: Whether the last, short batch is left out, as it is by default (NVVL's). With several ranks all then
            have equally many batches. Give False where every sample counts, as in a validation.
        buffer_length: How many batches are prepared ahead.
        order: ``"sequential"``, ``"shuffle"``, ``"chunked:16"``, ``"buffered:1024"`` or an ``Order``, instead of
            ``shuffle``. Buffered costs no more decoding than sequential, with memory for its buffer and a group.
        seed: Of the order and of random crops and flips; None takes the dataset's.
        memory_budget: What frames that are kept may take, in bytes or as ``"8GiB"``; None is a quarter of what
            this process may use (the machine's memory or its container's limit), shared by the ranks on the machine, or
            of the GPU's memory, and there at most half of what is free. Not in it: ``buffer_length`` + 1 batches, and
            the decoders; the process stays within what it takes with a budget of 0, plus the budget, plus 96 MB.
        num_epochs: How many epochs there will be. At the end of one the loader looks into the next: it keeps what that
            will need, and decodes its first batches. So memory stays taken between epochs, until the last has ended.
            What comes out is the same. 1: each epoch stands alone. Only with framefeed's orders, without workers.
        num_threads: How many threads decode; None is one for each CPU, or a few more than the GPU has decoding units.
        num_workers: Worker processes that read packets for these threads; 0 for none: the threads read themselves.
            Workers need no GPU. They live on from one epoch to the next; an iterator beside another one has its own.
        packet_cache: What is kept of packets that workers have sent, so that they need not send them again.
        multiprocessing_context: How workers are started: ``"fork"`` or ``"spawn"``; None for torch's choice.
        pin_memory: Whether batches are put into page-locked memory, for copies to a GPU.
        timeout: Seconds that decoding for a sample may take, 0 for no limit. What takes longer is an error.
        on_error: What a sample does that cannot be decoded: ``"raise"`` its error in place of its batch (the
            following batches can still be had), or ``"skip"``: it is left out, its batch is shorter, and ``report``
            has it.
        progress: Whether a line with progress is shown.

    Attributes:
        skipped: Samples that were skipped.
        epoch: The epoch of the latest iterator, or of the next one where there is none.
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
                f"a VideoLoader reads a VideoDataset, not a {type(dataset).__name__}; for a part of one give sampler= "
                "the numbers of its samples, or make a dataset of some of the files"
            )
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error is "raise" or "skip", not {on_error!r}')
        for name, value in (("batch_size", batch_size), ("buffer_length", buffer_length), ("num_epochs", num_epochs)):
            if operator.index(value) < 1:
                raise ValueError(f"{name} is at least 1, got {value}")
        if num_threads is not None and operator.index(num_threads) < 1:
            raise ValueError(f"num_threads is at least 1, got {num_threads}")
        if operator.index(num_workers) < 0:
            raise ValueError(f"num_workers is at least 0, got {num_workers}")
        if not timeout >= 0:
            raise ValueError(f"timeout is at least 0, got {timeout}")
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
            what = "with workers: they are told of one epoch" if self._num_workers else "of a sampler: it tells of one"
            raise ValueError(f"the next epoch is not known before it begins {what}; leave out num_epochs")
        self._packet_cache = parse_bytes(packet_cache)
        self._worker_context = multiprocessing_context
        self._set_up()
        self._num_threads = num_threads or self._workshop.num_threads
        self._stats = LoaderStats()
        self._next_epoch = 0
        self._skip_batches = 0
        self._latest: EpochProgress | None = None

    def _set_up(self) -> None:
        """Makes what is shared by all iterators of this process."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._budget = Budget(self.memory_budget)
        self._resting: list[PacketWorkerEpoch] = []  # of epochs that have ended: their workers can be used again
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
            raise ValueError("give either sampler or batch_sampler")
        if shuffle or order is not None:
            raise ValueError("give either a sampler, or shuffle or order")
        if distributed:
            raise ValueError("a sampler shares the epoch out itself: leave out distributed=True")
        if batch_sampler is not None and self.batch_size != 1:
            raise ValueError("a batch_sampler makes batches itself: leave out batch_size")
        size = None if batch_sampler is not None else self.batch_size
        return SampledEpochs(given, size, self.drop_last, self.seed, len(self.dataset))

    # --- epochs ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Number of batches of an epoch, on this rank."""
        return len(self._epochs)

    def __iter__(self) -> LoaderIterator:
        if self._epochs.leaves_out_all:
            warnings.warn(
                f"an epoch has no batch: there are too few samples for one of {self.batch_size}; drop_last=False keeps "
                "batches that are not full",
                stacklevel=2,
            )
        if self._process != os.getpid():
            self._set_up()  # forked: locks may be held by threads that are not there
        with self._lock:
            progress = EpochProgress(self._next_epoch, self._skip_batches)
            going_on, self._going_on = self._going_on, None
            iterator = LoaderIterator(self, progress, None if going_on is None else going_on.take())
            self._next_epoch, self._skip_batches = progress.epoch + 1, 0
            self._latest = progress  # not the iterator itself: it ends when the caller lets go of it
            return iterator

    @property
    def epoch(self) -> int:
        """The epoch of the latest iterator, or of the next one where there is none."""
        return self._next_epoch if self._latest is None else self._latest.epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes that the epoch of the next iterator, from its beginning."""
        if operator.index(epoch) < 0:
            raise ValueError(f"epochs are counted from 0, got {epoch}")
        with self._lock:
            self._forget_others(operator.index(epoch), 0)
            self._next_epoch, self._skip_batches, self._latest = operator.index(epoch), 0, None

    def _go_on(self, epoch: int, feed: Feed) -> None:
        """Keeps what has looked into an epoch already, for the iterator that begins it."""
        with self._lock:
            if epoch < self.num_epochs and (epoch, 0) == (self._next_epoch, self._skip_batches):
                self._forget_others(-1, 0)
                self._going_on = BetweenEpochs(self, epoch, feed)
                return
        feed.close()

    def _forget_others(self, epoch: int, skip: int) -> None:
        """Lets go of what has looked into another epoch than the one that comes next."""
        going_on = self._going_on
        if going_on is not None and (going_on.epoch, 0) != (epoch, skip):
            self._going_on = None
            going_on.take().close()

    def _separate(self, batches: Iterator[NDArray[np.int64]]) -> PacketWorkerEpoch:
        """Has worker processes read the packets of an epoch."""
        workers = None
        while workers is None and self._resting:
            before = self._resting.pop()
            if not before.join(MAX_WAIT_FOR_WORKERS):
                continue  # somebody is still waiting for them
            if not before.failed and before.workers.are_alive:
                workers = before.workers
            else:
                before.workers.end()
        if workers is None:
            workers = PacketWorkers(self.dataset, self._num_workers, self._packet_cache, self._worker_context)
        return PacketWorkerEpoch(workers, self.dataset, batches, self._stats)

    # --- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the latest iterator is: after the batches that it has handed out. Plain values, a few hundred bytes."""
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
        """Batches of an epoch; infinite where the sampler does not say."""
        try:
            return len(self._epochs)
        except TypeError:
            return math.inf

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iterator goes on where the state was saved, with the very next batch.

        Raises:
            StateError: It belongs to another loader, or was saved in mid-epoch with another number of ranks.
        """
        check_state(state, self._identity())
        finished = state["finished"]
        if not finished and state["batch"] > self._num_batches():
            raise StateError("state", f"is damaged: {state['batch']} batches are done of an epoch that has fewer")
        self._epochs.load_state(state["sampler"])
        with self._lock:
            self._next_epoch = state["epoch"] + finished
            self._skip_batches = 0 if finished else state["batch"]
            self._forget_others(self._next_epoch, self._skip_batches)
            self._latest = None

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes ``state_dict()`` to a file, atomically.

        With ``on_error="skip"`` a file that cannot be written is a warning, and the run goes on.

        Raises:
            StateError: The file cannot be written; one that was there before is untouched.
        """
        try:
            write_state(path, self.state_dict())
        except StateError as error:
            if self._on_error == "raise":
                raise
            warnings.warn(str(error), stacklevel=2)

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Goes on where ``save_state`` was called."""
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

    # --- what was done --------------------------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """What was done since the loader was made, by all iterators."""
        return dataclasses.replace(
            self._stats, memory_held=self._workshop.memory_held, memory_peak=self._workshop.memory_peak
        )

    def __repr__(self) -> str:
        return f"VideoLoader({self.dataset!r}, batch_size={self.batch_size}, order={self._epochs.name})"


def _below_common_folder(names: Sequence[str]) -> list[str]:
    """Paths without what all have in common: the files may lie elsewhere on another machine."""
    paths = [os.path.abspath(name) for name in names]
    common = os.path.commonpath([os.path.dirname(path) for path in paths]) if paths else ""
    return [path[len(common) :] for path in paths]


def _rank_and_world() -> tuple[int, int]:
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        raise RuntimeError("distributed=True needs torch.distributed: call torch.distributed.init_process_group first")
    return distributed.get_rank(), distributed.get_world_size()


def _can_pin() -> bool:
    import torch

    if torch.cuda.is_available():
        return True
    warnings.warn("pin_memory=True has no effect: torch finds no GPU here", stacklevel=3)
    return False
