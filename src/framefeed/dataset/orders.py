"""The order of an epoch's samples: a pure function of the layout, the seed, the epoch and the rank.

| order | a sample's neighbours | what it costs to decode |
|---|---|---|
| `Sequential` | those beside it in its file | least |
| `Chunked` | its chunk | about one group for each chunk |
| `Buffered` | any of those in the buffer | least, and a buffer of decoded samples |
| `Shuffle` | any | about one group for each sample |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from framefeed._util.lazy_property import cached_property
from framefeed.plan.randomness import keys, to_unit, whole_number

__all__ = ["Buffered", "Chunked", "Layout", "Order", "Sequential", "Shuffle", "resolve"]

DEFAULT_CHUNK_SIZE = 16
DEFAULT_BUFFER_SIZE = 1024

# The largest chunk or buffer: whole numbers up to here are exact in float64.
MAX_SIZE = 2**53

_POSSIBLE = '"sequential", "shuffle" (or "exact"), "chunked", "chunked:8", "buffered", "buffered:4096" or an Order'


class _Purpose(IntEnum):
    """What keys are for. The numbers are part of every order: never change or reuse one."""

    SHUFFLE = 0
    CHUNK_PHASES = 1
    CHUNK_ORDER = 2
    CHUNK_CUT = 3
    GROUP_ORDER = 4
    BUFFER = 5


@dataclass(frozen=True, eq=False)
class Layout:
    """Where samples lie.

    Attributes:
        num_samples: Number of samples of the dataset.
        files: First sample of each file, rising, beginning with 0. Each file has at least one sample.
        find_groups: Finds ``groups``; called when an order first asks for them, because each file has to be looked up.
    """

    num_samples: int
    files: NDArray[np.int64]
    find_groups: Callable[[], NDArray[np.int64]]

    def __post_init__(self) -> None:
        bounds = np.append(self.files, self.num_samples)
        if bounds[0] != 0 or (np.diff(bounds) <= 0).any():
            raise ValueError(
                "files have to rise, beginning with 0 and ending below num_samples: each has at least one sample"
            )

    @classmethod
    def of(cls, groups_per_file: Sequence[Sequence[int]]) -> Layout:
        """A layout from the number of samples of each group of each file."""
        lengths = np.array([sum(groups) for groups in groups_per_file], np.int64)
        sizes = np.array(list(chain.from_iterable(groups_per_file)), np.int64)
        groups = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        return cls(len(groups), np.cumsum(lengths) - lengths, lambda: groups)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """For each sample the number of its group of frames that decode together; a group's samples are neighbours."""
        groups = self.find_groups()
        if len(groups) != self.num_samples:
            raise ValueError(f"there are {self.num_samples} samples and groups for {len(groups)}")
        return groups

    @property
    def group_starts(self) -> NDArray[np.int64]:
        """First sample of each group, rising. Every file begins a group, whatever the groups' numbers are."""
        is_first = np.zeros(self.num_samples, np.bool_)
        is_first[self.files] = True
        is_first[1:] |= self.groups[1:] != self.groups[:-1]
        return np.flatnonzero(is_first).astype(np.int64, copy=False)


@runtime_checkable
class Order(Protocol):
    """An order of samples. Orders are values: equal if their parameters are, and ``repr`` shows all of these."""

    @property
    def name(self) -> str:
        """What `resolve` makes the same order from."""
        ...

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """The samples of one rank in one epoch. All ranks together have every sample once.

        Args:
            layout: Where the samples lie.
            seed: The seed of the run, at least 0.
            epoch: The number of the epoch, at least 0.
            rank: Which of the processes that share the epoch, in ``0..world-1``.
            world: How many these are. Their numbers of samples differ by one at most.
        """
        ...


@dataclass(frozen=True)
class Sequential:
    """Samples as they lie, the same in every epoch. Each rank has one piece of them."""

    @property
    def name(self) -> str:
        """What `resolve` makes the same order from."""
        return "sequential"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """The samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        piece = _piece(layout.num_samples, rank, world)
        return np.arange(piece.start, piece.stop, dtype=np.int64)


@dataclass(frozen=True)
class Shuffle:
    """All samples shuffled: each permutation is equally likely.

    Ranks take turns, so that the same step of all ranks is one run of the permutation whatever their number is.
    """

    @property
    def name(self) -> str:
        """What `resolve` makes the same order from."""
        return "shuffle"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """The samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        return _rising(keys(layout.num_samples, seed, epoch, _Purpose.SHUFFLE))[rank::world].copy()


@dataclass(frozen=True)
class Chunked:
    """Chunks of neighbouring samples of one file in shuffled order, the samples of a chunk as they lie.

    The bounds of a file's chunks are moved by a random phase in each epoch, so that no two samples always come
    together: its first and its last chunk may be shorter. The shuffled chunks are a ring that is cut at a random
    sample: every sample is equally likely at every place, also the first ones of files, which always begin a chunk.
    Where it is cut, one chunk is divided between the end and the beginning of the epoch. Each rank has one piece of
    the ring, and may begin and end within a chunk.

    Attributes:
        chunk_size: Samples of a chunk.
    """

    chunk_size: int

    def __post_init__(self) -> None:
        size = whole_number("chunk_size", self.chunk_size, least=1, most=MAX_SIZE)
        object.__setattr__(self, "chunk_size", size)

    @property
    def name(self) -> str:
        """What `resolve` makes the same order from."""
        return f"chunked:{self.chunk_size}"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """The samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        phases = keys(len(layout.files), seed, epoch, _Purpose.CHUNK_PHASES) % np.uint64(self.chunk_size)
        starts = _chunk_starts(layout, self.chunk_size, phases.astype(np.int64))
        ring = _shuffled_runs(starts, layout.num_samples, keys(len(starts), seed, epoch, _Purpose.CHUNK_ORDER))
        cut = int(keys(1, seed, epoch, _Purpose.CHUNK_CUT)[0]) % max(1, layout.num_samples)
        return np.roll(ring, cut)[_piece(layout.num_samples, rank, world)].copy()


@dataclass(frozen=True)
class Buffered:
    """Groups in shuffled order, their samples mixed with those of groups before and after.

    Sample number ``i`` of the shuffled groups is put at ``i + buffer_size * u``, with ``u`` random in ``[0, 1)``. So
    every group is read once and from its beginning, and at most ``buffer_size`` samples are held, with the one that is
    handed out next. Samples of groups that are longer than the buffer stay near each other. Each rank has one piece
    of the shuffled groups, mixed by itself: a group that lies across two pieces is read by both ranks.

    Attributes:
        buffer_size: How many samples may be held. 0 leaves groups unmixed.
    """

    buffer_size: int = DEFAULT_BUFFER_SIZE

    def __post_init__(self) -> None:
        size = whole_number("buffer_size", self.buffer_size, most=MAX_SIZE)
        object.__setattr__(self, "buffer_size", size)

    @property
    def name(self) -> str:
        """What `resolve` makes the same order from."""
        return f"buffered:{self.buffer_size}"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """The samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        starts = layout.group_starts
        stream = _shuffled_runs(starts, layout.num_samples, keys(len(starts), seed, epoch, _Purpose.GROUP_ORDER))
        piece = _piece(layout.num_samples, rank, world)
        delays = self.buffer_size * to_unit(keys(piece.stop, seed, epoch, _Purpose.BUFFER)[piece.start :])
        return stream[piece][_rising(np.arange(len(delays)) + delays)]


def resolve(order: str | Order | None, shuffle: bool) -> Order:
    """The order that is meant.

    Args:
        order: An order or its name, with its size after a colon; None for what ``shuffle`` says.
        shuffle: Whether samples are shuffled, without further wishes.
    """
    if order is None:
        return Shuffle() if shuffle else Sequential()
    if shuffle:
        raise ValueError("give either shuffle or order")
    if isinstance(order, str):
        return _from_name(order)
    if isinstance(order, type) or not isinstance(order, Order):  # a class has all methods of an order too
        raise ValueError(f"no order {order!r}; possible are {_POSSIBLE}")
    return order


def _from_name(name: str) -> Order:
    kind, colon, size = name.partition(":")
    if not colon:
        if kind == "sequential":
            return Sequential()
        if kind in ("shuffle", "exact"):
            return Shuffle()
        if kind == "chunked":
            return Chunked(DEFAULT_CHUNK_SIZE)
        if kind == "buffered":
            return Buffered()
    elif size.isdecimal():
        if kind == "chunked":
            return Chunked(int(size))
        if kind == "buffered":
            return Buffered(int(size))
    raise ValueError(f"no order {name!r}; possible are {_POSSIBLE}")


def _check(seed: int, epoch: int, rank: int, world: int) -> None:
    whole_number("seed", seed)
    whole_number("epoch", epoch)
    whole_number("rank", rank, most=whole_number("world", world, least=1) - 1)


def _piece(count: int, rank: int, world: int) -> slice:
    """The part of ``count`` things that a rank has, if each has one part and the lengths differ by one at most."""
    return slice(count * rank // world, count * (rank + 1) // world)


def _rising(values: NDArray[np.uint64] | NDArray[np.float64]) -> NDArray[np.int64]:
    """The places of values in rising order; of equal ones, the first first."""
    return np.argsort(values, kind="stable").astype(np.int64, copy=False)


def _chunk_starts(layout: Layout, chunk_size: int, phases: NDArray[np.int64]) -> NDArray[np.int64]:
    """First sample of each chunk, if each file's first chunk lacks its first ``phase`` samples."""
    lengths = np.diff(np.append(layout.files, layout.num_samples))
    counts = (phases + lengths - 1) // chunk_size + 1
    numbers = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    unbounded = np.repeat(layout.files - phases, counts) + numbers * chunk_size
    starts: NDArray[np.int64] = np.maximum(unbounded, np.repeat(layout.files, counts))
    return starts


def _shuffled_runs(starts: NDArray[np.int64], num_samples: int, order_keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """All samples, run after run, with the runs by rising key.

    Args:
        starts: First sample of each run, rising, beginning with 0.
        num_samples: Where the last run ends.
        order_keys: One for each run.
    """
    order = _rising(order_keys)
    lengths = np.diff(np.append(starts, num_samples))[order]
    places = np.cumsum(lengths) - lengths
    return np.repeat(starts[order] - places, lengths) + np.arange(num_samples, dtype=np.int64)
