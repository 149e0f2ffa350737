"""Cache of groups: their packets, and frames decoded ahead of their batch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from framefeed._util.process.threads import Outcome
from framefeed.batch.assembly import Place
from framefeed.batch.videos import OpenVideo
from framefeed.errors import FramefeedError
from framefeed.packets.packet_dataset import KnownGroup
from framefeed.packets.packet_group import GroupKey, PacketGroup
from framefeed.packets.packet_requests import GroupLedger

__all__ = ["Claim", "GroupStore", "HeldGroup", "KeptFrame", "Places"]

Places = Sequence[Place]

# Groups read in order are requested by every batch. After so many batches without a request, a group is finished.
MAX_TURNS_LEFT_OUT = 1


@dataclass(eq=False, slots=True)
class KeptFrame:
    """A frame that is cached or being decoded.

    Attributes:
        job: Outcome of the decoding job.
        bases: The cached data; None before decoding, and after a failure.
        users: Number of jobs that will copy it into a batch; its memory is not reused before.
        dropped: True if its memory is freed after the last user.
    """

    job: Outcome
    bases: Any = None
    users: int = 0
    dropped: bool = False


@dataclass(eq=False)
class HeldGroup:
    """A group in the cache.

    Attributes:
        video: The group as a video.
        group: The group.
        frames: Cached frames, by their number in the group.
        failed: Frames that cannot be decoded, with errors.
        turn: Number of the batch that last requested it.
    """

    video: OpenVideo
    group: PacketGroup
    frames: dict[int, KeptFrame] = field(default_factory=dict)
    failed: dict[int, FramefeedError] = field(default_factory=dict)
    turn: int = 0


@dataclass(eq=False)
class Claim:
    """Sources of the frames that a batch needs from a group. Each cached frame has one more user.

    Attributes:
        ready: Cached frames, with their group.
        later: Frames that other jobs are decoding, by number.
        now: Frames to decode.
        keep: Frames to decode at the same time and cache.
        failed: Frames that cannot be decoded.
    """

    ready: list[tuple[HeldGroup, KeptFrame, Places]]
    later: dict[int, tuple[KeptFrame, Places]]
    now: dict[int, Places]
    keep: dict[int, KeptFrame]
    failed: dict[int, FramefeedError] = field(default_factory=dict)


class GroupStore:
    """Caches groups and decoded frames within two budgets. Thread-safe.

    Args:
        packet_bytes: Budget for packets.
        frame_bytes: Budget for decoded frames.
        give_back: Frees the memory of a frame.

    Attributes:
        held_bytes: Bytes of decoded frames, including those being decoded.
        packets_decoded: Number of packets fed to decoders.
    """

    def __init__(self, packet_bytes: int, frame_bytes: int, give_back: Callable[[Any], None]) -> None:
        self._packet_bytes = packet_bytes
        self._frame_bytes = frame_bytes
        self._give_back = give_back
        self._lock = threading.Lock()
        self._turn = 0
        self.held_bytes = 0
        self.packets_decoded = 0
        self._forget_packets()
        self._decoded: OrderedDict[GroupKey, HeldGroup] = OrderedDict()  # groups with frames, least recently used first

    def _forget_packets(self) -> None:
        self._ledger = GroupLedger(self._packet_bytes)
        self._kept: dict[GroupKey, HeldGroup] = {}

    # --- groups ---------------------------------------------------------------------------------------------------

    def begin_batch(self) -> None:
        """Starts the next batch."""
        with self._lock:
            self._turn += 1

    def find(self, group: PacketGroup | KnownGroup) -> HeldGroup | None:
        """Returns a cached group, or None. Call it for each incoming group, in order."""
        if isinstance(group, PacketGroup) and not group.whole:
            return None
        with self._lock:
            for key in self._ledger.visit(group.key, group.num_bytes)[1]:
                self._kept.pop(key, None)
            return self._kept.get(group.key) or self._decoded.get(group.key)

    def keeps(self, key: GroupKey) -> bool:
        """Returns True if the packets of an incoming group will be cached."""
        with self._lock:
            return self._ledger.has(key)

    def add(self, held: HeldGroup) -> None:
        """Caches the packets of a group if they fit the ledger."""
        with self._lock:
            if held.group.whole and self._ledger.has(held.group.key):
                self._kept[held.group.key] = held

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._drop_groups(list(self._decoded.values()))
            self._forget_packets()

    def drop_frames(self) -> None:
        """Drops all decoded frames."""
        with self._lock:
            self._drop_groups(list(self._decoded.values()))

    # --- frames ---------------------------------------------------------------------------------------------------

    def claim(
        self, held: HeldGroup, wanted: Mapping[int, Places], following: int | None, job: Outcome, claim: Claim
    ) -> None:
        """Assigns a source to each wanted frame.

        Args:
            held: The group.
            wanted: The frames.
            following: First frame that may be requested next: earlier frames are not cached any longer. None if
                unknown.
            job: Outcome of the job that will decode the missing frames.
            claim: Receives the sources. The jobs already own it, so an interruption loses nothing.
        """
        with self._lock:
            held.turn = self._turn
            for frame, places in wanted.items():
                error, kept = held.failed.get(frame), held.frames.get(frame)
                if error is not None:
                    claim.failed[frame] = error
                elif kept is None:
                    claim.now[frame] = places
                else:
                    kept.users += 1
                    if kept.bases is not None:
                        claim.ready.append((held, kept, places))
                    else:
                        claim.later[frame] = (kept, places)
            if following is not None:
                self._drop(held, [frame for frame in held.frames if frame < following])
                if claim.now:
                    self._reserve(held, following, job, claim.keep)
                if held.frames:
                    self._use(held)

    def _use(self, held: HeldGroup) -> None:
        """Marks a group with frames as most recently used."""
        key = held.group.key
        before = self._decoded.pop(key, held)
        if before is not held:
            self._drop(before, list(before.frames))
        self._decoded[key] = held

    def end_job(
        self,
        held: HeldGroup,
        keep: Mapping[int, KeptFrame],
        came: Mapping[int, Any],
        failed: Mapping[int, FramefeedError],
        packets: int,
    ) -> None:
        """Caches the frames that a job has decoded.

        Args:
            held: The group.
            keep: The frames to cache.
            came: Memory of the decoded frames, by number.
            failed: Frames that cannot be decoded, with errors.
            packets: Number of packets decoded.
        """
        with self._lock:
            self.packets_decoded += packets
            held.failed.update(failed)
            for frame, kept in keep.items():
                kept.bases = came.get(frame)
                if kept.bases is None:
                    self.held_bytes -= held.video.frame_bytes
                    if held.frames.get(frame) is kept:
                        self._drop(held, [frame])
                elif kept.dropped and not kept.users:
                    self._free(held, kept)

    def release(self, held: HeldGroup, frames: Iterable[KeptFrame]) -> None:
        """Releases claimed frames, after use or when their job is cancelled."""
        with self._lock:
            for kept in frames:
                kept.users -= 1
                if kept.dropped and not kept.users and kept.bases is not None:
                    self._free(held, kept)

    def _reserve(self, held: HeldGroup, following: int, job: Outcome, keep: dict[int, KeptFrame]) -> None:
        """Selects the frames to decode ahead, as many as fit the budget."""
        size = held.video.frame_bytes
        absent = [
            frame
            for frame in range(following, len(held.group.numbers))
            if frame not in held.frames and frame not in held.failed
        ]
        self._make_room(held, len(absent) * size)
        room = max(0, self._frame_bytes - self.held_bytes) // size
        keep.update((frame, KeptFrame(job)) for frame in absent[:room])
        self.held_bytes += len(keep) * size
        held.frames.update(keep)

    def _make_room(self, held: HeldGroup, num_bytes: int) -> None:
        """Drops frames of finished groups. Frames of other groups are worth as much as new ones."""
        oldest = [each for each in self._decoded.values() if each.turn < self._turn - MAX_TURNS_LEFT_OUT]
        for each in oldest:
            if self.held_bytes + num_bytes <= self._frame_bytes:
                return
            if each is not held:
                self._drop_groups([each])

    def _drop_groups(self, groups: Iterable[HeldGroup]) -> None:
        for held in groups:
            self._drop(held, list(held.frames))

    def _drop(self, held: HeldGroup, frames: Iterable[int]) -> None:
        """Drops frames; the memory of frames in use is freed on their release."""
        for frame in frames:
            kept = held.frames.pop(frame)
            kept.dropped = True
            if kept.bases is not None and not kept.users:
                self._free(held, kept)
        if not held.frames and self._decoded.get(held.group.key) is held:
            del self._decoded[held.group.key]

    def _free(self, held: HeldGroup, kept: KeptFrame) -> None:
        self._give_back(kept.bases)
        kept.bases = None
        self.held_bytes -= held.video.frame_bytes
