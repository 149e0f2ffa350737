"""Decoder sessions: their protocol, and the state of one that is left running."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from framefeed.index.video_index import VideoIndex
from framefeed.plan import Cursor
from framefeed.types import StreamInfo

__all__ = ["CorruptPicture", "PacketError", "RunSession", "Running", "Session", "SessionFactory", "TakeRun", "Taker"]

TakeRun = Callable[[list[int], list[Any]], None]
"""``take(rows, pictures)``: takes wanted pictures, from the thread that decoded them, before that goes on."""


class Taker(Protocol):
    """Takes the pictures of whole runs. All calls for one run come from the thread that decodes it."""

    def take(self, rows: list[int], pictures: list[Any]) -> None:
        """Takes pictures, which are gone afterwards, and not to be believed before they are confirmed."""

    def confirm(self) -> None:
        """All pictures that this thread took since the last call are right."""

    def reject(self) -> None:
        """They are not; the right ones among them will come again."""


class PacketError(Exception):
    """A decoder refused a packet. What it was told before and after may be of no use."""


@dataclass(frozen=True)
class CorruptPicture:
    """Stands for a picture that the decoder itself calls damaged."""


class Session(Protocol):
    """A decoder of one set of stream parameters.

    Pictures carry the number of the packet they came from, so that they can be told apart whatever the container says
    of time. A session is used by one thread at a time.
    """

    @property
    def delayed(self) -> bool:
        """True if an error may belong to an earlier packet than the one just fed."""

    @property
    def strict(self) -> bool:
        """True if damage is reported when a packet is fed, not only when its picture comes out."""

    @property
    def lasting(self) -> bool:
        """True if a picture stays valid when the next packet is fed."""

    def assign(self, index: VideoIndex) -> None:
        """Makes a session that is new or has been reset ready for a video, whose stream has the same key."""

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        """Feeds a packet; returns the pictures that came out, each with its packet's number.

        Raises:
            PacketError: The packet could not be decoded.
        """

    def drain(self) -> list[tuple[int, Any]]:
        """Ends the stream: returns all pictures still inside. Only ``reset`` may follow."""

    def reset(self) -> None:
        """Forgets everything but the stream parameters."""


class RunSession(Session, Protocol):
    """A decoder that can be given all packets of a run at once."""

    @property
    def numbers_pictures(self) -> bool:
        """True if ``feed`` knows the packet of each picture; if not, only ``run`` may be used."""

    def run(
        self,
        numbers: NDArray[np.int64],
        packets: Iterable[tuple[int, bytes | memoryview]],
        rows: Mapping[int, int],
        take: TakeRun,
    ) -> bool:
        """Decodes a run of packets from its start to its end.

        Args:
            numbers: Of the packets.
            packets: The same with their data.
            rows: By packet number, the rows of wanted pictures.
            take: Takes them.

        Returns:
            Whether the pictures that were taken are the right ones for sure. If not, it needs a reset.
        """


class SessionFactory(Protocol):
    """Makes sessions."""

    def uses_threads(self, stream: StreamInfo) -> bool:
        """Returns whether a session of that stream makes use of several threads."""

    def key(self, stream: StreamInfo, *, closed_start: bool) -> object:
        """Streams with equal keys can share a session."""

    def shape(self, stream: StreamInfo) -> object:
        """Of the sessions that streams can share, one that has had a stream of the same shape takes it soonest."""

    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        """A new session.

        Args:
            stream: What it has to decode.
            num_threads: How many threads it may use.
            closed_start: Whether it is started only where nothing that follows refers to anything before.
        """


@dataclass
class Running:
    """A session, and how far it has got in a group."""

    session: Session
    key: object
    shape: object
    num_threads: int
    start: int = -1
    next_packet: int = -1
    pending: set[int] = field(default_factory=set)
    spare: dict[int, Any] = field(default_factory=dict)  # pictures that came out before they were asked for
    resumable: bool = False  # it can go on from where it is
    ended: bool = False  # drained: only the spare pictures are left to have
    new_headers: bool = False  # it was fed headers that replace those of the stream's beginning

    @property
    def cursor(self) -> Cursor:
        """Its position, for the planner."""
        next_packet = sys.maxsize if self.ended else self.next_packet
        return Cursor(next_packet, frozenset(self.pending) | frozenset(self.spare))

    def restart(self, start: int) -> None:
        """Forgets where it was; its session has been reset."""
        self.start = self.next_packet = start
        self.pending.clear()
        self.spare.clear()
        self.ended = False
