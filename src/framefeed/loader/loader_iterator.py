"""Iterator over one epoch of a ``VideoLoader``."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from framefeed._util.process.finalize import closer
from framefeed._util.progress import ProgressBar
from framefeed.batch.assembly import MISSING, Assembly
from framefeed.batch.work import FinishedBatch
from framefeed.dataset.frame_dataset import LABELS, FrameDataset
from framefeed.loader.epochs import across, of_one_epoch
from framefeed.loader.feed import Feed
from framefeed.loader.packet_workers import PacketWorkerEpoch

if TYPE_CHECKING:
    from torch import Tensor

    from framefeed.loader.loader import VideoLoader

__all__ = ["BetweenEpochs", "EpochProgress", "LoaderIterator", "SkippedSample"]


@dataclass(frozen=True)
class SkippedSample:
    """A skipped sample.

    Attributes:
        sample: Sample number in the dataset.
        path: Its file.
        frame: Its first frame.
        reason: The error message.
    """

    sample: int
    path: str
    frame: int
    reason: str


@dataclass
class EpochProgress:
    """Position of an iterator.

    Attributes:
        epoch: The epoch.
        position: Number of batches delivered, failed or skipped.
        finished: True after the last batch.
    """

    epoch: int
    position: int
    finished: bool = False


class BetweenEpochs:
    """A feed between two epochs. It is closed with its loader.

    Args:
        loader: The loader.
        epoch: Epoch of the feed's next batch.
        feed: The feed.
    """

    def __init__(self, loader: VideoLoader, epoch: int, feed: Feed) -> None:
        self.epoch = epoch
        self._feed = feed
        self._let_go = weakref.finalize(loader, closer.note, feed.close)
        self._let_go.atexit = False

    def take(self) -> Feed:
        """Returns the feed; the caller becomes responsible for closing it."""
        self._let_go.detach()
        return self._feed


class LoaderIterator:
    """Iterator over one epoch. ``close``, or releasing it, ends it early."""

    def __init__(self, loader: VideoLoader, progress: EpochProgress, begun: Feed | None = None) -> None:
        closer.start()
        self._progress = progress
        self._loader = loader
        self._separation: PacketWorkerEpoch | None = None
        self._over = False  # True when the remaining batches belong to the next epoch
        self._feed = feed = self._make_feed() if begun is None else begun
        self._ending = (feed, self._separation, loader._resting)
        # Finalised on a thread of its own, not on the one that drops the last reference.
        self._let_go = weakref.finalize(self, closer.note, _close, *self._ending)
        self._let_go.atexit = False  # at exit, the feeds are closed together
        self._bar: ProgressBar | None = None
        self._shown_frames = 0
        if loader._progress:
            batches = loader._num_batches()
            total = None if math.isinf(batches) else int(batches)
            self._bar = ProgressBar(f"epoch {progress.epoch}", total, show=True, done=progress.position, in_loop=True)
            self._bar.start()

    def _make_feed(self) -> Feed:
        loader, epoch, position = self._loader, self._progress.epoch, self._progress.position
        dataset: FrameDataset = loader.dataset
        if epoch + 1 < loader.num_epochs:
            numbers = across(loader._epochs, epoch, position, loader.num_epochs)
        else:
            batches = loader._epochs.batches(epoch, position)
            if loader._num_workers:
                self._separation = loader._separate(batches)
                dataset, batches = self._separation.dataset, self._separation.batches
            numbers = of_one_epoch(epoch, batches)
        feed = Feed(
            dataset,
            numbers,
            seed=loader.seed,
            budget=loader._budget,
            workshop=loader._workshop,
            num_threads=loader._num_threads,
            buffer_length=loader._buffer_length,
            timeout=loader._timeout,
            stats=loader._stats,
            sending=None if self._separation is None else self._separation.workers.describe,
        )
        if self._separation is not None:
            self._separation.start(lambda: feed.reached)
        return feed

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self._progress.epoch

    @property
    def position(self) -> int:
        """Number of batches delivered, failed or skipped."""
        return self._progress.position

    @property
    def finished(self) -> bool:
        """True after the last batch."""
        return self._progress.finished

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        try:
            while True:
                finished = None if self._over else self._feed.next()
                if finished is None:
                    self._end()
                    raise StopIteration
                if finished.is_last:
                    self._hand_over()
                self._progress.position += 1
                if self._separation is not None:
                    self._separation.deliver()
                batch = self._result(finished)
                if batch is not None:
                    return batch
        except (KeyboardInterrupt, SystemExit):
            self.close()
            raise

    def close(self) -> None:
        """Stops decoding and frees memory."""
        if self._let_go.detach() is not None:
            _close(*self._ending)
        if self._bar is not None:
            self._bar.close()

    def _hand_over(self) -> None:
        """Passes the feed on to the next epoch. Callers may stop after the last batch without asking for one more."""
        self._over = True
        if self._let_go.detach() is not None:
            self._loader._go_on(self.epoch + 1, self._feed)

    def _end(self) -> None:
        self._progress.finished = self.finished or self._over or self._let_go.alive
        self.close()

    def _result(self, finished: FinishedBatch) -> dict[str, Any] | None:
        loader, dataset = self._loader, self._loader.dataset
        if finished.errors and loader._on_error == "raise":
            # A copy: its traceback refers to the iterator, while the feed keeps the original.
            error = finished.errors[min(finished.errors)]
            raise copy.copy(error) from error.__cause__
        for place, error in sorted(finished.errors.items()):
            sample = finished.samples[place]
            slot = next(slot for slot, file in enumerate(sample.files) if file != MISSING)
            path = dataset.filenames[sample.files[slot]]
            loader.skipped.append(SkippedSample(sample.number, path, sample.frames[slot], str(error)))
        loader._stats.skipped += len(finished.errors)
        assembly = finished.assembly
        if assembly is not None:
            loader._workshop.hand_out(assembly)
        good = [row for row, place in enumerate(finished.rows) if place not in finished.errors]
        if assembly is None or not good:
            return None
        tensors, samples = assembly.batch, assembly.samples
        if len(good) < len(finished.rows):
            tensors = {name: tensor[good] for name, tensor in tensors.items()}
            samples = samples.pick(good)
        if loader._pin_memory:
            tensors = {name: _pinned(tensor) for name, tensor in tensors.items()}
        batch = dataset.finish(tensors, samples)
        if dataset.get_label is not None:
            batch[LABELS] = _labels(dataset, assembly, good)
        stats = loader._stats
        stats.batches += 1
        stats.samples_delivered += len(good)
        stats.frames_delivered += len(good) * len(dataset.shown)
        if self._bar is not None:
            self._advance(self._bar, len(good) * len(dataset.shown))
        return batch

    def _advance(self, bar: ProgressBar, frames: int) -> None:
        self._shown_frames += frames
        rate = self._shown_frames / (bar.elapsed_seconds or math.inf)
        stats = self._loader.stats()
        each, waited = stats.decoded_per_delivered, stats.wait_seconds
        bar.advance(1, f"{rate:,.0f} frames/s, {each:.1f} decoded each, waited {waited:.1f} s")


def _close(feed: Feed, separation: PacketWorkerEpoch | None, resting: list[PacketWorkerEpoch]) -> None:
    """Ends an iterator's work."""
    feed.close()
    if separation is not None:
        separation.close()
        if not separation.failed:
            resting.append(separation)


def _labels(dataset: FrameDataset, assembly: Assembly, rows: Sequence[int]) -> list[Any]:
    try:
        return [dataset.label(assembly.samples[row], assembly.changes(row)) for row in rows]
    except StopIteration as error:  # would silently end the epoch
        raise RuntimeError("get_label raised StopIteration") from error


def _pinned(tensor: Tensor) -> Tensor:
    return tensor.pin_memory()
