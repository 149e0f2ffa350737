"""Which samples make up each batch of an epoch: an order of ours, or whatever a torch sampler says."""

from __future__ import annotations

import itertools
import operator
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from framefeed.dataset.orders import Layout, Order
from framefeed.errors import StateError

__all__ = ["BatchNumbers", "Epochs", "OrderedEpochs", "SampledEpochs", "across", "of_one_epoch"]

Batches = Iterator[NDArray[np.int64]]


class BatchNumbers(NamedTuple):
    """A batch before anything is known of it.

    Attributes:
        epoch: The epoch that it belongs to.
        samples: The numbers of its samples.
        is_last: Whether it is known to be the last one of its epoch, and others may follow.
    """

    epoch: int
    samples: NDArray[np.int64]
    is_last: bool = False


def of_one_epoch(epoch: int, batches: Batches) -> Iterator[BatchNumbers]:
    """The batches of an epoch by itself."""
    return (BatchNumbers(epoch, samples) for samples in batches)


def across(epochs: Epochs, first: int, skip: int, end: int) -> Iterator[BatchNumbers]:
    """The batches of several epochs.

    Args:
        epochs: Gives them.
        first: The first epoch.
        skip: Batches of it that are left out.
        end: The epoch behind the last.
    """
    for epoch in range(first, end):
        batches = epochs.batches(epoch, skip if epoch == first else 0)
        samples = next(batches, None)
        if samples is None:
            return
        while samples is not None:
            following = next(batches, None)
            yield BatchNumbers(epoch, samples, following is None)
            samples = following


class Epochs(Protocol):
    """Gives the batches of any epoch."""

    @property
    def name(self) -> str:
        """Stands for the order and its parameters."""

    @property
    def leaves_out_all(self) -> bool:
        """Whether an epoch has samples, but too few for a batch that is full, and others are left out."""

    def batches(self, epoch: int, skip: int) -> Batches:
        """The batches of an epoch after the first ``skip``."""

    def __len__(self) -> int:
        """Number of batches of an epoch."""

    def state(self, finished: bool) -> dict[str, Any]:
        """What is needed beside the seed and the epoch to have the same batches again, or the next epoch's."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Takes back what ``state`` gave."""


@dataclass
class OrderedEpochs:
    """Batches by one of our orders: a pure function of seed, epoch and rank, so there is nothing to save."""

    order: Order
    layout: Layout
    batch_size: int
    drop_last: bool
    seed: int
    rank: int = 0
    world: int = 1
    _share: int | None = None

    @property
    def name(self) -> str:
        """The order as it is written in code."""
        return repr(self.order)

    def __len__(self) -> int:
        if self.drop_last:  # the same for all ranks, even where one of them has a sample more
            return self.layout.num_samples // self.world // self.batch_size
        if self._share is None:  # orders share samples out in different ways
            self._share = len(self._samples(0))
        return -(-self._share // self.batch_size)

    @property
    def leaves_out_all(self) -> bool:
        """Whether there are samples, but too few for a batch that is full, and others are left out."""
        return self.drop_last and self.layout.num_samples > 0 == len(self)

    def _samples(self, epoch: int) -> NDArray[np.int64]:
        return self.order.indices(self.layout, seed=self.seed, epoch=epoch, rank=self.rank, world=self.world)

    def batches(self, epoch: int, skip: int) -> Batches:
        """The batches of an epoch after the first ``skip``."""
        samples = self._samples(epoch)
        self._share = len(samples)
        size = self.batch_size
        return (samples[number * size : (number + 1) * size] for number in range(skip, len(self)))

    def state(self, finished: bool) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing to do."""


@dataclass
class SampledEpochs:
    """Batches by a torch sampler or batch sampler.

    Its randomness comes from (seed, epoch), where it uses torch's default generator, or from its own generator, whose
    state at the beginning of the epoch is saved.
    """

    sampler: Iterable[Any]
    batch_size: int | None  # None for a batch sampler
    drop_last: bool
    seed: int
    num_samples: int

    def __post_init__(self) -> None:
        self._begin_with: Any = None  # the generator's state for the next epoch
        self._begun_with: Any = None  # and what it was for the latest
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The sampler's class, and what is known of its batches."""
        name = f"{type(self.sampler).__module__}.{type(self.sampler).__qualname__}"
        if self.batch_size is None:
            sampler: Any = self.sampler
            name += f"({getattr(sampler, 'batch_size', None)}, {getattr(sampler, 'drop_last', None)})"
        return name

    def __len__(self) -> int:
        try:
            count = len(self.sampler)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{self.name} has no length, so the loader has none") from None
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    @property
    def leaves_out_all(self) -> bool:
        """Whether the sampler has samples, but too few for a batch that is full, and others are left out."""
        sampler: Any = self.sampler
        known = self.batch_size is not None and self.drop_last and hasattr(sampler, "__len__")
        return known and len(sampler) > 0 == len(self)

    def batches(self, epoch: int, skip: int) -> Batches:
        """The batches of an epoch after the first ``skip``. The sampler is begun here, in the caller's thread."""
        with self._lock:
            found = self._begin(epoch)
        groups = map(list, found) if self.batch_size is None else _grouped(found, self.batch_size, self.drop_last)
        return (self._checked(group) for group in itertools.islice(groups, skip, None))

    def _begin(self, epoch: int) -> Iterator[Any]:
        import torch

        sampler: Any = self.sampler
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        generator = _generator(sampler)
        if generator is not None:
            if self._begin_with is not None:
                generator.set_state(self._begin_with)
            self._begun_with = generator.get_state()
            self._begin_with = None
        # Samplers draw when they are first asked: then torch's generator is ours for a moment.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_mix(self.seed, epoch))
            source = iter(sampler)
            try:
                first = list(itertools.islice(source, 1))
            except Exception as error:  # for whoever asks for the first batch
                return map(_raise, [error])
        return itertools.chain(first, source)

    def _checked(self, group: list[Any]) -> NDArray[np.int64]:
        samples = np.array([operator.index(sample) for sample in group], np.int64)
        outside = (samples < -self.num_samples) | (samples >= self.num_samples)
        if outside.any():
            raise IndexError(
                f"{self.name} asks for sample {samples[outside][0]}; samples are 0..{self.num_samples - 1}"
            )
        return np.where(samples < 0, samples + self.num_samples, samples)

    def state(self, finished: bool) -> dict[str, Any]:
        """The state of the sampler's own generator, where it has one: at the beginning of the epoch or of the next."""
        generator = _generator(self.sampler)
        if generator is None:
            return {}
        if finished or self._begun_with is None:
            found = self._begin_with if self._begin_with is not None else generator.get_state()
        else:
            found = self._begun_with
        return {"generator": found.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        """The next epoch begins with that generator."""
        import torch

        if "generator" in state:
            found, own = torch.tensor(state["generator"], dtype=torch.uint8), _generator(self.sampler)
            if own is None or len(own.get_state()) != len(found):
                raise StateError("state", "belongs to another sampler: its generator is of another kind")
            self._begin_with = found


def _raise(error: Exception) -> Any:
    raise error


def _generator(sampler: Any) -> Any:
    for owner in (sampler, getattr(sampler, "sampler", None)):
        generator = getattr(owner, "generator", None)
        if generator is not None:
            return generator
    return None


def _mix(seed: int, epoch: int) -> int:
    digest = blake2b(f"{seed} {epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _grouped(samples: Iterator[Any], size: int, drop_last: bool) -> Iterator[list[Any]]:
    while True:
        group = list(itertools.islice(samples, size))
        if not group or (drop_last and len(group) < size):
            return
        yield group
