"""Batches of an epoch: sample numbers from a framefeed order or from a torch sampler."""

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
    """Sample numbers of a batch.

    Attributes:
        epoch: The epoch of the batch.
        samples: Sample numbers.
        is_last: True if it is known to be the last batch of its epoch, and more epochs may follow.
    """

    epoch: int
    samples: NDArray[np.int64]
    is_last: bool = False


def of_one_epoch(epoch: int, batches: Batches) -> Iterator[BatchNumbers]:
    """Yields the batches of a single epoch."""
    return (BatchNumbers(epoch, samples) for samples in batches)


def across(epochs: Epochs, first: int, skip: int, end: int) -> Iterator[BatchNumbers]:
    """Yields the batches of several epochs.

    Args:
        epochs: Source of batches.
        first: First epoch.
        skip: Number of batches of the first epoch to skip.
        end: End of the range of epochs.
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
    """Source of the batches of any epoch."""

    @property
    def name(self) -> str:
        """Name of the order, with its parameters."""

    @property
    def leaves_out_all(self) -> bool:
        """True if an epoch has samples, but too few for a full batch, and short batches are dropped."""

    def batches(self, epoch: int, skip: int) -> Batches:
        """Yields the batches of an epoch after the first ``skip``."""

    def __len__(self) -> int:
        """Returns the number of batches in an epoch."""

    def state(self, finished: bool) -> dict[str, Any]:
        """Returns the state that, with seed and epoch, gives the batches of this epoch or of the next."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores a state returned by ``state``."""


@dataclass
class OrderedEpochs:
    """Batches in a framefeed order: a pure function of seed, epoch and rank, without any state to save."""

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
        """The order's representation in code."""
        return repr(self.order)

    def __len__(self) -> int:
        if self.drop_last:  # equal for all ranks, even if some have one sample more
            return self.layout.num_samples // self.world // self.batch_size
        if self._share is None:  # the share depends on the order
            self._share = len(self._samples(0))
        return -(-self._share // self.batch_size)

    @property
    def leaves_out_all(self) -> bool:
        """True if there are samples, but too few for a full batch, and short batches are dropped."""
        return self.drop_last and self.layout.num_samples > 0 == len(self)

    def _samples(self, epoch: int) -> NDArray[np.int64]:
        return self.order.indices(self.layout, seed=self.seed, epoch=epoch, rank=self.rank, world=self.world)

    def batches(self, epoch: int, skip: int) -> Batches:
        """Yields the batches of an epoch after the first ``skip``."""
        samples = self._samples(epoch)
        self._share = len(samples)
        size = self.batch_size
        return (samples[number * size : (number + 1) * size] for number in range(skip, len(self)))

    def state(self, finished: bool) -> dict[str, Any]:
        """Returns an empty state."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Does nothing: there is no state."""


@dataclass
class SampledEpochs:
    """Batches from a torch sampler or batch sampler.

    Its randomness comes from (seed, epoch) if it uses torch's default generator, or from its own generator, whose state
    at the start of the epoch is saved.
    """

    sampler: Iterable[Any]
    batch_size: int | None  # None for a batch sampler
    drop_last: bool
    seed: int
    num_samples: int

    def __post_init__(self) -> None:
        self._begin_with: Any = None  # generator state for the next epoch
        self._begun_with: Any = None  # generator state at the start of the latest epoch
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The sampler's class, and its batch options if known."""
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
        """True if the sampler has samples, but too few for a full batch, and short batches are dropped."""
        sampler: Any = self.sampler
        known = self.batch_size is not None and self.drop_last and hasattr(sampler, "__len__")
        return known and len(sampler) > 0 == len(self)

    def batches(self, epoch: int, skip: int) -> Batches:
        """Yields the batches of an epoch after the first ``skip``. Starts the sampler here, in the caller's thread."""
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
        # Samplers draw on their first step: set torch's generator for that moment only.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_mix(self.seed, epoch))
            source = iter(sampler)
            try:
                first = list(itertools.islice(source, 1))
            except Exception as error:  # raised when the first batch is requested
                return map(_raise, [error])
        return itertools.chain(first, source)

    def _checked(self, group: list[Any]) -> NDArray[np.int64]:
        samples = np.array([operator.index(sample) for sample in group], np.int64)
        outside = (samples < -self.num_samples) | (samples >= self.num_samples)
        if outside.any():
            raise IndexError(
                f"{self.name} returned sample {samples[outside][0]}; samples are 0..{self.num_samples - 1}"
            )
        return np.where(samples < 0, samples + self.num_samples, samples)

    def state(self, finished: bool) -> dict[str, Any]:
        """Returns the state of the sampler's own generator, if any: at the start of this epoch or of the next."""
        generator = _generator(self.sampler)
        if generator is None:
            return {}
        if finished or self._begun_with is None:
            found = self._begin_with if self._begin_with is not None else generator.get_state()
        else:
            found = self._begun_with
        return {"generator": found.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Sets the generator state for the next epoch."""
        import torch

        if "generator" in state:
            found, own = torch.tensor(state["generator"], dtype=torch.uint8), _generator(self.sampler)
            if own is None or len(own.get_state()) != len(found):
                raise StateError("state", "belongs to another sampler: its generator has another type")
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
