"""Damage: what becomes of a frame does not depend on what else was asked for, in which order, or on threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clips
from framefeed import DecodeError, VideoIndex
from framefeed.decode.cpu.session_cpu import CpuFactory
from framefeed.decode.engine import Engine
from framefeed.decode.session import CorruptPicture, PacketError, Session
from framefeed.index.bitstream import PacketKind
from framefeed.media.media import open_media
from framefeed.media.native import NativeFrame
from framefeed.request import decode_frames
from framefeed.source import PacketSource, open_source
from framefeed.testing.fake_decoder import FakeFactory, FakePicture, fake_bytes
from framefeed.types import StreamInfo
from plan.streams import MadeUpStream, index_of

# --- made-up streams ------------------------------------------------------------------------------------------------


class _Session:
    """Like FFmpeg's: refuses a broken packet and lets its picture out all the same, or only marks it when it comes out.

    One with several threads has answers ready for a packet only when the one after the next is fed.
    """

    lasting = True

    def __init__(self, factory: _Factory, num_threads: int) -> None:
        self._factory = factory
        self._inner = factory.fake.create(None, 1, closed_start=True)  # type: ignore[arg-type]
        self._answers: list[list[tuple[int, Any]] | PacketError] = []
        self.delayed = num_threads > 1
        self.strict = not factory.late

    def assign(self, index: VideoIndex) -> None:
        pass

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        pictures = self._shown(self._inner.feed(number, data, key))
        is_refused = number in self._factory.broken and not self._factory.late
        self._answers.append(PacketError("broken packet") if is_refused else pictures)
        return self._answer(2 if self.delayed else 0)

    def drain(self) -> list[tuple[int, Any]]:
        return self._answer(0) + self._shown(self._inner.drain())

    def reset(self) -> None:
        self._inner.reset()
        self._answers.clear()

    def _answer(self, keep: int) -> list[tuple[int, Any]]:
        pictures = []
        while len(self._answers) > keep:
            answer = self._answers.pop(0)
            if isinstance(answer, PacketError):
                raise answer
            pictures += answer
        return pictures

    def _shown(self, pictures: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        late = self._factory.broken if self._factory.late else ()
        return [(number, CorruptPicture() if number in late else picture) for number, picture in pictures]


class _Factory:
    def __init__(self, stream: MadeUpStream, broken: set[int], *, late: bool) -> None:
        self.fake = FakeFactory(stream.references, stream.ranks, 2)
        self.broken = broken
        self.late = late

    def uses_threads(self, stream: StreamInfo) -> bool:
        return True

    def key(self, stream: StreamInfo, *, closed_start: bool) -> object:
        return "like FFmpeg"

    def shape(self, stream: StreamInfo) -> object:
        return None

    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        return _Session(self, num_threads)


def _pyramid() -> MadeUpStream:
    """One group: 0 4 2 1 3 8 6 5 7 12 10 9 11, by presentation; the odd ones are no references."""
    stream = MadeUpStream()
    last = stream.add(int(PacketKind.RAP | PacketKind.CLOSED), 0, [])
    for rank in (4, 8, 12):
        anchor = stream.add(0, rank, [last])
        middle = stream.add(0, rank - 2, [last, anchor])
        stream.add(0, rank - 3, [last, middle])
        stream.add(0, rank - 1, [middle, anchor])
        last = anchor
    stream.mark_unreferenced()
    return stream


def _frames_lost(stream: MadeUpStream, broken: int) -> set[int]:
    """A damaged reference takes everything after it in decode order with it, another picture only itself."""
    if stream.kinds[broken] & PacketKind.NONREF:
        return {stream.ranks[broken]}
    return {rank for packet, rank in enumerate(stream.ranks) if packet >= broken}


@pytest.mark.parametrize("late", [False, True], ids=["refused", "marked when it comes out"])
@pytest.mark.parametrize("broken", range(1, 13))
def test_every_way_to_ask_has_the_same_answer(broken: int, late: bool) -> None:
    stream = _pyramid()
    index = index_of(stream.table())
    lost = _frames_lost(stream, broken)

    def ask(engine: Engine, frames: Sequence[int], **options: Any) -> None:
        got: dict[int, FakePicture] = {}
        failed: set[int] = set()
        try:
            decode_frames(engine, index, fake_bytes(), frames, got.__setitem__, **options)
        except DecodeError as error:
            failed = set(error.reasons)
        assert failed == lost & set(frames)
        assert {row: stream.ranks[picture.packet] for row, picture in got.items()} == {
            row: frame for row, frame in enumerate(frames) if frame not in lost
        }

    for threads in (1, 2):
        for read_on in (False, True):
            options: dict[str, Any] = {"num_threads": threads, "read_on": read_on, "long_groups": threads > 1}
            for step in (1, 2, 5, 13):
                engine = Engine(_Factory(stream, {broken}, late=late), max_threads=2)
                for first in range(0, 13, step):
                    ask(engine, range(first, min(13, first + step)), **options)
            engine = Engine(_Factory(stream, {broken}, late=late), max_threads=2)
            rng = np.random.default_rng(broken)
            for _ in range(20):
                ask(engine, rng.choice(13, rng.integers(1, 6), replace=False).tolist(), **options)


class _Careful(_Session):
    """Refuses a packet that refers to one that it has not been fed."""

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        if not set(self._factory.fake.references[number]) <= self._fed:
            raise PacketError("a reference is missing")
        self._fed.add(number)
        return super().feed(number, data, key)

    def reset(self) -> None:
        super().reset()
        self._fed: set[int] = set()


class _CarefulFactory(_Factory):
    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        session = _Careful(self, num_threads)
        session.reset()
        return session


@pytest.mark.parametrize("liar", [1, 2, 5, 6, 9, 10])
def test_a_reference_that_is_called_none(liar: int) -> None:
    """Where a damaged header says that nobody refers to a picture, it is fed to the pictures that need it."""
    stream = _pyramid()
    stream.kinds[liar] |= int(PacketKind.NONREF)
    index = index_of(stream.table())
    rng = np.random.default_rng(liar)
    for frames in ([[frame] for frame in range(13)], [rng.permutation(13)[:4].tolist() for _ in range(20)]):
        engine = Engine(_CarefulFactory(stream, set(), late=False), max_threads=2)
        for asked in frames:
            got: dict[int, FakePicture] = {}
            decode_frames(engine, index, fake_bytes(), asked, got.__setitem__, num_threads=1)
            assert [stream.ranks[got[row].packet] for row in range(len(asked))] == asked


# --- real decoders --------------------------------------------------------------------------------------------------

Pictures = dict[int, NativeFrame]


def _ask(
    engine: Engine, index: VideoIndex, source: PacketSource, frames: Sequence[int], **options: Any
) -> tuple[Pictures, set[int]]:
    """The pictures that were handed out, and the frames that were called damaged."""
    got: Pictures = {}
    failed: set[int] = set()

    def sink(row: int, picture: Any) -> None:
        got[frames[row]] = NativeFrame.copy_of(picture)

    try:
        decode_frames(engine, index, source, frames, sink, **options)
    except DecodeError as error:
        failed = set(error.reasons)
    assert got.keys() | failed == set(frames) and not got.keys() & failed
    return got, failed


def _noise(data: bytearray, begin: int, end: int, rng: np.random.Generator) -> None:
    data[begin:end] = rng.integers(0, 256, end - begin, np.uint8).tobytes()


def _flips(data: bytearray, begin: int, end: int, rng: np.random.Generator) -> None:
    for bit in rng.integers(begin * 8, end * 8, 4).tolist():
        data[bit // 8] ^= 1 << bit % 8


HARM: dict[str, Callable[[bytearray, int, int, np.random.Generator], None]] = {
    "noise": lambda data, begin, end, rng: _noise(data, begin + 8, end, rng),
    "second half": lambda data, begin, end, rng: _noise(data, (begin + end) // 2, end, rng),
    "header": lambda data, begin, end, rng: _noise(data, begin + 5, min(begin + 16, end), rng),
    "four bits": lambda data, begin, end, rng: _flips(data, begin + 6, end, rng),
}

KINDS = [
    "h264_bframes",
    "h264_b_pyramid",
    "h264_open_gop",
    "h264_slices",
    "h264_paff_mp4",
    "hevc_closed_bframes",
    "hevc_b_pyramid",
    "vp9_mp4",
    "av1_mp4",
    "mpeg4_mp4",
]


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("kind", KINDS)
def test_alone_in_batches_and_with_threads(kind: str, harm: str, clip_folder: Path, tmp_path: Path) -> None:
    good = clips.make(kind, clip_folder)
    truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(good)]
    table = VideoIndex.scan(good).packets
    first = int(np.unique(table.start)[-2 if len(np.unique(table.start)) > 2 else -1])
    members = np.flatnonzero(table.start == first)
    noticed = 0
    for packet in members[1 + list(HARM).index(harm) :: len(HARM)].tolist():  # each packet is harmed in one way
        begin, size = int(table.pos[packet]), int(table.size[packet])
        if size < 24:
            continue
        data = bytearray(good.read_bytes())
        HARM[harm](data, begin, begin + size, np.random.default_rng(packet))
        path = tmp_path / f"{packet}{good.suffix}"
        path.write_bytes(data)
        index = VideoIndex.scan(path)
        if not np.array_equal(index.packets.start, table.start) or len(index.packets.frames) != len(truth):
            continue  # a header says something else now
        source = open_source(index, open_media(path))
        frames = [frame for frame in range(len(truth)) if table.start[table.frames[frame]] == first]
        alone: Pictures = {}
        for frame in frames:
            alone |= _ask(Engine(CpuFactory(), 1), index, source, [frame], num_threads=1)[0]
        noticed += len(alone) < len(frames)

        def check(engine: Engine, wanted: Sequence[int], **options: Any) -> None:
            got = _ask(engine, index, source, wanted, **options)[0]  # noqa: B023
            assert sorted(got) == [frame for frame in wanted if frame in alone], (packet, options)  # noqa: B023
            # What no decoder notices may come out in any way; that of others has to be exact.
            exact = [frame for frame in got if alone[frame] == truth[frame]]  # noqa: B023
            assert all(got[frame] == truth[frame] for frame in exact), (packet, options)  # noqa: B023

        for threads in (1, 2, 3):
            check(Engine(CpuFactory(), 2), frames, num_threads=threads, long_groups=True)
        for threads in (1, 2):
            engine = Engine(CpuFactory(), 2)
            for frame in frames:
                check(engine, [frame], num_threads=threads, read_on=True, long_groups=threads > 1)
            rng = np.random.default_rng(packet)
            for _ in range(4):
                some = sorted(rng.choice(frames, min(3, len(frames)), replace=False).tolist())
                check(engine, some, num_threads=threads, read_on=bool(rng.integers(2)), long_groups=threads > 1)
    assert noticed or harm != "noise" or kind.startswith("hevc")
