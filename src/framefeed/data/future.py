"""The part of an epoch that lies ahead and is known: batches with their frames, as far as it pays to look."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.data.assembly import SampleRef, locate_samples
from framefeed.data.dataset import VideoDataset
from framefeed.errors import FramefeedError
from framefeed.plan.lookahead import LookAhead, Use

__all__ = ["Future", "Planned"]

# How far ahead the order is looked at, in terms: what lies beyond is not kept anyway.
WINDOW = 1.25
MIN_WINDOW_BATCHES = 16
MAX_WINDOW_USES = 1_000_000
# How many uses are looked up at once, for the first batch and for the others: the window grows gradually, so that the
# first batch does not take long to come.
FIRST_GROWTH = 2048
GROWTH = 1024


@dataclass(eq=False)
class Planned:
    """A batch that lies ahead."""

    samples: list[SampleRef]
    uses: list[Use]


class Future:
    """Batches that lie ahead, in order, told to the look-ahead as they become known.

    One thread at a time reads and adds; all but reading is done while the look-ahead is nobody else's.

    Args:
        dataset: Where samples come from.
        batches: The numbers of the samples of each batch.
        seed, epoch: For random crops and flips.
        ahead: What is told of the uses of frames.
        soon: So many batches are needed at once.

    Attributes:
        error: What the source of batches raised, behind the last batch.
    """

    def __init__(
        self,
        dataset: VideoDataset,
        batches: Iterator[NDArray[np.int64]],
        *,
        seed: int,
        epoch: int,
        ahead: LookAhead,
        soon: int,
    ) -> None:
        self._dataset = dataset
        self._source = batches
        self._seed = seed
        self._epoch = epoch
        self._ahead = ahead
        self._soon = soon
        self._clock = itertools.count()
        self._batches: deque[Planned] = deque()
        self._num_uses = 0
        self._window = 0.0
        self._exhausted = False
        self.error: Exception | None = None

    @property
    def at_end(self) -> bool:
        """Whether no batch is left."""
        return self._exhausted and not self._batches

    def read(self) -> list[Planned]:
        """Finds out about as many more batches as should be known; to be told to ``add``. Nothing else is touched."""
        found: list[Planned] = []
        known, uses = len(self._batches), self._num_uses
        added, limit = 0, GROWTH if self._batches else FIRST_GROWTH
        while not self._exhausted and added < limit:
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
            data = self._dataset
            samples = locate_samples(data.sequences, numbers, self._seed, self._epoch, draws=data.draws)
            planned = Planned(samples, self._uses(samples))
            if not self._window and planned.uses:
                self._window = min(MAX_WINDOW_USES, WINDOW * self._ahead.term(planned.uses[0].video))
                self._ahead.soon = self._soon * len(planned.uses)
            found.append(planned)
            known += 1
            uses += len(planned.uses)
            added += len(planned.samples)
        return found

    def add(self, found: Iterable[Planned]) -> None:
        """Adds batches, and tells the look-ahead of them."""
        for planned in found:
            self._batches.append(planned)
            self._num_uses += len(planned.uses)
            self._ahead.extend(planned.uses)

    def pop(self) -> Planned | None:
        """The next batch; None behind the last."""
        if not self._batches:
            return None
        planned = self._batches.popleft()
        self._num_uses -= len(planned.uses)
        return planned

    def upcoming(self, batches: int) -> Iterator[Use]:
        """The uses of the next few batches."""
        return (use for planned in itertools.islice(self._batches, batches) for use in planned.uses)

    def clear(self) -> None:
        """Forgets all."""
        self._batches.clear()
        self._exhausted = True

    def _uses(self, samples: list[SampleRef]) -> list[Use]:
        uses = []
        videos, shown, clock = self._dataset.videos, self._dataset.shown, self._clock
        known: dict[int, memoryview] = {}
        for sample in samples:
            file = sample.file
            starts = known.get(file)
            if starts is None:
                try:
                    starts = known[file] = memoryview(videos[file].starts)  # type: ignore[arg-type]
                except FramefeedError:
                    continue  # noticed again, and reported, when the batch is opened
            frames = sample.frames
            for k in shown:
                frame = frames[k]
                uses.append(Use(next(clock), file, frame, starts[frame]))
        return uses
