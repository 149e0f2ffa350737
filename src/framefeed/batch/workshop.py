"""Work of a loader's threads on pictures, on the CPU or on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from framefeed._util.limits import available_cpus
from framefeed.batch.assembly import Assembly, Place, Samples, SampleShape, write_intermediates
from framefeed.batch.frame_store import FrameStore
from framefeed.batch.videos import Intermediates, OpenVideo, Videos
from framefeed.batch.work import Taken
from framefeed.decode.default import cpu_engine
from framefeed.decode.session import Taker
from framefeed.errors import FrameSizeError
from framefeed.request import decode_frames
from framefeed.source import PacketSource

__all__ = ["CpuWorkshop", "Workshop", "decode_on_cpu"]


class Workshop(Protocol):
    """Turns pictures into what is kept of them, and that into batches. Used by several threads at once.

    Attributes:
        put_length: How many kept frames one thread best puts into a batch in one go.
        frames_ahead: How many frames must be waited for to keep all threads busy; batches are opened early for it.
        groups_ahead: How many groups these must be of.
        frames_at_once: For how many frames more batches are best opened in one go.
        frames_together: How many frames of neighbouring groups are better decoded in one go.
    """

    put_length: int
    frames_ahead: int
    groups_ahead: int
    frames_at_once: int
    frames_together: int

    @property
    def num_threads(self) -> int:
        """Number of threads that keep the device busy."""

    @property
    def memory_held(self) -> int:
        """Bytes of frames that are kept, with room for more."""

    @property
    def memory_peak(self) -> int:
        """The most there has been."""

    def decode(
        self, video: OpenVideo, source: PacketSource, frames: Sequence[int], taker: Taker, *, read_on: bool
    ) -> None:
        """Decodes frames of a video in this thread.

        Args:
            video: The video.
            source: Gives its packets.
            frames: Their numbers, each once.
            taker: Takes the pictures.
            read_on: Whether the frames that follow will be asked for next.

        Raises:
            DecodeError: A frame could not be decoded exactly.
        """

    def begin(self) -> None:
        """Somebody begins to use it."""

    def end(self) -> None:
        """Somebody has no more use for it."""

    def assemble(self, videos: Videos, samples: Samples, shape: SampleShape) -> Assembly:
        """Begins a batch."""

    def allocate(self, video: OpenVideo) -> Any:
        """Memory for a frame that will be kept."""

    def give_back(self, bases: Any) -> None:
        """Takes memory back that nobody looks at any more."""

    def take(self, video: OpenVideo, pictures: Sequence[Taken]) -> None:
        """Writes pictures to their places in batches, and those that are to be kept to their memory."""

    def reject(self, pictures: Sequence[Taken]) -> None:
        """Pictures that were taken are not the right ones: memory goes back, and their places are written again."""

    def put(self, assembly: Assembly, frames: Sequence[tuple[Any, Sequence[Place]]]) -> None:
        """Writes kept frames to their places in a batch."""

    def hand_out(self, assembly: Assembly) -> None:
        """Makes a complete batch ready for the consumer, in whose thread this is called."""


def decode_on_cpu(
    video: OpenVideo, source: PacketSource, frames: Sequence[int], taker: Taker, *, read_on: bool
) -> None:
    """Decodes frames of a video on the CPU; the arguments are those of ``Workshop.decode``."""

    def sink(row: int, picture: Any) -> None:
        taker.take([row], [picture])
        taker.confirm()

    decode_frames(cpu_engine(), video.index, source, frames, sink, num_threads=1, read_on=read_on)


class CpuWorkshop:
    """Everything in this process's memory.

    Args:
        memory_budget: What frames that are kept may take.
    """

    put_length = 16
    frames_together = 0
    # What is decoded early is kept instead: writing it into a batch later costs little.
    frames_ahead = groups_ahead = frames_at_once = 0

    def __init__(self, memory_budget: int) -> None:
        self._store = FrameStore(memory_budget)
        self._local = threading.local()

    @property
    def num_threads(self) -> int:
        """Number of threads that keep the device busy."""
        return available_cpus()

    def begin(self) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""

    def decode(
        self, video: OpenVideo, source: PacketSource, frames: Sequence[int], taker: Taker, *, read_on: bool
    ) -> None:
        """Decodes frames."""
        decode_on_cpu(video, source, frames, taker, read_on=read_on)

    @property
    def memory_held(self) -> int:
        """Bytes of frames that are kept, with room for more."""
        return self._store.num_bytes

    @property
    def memory_peak(self) -> int:
        """The most there has been."""
        return self._store.peak_bytes

    def assemble(self, videos: Videos, samples: Samples, shape: SampleShape) -> Assembly:
        """Begins a batch."""
        return Assembly(videos, samples, shape, stacked=True)

    def allocate(self, video: OpenVideo) -> Intermediates:
        """Memory for a frame that will be kept."""
        return self._store.allocate(video.intermediate_shapes)

    def give_back(self, bases: Intermediates) -> None:
        """Takes memory back that nobody looks at any more."""
        self._store.give_back(bases)

    def take(self, video: OpenVideo, pictures: Sequence[Taken]) -> None:
        """Writes pictures to where they are wanted."""
        for taken in pictures:
            bases = taken.bases if taken.bases is not None else self._scratch(video)
            try:
                write_intermediates(video, taken.picture, bases, taken.number)
            except FrameSizeError as error:
                taken.error = error
                continue
            for assembly, places in taken.places:
                assembly.put(bases, places)

    def reject(self, pictures: Sequence[Taken]) -> None:
        """Takes memory back; all else is simply written again."""
        for taken in pictures:
            if taken.bases is not None:
                self.give_back(taken.bases)

    def _scratch(self, video: OpenVideo) -> Intermediates:
        """This thread's own memory for a frame that will not be kept."""
        shapes = video.intermediate_shapes
        found: tuple[Any, Intermediates] | None = getattr(self._local, "scratch", None)
        if found is None or (found[0] is not shapes and found[0] != shapes):
            found = (shapes, {kind: np.empty(shape, np.uint8) for kind, shape in shapes.items()})
            self._local.scratch = found
        return found[1]

    def put(self, assembly: Assembly, frames: Sequence[tuple[Intermediates, Sequence[Place]]]) -> None:
        """Writes frames to their places in a batch."""
        for bases, places in frames:
            assembly.put(bases, places)

    def hand_out(self, assembly: Assembly) -> None:
        """Nothing to do."""
