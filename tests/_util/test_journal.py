"""Append-only journals: whole records stay, torn and damaged ones go, one process writes."""

from __future__ import annotations

import os
import resource
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from framefeed._util.journal import Journal, JournalInUse

RECORDS = [b"first", b"", b"third record", b"4" * 1000]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "journal"


def written(path: Path, *records: bytes) -> bytes:
    with closing(Journal(path, lambda *_: None, make_folder=True)) as journal:
        journal.append(*records)
    return path.read_bytes()


def read(path: Path) -> list[bytes]:
    found: list[bytes] = []
    with closing(Journal(path, lambda _, record: found.append(record))) as journal:
        del journal
    return found


def test_records_stay(path: Path) -> None:
    with closing(Journal(path, lambda *_: None, make_folder=True)) as journal:
        places = [*journal.append(*RECORDS[:2]), *journal.append(RECORDS[2]), *journal.append(RECORDS[3])]
        for place, record in zip(places, RECORDS, strict=True):
            assert journal.read(place, len(record)) == record
    found: list[tuple[int, bytes]] = []
    with closing(Journal(path, lambda *each: found.append(each))) as journal:
        assert found == list(zip(places, RECORDS, strict=True))
        assert journal.read(places[2], len(RECORDS[2])) == RECORDS[2]


def test_a_torn_tail_is_dropped_and_overwritten(path: Path) -> None:
    data = written(path, b"one", b"two")
    for length in range(len(data)):
        path.write_bytes(data[:length])
        whole = [b"one"] if length >= len(data) // 2 else []
        assert read(path) == whole
        written(path, b"new")
        assert read(path) == [*whole, b"new"]


def test_a_changed_byte_drops_its_record_and_those_behind_it(path: Path) -> None:
    data = written(path, b"one", b"two", b"six")
    each = len(data) // 3
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(changed)
        whole = [b"one", b"two"][: place // each]
        assert read(path) == whole
        written(path, b"new")  # as long as the dropped one: those behind it do not come back
        assert read(path) == [*whole, b"new"]


def test_a_length_beyond_the_file_reads_nothing(path: Path) -> None:
    data = bytearray(written(path, b"one"))
    data[4:8] = b"\xff" * 4
    path.write_bytes(data)
    tracemalloc.start()
    try:
        assert read(path) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_refused_record_is_dropped_with_those_behind_it(path: Path) -> None:
    written(path, b"1", b"two", b"3")
    numbers: list[int] = []
    with closing(Journal(path, lambda _, record: numbers.append(int(record)))) as journal:
        journal.append(b"4")
    assert numbers == [1] and read(path) == [b"1", b"4"]


def test_one_process_at_a_time(path: Path) -> None:
    first = Journal(path, lambda *_: None, make_folder=True)
    with pytest.raises(JournalInUse):
        Journal(path, lambda *_: None)
    first.replace_all(b"a")  # the new file is locked, too
    with pytest.raises(JournalInUse):
        Journal(path, lambda *_: None)
    first.close()
    assert read(path) == [b"a"]


def test_an_error_while_reading_releases_the_file(path: Path) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    written(path, b"a")
    with pytest.raises(KeyError):
        Journal(path, fail)
    assert read(path) == [b"a"]


def test_replacing_clearing_and_removing(path: Path) -> None:
    with closing(Journal(path, lambda *_: None, make_folder=True)) as journal:
        journal.append(b"a" * 100)
        journal.replace_all(b"b", b"c")
        journal.append(b"d")
        assert read_open(path) == b"bcd"
        journal.clear()
        journal.append(b"e")
        assert read_open(path) == b"e"
        journal.remove()
    assert not path.exists()


def read_open(path: Path) -> bytes:
    """All contents, of a journal with records of one byte."""
    return path.read_bytes()[12::13]


def test_a_full_disk_keeps_earlier_records(path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with closing(Journal(path, lambda *_: None, make_folder=True)) as journal:
        journal.append(b"a" * 100)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                journal.append(b"b" * 500)
            assert os.path.getsize(path) == 200  # torn
            journal.append(b"c")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read(path) == [b"a" * 100, b"c"]
