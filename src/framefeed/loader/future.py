"""Upcoming batches of an epoch and their frames, known as far ahead as is useful."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from framefeed.batch.assembly import MISSING, Samples, draw_all
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import FramefeedError
from framefeed.loader.epochs import BatchNumbers
from framefeed.plan.lookahead import AnyUse, Key, LookAhead

__all__ = ["Future", "Planned"]

# How far to look ahead, in terms: frames beyond that are not cached anyway.
WINDOW = 1.25
MIN_WINDOW_BATCHES = 16
MAX_WINDOW_USES = 1_000_000
# Samples read at once, for the first batch and for the others: at least so many, and more while there is time. The
# window grows gradually, so that no batch is delayed much: a thousand samples take 1.5 ms, but files used for the first
# time take longer. Small batches read fewer: they are requested more often. A frame unknown when its group is decoded
# is not cached: with memory for all frames, groups met too early are decoded twice.
FIRST_GROWTH, MAX_FIRST_GROWTH, FIRST_SECONDS = 2048, 16384, 0.025
GROWTH, MAX_GROWTH, SECONDS = 1024, 4096, 0.006
GROWTH_BATCHES = 16

_UNKNOWN = -1


class Planned:
    """An upcoming batch. There are many, so it holds only arrays until more is needed.

    Args:
        numbers: Its sample numbers and epoch.
        files, frames: References of the samples, one row each.
        uses: Video, frame and packet where decoding starts for each use, in order.
        time: Time of the first use.
    """

    __slots__ = ("_known", "_uses", "epoch", "files", "frames", "is_last", "numbers", "time")

    def __init__(
        self,
        numbers: BatchNumbers,
        files: NDArray[np.int64],
        frames: NDArray[np.int64],
        uses: NDArray[np.int64],
        time: int,
    ) -> None:
        self.epoch, self.numbers, self.is_last = numbers
        self.files = files
        self.frames = frames
        self._uses = uses
        self.time = time
        self._known: list[AnyUse] | None = None

    def __len__(self) -> int:
        """Number of uses."""
        return int(self._uses.shape[1])

    def __iter__(self) -> Iterator[AnyUse]:
        """Yields the uses, created on the fly."""
        videos, frames, starts = self._uses.tolist()
        return zip(itertools.count(self.time), videos, frames, starts, strict=False)

    @property
    def groups(self) -> set[tuple[int, ...]]:
        """Groups, as video and packet where decoding starts."""
        return set(zip(*self._uses[[0, 2]].tolist(), strict=True))

    @property
    def uses(self) -> list[AnyUse]:
        """All uses."""
        if self._known is None:
            self._known = list(self)
        return self._known


class Future:
    """Upcoming batches in order, announced to the look-ahead as they become known.

    One thread at a time reads and adds; everything except reading needs exclusive access to the look-ahead.

    Args:
        dataset: The dataset.
        batches: Sample numbers of each batch.
        seed: Seed of random crops and flips.
        ahead: Look-ahead to announce uses to.
        soon: Number of batches that are needed at once.

    Attributes:
        error: Error raised by the source of batches, after the last batch.
        provided: Number of upcoming batches of which all frames are held.
    """

    def __init__(
        self,
        dataset: FrameDataset,
        batches: Iterator[BatchNumbers],
        *,
        seed: int,
        ahead: LookAhead,
        soon: int,
    ) -> None:
        self._dataset = dataset
        self._source = batches
        self._seed = seed
        self._ahead = ahead
        self._soon = soon
        self._time = 0
        self._batches: deque[Planned] = deque()
        self._num_uses = 0
        self._window = 0.0
        self.provided = 0
        self._exhausted = False
        self.error: Exception | None = None

    @property
    def at_end(self) -> bool:
        """True if no batch is left."""
        return self._exhausted and not self._batches

    def read(self, count: int) -> list[Planned]:
        """Reads as many more batches as should be known; pass them to ``add``. Changes no shared state.

        Args:
            count: Number of batches requested next.
        """
        found: list[Planned] = []
        known, uses = len(self._batches), self._num_uses
        added, least, most, end = 0, FIRST_GROWTH, MAX_FIRST_GROWTH, time.perf_counter() + FIRST_SECONDS
        if self._batches:
            least = min(GROWTH, max(GROWTH_BATCHES, 2 * count) * max(1, len(self._batches[0].numbers)))
            most, end = MAX_GROWTH * least // GROWTH, time.perf_counter() + SECONDS
        while not self._exhausted and (added < least or (added < most and time.perf_counter() < end)):
            if known >= MIN_WINDOW_BATCHES and uses >= self._window:
                break
            try:
                numbers = next(self._source, None)
            except Exception as error:  # deliver the batches before it first
                self.error = error
                numbers = None
            if numbers is None:
                self._exhausted = True
                break
            files, frames = self._dataset.frame_layout.frame_refs(numbers.samples)
            planned = Planned(numbers, files, frames, self._uses(files, frames), self._time)
            self._time += len(planned)
            if not self._window and len(planned):
                self._window = min(MAX_WINDOW_USES, WINDOW * self._ahead.term(next(iter(planned))[1]))
                self._ahead.soon = self._soon * len(planned)
            found.append(planned)
            known += 1
            uses += len(planned)
            added += len(numbers.samples)
        return found

    def add(self, found: Iterable[Planned]) -> None:
        """Adds batches and announces them to the look-ahead."""
        for planned in found:
            self._batches.append(planned)
            self._num_uses += len(planned)
            self._ahead.extend(planned)
        if self._exhausted:
            self._ahead.last = self._time - 1

    def pop(self, count: int) -> list[Planned]:
        """Returns the next known batches; none after the last.

        Returns fewer if that avoids dividing groups: files read in parallel reach new groups in the same batch.
        """
        count = min(count, len(self._batches))
        if 1 < count < len(self._batches):
            following = list(itertools.islice(self._batches, count + 1))
            count = min(range(count, count // 2, -1), key=lambda end: _num_shared(following[end - 1], following[end]))
        planned = [self._batches.popleft() for _ in range(count)]
        self._num_uses -= sum(map(len, planned))
        self.provided = max(0, self.provided - len(planned))
        return planned

    def upcoming(self, batches: int) -> Iterator[AnyUse]:
        """Yields the uses of the next few batches."""
        return (use for planned in itertools.islice(self._batches, batches) for use in planned.uses)

    def first_missing(self, within: float, hopeless: Container[Key]) -> AnyUse | None:
        """Returns the first use within a time whose frame is neither held nor hopeless, or None."""
        end = self._batches[0].time + within if self._batches else 0.0
        for planned in itertools.islice(self._batches, self.provided, None):
            if planned.time > end:
                return None
            for use in planned.uses:
                key = use[1:3]
                if not self._ahead.holds(key) and key not in hopeless:
                    return use
            self.provided += 1
        return None

    def clear(self) -> None:
        """Drops all batches."""
        self._batches.clear()
        self._exhausted = True

    def samples(self, planned: Planned) -> Samples:
        """Returns the samples of a batch."""
        drawn = draw_all(planned.numbers, self._seed, planned.epoch) if self._dataset.draws else None
        return Samples(planned.numbers, planned.files, planned.frames, drawn)

    def _uses(self, files: NDArray[np.int64], frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns video, frame and starting packet of all shown frames."""
        files, frames = files[:, self._dataset.shown], frames[:, self._dataset.shown]
        starts = np.fromiter(self._starts(files.ravel().tolist(), frames.ravel().tolist()), np.int64, files.size)
        uses: NDArray[np.int64] = np.stack([files.ravel(), frames.ravel(), starts])
        return uses[:, uses[2] != _UNKNOWN]

    def _starts(self, files: list[int], frames: list[int]) -> Iterator[int]:
        """Yields the packets where decoding starts. One by one: often each frame is in another file."""
        last, of_file = MISSING, None
        for file, frame in zip(files, frames, strict=True):
            if frame == MISSING:
                yield _UNKNOWN
                continue
            if file != last:
                last, of_file = file, None
                # If the file cannot be opened, opening the batch fails as well and reports it.
                with contextlib.suppress(FramefeedError):
                    of_file = self._dataset.videos[file].starts
            yield _UNKNOWN if of_file is None else int(of_file[frame])


def _num_shared(one: Planned, other: Planned) -> int:
    """Returns the number of groups that two batches share."""
    return len(one.groups & other.groups)
