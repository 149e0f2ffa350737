"""Segments that a run has finished, so that the run can be resumed."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from framefeed._util.journal import Journal, JournalInUse
from framefeed._util.run_state import cannot_write
from framefeed.catalog.arrow_file import plain_batches
from framefeed.errors import OutputError, StateError
from framefeed.infer.execution.work import BadFrame
from framefeed.infer.rows import FOUND

__all__ = ["Done", "MemoryJournal", "SegmentJournal"]

_LENGTH = struct.Struct("<I")  # bytes of the description, which the rows follow


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
        """Returns the journal's record."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, FOUND) as writer:
            writer.write_table(self.found)
        bad = [[each.video, each.frame, each.reason] for each in self.bad]
        said = {"key": self.key, "num_frames": self.num_frames, "bad": bad, "classes": self.classes}
        text = json.dumps(said).encode()
        return _LENGTH.pack(len(text)) + text + bytes(sink.getvalue().to_pybytes())


def _split(record: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns the description and the rows of a record that ``Done.to_bytes`` wrote.

    Raises:
        ValueError: It did not write this.
    """
    if len(record) < _LENGTH.size:
        raise ValueError("a record is too short")
    end = _LENGTH.size + _LENGTH.unpack_from(record)[0]
    try:
        said = json.loads(record[_LENGTH.size : end])
    except RecursionError:
        raise ValueError("a record is nested too deeply") from None
    kinds: dict[str, Any] = {"key": str, "num_frames": int, "bad": list, "classes": list}
    if not isinstance(said, dict) or not all(isinstance(said.get(name), kind) for name, kind in kinds.items()):
        raise ValueError("a record lacks something")
    bad = all(
        isinstance(each, list) and [type(part) for part in each] == [int, int, str] and each[0] >= 0
        for each in said["bad"]
    )
    if not bad or said["num_frames"] < 0 or not all(isinstance(name, str) for name in said["classes"]):
        raise ValueError("a record has values that do not belong there")
    return said, record[end:]


class MemoryJournal:
    """Finished segments in memory, for runs that write no file."""

    def __init__(self) -> None:
        self._done: dict[str, Done] = {}

    def __contains__(self, key: str) -> bool:
        """Returns whether a segment has an entry."""
        return key in self._done

    def keys(self) -> list[str]:
        """Returns segments that lack no frames; the others are tried again."""
        return list(self._done)

    def add(self, done: Done) -> None:
        """Notes a segment."""
        self._done[done.key] = done

    def read(self, key: str) -> Done:
        """Returns a segment."""
        return self._done[key]


class SegmentJournal:
    """Finished segments in a file.

    Args:
        path: The file.

    Raises:
        StateError: Another process has it open.
        OutputError: It cannot be written.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._complete: dict[str, bool] = {}
        with self._errors():
            self._journal = Journal(path, self._take)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except JournalInUse:
            raise StateError(self._path, "another process is at this run") from None
        except OSError as error:
            raise OutputError(self._path, cannot_write(error)) from error

    def _take(self, place: int, record: bytes) -> None:
        said, _ = _split(record)
        self._places[said["key"]] = place, len(record)
        self._complete[said["key"]] = not said["bad"]

    def __len__(self) -> int:
        """Number of segments in it."""
        return len(self._places)

    def __contains__(self, key: str) -> bool:
        """Returns whether a segment has an entry."""
        return key in self._places

    def keys(self) -> list[str]:
        """Returns segments that lack no frames; the others are tried again."""
        return [key for key, complete in self._complete.items() if complete]

    def add(self, done: Done) -> None:
        """Notes a segment; it is on the disk when this returns.

        Raises:
            OutputError: It cannot be written. Earlier segments stay.
        """
        record = done.to_bytes()
        with self._errors():
            (place,) = self._journal.append(record)
        self._places[done.key] = place, len(record)
        self._complete[done.key] = not done.bad

    def read(self, key: str) -> Done:
        """Returns a segment."""
        with self._errors():
            record = self._journal.read(*self._places[key])
        try:
            said, rows = _split(record)
            batches = list(plain_batches(pa.BufferReader(rows), FOUND))
            found = pa.Table.from_batches(batches, FOUND)
            found.validate(full=True)
            if any(column.null_count for column in found.columns):
                raise ValueError("a value is missing")
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self.damaged(error) from error
        return Done(key, found, said["num_frames"], [BadFrame(*each) for each in said["bad"]], tuple(said["classes"]))

    def damaged(self, error: object) -> StateError:
        """Returns the error for records that no run can have written."""
        return StateError(self._path, f"is damaged ({error}); restart=True (--restart) begins anew")

    def clear(self) -> None:
        """Removes all segments."""
        self._journal.clear()
        self._places.clear()
        self._complete.clear()

    def close(self) -> None:
        """Releases the file."""
        self._journal.close()
