"""Ways to draw that are no orders of the loader: what people write instead, for comparison.

| model | how a batch is drawn | what is wrong with it |
|---|---|---|
| `Independent` | each frame by itself, from all frames | nothing: it is what the others are compared with |
| `SlidingWindow` | runs of frames, from starts that leave room for them | frames near ends of files come less often |
| `FileFirst` | a file, then a frame of it | frames of short files come too often |
| `OneFile` | frames of one file | the other files never come |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from framefeed.plan.randomness import whole_number
from framefeed.sampling.population import Population

__all__ = ["FileFirst", "Independent", "Model", "OneFile", "SlidingWindow"]


@runtime_checkable
class Model(Protocol):
    """A way to draw batches, independent of each other."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Frames of ``count`` batches, a row each."""
        ...


@dataclass(frozen=True)
class Independent:
    """Each frame of a batch is drawn from all frames, whatever the others are."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return "independent"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Frames of ``count`` batches, a row each."""
        return np.random.default_rng(seed).integers(0, population.num_frames, (count, batch_size))


@dataclass(frozen=True)
class SlidingWindow:
    """Runs of neighbouring frames: each start that leaves room for a whole run in its file is equally likely.

    A batch is filled with runs; its last run is cut where the batch is full. Files that are shorter than a run are
    never drawn.

    Attributes:
        window: Frames of a run.
    """

    window: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", whole_number("window", self.window, least=1))

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"window:{self.window}"

    def starts(self, population: Population) -> NDArray[np.int64]:
        """For each file, how many runs begin in it.

        Raises:
            ValueError: No file has room for one.
        """
        starts: NDArray[np.int64] = np.maximum(0, population.file_sizes - self.window + 1)
        if not starts.any():
            raise ValueError(f"no file has {self.window} frames; the longest has {population.file_sizes.max()}")
        return starts

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Frames of ``count`` batches, a row each."""
        starts = self.starts(population)
        ends = np.cumsum(starts)
        runs = -(-batch_size // self.window)
        numbers = np.random.default_rng(seed).integers(0, ends[-1], (count, runs))
        files = np.searchsorted(ends, numbers, side="right")
        firsts = numbers - (ends - starts)[files] + population.file_starts[files]
        frames = firsts[:, :, None] + np.arange(self.window)
        drawn: NDArray[np.int64] = frames.reshape(count, -1)[:, :batch_size]
        return drawn


@dataclass(frozen=True)
class FileFirst:
    """Each frame of a batch is drawn from a file that is drawn first, all files being equally likely."""

    @property
    def name(self) -> str:
        """What tables call it."""
        return "file first"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Frames of ``count`` batches, a row each."""
        rng = np.random.default_rng(seed)
        files = rng.integers(0, population.num_files, (count, batch_size))
        places = rng.integers(0, population.file_sizes[files])
        drawn: NDArray[np.int64] = population.file_starts[files] + places
        return drawn


@dataclass(frozen=True)
class OneFile:
    """Each frame of a batch is drawn from one and the same file.

    Attributes:
        file: Its number.
    """

    file: int = 0

    @property
    def name(self) -> str:
        """What tables call it."""
        return "one file"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Frames of ``count`` batches, a row each."""
        first = int(population.file_starts[self.file])
        size = int(population.file_sizes[self.file])
        return first + np.random.default_rng(seed).integers(0, size, (count, batch_size))
