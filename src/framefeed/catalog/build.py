"""Builds a catalog: finds changed files, scans them, and writes the catalog."""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Literal

from framefeed import errors
from framefeed._util.atomic_write import temporary_name
from framefeed._util.limits import available_cpus
from framefeed._util.process.worker_process import WorkerError
from framefeed._util.progress import ProgressBar
from framefeed._util.versions import FRAMEFEED, installed_version
from framefeed.catalog.arrow_file import (
    BadEntry,
    CatalogFile,
    ForeignFile,
    Rows,
    begins_as_catalog,
    write_file,
)
from framefeed.catalog.catalog_rows import common_schema, encode
from framefeed.catalog.catalog_scan import TIMEOUT, Failure, Outcome, scan_files
from framefeed.catalog.parts import Parts, gather
from framefeed.catalog.paths import VIDEO_SUFFIXES, Wanted, absolute, expand, resolve
from framefeed.errors import CatalogError, FramefeedError, InvalidFile, SourceError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Fingerprint, PathMedia

__all__ = ["build_file"]

# Finished scans are saved when any of these is reached, which bounds the loss of a killed build.
SAVE_SECONDS = 5.0
MIN_FILES = 8  # up to here a scan is done before a progress bar could be read
SAVE_FILES = 2000
SAVE_PACKETS = 1 << 20  # about 40 MB

SHOWN = 3  # bad files named in an error

Pick = tuple[Rows, int]
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def build_file(
    paths: Paths,
    catalog: str | os.PathLike[str],
    *,
    on_error: Literal["report", "raise"] = "report",
    num_workers: int | None = None,
    progress: bool | None = None,
    timeout_seconds: float = 60.0,
    is_own: bool = False,
) -> CatalogFile:
    """Builds the file; see ``Catalog.build``.

    If no video could be indexed, a catalog with videos is not replaced, and paths that match nothing do not create one:
    a wrong path or an unmounted disk would otherwise discard all known videos.

    Args:
        paths, catalog, on_error, num_workers, progress, timeout_seconds: As for ``Catalog.build``.
        is_own: Whether the caller owns the file, in a working folder of its own; then the catalog may be empty, and an
            existing file is replaced.
    """
    if on_error not in ("report", "raise"):
        raise ValueError(f"on_error={on_error!r} must be 'report' or 'raise'")
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers={num_workers} must be at least 1, or None for one per CPU")
    target = absolute(os.fspath(catalog))
    old = _existing(target, is_own=is_own)
    _check_writable(target)
    wanted, missing = expand(paths, target)
    known = _Known(target, old, timeout_seconds, strict=on_error == "raise")
    try:
        for item in missing:
            known.fail(absolute(item.path), Failure("SourceError", item.reason), None)
        todo = [item.path for item in wanted if not known.has(item.path)]
        _scan(known, todo, num_workers or available_cpus(), progress)
        missing_paths = [absolute(item.path) for item in missing]
        asked = [*wanted, *(Wanted(path, path) for path in missing_paths)]
        written = _write(target, old, known, asked, is_own=is_own)
        known.parts.finish()
        return written
    except BaseException as error:
        known.give_up()
        if isinstance(error, WorkerError):
            raise CatalogError(target, f"cannot be built: {error}") from error
        raise


def _existing(target: str, *, is_own: bool) -> CatalogFile | None:
    """Returns the existing catalog, if it can be used."""
    path = Path(target)
    if path.is_dir():
        raise CatalogError(target, "a folder; name a file in it for the catalog")
    if path.suffix.lower() in VIDEO_SUFFIXES and path.exists():
        raise CatalogError(target, "named like a video file, which the catalog would replace; choose another name")
    if not is_own:
        _check_replaceable(target)
    try:
        found = CatalogFile(target)
    except ForeignFile:
        raise CatalogError(target, "another Arrow file, which the catalog would replace; choose another name") from None
    except CatalogError:  # missing, damaged or of another version
        return None
    if found.is_store:
        raise CatalogError(target, "the catalog of a packet store, which would be replaced; choose another name")
    with suppress(CatalogError):
        found.check()
        return found
    return None


def _check_replaceable(target: str) -> None:
    """Refuses to replace a file that is not a catalog. A damaged or truncated catalog starts like a complete one."""
    try:
        status = os.stat(target)
    except OSError:  # missing, or writing fails later
        return
    if not stat.S_ISREG(status.st_mode):
        raise CatalogError(target, "a device or a pipe, which the catalog would replace; choose another name")
    try:
        may_be_one = begins_as_catalog(target)
    except OSError as error:
        why = f"cannot be read ({error.strerror}), so it may not be a catalog"
        raise CatalogError(target, f"{why}; writing would replace it: choose another name") from error
    if not may_be_one:
        raise CatalogError(target, "not a catalog; writing would replace it: choose another name")


def _check_writable(target: str) -> None:
    """Fails now rather than after an hour of scanning."""
    try:
        with open(temporary_name(target), "xb") as probe:
            os.unlink(probe.name)
    except FileNotFoundError:
        raise CatalogError(target, "cannot be written: its folder does not exist") from None
    except OSError as error:
        raise CatalogError(target, f"cannot be written ({error.strerror})") from error


class _Known:
    """State of the build: files known from the existing catalog, from saved parts, and from scanning.

    Args:
        target: Absolute path of the catalog.
        old: The existing catalog.
        timeout_seconds: Time limit of a scan.
        strict: Whether a bad file ends the build.
    """

    def __init__(self, target: str, old: CatalogFile | None, timeout_seconds: float, *, strict: bool) -> None:
        self.parts = Parts(target)
        self._strict = strict
        self.timeout_seconds = timeout_seconds
        self._scanner = f"framefeed {FRAMEFEED}, av {installed_version('av')}"
        self._before: dict[tuple[str, int, int], Pick | BadEntry] = {}
        for source in [*([old] if old is not None else []), *self.parts.found]:
            self._remember(source, os.path.dirname(target))  # parts have absolute paths
        self._fingerprints: dict[str, Fingerprint] = {}
        self._picks: dict[str, Pick] = {}
        self._bad: dict[str, BadEntry] = {}
        self._pending: list[VideoIndex] = []
        self._pending_bad: list[BadEntry] = []
        self._pending_packets = 0
        self._saved_at = time.monotonic()

    def _remember(self, source: CatalogFile, folder: str) -> None:
        for entry in source.bad:
            if entry.size is not None and entry.mtime_ns is not None and self._is_final(entry):
                self._before.setdefault((resolve(entry.path, folder), entry.size, entry.mtime_ns), entry)
        columns = (source.paths(), source.numbers("file_size").tolist(), source.numbers("mtime_ns").tolist())
        for number, (path, size, mtime_ns) in enumerate(zip(*columns, strict=True)):
            self._before[resolve(path, folder), size, mtime_ns] = (source, number)

    def _is_final(self, entry: BadEntry) -> bool:
        """Returns whether another scan would fail the same way.

        After an update, with more time, or once a disk is back it might not.
        """
        if entry.error == TIMEOUT and self.timeout_seconds > entry.timeout_seconds:
            return False
        return entry.scanner == self._scanner and entry.error not in ("SourceError", "FileChanged")

    def has(self, path: str) -> bool:
        """Returns whether the file in its present state needs no scan."""
        try:
            fingerprint = PathMedia(path).fingerprint
        except SourceError as error:
            self.fail(path, Failure("SourceError", error.reason), None)
            return True
        self._fingerprints[path] = fingerprint
        found = self._before.get((path, *fingerprint))
        if isinstance(found, BadEntry):
            self._note_bad(path, found)
        elif found is not None:
            self._picks[path] = found
        return found is not None

    def add(self, path: str, outcome: Outcome) -> None:
        """Adds the result of a scan."""
        if isinstance(outcome, Failure):
            self.fail(path, outcome, self._fingerprints[path])
        else:
            self._pending.append(outcome)
            self._pending_packets += len(outcome.packets)

    def fail(self, path: str, failure: Failure, fingerprint: Fingerprint | None) -> None:
        """Adds a bad file, or raises its error."""
        size, mtime_ns = fingerprint or (None, None)
        seconds = self.timeout_seconds
        entry = BadEntry(path, failure.reason, failure.error, size, mtime_ns, self._scanner, seconds)
        self._pending_bad.append(entry)
        self._note_bad(path, entry)

    def _note_bad(self, path: str, entry: BadEntry) -> None:
        self._bad[path] = entry
        if self._strict:
            kind: type[FramefeedError] = getattr(errors, entry.error, InvalidFile)
            raise kind(path, entry.reason)

    @property
    def num_bad(self) -> int:
        """Number of bad files so far."""
        return len(self._bad)

    def save_if_due(self) -> None:
        """Saves finished scans if a limit is reached."""
        count = len(self._pending) + len(self._pending_bad)
        late = time.monotonic() - self._saved_at > SAVE_SECONDS
        if count and (late or count >= SAVE_FILES or self._pending_packets >= SAVE_PACKETS):
            self.save()

    def save(self) -> None:
        """Writes finished scans to a part."""
        self.parts.add(self._encoded(), self._pending_bad)
        self._pending, self._pending_bad, self._pending_packets = [], [], 0
        self._saved_at = time.monotonic()

    def _encoded(self) -> Any:
        # Follow the order of the files as far as possible: neighbours are copied together later.
        order = {path: number for number, path in enumerate(self._fingerprints)}
        return encode(sorted(self._pending, key=lambda index: order[index.path]))

    def give_up(self) -> None:
        """Tries to save finished scans for the next build."""
        try:
            if self._pending or any(entry.size is not None for entry in self._pending_bad):
                self.save()
        except CatalogError:
            pass  # report the error that ended the build
        finally:
            self.parts.leave()

    def forget_bad(self) -> None:
        """Drops entries of bad files that do not belong to this catalog."""
        self._pending_bad = []

    def results(self) -> tuple[dict[str, Pick], dict[str, BadEntry]]:
        """Returns rows and bad files by absolute path."""
        for source in [*self.parts.own, Rows([self._encoded()])]:
            self._picks.update((path, (source, number)) for number, path in enumerate(source.paths()))
        return self._picks, self._bad


def _scan(known: _Known, todo: Sequence[str], num_workers: int, show: bool | None) -> None:
    scans = scan_files(todo, num_workers=num_workers, timeout_seconds=known.timeout_seconds)
    if not todo or (show is None and len(todo) <= MIN_FILES):
        show = False
    with closing(scans), ProgressBar("indexing", len(todo), show=show, unit="files", keep=True) as bar:
        for found in scans:
            if found is not None:
                known.add(*found)
                bar.advance(1, f"{known.num_bad} bad")
            known.save_if_due()


def _write(
    target: str, old: CatalogFile | None, known: _Known, wanted: Sequence[Wanted], *, is_own: bool
) -> CatalogFile:
    found, failed = known.results()
    rows = [item for item in wanted if item.path in found]
    picks = [found[item.path] for item in rows]
    stored = [item.stored for item in rows]
    bad = [dataclasses.replace(failed[item.path], path=item.stored) for item in wanted if item.path in failed]
    if old is not None and _is_same(old, picks, stored, bad):
        return old
    if not rows and not is_own:
        try:
            _check_empty(target, old, [failed[item.path] for item in wanted if item.path in failed])
        except CatalogError:
            known.forget_bad()
            raise
    sources = {id(source): source for source, _ in picks}.values()
    schema = common_schema(batch.schema for source in sources for batch in source.batches)
    return write_file(target, gather(picks, stored, schema), schema, bad)


def _check_empty(target: str, old: CatalogFile | None, bad: Sequence[BadEntry]) -> None:
    """Refuses to replace a catalog with videos by an empty one, and to create one for paths that match nothing."""
    more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
    why = "; ".join(f"{entry.path}: {entry.reason}" for entry in bad[:SHOWN]) + more
    none = f"no video could be indexed ({why or 'no paths were given'})"
    delete = "delete it first if you want an empty catalog"
    if old is not None and len(old):
        raise CatalogError(target, f"{none}; this catalog is kept, with {len(old):,} videos: {delete}")
    if old is None and os.path.exists(target) and os.path.getsize(target):
        raise CatalogError(target, f"{none}; this file, a damaged or old catalog, is kept: {delete}")
    # Record an existing file that is not a video, so that it is not scanned again.
    if bad and all(entry.size is None for entry in bad):
        raise CatalogError(target, f"not written: {none}")


def _is_same(old: CatalogFile, picks: Sequence[Pick], stored: Sequence[str], bad: Sequence[BadEntry]) -> bool:
    unmoved = len(picks) == len(old) and all(
        source is old and number == place for place, (source, number) in enumerate(picks)
    )
    return unmoved and list(stored) == old.paths() and list(bad) == old.bad
