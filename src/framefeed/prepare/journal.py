"""A file of JSON lines that only grows, so that a run can go on after a kill. Only one process has it at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from framefeed._util.atomic_write import write
from framefeed._util.file_lock import open_locked
from framefeed.errors import StateError

__all__ = ["Journal"]


class Journal:
    """The journal of an output folder.

    A line counts when it is whole: what a kill or a full disk has cut off is written over.

    Args:
        path: The file. It is made, with its folder, where it is missing.

    Attributes:
        lines: What was in it when it was opened.

    Raises:
        StateError: Another process has it.
        OSError: It cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()
        try:
            self.lines = list(self._read())
        except BaseException:
            self.close()
            raise

    def _open(self) -> int:
        descriptor = open_locked(self._path, make_folder=True)
        if descriptor is None:
            raise StateError(self._path.parent.parent, "another process is preparing videos into this folder")
        return descriptor

    def _read(self) -> Iterator[dict[str, Any]]:
        whole = 0
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            for line in file:
                try:
                    said = json.loads(line) if line.endswith(b"\n") else None
                except (ValueError, RecursionError):
                    said = None
                if not isinstance(said, dict):
                    break
                whole += len(line)
                yield said
        os.ftruncate(self._descriptor, whole)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def append(self, line: Mapping[str, Any]) -> None:
        """Writes a line; it is on the disk when this returns."""
        data = f"{json.dumps(line)}\n".encode()
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)

    def replace_all(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Has these lines in place of all others, at once."""
        write(self._path, "".join(f"{json.dumps(line)}\n" for line in lines), sync=True)
        before, self._descriptor = self._descriptor, self._open()
        os.close(before)
        os.lseek(self._descriptor, 0, os.SEEK_END)

    def close(self) -> None:
        """Leaves it to the next one."""
        os.close(self._descriptor)
