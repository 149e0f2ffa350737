"""Finished scans of a build that is not finished: small catalogs beside the catalog, for the next build to use."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from framefeed._util.atomic_write import make_own_folder
from framefeed.catalog.arrow_file import BadEntry, CatalogFile, Rows, write_file
from framefeed.catalog.catalog_rows import common_schema, put_together
from framefeed.errors import CatalogError

__all__ = ["Parts", "gather"]

# A batch is what is copied at once when rows are put together: bounds the memory that takes, and keeps list offsets
# far from the 2^31 that Arrow's 32-bit offsets end at.
MAX_BATCH_ROWS = 1 << 14
MAX_BATCH_BYTES = 64 << 20

MAX_SMALL_PARTS = 32  # each holds a file descriptor; more are put together into one
FOREIGN_SECONDS = 24 * 3600  # whether a build on another machine is alive cannot be told: after a day it is not

_alive: set[str] = set()  # builds of this process


def gather(picks: Sequence[tuple[Rows, int]], paths: Sequence[str], schema: Any) -> Iterator[Any]:
    """Rows from anywhere, in the order given, as bounded batches. Neighbours are copied as one slice.

    Args:
        picks: For each row, where it is and its number there.
        paths: For each row, the path to store.
        schema: What the batches are to have, see ``common_schema``.
    """
    pieces: list[Any] = []
    done = rows = size = 0
    for piece in _slices(picks):
        if pieces and (rows + piece.num_rows > MAX_BATCH_ROWS or size + piece.nbytes > MAX_BATCH_BYTES):
            yield put_together(pieces, paths[done : done + rows], schema)
            pieces, done, rows, size = [], done + rows, 0, 0
        pieces.append(piece)
        rows += piece.num_rows
        size += piece.nbytes
    if pieces:
        yield put_together(pieces, paths[done:], schema)


def _slices(picks: Sequence[tuple[Rows, int]]) -> Iterator[Any]:
    start = length = 0
    batch: Any = None
    for source, number in picks:
        part, place = source.place(number)
        if batch is source.batches[part] and place == start + length and length < MAX_BATCH_ROWS:
            length += 1
            continue
        if length:
            yield batch.slice(start, length)
        batch, start, length = source.batches[part], place, 1
    if length:
        yield batch.slice(start, length)


class Parts:
    """The folder ``<catalog>.parts``. Paths in it are absolute.

    Attributes:
        found: Parts that other builds have left or are writing, at the time this one began.
        own: Parts of this build.
    """

    def __init__(self, catalog: str) -> None:
        self._catalog = Path(catalog)
        self._folder = self._catalog.with_name(self._catalog.name + ".parts")
        self._session = uuid.uuid4().hex
        self._written = 0
        if self._folder.is_symlink():  # what is in it may be removed
            raise CatalogError(self._folder, "a link in the place of the folder for unfinished scans; remove it")
        self._seen = _listed(self._folder)
        prefix = f".{self._catalog.name}."
        self._seen += [path for path in _listed(self._catalog.parent) if _is_temporary(path, prefix)]
        self.found: list[CatalogFile] = []
        self.own: list[CatalogFile] = []
        for path in self._seen:
            if path.suffix == ".arrow":
                with suppress(CatalogError):  # damaged, of another version, or gone by now
                    part = CatalogFile(str(path))
                    part.check()
                    self.found.append(part)
        _alive.add(self._session)

    def add(self, batch: Any, bad: Sequence[BadEntry]) -> None:
        """Saves finished scans."""
        self.own.append(self._write([batch] if batch.num_rows else [], batch.schema, bad))
        small = [part for part in self.own if sum(batch.nbytes for batch in part.batches) < MAX_BATCH_BYTES // 2]
        if len(small) > MAX_SMALL_PARTS:
            self._put_together(small)

    def _write(self, batches: Any, schema: Any, bad: Sequence[BadEntry]) -> CatalogFile:
        self._written += 1
        name = f"{self._written}.{socket.gethostname()}-{os.getpid()}-{self._session}.arrow"
        for last in (False, True):
            try:
                make_own_folder(self._folder)
            except OSError as error:
                raise CatalogError(self._catalog, f"cannot write beside it ({error.strerror})") from error
            try:
                return write_file(str(self._folder / name), batches, schema, bad)
            except CatalogError as error:
                # Another build that has finished may have removed the empty folder in between.
                if last or not isinstance(error.__cause__, FileNotFoundError):
                    raise CatalogError(self._catalog, f"{self._folder.name} {error.reason}") from error.__cause__
        raise AssertionError

    def _put_together(self, parts: Sequence[CatalogFile]) -> None:
        picks = [(part, number) for part in parts for number in range(len(part))]
        paths = [path for part in parts for path in part.paths()]
        schema = common_schema(batch.schema for part in parts for batch in part.batches)
        bad = [entry for part in parts for entry in part.bad]
        merged = self._write(list(gather(picks, paths, schema)), schema, bad)
        self.own = [part for part in self.own if part not in parts] + [merged]
        for part in parts:
            _remove(Path(part.path))

    def finish(self) -> None:
        """Removes what is in the catalog now: this build's parts, and those of builds that have ended."""
        for part in self.own:
            _remove(Path(part.path))
        for path in self._seen:
            if not _in_use(path):
                _remove(path)
        with suppress(OSError):
            self._folder.rmdir()
        self.leave()

    def leave(self) -> None:
        """Ends the build and leaves the parts to the next one."""
        _alive.discard(self._session)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _is_temporary(path: Path, prefix: str) -> bool:
    return path.name.startswith(prefix) and path.suffix == ".tmp"


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _in_use(path: Path) -> bool:
    """Returns whether the build that a part or temporary file belongs to may still be running."""
    owner = path.name.removesuffix(".tmp").removesuffix(".arrow").rsplit("-", 2)
    try:
        age = time.time() - path.stat().st_mtime
        host, process, session = owner
        if not host.endswith("." + socket.gethostname()) or not process.isdecimal():
            return age < FOREIGN_SECONDS
        if int(process) == os.getpid():
            return session in _alive or (path.suffix == ".tmp" and age < FOREIGN_SECONDS)
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:  # someone else's process
        return True
    return True
