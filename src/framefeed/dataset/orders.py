"""Orders of an epoch's samples: pure functions of the layout, seed, epoch and rank.

| order | neighbours of a sample | decoding cost |
|---|---|---|
| `Sequential` | the adjacent samples of its file | lowest |
| `Chunked` | its chunk | about one group per chunk |
| `Buffered` | any samples in the buffer | lowest, plus a buffer of decoded samples |
| `Shuffle` | any | about one group per sample |
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

# Largest chunk or buffer: integers up to here are exact in float64.
MAX_SIZE = 2**53

_POSSIBLE = '"sequential", "shuffle" (or "exact"), "chunked", "chunked:8", "buffered", "buffered:4096" or an Order'


class _Purpose(IntEnum):
    """Purposes of random keys. The numbers are part of every order: never change or reuse one."""

    SHUFFLE = 0
    CHUNK_PHASES = 1
    CHUNK_ORDER = 2
    CHUNK_CUT = 3
    GROUP_ORDER = 4
    BUFFER = 5


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of samples in files and groups.

    Attributes:
        num_samples: Number of samples in the dataset.
        files: First sample of each file, rising from 0. Each file has at least one sample.
        find_groups: Computes ``groups``; called on first use, because it has to look up each file.
    """

    num_samples: int
    files: NDArray[np.int64]
    find_groups: Callable[[], NDArray[np.int64]]

    def __post_init__(self) -> None:
        bounds = np.append(self.files, self.num_samples)
        if bounds[0] != 0 or (np.diff(bounds) <= 0).any():
            raise ValueError("files must rise from 0 and stay below num_samples: each file has at least one sample")

    @classmethod
    def of(cls, groups_per_file: Sequence[Sequence[int]]) -> Layout:
        """Creates a layout from the number of samples of each group of each file."""
        lengths = np.array([sum(groups) for groups in groups_per_file], np.int64)
        sizes = np.array(list(chain.from_iterable(groups_per_file)), np.int64)
        groups = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
        return cls(len(groups), np.cumsum(lengths) - lengths, lambda: groups)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """Group number of each sample: samples of one group decode together and are adjacent."""
        groups = self.find_groups()
        if len(groups) != self.num_samples:
            raise ValueError(f"groups must have one entry per sample: got {len(groups)} for {self.num_samples} samples")
        return groups

    @property
    def group_starts(self) -> NDArray[np.int64]:
        """First sample of each group, rising. Every file begins a new group."""
        is_first = np.zeros(self.num_samples, np.bool_)
        is_first[self.files] = True
        is_first[1:] |= self.groups[1:] != self.groups[:-1]
        return np.flatnonzero(is_first).astype(np.int64, copy=False)


@runtime_checkable
class Order(Protocol):
    """An order of samples. Orders compare by value, and ``repr`` shows all parameters."""

    @property
    def name(self) -> str:
        """Name from which `resolve` creates the same order."""
        ...

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Returns the samples of one rank in one epoch. All ranks together have every sample once.

        Args:
            layout: Positions of the samples.
            seed: Seed of the run, at least 0.
            epoch: Number of the epoch, at least 0.
            rank: Rank of this process, in ``0..world-1``.
            world: Number of ranks. Their shares differ by at most one sample.
        """
        ...


@dataclass(frozen=True)
class Sequential:
    """Samples in file order, the same in every epoch. Each rank has one contiguous part."""

    @property
    def name(self) -> str:
        """Name from which `resolve` creates the same order."""
        return "sequential"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Returns the samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        piece = _piece(layout.num_samples, rank, world)
        return np.arange(piece.start, piece.stop, dtype=np.int64)


@dataclass(frozen=True)
class Shuffle:
    """All samples shuffled: each permutation is equally likely.

    Ranks take turns, so one step of all ranks is one run of the permutation, for any number of ranks.
    """

    @property
    def name(self) -> str:
        """Name from which `resolve` creates the same order."""
        return "shuffle"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Returns the samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        return _rising(keys(layout.num_samples, seed, epoch, _Purpose.SHUFFLE))[rank::world].copy()


@dataclass(frozen=True)
class Chunked:
    """Chunks of adjacent samples of one file in shuffled order; samples within a chunk stay in order.

    A random phase moves the chunk bounds of each file in each epoch, so that no two samples always come together; the
    first and the last chunk of a file may be shorter. The shuffled chunks form a ring that is cut at a random sample.
    So every sample is equally likely at every position, including the first samples of files, which always begin a
    chunk. The cut divides one chunk between the end and the start of the epoch. Each rank has one contiguous part of
    the ring, and may begin and end within a chunk.

    Attributes:
        chunk_size: Number of samples in a chunk.
    """

    chunk_size: int

    def __post_init__(self) -> None:
        size = whole_number("chunk_size", self.chunk_size, least=1, most=MAX_SIZE)
        object.__setattr__(self, "chunk_size", size)

    @property
    def name(self) -> str:
        """Name from which `resolve` creates the same order."""
        return f"chunked:{self.chunk_size}"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Returns the samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        phases = keys(len(layout.files), seed, epoch, _Purpose.CHUNK_PHASES) % np.uint64(self.chunk_size)
        starts = _chunk_starts(layout, self.chunk_size, phases.astype(np.int64))
        ring = _shuffled_runs(starts, layout.num_samples, keys(len(starts), seed, epoch, _Purpose.CHUNK_ORDER))
        cut = int(keys(1, seed, epoch, _Purpose.CHUNK_CUT)[0]) % max(1, layout.num_samples)
        return np.roll(ring, cut)[_piece(layout.num_samples, rank, world)].copy()


@dataclass(frozen=True)
class Buffered:
    """Groups in shuffled order, with their samples mixed into those of nearby groups.

    Sample number ``i`` of the shuffled groups moves to ``i + buffer_size * u``, with ``u`` random in ``[0, 1)``. So
    every group is read once, from its start, and at most ``buffer_size`` samples are buffered, plus the one handed out
    next. Samples of groups longer than the buffer stay near each other. Each rank mixes one contiguous part of the
    shuffled groups: a group that crosses two parts is read by both ranks.

    Attributes:
        buffer_size: Largest number of buffered samples. 0 leaves groups unmixed.
    """

    buffer_size: int = DEFAULT_BUFFER_SIZE

    def __post_init__(self) -> None:
        size = whole_number("buffer_size", self.buffer_size, most=MAX_SIZE)
        object.__setattr__(self, "buffer_size", size)

    @property
    def name(self) -> str:
        """Name from which `resolve` creates the same order."""
        return f"buffered:{self.buffer_size}"

    def indices(self, layout: Layout, *, seed: int, epoch: int, rank: int = 0, world: int = 1) -> NDArray[np.int64]:
        """Returns the samples of one rank in one epoch; see `Order.indices`."""
        _check(seed, epoch, rank, world)
        starts = layout.group_starts
        stream = _shuffled_runs(starts, layout.num_samples, keys(len(starts), seed, epoch, _Purpose.GROUP_ORDER))
        piece = _piece(layout.num_samples, rank, world)
        delays = self.buffer_size * to_unit(keys(piece.stop, seed, epoch, _Purpose.BUFFER)[piece.start :])
        return stream[piece][_rising(np.arange(len(delays)) + delays)]


def resolve(order: str | Order | None, shuffle: bool) -> Order:
    """Returns the order for the given options.

    Args:
        order: An order, or its name with an optional size after a colon; None to use ``shuffle``.
        shuffle: Chooses between `Shuffle` and `Sequential`.
    """
    if order is None:
        return Shuffle() if shuffle else Sequential()
    if shuffle:
        raise ValueError("shuffle and order cannot be combined")
    if isinstance(order, str):
        return _from_name(order)
    if isinstance(order, type) or not isinstance(order, Order):  # the class itself also has all methods of an order
        raise ValueError(f"unknown order {order!r}; expected {_POSSIBLE}")
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
    raise ValueError(f"unknown order {name!r}; expected {_POSSIBLE}")


def _check(seed: int, epoch: int, rank: int, world: int) -> None:
    whole_number("seed", seed)
    whole_number("epoch", epoch)
    whole_number("rank", rank, most=whole_number("world", world, least=1) - 1)


def _piece(count: int, rank: int, world: int) -> slice:
    """Returns a rank's contiguous part of ``count`` items; parts differ by at most one item."""
    return slice(count * rank // world, count * (rank + 1) // world)


def _rising(values: NDArray[np.uint64] | NDArray[np.float64]) -> NDArray[np.int64]:
    """Returns a stable argsort of the values."""
    return np.argsort(values, kind="stable").astype(np.int64, copy=False)


def _chunk_starts(layout: Layout, chunk_size: int, phases: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the first sample of each chunk, if each file's first chunk lacks its first ``phase`` samples."""
    lengths = np.diff(np.append(layout.files, layout.num_samples))
    counts = (phases + lengths - 1) // chunk_size + 1
    numbers = np.arange(counts.sum(), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
    unbounded = np.repeat(layout.files - phases, counts) + numbers * chunk_size
    starts: NDArray[np.int64] = np.maximum(unbounded, np.repeat(layout.files, counts))
    return starts


def _shuffled_runs(starts: NDArray[np.int64], num_samples: int, order_keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns all samples, run after run, with the runs sorted by key.

    Args:
        starts: First sample of each run, rising from 0.
        num_samples: End of the last run.
        order_keys: One key for each run.
    """
    order = _rising(order_keys)
    lengths = np.diff(np.append(starts, num_samples))[order]
    places = np.cumsum(lengths) - lengths
    return np.repeat(starts[order] - places, lengths) + np.arange(num_samples, dtype=np.int64)
