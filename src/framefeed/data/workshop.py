"""What a loader's threads do with pictures, on the CPU or on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from framefeed.data.assembly import Assembly, Place, SampleRef, write_bases
from framefeed.data.store import FrameStore
from framefeed.data.videos import Bases, OpenVideo, Videos
from framefeed.decode.default import cpu_engine
from framefeed.decode.engine import Engine, available_cpus

__all__ = ["CpuWorkshop", "Workshop"]


class Workshop(Protocol):
    """Turns pictures into what is kept of them, and that into batches. Used by several threads at once.

    Attributes:
        chunk: How many pictures of a job are best worked on together.
    """

    chunk: int

    @property
    def num_threads(self) -> int:
        """How many threads keep the device busy."""

    def engine_for(self, video: OpenVideo) -> Engine:
        """What decodes a video."""

    @property
    def memory_held(self) -> int:
        """Bytes of frames that are kept, with room for more."""

    @property
    def memory_peak(self) -> int:
        """The most there has been."""

    def assemble(self, videos: Videos, samples: Sequence[SampleRef], length: int) -> Assembly:
        """Begins a batch."""

    def allocate(self, video: OpenVideo) -> Any:
        """Memory for a frame that will be kept."""

    def scratch(self, video: OpenVideo, number: int) -> Any:
        """This thread's own memory for a frame that will not, one for each of a chunk."""

    def give_back(self, bases: Any) -> None:
        """Takes memory back that nobody looks at any more."""

    def write(self, video: OpenVideo, picture: Any, bases: Any, frame: int) -> None:
        """Takes a picture, which is gone afterwards."""

    def complete(self) -> None:
        """Ends a chunk: what was written by this thread can be used."""

    def put(self, assembly: Assembly, frames: Sequence[tuple[Any, Sequence[Place]]]) -> None:
        """Writes frames to their places in a batch."""

    def copy(self, bases: Any, to: Any) -> None:
        """Copies a frame."""

    def hand_out(self, assembly: Assembly) -> None:
        """Makes a complete batch ready for the consumer, in whose thread this is called."""


class CpuWorkshop:
    """Everything in this process's memory.

    Args:
        memory_budget: What frames that are kept may take.
    """

    chunk = 1

    def __init__(self, memory_budget: int) -> None:
        self._store = FrameStore(memory_budget)
        self._local = threading.local()

    @property
    def num_threads(self) -> int:
        """How many threads keep the device busy."""
        return available_cpus()

    def engine_for(self, video: OpenVideo) -> Engine:
        """The CPU's."""
        return cpu_engine()

    @property
    def memory_held(self) -> int:
        """Bytes of frames that are kept, with room for more."""
        return self._store.num_bytes

    @property
    def memory_peak(self) -> int:
        """The most there has been."""
        return self._store.peak_bytes

    def assemble(self, videos: Videos, samples: Sequence[SampleRef], length: int) -> Assembly:
        """Begins a batch."""
        return Assembly(videos, samples, length, stacked=True)

    def allocate(self, video: OpenVideo) -> Bases:
        """Memory for a frame that will be kept."""
        return self._store.allocate(video.base_shapes)

    def scratch(self, video: OpenVideo, number: int) -> Bases:
        """This thread's own memory for a frame that will not."""
        shapes = video.base_shapes
        found: tuple[Any, Bases] | None = getattr(self._local, "scratch", None)
        if found is None or (found[0] is not shapes and found[0] != shapes):
            found = (shapes, {kind: np.empty(shape, np.uint8) for kind, shape in shapes.items()})
            self._local.scratch = found
        return found[1]

    def give_back(self, bases: Bases) -> None:
        """Takes memory back that nobody looks at any more."""
        self._store.give_back(bases)

    def write(self, video: OpenVideo, picture: Any, bases: Bases, frame: int) -> None:
        """Converts a picture."""
        write_bases(video, picture, bases, frame)

    def complete(self) -> None:
        """Nothing to do."""

    def put(self, assembly: Assembly, frames: Sequence[tuple[Bases, Sequence[Place]]]) -> None:
        """Writes frames to their places in a batch."""
        for bases, places in frames:
            assembly.put(bases, places)

    def copy(self, bases: Bases, to: Bases) -> None:
        """Copies a frame."""
        for kind, array in bases.items():
            to[kind][...] = array

    def hand_out(self, assembly: Assembly) -> None:
        """Nothing to do."""
