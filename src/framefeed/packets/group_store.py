"""Groups that are here: packets that need not be sent again, and frames that were decoded before their batch came."""

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

# Groups that are read in order are asked for in every batch. One that was left out this often will not come again.
MAX_TURNS_LEFT_OUT = 1


@dataclass(eq=False, slots=True)
class KeptFrame:
    """A frame that is kept, or will be.

    Attributes:
        job: What decodes it.
        bases: What is kept of it; None before it was decoded, and where it could not be.
        users: How many want to put it into a batch; as long as there are any, its memory stays as it is.
        dropped: Whether it is of no more use after that.
    """

    job: Outcome
    bases: Any = None
    users: int = 0
    dropped: bool = False


@dataclass(eq=False)
class HeldGroup:
    """A group that is here.

    Attributes:
        video: The group as a video.
        group: The group.
        frames: Frames that are kept, by their number in the group.
        failed: Frames that cannot be had, and why.
        turn: The batch that it was last asked for by.
    """

    video: OpenVideo
    group: PacketGroup
    frames: dict[int, KeptFrame] = field(default_factory=dict)
    failed: dict[int, FramefeedError] = field(default_factory=dict)
    turn: int = 0


@dataclass(eq=False)
class Claim:
    """Where the frames of a group come from that a batch needs. Those that are kept have one user more.

    Attributes:
        ready: Frames that are kept, with their group.
        later: Frames that are being decoded for others, by number.
        now: Frames that have to be decoded.
        keep: Frames that are best decoded with these, to be kept.
        failed: Frames that cannot be had.
    """

    ready: list[tuple[HeldGroup, KeptFrame, Places]]
    later: dict[int, tuple[KeptFrame, Places]]
    now: dict[int, Places]
    keep: dict[int, KeptFrame]
    failed: dict[int, FramefeedError] = field(default_factory=dict)


class GroupStore:
    """Keeps groups, and frames of them, within what was agreed. May be used by several threads at once.

    Args:
        packet_bytes: What packets may take.
        frame_bytes: What decoded frames may take.
        give_back: Takes the memory of a frame.

    Attributes:
        held_bytes: What decoded frames take, with those that are being decoded.
        packets_decoded: Packets that were fed to decoders.
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
        self._decoded: OrderedDict[GroupKey, HeldGroup] = OrderedDict()  # with frames; those used last at the end

    def _forget_packets(self) -> None:
        self._ledger = GroupLedger(self._packet_bytes)
        self._kept: dict[GroupKey, HeldGroup] = {}

    # --- groups ---------------------------------------------------------------------------------------------------

    def begin_batch(self) -> None:
        """The groups of another batch follow."""
        with self._lock:
            self._turn += 1

    def find(self, group: PacketGroup | KnownGroup) -> HeldGroup | None:
        """The same group from before, where it is here. To be asked for each group that comes in, in order."""
        if isinstance(group, PacketGroup) and not group.whole:
            return None
        with self._lock:
            for key in self._ledger.visit(group.key, group.num_bytes)[1]:
                self._kept.pop(key, None)
            return self._kept.get(group.key) or self._decoded.get(group.key)

    def keeps(self, key: GroupKey) -> bool:
        """Whether packets of a group that comes in are to be kept."""
        with self._lock:
            return self._ledger.has(key)

    def add(self, held: HeldGroup) -> None:
        """Keeps the packets of a group, if they are to be kept."""
        with self._lock:
            if held.group.whole and self._ledger.has(held.group.key):
                self._kept[held.group.key] = held

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._drop_groups(list(self._decoded.values()))
            self._forget_packets()

    def drop_frames(self) -> None:
        """Lets go of all decoded frames."""
        with self._lock:
            self._drop_groups(list(self._decoded.values()))

    # --- frames ---------------------------------------------------------------------------------------------------

    def claim(
        self, held: HeldGroup, wanted: Mapping[int, Places], following: int | None, job: Outcome, claim: Claim
    ) -> None:
        """Finds out where frames come from.

        Args:
            held: Their group.
            wanted: The frames.
            following: The first frame that may be asked for next: those before it are not kept any longer. None where
                that is not known.
            job: What will decode those that are to be decoded now.
            claim: Is told. It belongs to the jobs already: an interruption must not lose anything.
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
        """Notes that a group has frames, and was used last of all."""
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
        """Keeps what a job has decoded.

        Args:
            held: The group.
            keep: What was to be kept.
            came: By frame, the memory of those that came.
            failed: Frames that cannot be had, and why.
            packets: How many packets were decoded.
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
        """Frames that were claimed have been put to where they were wanted, or will not be."""
        with self._lock:
            for kept in frames:
                kept.users -= 1
                if kept.dropped and not kept.users and kept.bases is not None:
                    self._free(held, kept)

    def _reserve(self, held: HeldGroup, following: int, job: Outcome, keep: dict[int, KeptFrame]) -> None:
        """Chooses the frames that are decoded early, as many as there is room for."""
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
        """Lets go of frames of groups that will not come again. Those of others are as good as new ones."""
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
        """Lets go of frames; the memory of those that somebody uses comes back when they are released."""
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
