"""Work in progress of a loader's threads: batches, frames and jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from framefeed.batch.assembly import Assembly, Place, Samples
from framefeed.plan.lookahead import Group, GroupJob, Key

__all__ = ["FinishedBatch", "Frame", "Frames", "Job", "JobPicture", "Taken", "Waiter"]


Waiter = tuple["FinishedBatch", bool]
"""A batch that needs a frame, and whether it has claimed it."""


@dataclass(eq=False)
class FinishedBatch:
    """A batch that is complete.

    Attributes:
        samples: All its samples, those that failed too.
        assembly: The tensors of those that did not fail when it was opened; None where none is left.
        rows: For each row of the assembly, the place of its sample in ``samples``.
        errors: By place in ``samples``, what went wrong.
        charge: What it takes of the budget, because it was opened earlier than was asked for.
        is_last: Whether it is the last one of its epoch, and others may follow.
    """

    samples: Samples
    assembly: Assembly | None = None
    rows: list[int] = field(default_factory=list)
    errors: dict[int, Exception] = field(default_factory=dict)
    remaining: int = 0
    charge: int = 0
    is_last: bool = False

    def fail(self, key: Key, error: Exception) -> None:
        """Notes that a frame cannot be had."""
        assert self.assembly is not None
        for row, _ in self.assembly.targets[key]:
            self.errors.setdefault(self.rows[row], error)


class Frame:
    """A frame that is being decoded or is kept.

    Attributes:
        bases: What is kept of it; None while it is being decoded.
        waiting: Batches that need it.
    """

    __slots__ = ("bases", "waiting")

    def __init__(self) -> None:
        self.bases: Any = None
        self.waiting: tuple[Waiter, ...] = ()


class Frames(dict[Key, Frame]):
    """Frames by video and number.

    Those that are let go of are used again: each new one would be one more for the garbage collector to look at.
    """

    def __init__(self) -> None:
        super().__init__()
        self._spare: list[Frame] = []

    def new(self, key: Key) -> Frame:
        """Adds a frame."""
        frame = self[key] = self._spare.pop() if self._spare else Frame()
        return frame

    def let_go(self, key: Key) -> tuple[Waiter, ...]:
        """Removes a frame if it is there; returns who waits for it."""
        frame = self.pop(key, None)
        if frame is None:
            return ()
        waiting = frame.waiting
        frame.bases, frame.waiting = None, ()
        self._spare.append(frame)
        return waiting


@dataclass(eq=False, slots=True)
class Taken:
    """A picture on its way from the decoder to those who want it.

    Attributes:
        number: Of its frame.
        picture: The picture; gone when it has been worked on.
        bases: Memory of its own, where the frame is to be kept.
        places: Where it goes, by batch.
        served: Which of those who wait for it get it there, and whether they have claimed it.
        error: Why it cannot be had after all.
    """

    number: int
    picture: Any
    bases: Any = None
    places: Sequence[tuple[Assembly, Sequence[Place]]] = ()
    served: Sequence[Waiter] = ()
    error: Exception | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class JobPicture(Taken):
    """A picture that was decoded for a job."""

    job: Job


@dataclass(eq=False)
class Job:
    """A group that is to be decoded or is being decoded.

    Attributes:
        frames: What is wanted of it.
        goes_on: Whether more of it will be asked for at once.
        started: When a thread began with it.
        abandoned: Whether it took too long, and nobody waits for it any more.
        undelivered: Frames that have not come out yet.
        keep: Those of them that are to be kept, and are claimed for it.
        taken: Those of them whose pictures came, but are not confirmed.
        waiting: Who waits for those of them that are not kept and came: nobody else can join them any more.
        then: What to do with the group afterwards.
        retained: Bytes of the budget that it keeps although nobody waits for it, until its thread has let go of them.
    """

    video: int
    start: int
    frames: set[int]
    goes_on: bool
    started: float | None = None
    abandoned: bool = False
    undelivered: set[int] = field(default_factory=set)
    keep: set[int] = field(default_factory=set)
    taken: dict[int, JobPicture] = field(default_factory=dict)
    waiting: dict[int, tuple[Waiter, ...]] = field(default_factory=dict)
    then: Job | None = None
    retained: int = 0

    @property
    def group(self) -> Group:
        """The key of the group."""
        return self.video, self.start

    def merge(self, other: GroupJob, frames: set[int]) -> None:
        """Takes on what another job of the group would have done."""
        self.frames |= frames
        self.goes_on = other.goes_on
