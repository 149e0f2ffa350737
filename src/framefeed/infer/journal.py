"""Segments that are done, while a run is not: a file that only grows, so that a run can go on after a kill."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from framefeed._util.file_lock import open_locked
from framefeed.catalog.arrow_file import plain_batches
from framefeed.errors import OutputError, StateError
from framefeed.infer.execution.work import BadFrame
from framefeed.infer.rows import FOUND

__all__ = ["Done", "Journal", "MemoryJournal"]

_HEADER = struct.Struct("<4sIII")  # mark, bytes of the description, bytes of rows, CRC-32 of both
_MARK = b"FFI1"


@dataclass(frozen=True, eq=False)
class Done:
    """A segment that is done.

    Attributes:
        key: Names its frames, whatever the number of the segment.
        found: Detections with ``FOUND``'s columns; videos are numbered as in ``bad``, by their place in the segment.
        num_frames: Frames that the model saw.
        bad: Frames that could not be had.
        classes: Names of classes that came with the model.
    """

    key: str
    found: pa.Table
    num_frames: int
    bad: list[BadFrame] = field(default_factory=list)
    classes: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """What is written."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FOUND) as writer:
            writer.write_table(self.found)
        rows: bytes = sink.getvalue().to_pybytes()
        bad = [[each.video, each.frame, each.reason] for each in self.bad]
        said = {"key": self.key, "num_frames": self.num_frames, "bad": bad, "classes": self.classes}
        text = json.dumps(said).encode()
        return _HEADER.pack(_MARK, len(text), len(rows), zlib.crc32(rows, zlib.crc32(text))) + text + rows


def _described(text: bytes) -> dict[str, Any]:
    """What a record says of itself, if it is what ``Done.to_bytes`` writes.

    Raises:
        ValueError: It is not.
    """
    said = json.loads(text)
    kinds: dict[str, Any] = {"key": str, "num_frames": int, "bad": list, "classes": list}
    if not isinstance(said, dict) or not all(isinstance(said.get(name), kind) for name, kind in kinds.items()):
        raise ValueError("a record lacks something")
    bad = all(
        isinstance(each, list) and [type(part) for part in each] == [int, int, str] and each[0] >= 0
        for each in said["bad"]
    )
    if not bad or said["num_frames"] < 0 or not all(isinstance(name, str) for name in said["classes"]):
        raise ValueError("a record has values that do not belong there")
    return said


class MemoryJournal:
    """The same in memory, for runs that write no file."""

    def __init__(self) -> None:
        self._done: dict[str, Done] = {}

    def __contains__(self, key: str) -> bool:
        """Whether there is anything of a segment."""
        return key in self._done

    def keys(self) -> list[str]:
        """Segments that are done, without those that lack frames: these are tried again."""
        return list(self._done)

    def add(self, done: Done) -> None:
        """Notes a segment."""
        self._done[done.key] = done

    def read(self, key: str) -> Done:
        """A segment that is done."""
        return self._done[key]


class Journal:
    """A journal in a file. Only one process has it open at a time.

    A record counts when it is whole: what a kill or a full disk has cut off is written over.

    Args:
        path: The file.

    Raises:
        StateError: Another process has it.
        OutputError: It cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._end = 0
        self._places: dict[str, tuple[int, int, int]] = {}
        self._complete: dict[str, bool] = {}
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise self._error(error) from error
        for place, text, length in self._records():
            try:
                said = _described(text)
            except (ValueError, RecursionError):
                self._end = place  # not written by this journal, whatever the checksum says
                break
            self._note(said["key"], place, len(text), length, complete=not said["bad"])

    def _open(self) -> int:
        descriptor = open_locked(self._path)
        if descriptor is None:
            raise StateError(self._path, "another process is at this run")
        return descriptor

    def _records(self) -> Iterator[tuple[int, bytes, int]]:
        """Where each whole record begins, its description, and the length of its rows."""
        size = os.fstat(self._descriptor).st_size
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            while True:
                head = file.read(_HEADER.size)
                if len(head) < _HEADER.size:
                    return
                mark, length, rows, checksum = _HEADER.unpack(head)
                is_there = mark == _MARK and self._end + _HEADER.size + length + rows <= size
                body = file.read(length + rows) if is_there else b""
                if len(body) < length + rows or zlib.crc32(body) != checksum or mark != _MARK:
                    return
                yield self._end, body[:length], rows
                self._end = file.tell()

    def _note(self, key: str, place: int, length: int, rows: int, *, complete: bool) -> None:
        self._places[key] = (place, length, rows)
        self._complete[key] = complete

    def _error(self, error: OSError) -> OutputError:
        return OutputError(
            self._path,
            f"cannot be written ({error.strerror or error}); what is done is kept, and the same command goes on",
        )

    def __len__(self) -> int:
        """Number of segments in it."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        """Whether there is anything of a segment."""
        return key in self._places

    def keys(self) -> list[str]:
        """Segments that are done, without those that lack frames: these are tried again."""
        return [key for key, complete in self._complete.items() if complete]

    def add(self, done: Done) -> None:
        """Notes a segment; it is on the disk when this returns.

        Raises:
            OutputError: It cannot be written. What was noted before stays.
        """
        data = done.to_bytes()
        place = self._end
        try:
            os.ftruncate(self._descriptor, place)
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], place + written)
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._error(error) from error
        self._end = place + len(data)
        _, length, rows, _ = _HEADER.unpack(data[: _HEADER.size])
        self._note(done.key, place, length, rows, complete=not done.bad)

    def read(self, key: str) -> Done:
        """A segment that is done."""
        place, length, rows = self._places[key]
        try:
            data = os.pread(self._descriptor, length + rows, place + _HEADER.size)
        except OSError as error:
            raise self._error(error) from error
        try:
            said = _described(data[:length])
            batches = list(plain_batches(pa.BufferReader(data[length:]), FOUND))
            found = pa.Table.from_batches(batches, FOUND)
            found.validate(full=True)
            if any(column.null_count for column in found.columns):
                raise ValueError("a value is missing")
        except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
            raise self.damaged(error) from error
        return Done(key, found, said["num_frames"], [BadFrame(*each) for each in said["bad"]], tuple(said["classes"]))

    def damaged(self, error: object) -> StateError:
        """The error for what this journal cannot have written."""
        return StateError(self._path, f"is damaged ({error}); restart=True (--restart) begins anew")

    def clear(self) -> None:
        """Forgets everything."""
        os.ftruncate(self._descriptor, 0)
        self._end = 0
        self._places.clear()
        self._complete.clear()

    def close(self) -> None:
        """Leaves it to the next one."""
        os.close(self._descriptor)
