"""Sampling methods that are not orders of the loader: common alternatives, for comparison.

| model | how a batch is drawn | drawback |
|---|---|---|
| `Independent` | each frame independently, from all frames | none: the reference |
| `SlidingWindow` | runs of frames, from starts that leave room for them | frames near file ends are rarer |
| `FileFirst` | a file, then a frame of it | frames of short files are too frequent |
| `OneFile` | frames of one file | the other files never occur |
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
    """A method that draws batches independently of each other."""

    @property
    def name(self) -> str:
        """Name in tables."""
        ...

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Draws frames of ``count`` batches, one row each."""
        ...


@dataclass(frozen=True)
class Independent:
    """Draws each frame of a batch independently from all frames."""

    @property
    def name(self) -> str:
        """Name in tables."""
        return "independent"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Draws frames of ``count`` batches, one row each."""
        return np.random.default_rng(seed).integers(0, population.num_frames, (count, batch_size))


@dataclass(frozen=True)
class SlidingWindow:
    """Draws runs of consecutive frames: each start that leaves room for a whole run in its file is equally likely.

    A batch consists of runs; its last run is cut where the batch is full. Files shorter than a run are never drawn.

    Attributes:
        window: Frames in a run.
    """

    window: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", whole_number("window", self.window, least=1))

    @property
    def name(self) -> str:
        """Name in tables."""
        return f"window:{self.window}"

    def starts(self, population: Population) -> NDArray[np.int64]:
        """Returns the number of possible run starts in each file.

        Raises:
            ValueError: No file is long enough.
        """
        starts: NDArray[np.int64] = np.maximum(0, population.file_sizes - self.window + 1)
        if not starts.any():
            raise ValueError(f"no file has {self.window} frames; the longest has {population.file_sizes.max()}")
        return starts

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Draws frames of ``count`` batches, one row each."""
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
    """Draws a file for each frame, all files being equally likely, then a frame of it."""

    @property
    def name(self) -> str:
        """Name in tables."""
        return "file first"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Draws frames of ``count`` batches, one row each."""
        rng = np.random.default_rng(seed)
        files = rng.integers(0, population.num_files, (count, batch_size))
        places = rng.integers(0, population.file_sizes[files])
        drawn: NDArray[np.int64] = population.file_starts[files] + places
        return drawn


@dataclass(frozen=True)
class OneFile:
    """Draws all frames from one and the same file.

    Attributes:
        file: Its number.
    """

    file: int = 0

    @property
    def name(self) -> str:
        """Name in tables."""
        return "one file"

    def draw(self, population: Population, batch_size: int, count: int, seed: int) -> NDArray[np.int64]:
        """Draws frames of ``count`` batches, one row each."""
        first = int(population.file_starts[self.file])
        size = int(population.file_sizes[self.file])
        return first + np.random.default_rng(seed).integers(0, size, (count, batch_size))
