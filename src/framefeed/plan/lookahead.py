"""A known future -> which groups to decode, and which of their frames to keep for later.

Whoever shuffles frames decodes a whole group for each single frame, again and again. But the order of an epoch is known
beforehand: while a group is decoded for one frame, others of its frames that will be needed soon are taken out as well
and kept until then. All of that is decided here, without a file, a thread or a picture.

Memory holds a limited number of frames. Dropping the frame that is needed last is the best choice for single frames,
but not for groups: it makes all groups run out at the same time, so that the memory is full at first and then empty,
half full on average. So each group is given a term, and frames needed after it are only kept while there is nothing
better to keep. First terms are spread evenly; groups then run out one after the other, and the memory stays full
(docs/decisions/0007).
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["AnyUse", "Budget", "Group", "GroupJob", "Key", "LookAhead", "Opening", "Use"]

Key = tuple[int, int]
"""A frame: the number of its video and its own."""

Group = tuple[int, int]
"""Frames that decode from the same place: the number of the video, and of the packet that decoding starts from."""

NEVER = 1 << 62

# Each group is decoded again after this many times the frames that memory holds: half of a group's kept frames are
# used up on average, so that memory is just full.
TERM = 2.0

# Where memory holds all that is left of the order but for a third, groups have no terms: what comes first is kept. Room
# for the others comes as that is used.
LITTLE_LEFT = 1.5

# First terms are multiples of this, modulo 1: an even spread, however many there are.
_GOLDEN = 0.6180339887498949


AnyUse = tuple[int, int, int, int]
"""A ``Use``, or what is in one: making a plain tuple takes a tenth of the time."""


class Use(NamedTuple):
    """A frame is needed at some time.

    Attributes:
        time: Rising through the epoch; any unit.
        video, frame: Which frame.
        start: The packet that its decoding starts from.
    """

    time: int
    video: int
    frame: int
    start: int


@dataclass(frozen=True, slots=True)
class GroupJob:
    """A group to decode.

    Attributes:
        video, start: The group.
        now: Frames that were asked for.
        keep: Frames to be kept for later, possibly some of ``now`` too.
        goes_on: Whether more of the group will be asked for at once, and there is no room to keep it.
    """

    video: int
    start: int
    now: tuple[int, ...]
    keep: tuple[int, ...]
    goes_on: bool

    @property
    def group(self) -> Group:
        """The key of the group."""
        return self.video, self.start

    @property
    def frames(self) -> tuple[int, ...]:
        """All frames that the decoder has to give, rising."""
        return tuple(sorted({*self.now, *self.keep}))


@dataclass(frozen=True, slots=True)
class Opening:
    """Work to do for batches.

    Attributes:
        held: For each batch, frames that are kept, or will be by a job that was planned earlier. Each has been claimed:
            it stays until it is released.
        missing: For each batch, the others.
        jobs: Groups to decode for these.
    """

    held: tuple[tuple[Key, ...], ...]
    missing: tuple[tuple[Key, ...], ...]
    jobs: tuple[GroupJob, ...]


class Budget:
    """Bytes that may be held, shared by all who hold any."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.taken = 0
        self.peak = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that nobody has taken."""
        return self.num_bytes - self.taken

    def take(self, num_bytes: int) -> bool:
        """Takes bytes where there are as many left."""
        with self._lock:
            if self.taken + num_bytes > self.num_bytes:
                return False
            self.taken += num_bytes
            self.peak = max(self.peak, self.taken)
            return True

    def hold(self, num_bytes: int) -> None:
        """Takes bytes whether they are left or not, for what cannot be let go of yet."""
        with self._lock:
            self.taken += num_bytes

    def give(self, num_bytes: int) -> None:
        """Gives bytes back."""
        with self._lock:
            self.taken -= num_bytes


@dataclass(slots=True)
class _Held:
    size: int
    group: Group
    next_use: int
    beyond_term: bool
    claims: int = 0


class LookAhead:
    """Decides for one pass through an order. Used by one thread at a time.

    Args:
        budget: What may be held.
        size_of: Bytes that a frame of a video takes.
        soon: What is needed within this time counts as needed at once; may be changed later.

    Attributes:
        last: The time of the last use; None while it is not known.
    """

    def __init__(self, budget: Budget, size_of: Callable[[int], int], soon: int = 0) -> None:
        self._budget = budget
        self._size_of = size_of
        self.soon = soon
        # By group and frame the times of its uses; one alone as it is: there may be a million of them, and every object
        # that Python's garbage collector has to look at makes all threads wait for it.
        self._future: dict[Group, dict[int, int | deque[int]]] = {}
        self._held: dict[Key, _Held] = {}
        self._within_term: list[tuple[int, Key]] = []
        self._beyond_term: list[tuple[int, Key]] = []
        self._first_terms: dict[Group, float] = {}
        self._ends: dict[Group, float] = {}  # of the terms of groups
        self._dropped: dict[Key, None] = {}
        self._freed = 0  # bytes of frames that were dropped, until their memory is free
        self.held_bytes = 0
        self.last: int | None = None

    def term(self, video: int) -> float:
        """Returns how long after it was decoded a group is decoded again, as far as memory decides."""
        return TERM * self._budget.num_bytes / max(1, self._size_of(video))

    def extend(self, uses: Iterable[AnyUse]) -> None:
        """Adds to the known future; times rise."""
        future, all_held = self._future, self._held
        for time, video, frame, start in uses:
            frames = future.get((video, start))
            if frames is None:
                frames = future[video, start] = {}
            times = frames.get(frame)
            if times is None:
                frames[frame] = time
                held = all_held.get((video, frame)) if all_held else None
                if held is not None:
                    self._reschedule((video, frame), held, time)
            elif isinstance(times, int):
                frames[frame] = deque((times, time))
            else:
                times.append(time)

    def open(self, *batches: Sequence[AnyUse]) -> Opening:
        """Plans the next batches, whose uses are the earliest of those that were added.

        Each group is planned once for all of them.
        """
        groups: dict[Group, dict[int, None]] = {}
        held, missing = zip(*(self._open_one(uses, groups) for uses in batches), strict=True)
        first = next((uses[0][0] for uses in batches if uses), 0)
        jobs = [self._plan(group, list(frames), first) for group, frames in groups.items()]
        return Opening(held, missing, tuple(jobs))

    def _open_one(
        self, uses: Iterable[AnyUse], groups: dict[Group, dict[int, None]]
    ) -> tuple[tuple[Key, ...], tuple[Key, ...]]:
        """The frames of a batch that are held, and those that are not; these are added to their groups."""
        found: dict[Key, None] = {}
        missing: dict[Key, None] = {}
        future, all_held = self._future, self._held
        for _, video, frame, start in uses:
            key, group = (video, frame), (video, start)
            of_group = future[group]
            next_use = _next_use(of_group, frame)
            if not of_group:
                del future[group]
            held = all_held.get(key)
            if held is None:
                missing[key] = None
                frames = groups.get(group)
                if frames is None:
                    frames = groups[group] = {}
                frames[frame] = None
                continue
            if held.next_use != next_use:
                self._reschedule(key, held, next_use)
            if key not in found:
                held.claims += 1
                found[key] = None
        return tuple(found), tuple(missing)

    def prefetch(self, uses: Iterable[AnyUse]) -> GroupJob | None:
        """Plans the group of the first of these uses that is not provided for, if there is room to keep its frame."""
        for time, video, frame, start in uses:
            if (video, frame) not in self._held:
                job = self._plan((video, start), [], time)
                return job if job.keep else None
        return None

    def prefetch_whole(self, use: AnyUse, within: float) -> GroupJob | None:
        """Plans the group of a use that lies further ahead, if all of it is needed within a time from then.

        Such a group is decoded once, however early, and kept until it is used up. Others would be in the way.
        """
        time, video, _, start = use
        if max(map(_last, self._future[video, start].values())) > time + within:
            return None
        job = self._plan((video, start), [], time)
        return job if job.keep else None

    def claim(self, key: Key) -> bool:
        """Makes sure that a frame stays until it is released, if it is to be kept at all; returns whether it is."""
        held = self._held.get(key)
        if held is None:
            return False
        held.claims += 1
        return True

    def release(self, key: Key) -> None:
        """Ends a claim."""
        held = self._held.get(key)
        if held is None:
            return
        held.claims -= 1
        if not held.claims:
            if held.next_use == NEVER:
                self._drop(key)
            else:
                self._queue(key, held)

    def let_go(self, key: Key) -> bool:
        """Forgets a frame, and all claims on it, if nobody is known to need it after those; returns whether it did."""
        held = self._held.get(key)
        if held is None or held.next_use != NEVER:
            return False
        self._drop(key)
        return True

    def discard(self, key: Key) -> None:
        """Forgets a frame that could not be decoded after all."""
        if key in self._held:
            self._drop(key)

    def holds(self, key: Key) -> bool:
        """Returns whether a frame is kept."""
        return key in self._held

    def take_dropped(self) -> list[Key]:
        """Frames that are not to be kept any longer, since the last time that this was asked."""
        dropped, self._dropped = list(self._dropped), {}
        return dropped

    def settle(self) -> None:
        """Gives the memory of dropped frames back. Nobody else can have it before: it is for when it is free indeed."""
        if self._freed:
            self._budget.give(self._freed)
            self._freed = 0

    def close(self) -> None:
        """Gives all memory back."""
        for key in list(self._held):
            self._drop(key)
        self.settle()
        self._future.clear()

    # --- how ------------------------------------------------------------------------------------------------------

    def _plan(self, group: Group, now: list[int], time: int) -> GroupJob:
        """Chooses the frames of a group to keep, the ones needed first before the others."""
        video, start = group
        size = self._size_of(video)
        upcoming = sorted((_first(times), frame) for frame, times in self._future.get(group, {}).items())
        end = time + self._share_of_term(group) * self.term(video)
        if self.last is not None and (self.last - time) * size <= LITTLE_LEFT * self._budget.num_bytes:
            end = max(end, self.last)
        self._ends[group] = end
        keep = []
        goes_on = False
        # Mostly there is room for all of them.
        ready = sum((video, frame) not in self._held for _, frame in upcoming)
        if ready and not self._take(size * ready):
            ready = 0
        for next_use, frame in upcoming:
            key = (video, frame)
            beyond = next_use > end
            held = self._held.get(key)
            if held is not None:
                if held.beyond_term != beyond:
                    held.beyond_term = beyond
                    self._queue(key, held)
            elif ready or self._make_room(size, next_use, beyond):
                self._held[key] = held = _Held(size, group, next_use, beyond)
                self.held_bytes += size
                self._queue(key, held)
                if key in self._dropped:  # just now: it is still there
                    del self._dropped[key]
                else:
                    keep.append(frame)
            else:
                # A decoder can be left where it is if the rest is needed when what it gives now has been used up.
                goes_on = next_use <= time + self.soon + len(now) + len(keep)
                break
        return GroupJob(video, start, tuple(now), tuple(keep), goes_on)

    def _share_of_term(self, group: Group) -> float:
        if group in self._first_terms:
            return 1.0
        share = (len(self._first_terms) + 1) * _GOLDEN % 1.0
        self._first_terms[group] = share
        return share

    def _make_room(self, size: int, next_use: int, beyond: bool) -> bool:
        """Takes memory for a frame, that of frames which are needed later and lie beyond their term if need be."""
        if self._take(size):
            return True
        victims: dict[Key, None] = {}
        room = self._budget.left + self._freed
        while room < size:
            farthest = self._farthest()
            if farthest is None or (beyond and self._held[farthest].next_use <= next_use):
                break
            heapq.heappop(self._beyond_term)
            if farthest not in victims:  # it may be queued twice
                victims[farthest] = None
                room += self._held[farthest].size
        if room < size:
            for key in victims:
                self._queue(key, self._held[key])
            return False
        for key in victims:
            self._drop(key)
        return self._take(size)

    def _take(self, size: int) -> bool:
        """Takes memory where there is as much, that of dropped frames first."""
        if self._freed < size and not self._budget.take(size - self._freed):
            return False
        self._freed = max(0, self._freed - size)
        return True

    def _farthest(self) -> Key | None:
        """Of the frames beyond their term that nobody claims, the one that is needed last."""
        queue = self._beyond_term
        while queue:
            priority, key = queue[0]
            held = self._held.get(key)
            if held is not None and held.beyond_term and not held.claims and held.next_use == -priority:
                return key
            heapq.heappop(queue)
        return None

    def _queue(self, key: Key, held: _Held) -> None:
        if held.beyond_term:
            heapq.heappush(self._beyond_term, (-held.next_use, key))

    def _reschedule(self, key: Key, held: _Held, next_use: int) -> None:
        if held.next_use != next_use:
            held.next_use = next_use
            held.beyond_term = next_use > self._ends.get(held.group, NEVER)
            self._queue(key, held)

    def _drop(self, key: Key) -> None:
        held = self._held.pop(key)
        self.held_bytes -= held.size
        self._freed += held.size
        self._dropped[key] = None


def _next_use(frames: dict[int, int | deque[int]], frame: int) -> int:
    """Takes the first use of a frame out of a group's future; returns the next one."""
    times = frames[frame]
    if not isinstance(times, int):
        times.popleft()
        if times:
            return times[0]
    del frames[frame]
    return NEVER


def _first(times: int | deque[int]) -> int:
    return times if isinstance(times, int) else times[0]


def _last(times: int | deque[int]) -> int:
    return times if isinstance(times, int) else times[-1]
