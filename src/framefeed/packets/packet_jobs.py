"""Jobs for a batch of packets: decode frames of a group, and copy frames into the batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from framefeed._util.nvtx import DECODE, PROCESS
from framefeed._util.process.threads import Flag
from framefeed.batch.assembly import Assembly
from framefeed.batch.work import Taken
from framefeed.batch.workshop import Workshop
from framefeed.errors import DecodeError, FramefeedError
from framefeed.packets.group_store import GroupStore, HeldGroup, KeptFrame, Places
from framefeed.packets.packet_group import PacketGroup
from framefeed.source.counting import CountedSource

__all__ = ["DecodeFrames", "Failed", "Means", "PacketJob", "PutFrames", "PutLater"]

Failed = Mapping[int, FramefeedError]
"""Failed frames of a group, with errors."""


class PacketJob(Protocol):
    """A job for a batch."""

    def run(self) -> Failed:
        """Runs in this thread; returns failed frames. Releases its resources in any case."""

    def stop(self) -> None:
        """Cancels the job: its batch was abandoned."""


@dataclass(frozen=True, eq=False)
class Means:
    """Resources shared by jobs.

    Attributes:
        store: Frame cache.
        workshop: Processes pictures.
        closed: Flag that ends all work.
    """

    store: GroupStore
    workshop: Workshop
    closed: Flag


class _JobStopped(Exception):
    """Ends a cancelled job."""


class DecodeFrames:
    """Decodes frames of a group, into a batch and into the cache.

    Args:
        means: Shared resources.
        held: The group.
        assembly: The batch.

    Attributes:
        wanted: Frames for the batch, and their destinations.
        keep: Frames for the cache.
    """

    def __init__(self, means: Means, held: HeldGroup, assembly: Assembly) -> None:
        self._means = means
        self._held = held
        self._assembly = assembly
        self.wanted: dict[int, Places] = {}
        self.keep: dict[int, KeptFrame] = {}
        self._frames: list[int] = []
        self._stopped = False
        self._taken: list[tuple[int, Taken]] = []
        self._came: dict[int, Any] = {}
        self._failed: dict[int, FramefeedError] = {}

    def run(self) -> Failed:
        """Decodes the frames."""
        video = self._held.video
        source = CountedSource(video.source)
        self._frames = sorted({*self.wanted, *self.keep})
        try:
            self._check_wanted()
            with DECODE:
                self._means.workshop.decode(video, source, self._frames, self, read_on=False)
            self._fail_others(None)
        except DecodeError as error:
            self._fail_others(error)
        except _JobStopped:
            pass
        finally:
            self.reject()
            packets, _ = source.take_counts()
            self._means.store.end_job(self._held, self.keep, self._came, self._failed, packets)
        return {frame: error for frame, error in self._failed.items() if frame in self.wanted}

    def stop(self) -> None:
        """Stops at the next picture."""
        self._stopped = True

    def _check_wanted(self) -> None:
        if self._stopped or self._means.closed.up:
            raise _JobStopped

    def take(self, rows: list[int], pictures: list[Any]) -> None:
        """Copies pictures to their destinations."""
        self._check_wanted()
        workshop, video = self._means.workshop, self._held.video
        taken = []
        for row, picture in zip(rows, pictures, strict=True):
            frame = self._frames[row]
            bases = workshop.allocate(video) if frame in self.keep else None
            places = [(self._assembly, self.wanted[frame])] if frame in self.wanted else []
            taken.append((frame, Taken(int(self._held.group.numbers[frame]), picture, bases, places)))
        self._taken += taken
        with PROCESS:
            workshop.take(video, [each for _, each in taken])

    def confirm(self) -> None:
        """Accepts the pictures taken since the last call."""
        for frame, taken in self._taken:
            if taken.error is None:
                self._came[frame] = taken.bases
                continue
            assert isinstance(taken.error, FramefeedError)
            self._failed[frame] = taken.error
            if taken.bases is not None:
                self._means.workshop.give_back(taken.bases)
        self._taken.clear()

    def reject(self) -> None:
        """Discards the pictures taken since the last ``confirm``."""
        self._means.workshop.reject([taken for _, taken in self._taken])
        self._taken.clear()

    def _fail_others(self, error: DecodeError | None) -> None:
        """Records errors for the remaining frames."""
        for frame in self._frames:
            if frame not in self._came and frame not in self._failed:
                self._failed[frame] = _error_of(self._held.group, frame, error)


class PutFrames:
    """Copies cached frames of any groups into a batch.

    Args:
        means: Shared resources.
        assembly: The batch.

    Attributes:
        frames: The frames, with their groups and destinations.
    """

    def __init__(self, means: Means, assembly: Assembly) -> None:
        self._means = means
        self._assembly = assembly
        self.frames: list[tuple[HeldGroup, KeptFrame, Places]] = []
        self._stopped = False

    def run(self) -> Failed:
        """Copies the frames."""
        try:
            if not self._stopped and not self._means.closed.up:
                with PROCESS:
                    self._means.workshop.put(self._assembly, [(kept.bases, places) for _, kept, places in self.frames])
        finally:
            for held, kept, _ in self.frames:
                self._means.store.release(held, [kept])
        return {}

    def stop(self) -> None:
        """Cancels the job before it starts."""
        self._stopped = True


class PutLater:
    """Copies frames of a group that other jobs decode into a batch.

    Those jobs were submitted earlier, so they never wait for this one.

    Args:
        means: Shared resources.
        held: The group.
        assembly: The batch.

    Attributes:
        wanted: Frames by number, and their destinations.
    """

    def __init__(self, means: Means, held: HeldGroup, assembly: Assembly) -> None:
        self._means = means
        self._held = held
        self.wanted: dict[int, tuple[KeptFrame, Places]] = {}
        self._assembly = assembly
        self._instead = DecodeFrames(means, held, assembly)

    def run(self) -> Failed:
        """Waits for the frames and copies them."""
        failed: dict[int, FramefeedError] = {}
        rest: dict[int, Places] = {}
        ready: list[tuple[Any, Places]] = []
        try:
            for frame, (kept, places) in self.wanted.items():
                kept.job.wait()
                if kept.bases is not None:
                    ready.append((kept.bases, places))
                elif frame in self._held.failed:
                    failed[frame] = self._held.failed[frame]
                else:  # the other job was stopped
                    rest[frame] = places
            if ready:
                with PROCESS:
                    self._means.workshop.put(self._assembly, ready)
        finally:
            self._means.store.release(self._held, [kept for kept, _ in self.wanted.values()])
        if rest:
            self._instead.wanted = rest
            failed.update(self._instead.run())
        return failed

    def stop(self) -> None:
        """Cancels decoding in place of cancelled jobs."""
        self._instead.stop()


def _error_of(group: PacketGroup, frame: int, error: DecodeError | None) -> DecodeError:
    """Returns a frame's error with frame and packet numbers of the whole video."""
    number = int(group.numbers[frame])
    if error is None:
        why = "the decoder returned no picture"
    else:
        why = error.reasons.get(frame, error.reason)
        why = re.sub(r"^packet (\d+) ", lambda found: f"packet {group.packets[int(found[1])]} ", why)
    return DecodeError(group.key[0], f"frame {number} cannot be decoded exactly: {why}", number)
