"""The part of an epoch that lies ahead and is known: batches with their frames, as far as it pays to look."""

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

# How far ahead the order is looked at, in terms: what lies beyond is not kept anyway.
WINDOW = 1.25
MIN_WINDOW_BATCHES = 16
MAX_WINDOW_USES = 1_000_000
# How many samples are looked up at once, for the first batch and for the others: at least so many, and more while there
# is time. The window grows gradually, so that no batch takes long to come: a thousand samples take 1.5 ms, but files
# that are met for the first time take longer. For small batches less: they are wanted more often. What is not known
# when a group is decoded is not kept: with memory for all frames, groups that are met too early are decoded twice.
FIRST_GROWTH, MAX_FIRST_GROWTH, FIRST_SECONDS = 2048, 16384, 0.025
GROWTH, MAX_GROWTH, SECONDS = 1024, 4096, 0.006
GROWTH_BATCHES = 16

_UNKNOWN = -1


class Planned:
    """A batch that lies ahead: many do, so that there is nothing but arrays until it is asked for more.

    Args:
        numbers: The numbers of its samples, and its epoch.
        files, frames: What these are made of, a row for each.
        uses: Videos, frames and packets that decoding starts from, in the order that they are needed in.
        time: Of the first use.
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
        """How many uses there are."""
        return int(self._uses.shape[1])

    def __iter__(self) -> Iterator[AnyUse]:
        """The uses, made while they are gone through."""
        videos, frames, starts = self._uses.tolist()
        return zip(itertools.count(self.time), videos, frames, starts, strict=False)

    @property
    def groups(self) -> set[tuple[int, ...]]:
        """Videos and packets that decoding starts from."""
        return set(zip(*self._uses[[0, 2]].tolist(), strict=True))

    @property
    def uses(self) -> list[AnyUse]:
        """The uses."""
        if self._known is None:
            self._known = list(self)
        return self._known


class Future:
    """Batches that lie ahead, in order, told to the look-ahead as they become known.

    One thread at a time reads and adds; all but reading is done while the look-ahead is nobody else's.

    Args:
        dataset: Where samples come from.
        batches: The numbers of the samples of each batch.
        seed: For random crops and flips.
        ahead: What is told of the uses of frames.
        soon: So many batches are needed at once.

    Attributes:
        error: What the source of batches raised, behind the last batch.
        provided: For so many of the batches that lie ahead, all frames were found to be held.
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
        """Whether no batch is left."""
        return self._exhausted and not self._batches

    def read(self, count: int) -> list[Planned]:
        """Finds out about as many more batches as should be known; to be told to ``add``. Nothing else is touched.

        Args:
            count: How many will be asked for next.
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
            except Exception as error:  # the batches before it are good
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
        """Adds batches, and tells the look-ahead of them."""
        for planned in found:
            self._batches.append(planned)
            self._num_uses += len(planned)
            self._ahead.extend(planned)
        if self._exhausted:
            self._ahead.last = self._time - 1

    def pop(self, count: int) -> list[Planned]:
        """The next few batches, as far as they are known; none behind the last.

        Rather fewer than so many, if groups are not divided then: files that are gone through side by side come to new
        groups with the same batch.
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
        """The uses of the next few batches."""
        return (use for planned in itertools.islice(self._batches, batches) for use in planned.uses)

    def first_missing(self, within: float, hopeless: Container[Key]) -> AnyUse | None:
        """The first use of a frame that is not held, and not given up, if there is one within a time."""
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
        """Forgets all."""
        self._batches.clear()
        self._exhausted = True

    def samples(self, planned: Planned) -> Samples:
        """The samples of a batch."""
        drawn = draw_all(planned.numbers, self._seed, planned.epoch) if self._dataset.draws else None
        return Samples(planned.numbers, planned.files, planned.frames, drawn)

    def _uses(self, files: NDArray[np.int64], frames: NDArray[np.int64]) -> NDArray[np.int64]:
        """Videos, frames and packets that decoding starts from, of all frames of samples that are shown."""
        files, frames = files[:, self._dataset.shown], frames[:, self._dataset.shown]
        starts = np.fromiter(self._starts(files.ravel().tolist(), frames.ravel().tolist()), np.int64, files.size)
        uses: NDArray[np.int64] = np.stack([files.ravel(), frames.ravel(), starts])
        return uses[:, uses[2] != _UNKNOWN]

    def _starts(self, files: list[int], frames: list[int]) -> Iterator[int]:
        """The packets that decoding starts from. One by one: often each frame is of another file."""
        last, of_file = MISSING, None
        for file, frame in zip(files, frames, strict=True):
            if frame == MISSING:
                yield _UNKNOWN
                continue
            if file != last:
                last, of_file = file, None
                # Where it cannot be opened, that is noticed again, and reported, when the batch is opened.
                with contextlib.suppress(FramefeedError):
                    of_file = self._dataset.videos[file].starts
            yield _UNKNOWN if of_file is None else int(of_file[frame])


def _num_shared(one: Planned, other: Planned) -> int:
    """How many groups two batches have in common."""
    return len(one.groups & other.groups)
