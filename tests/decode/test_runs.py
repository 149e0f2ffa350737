"""Whole runs with a fake decoder: pictures that are told apart by their order alone are never wrong unnoticed."""

from __future__ import annotations

from typing import Any

import pytest

from framefeed.decode.engine import Engine
from framefeed.errors import DecodeError
from framefeed.index.bitstream import PacketKind
from framefeed.request import decode_runs
from framefeed.source import CutOff
from framefeed.testing.fake_decoder import FakeFactory, FakePicture, fake_bytes
from plan.streams import MadeUpStream, index_of


class _Book:
    """Keeps what is confirmed, and forgets what is rejected."""

    def __init__(self) -> None:
        self.confirmed: dict[int, int] = {}
        self.rejected = 0
        self._taken: dict[int, int] = {}

    def take(self, rows: list[int], pictures: list[FakePicture]) -> None:
        self._taken |= {row: picture.packet for row, picture in zip(rows, pictures, strict=True)}

    def confirm(self) -> None:
        self.confirmed |= self._taken
        self._taken = {}

    def reject(self) -> None:
        self.rejected += len(self._taken)
        self._taken = {}


def _stream(groups: int = 3, length: int = 6) -> MadeUpStream:
    """Closed groups, each picture built on the one before."""
    stream = MadeUpStream()
    for group in range(groups):
        first = group * length
        stream.add(int(PacketKind.RAP | PacketKind.CLOSED), first, [])
        for place in range(1, length):
            stream.add(0, first + place, [first + place - 1])
    stream.mark_unreferenced()
    return stream


def _read(engine: Engine, stream: MadeUpStream, wanted: list[int], book: _Book, source: Any = None) -> list[int]:
    index = index_of(stream.table())
    plan = decode_runs(engine, index, source or fake_bytes(), wanted, book, num_threads=1)
    for row, copy in plan.copies:
        book.confirmed[copy] = book.confirmed[row]
    return [book.confirmed[row] for row in range(len(wanted))]


def _engine(stream: MadeUpStream, **what: Any) -> tuple[Engine, FakeFactory]:
    factory = FakeFactory(stream.references, stream.ranks, 1, **what)
    return Engine(factory, max_threads=1), factory


@pytest.mark.parametrize("wanted", [[0], [5], [17, 3, 4, 12, 3], list(range(18)), []])
def test_pictures_are_the_right_ones(wanted: list[int]) -> None:
    stream = _stream()
    engine, factory = _engine(stream)
    book = _Book()
    assert _read(engine, stream, wanted, book) == wanted
    assert book.rejected == 0
    assert len(factory.fed) <= sum(frame % 6 + 1 for frame in wanted)


def test_a_lost_picture_shifts_the_others_and_that_is_noticed() -> None:
    stream = _stream()
    engine, _ = _engine(stream, swallowed=frozenset({8}))
    book = _Book()
    assert _read(engine, stream, list(range(18)), book) == list(range(18))
    assert book.rejected == 17 + 5  # all three groups at once, and then that one


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        (range(18), [(0, 17)]),
        ([*range(6), 8], [(0, 8)]),
        ([1, 8], [(0, 1), (6, 8)]),  # the first one's last packets are not needed
        ([*range(6), *range(12, 18)], [(0, 5), (12, 17)]),
        ([13, 3, 4, 5], [(0, 5), (12, 13)]),
    ],
)
def test_groups_that_follow_one_another_are_decoded_in_one_go(wanted: list[int], runs: list[tuple[int, int]]) -> None:
    stream = _stream()
    engine, factory = _engine(stream)
    assert _read(engine, stream, list(wanted), _Book()) == list(wanted)
    assert factory.runs == runs


def test_not_too_many_in_one_go() -> None:
    stream = _stream(groups=4, length=60)
    engine, factory = _engine(stream)
    assert _read(engine, stream, list(range(240)), _Book()) == list(range(240))
    assert factory.runs == [(0, 119), (120, 239)]


def test_the_group_that_fails_is_told_frame_by_frame() -> None:
    stream = _stream()
    engine, _ = _engine(stream, broken=frozenset({8}))
    book = _Book()
    with pytest.raises(DecodeError, match=r"frame 8 cannot be decoded exactly \(and 3 more"):
        _read(engine, stream, list(range(18)), book)
    assert book.confirmed == {row: row for row in [*range(8), *range(12, 18)]}


def test_where_pictures_cannot_be_told_apart_the_whole_group_fails() -> None:
    stream = _stream()
    engine, _ = _engine(stream, swallowed=frozenset({8}), numbers_pictures=False)
    book = _Book()
    with pytest.raises(DecodeError, match=r"frame 6 cannot be decoded exactly \(and 5 more"):
        _read(engine, stream, list(range(18)), book)
    assert book.confirmed == {row: row for row in [*range(6), *range(12, 18)]}


def test_a_file_that_is_cut_off() -> None:
    stream = _stream()
    engine, _ = _engine(stream)

    class _Cut:
        def read(self, numbers: Any) -> Any:
            for number in numbers.tolist():
                if number == 9:
                    raise CutOff(9, "the file is cut off at byte 9")
                yield number, b""

    book = _Book()
    with pytest.raises(DecodeError, match=r"frame 9 cannot be decoded exactly.*cut off"):
        _read(engine, stream, list(range(12)), book, _Cut())
    assert book.confirmed == {row: row for row in range(9)}


def test_decoders_are_used_again_after_everything() -> None:
    stream = _stream()
    engine, _ = _engine(stream, broken=frozenset({8}))
    for _ in range(5):
        with pytest.raises(DecodeError):
            _read(engine, stream, [9], _Book())
        assert _read(engine, stream, [1], _Book()) == [1]

        class _Full(_Book):
            def take(self, rows: list[int], pictures: list[FakePicture]) -> None:
                raise RuntimeError("no room")

        with pytest.raises(RuntimeError, match="no room"):
            _read(engine, stream, [1], _Full())
    assert engine.pool.created == 1 and len(engine.pool) == 1
