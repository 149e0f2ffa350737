"""A decoder without a codec: it knows the references between pictures, and outputs packet numbers instead of pictures.

Everything above the decoder can be tested with it anywhere, and a plan that omits a needed packet is detected: the
picture comes out damaged, as from a real decoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.decode.session import CorruptPicture, PacketError, Session, TakeRun
from framefeed.index.video_index import VideoIndex
from framefeed.types import StreamInfo

__all__ = ["FakeFactory", "FakePicture"]


@dataclass(frozen=True)
class FakePicture:
    """The picture of a packet."""

    packet: int


@dataclass
class FakeFactory:
    """Makes fake sessions for one stream.

    Attributes:
        references: For each packet, the packets that its picture is predicted from.
        ranks: For each packet, its rank in presentation order; None for one that shows nothing.
        delay: Number of pictures that a session holds back for reordering.
        broken: Packets that no decoder can read.
        swallowed: Packets whose pictures are lost when a whole run is decoded.
        numbers_pictures: Whether pictures carry packet numbers when packets are fed one by one.
        fed: Every packet that any session was fed, in order.
        runs: The first and the last packet of every run.
    """

    references: Sequence[Sequence[int]]
    ranks: Sequence[int | None]
    delay: int = 0
    broken: frozenset[int] = frozenset()
    swallowed: frozenset[int] = frozenset()
    numbers_pictures: bool = True
    fed: list[int] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)

    def uses_threads(self, stream: StreamInfo) -> bool:
        """Returns True: fake sessions accept any number of threads."""
        return True

    def key(self, stream: StreamInfo, *, closed_start: bool) -> object:
        """Returns one key: all streams share sessions."""
        return "fake"

    def shape(self, stream: StreamInfo) -> object:
        """Returns one shape for all streams."""
        return None

    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        """Returns a new session."""
        return _FakeSession(self)


class _FakeSession:
    delayed = False
    strict = True
    lasting = True

    def __init__(self, stream: FakeFactory) -> None:
        self._stream = stream
        self._intact: dict[int, bool] = {}
        self._waiting: dict[int, int] = {}
        self._ended = False

    @property
    def numbers_pictures(self) -> bool:
        return self._stream.numbers_pictures

    def assign(self, index: VideoIndex) -> None:
        pass

    def run(
        self,
        numbers: NDArray[np.int64],
        packets: Iterable[tuple[int, bytes | memoryview]],
        rows: Mapping[int, int],
        take: TakeRun,
    ) -> bool:
        """Outputs pictures two at a time, each under the number of its rank."""
        stream = self._stream
        fed = [number for number, _ in packets if stream.ranks[number] is not None]
        stream.fed += fed
        stream.runs.append((int(numbers[0]), int(numbers[-1])))
        order = sorted(fed, key=lambda number: stream.ranks[number] or 0)
        came = [number for number in order if number not in stream.swallowed and number not in stream.broken]
        pairs = [
            (rows[label], FakePicture(number)) for label, number in zip(order, came, strict=False) if label in rows
        ]
        for low in range(0, len(pairs), 2):
            taken, pictures = zip(*pairs[low : low + 2], strict=True)
            take(list(taken), list(pictures))
        return len(came) == len(order)

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        if self._ended:
            raise PacketError("fed after the end of the stream")
        stream = self._stream
        stream.fed.append(number)
        if number in stream.broken:
            self._intact[number] = False
            raise PacketError("broken packet")
        self._intact[number] = all(self._intact.get(reference, False) for reference in stream.references[number])
        rank = stream.ranks[number]
        if rank is not None:
            self._waiting[rank] = number
        return self._release(len(self._waiting) - stream.delay)

    def drain(self) -> list[tuple[int, Any]]:
        self._ended = True
        return self._release(len(self._waiting))

    def reset(self) -> None:
        self._intact.clear()
        self._waiting.clear()
        self._ended = False

    def _release(self, count: int) -> list[tuple[int, Any]]:
        out: list[tuple[int, Any]] = []
        for _ in range(count):
            number = self._waiting.pop(min(self._waiting))
            out.append((number, FakePicture(number) if self._intact[number] else CorruptPicture()))
        return out


def fake_bytes(table: Mapping[int, bytes] | None = None) -> Any:
    """Returns a packet source without bytes, for a fake decoder."""

    class _Source:
        def read(self, numbers: Any) -> Any:
            for number in numbers.tolist():
                yield number, (table or {}).get(number, b"")

    return _Source()
