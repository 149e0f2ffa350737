"""``Catalog``: the indexes of many videos in one memory-mapped file."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed._util.lazy_property import cached_property
from framefeed.catalog.arrow_file import CatalogFile
from framefeed.catalog.catalog_rows import common_schema, decode, row_path
from framefeed.catalog.paths import STORE_CATALOG, UNFINISHED, absolute, candidates, path_hash, resolve
from framefeed.errors import CatalogError, FrameIndexError, NotInCatalog
from framefeed.index.video_index import VideoIndex

if TYPE_CHECKING:
    from framefeed.catalog.build import Paths

__all__ = ["BadFile", "Catalog"]

MAX_CACHED = 256  # indexes in use are never dropped; this many more stay for the next lookup, about 10 kB each


@dataclass(frozen=True)
class BadFile:
    """A file that could not be indexed, and why."""

    path: str
    reason: str


class Catalog:
    """The indexes of many videos in one memory-mapped Arrow file.

    The time to open grows with the number of record batches (thousands of videos each), and a lookup takes the same
    time for any number of videos. The file is a table with one row per video; pyarrow, pandas, Polars and DuckDB read
    it.

    Absolute paths are stored as given. Relative paths are stored relative to the catalog's folder if the file is below
    it, so that the catalog and the videos can be moved together, and as absolute paths otherwise. A lookup accepts any
    spelling of the path.

    A catalog is safe to use from several threads and after a fork, and is pickled by its path.

    Example:
        >>> catalog = Catalog.build("videos/", "catalog.arrow")  # doctest: +SKIP
        >>> decoder = VideoDecoder("videos/a.mp4", index=catalog)  # doctest: +SKIP
    """

    def __init__(self, file: CatalogFile) -> None:
        self._file: CatalogFile | None = file
        self._path = file.path
        self._folder = os.path.dirname(file.path)
        self._held: weakref.WeakValueDictionary[int, VideoIndex] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[int, VideoIndex] = OrderedDict()
        self._lock = threading.RLock()
        _catalogs.add(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Catalog:
        """Opens a catalog.

        Args:
            path: The file, or the folder of a packet store.

        Raises:
            CatalogError: The catalog is missing, damaged, not a catalog, or of another version.
        """
        name = absolute(os.fspath(path))
        inside = os.path.join(name, STORE_CATALOG)
        if os.path.isfile(inside):
            return cls(CatalogFile(inside))
        if os.path.isfile(os.path.join(name, UNFINISHED)):
            raise CatalogError(name, "an unfinished packet store; rerun the same framefeed pack command to resume")
        return cls(CatalogFile(name))

    @classmethod
    def build(
        cls,
        paths: Paths,
        catalog: str | os.PathLike[str],
        *,
        on_error: Literal["report", "raise"] = "report",
        num_workers: int | None = None,
        progress: bool | None = None,
        timeout_seconds: float = 60.0,
    ) -> Catalog:
        """Indexes files and writes the catalog.

        If the catalog exists, only new files and files with another size or modification time are scanned; files that
        are no longer in ``paths`` are left out. Call it again to resume an interrupted build. The catalog is written,
        or replaced, when the build is complete.

        Args:
            paths: Files, folders (all video files below them, sorted) and patterns such as ``"clips/**/*.mp4"``.
                Duplicates are taken once. Videos are numbered in this order, without bad files.
            catalog: The file to write.
            on_error: Treatment of a bad file: ``"report"`` leaves it out and adds it to ``report``, ``"raise"`` raises
                its error.
            num_workers: Number of files scanned in parallel; None for one per CPU. More than a few files are scanned by
                worker processes, so that a file that crashes the demuxer is only a bad file.
            progress: Whether to show a progress bar; None shows it on a terminal.
            timeout_seconds: A file whose scan takes longer is a bad file.

        Raises:
            CatalogError: The catalog cannot be written, would replace a file that is not a catalog, or no video could
                be indexed and it would replace a catalog with videos.
            FramefeedError: The error of a bad file, with ``on_error="raise"``.
        """
        from framefeed.catalog.build import build_file

        return cls(
            build_file(
                paths,
                catalog,
                on_error=on_error,
                num_workers=num_workers,
                progress=progress,
                timeout_seconds=timeout_seconds,
            )
        )

    # --- videos ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: int | str | os.PathLike[str]) -> VideoIndex:
        """Returns the index of a video, by number or path; the same object as long as it is in use."""
        if isinstance(key, str | os.PathLike):
            return self._index(self.number_of(key))
        try:
            number = key.__index__()
        except AttributeError:
            raise TypeError(f"a video is looked up by number or path, not {type(key).__name__}") from None
        if not -len(self) <= number < len(self):
            raise NotInCatalog(self._path, f"no video {number}; videos are 0..{len(self) - 1}")
        return self._index(number % len(self))

    def number_of(self, path: str | os.PathLike[str]) -> int:
        """Returns the number of a video by any spelling of its path.

        Raises:
            NotInCatalog: The catalog does not have the video; the message says why, if known.
        """
        name = os.fspath(path)
        number = self._find(name)
        if number is not None:
            return number
        reasons = [bad.reason for bad in self.report if bad.path == absolute(name)]
        why = f"could not be indexed: {reasons[0]}" if reasons else "build it again with this file"
        raise NotInCatalog(name, f"not in the catalog {self._path}; {why}")

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str | os.PathLike) and self._find(os.fspath(path)) is not None

    def __iter__(self) -> Iterator[str]:
        """Iterates over the paths."""
        return iter(self.paths)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Absolute path of each video."""
        return tuple(resolve(path, self._folder) for path in self._rows.paths())

    @property
    def path(self) -> str:
        """Path of the catalog."""
        return self._path

    @property
    def is_store(self) -> bool:
        """True if packets are read from shards beside the catalog, not from the videos."""
        return self._rows.is_store

    @property
    def schema(self) -> Any:
        """Columns of the table, as a pyarrow schema."""
        return common_schema(batch.schema for batch in self._rows.batches)

    @cached_property
    def report(self) -> list[BadFile]:
        """Requested files that could not be indexed."""
        return [BadFile(resolve(entry.path, self._folder), entry.reason) for entry in self._rows.bad]

    def __repr__(self) -> str:
        if self._file is None:
            return f"Catalog({self._path!r}, closed)"
        return f"Catalog({self._path!r}, {len(self)} videos, {self.total_frames} frames)"

    # --- frames ---------------------------------------------------------------------------------------------------

    @cached_property
    def num_frames(self) -> NDArray[np.int64]:
        """Number of frames of each video."""
        found = self._rows.numbers("num_frames")
        found.flags.writeable = False
        return found

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.num_frames, dtype=np.int64)

    @property
    def total_frames(self) -> int:
        """Number of frames of all videos."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def locate(self, frame: int) -> tuple[int, int]: ...

    @overload
    def locate(self, frame: NDArray[Any] | list[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

    def locate(self, frame: ArrayLike) -> tuple[Any, Any]:
        """Finds frames that are numbered through all videos.

        Args:
            frame: Number, or array of numbers, in 0..total_frames - 1; negative ones count from the end.

        Returns:
            The video's number and the frame's number in it; two arrays for an array.
        """
        numbers = np.asarray(frame)
        if numbers.dtype.kind not in "iu" and numbers.size:
            raise TypeError(f"frame numbers must be whole numbers, got {numbers.dtype}")
        numbers = numbers.astype(np.int64)
        total = self.total_frames
        outside = (numbers < -total) | (numbers >= total)
        if outside.any():
            wrong = int(numbers[outside].flat[0]) if numbers.ndim else int(numbers)
            raise FrameIndexError(self._path, f"no frame {wrong}; frames are 0..{total - 1}")
        numbers = np.where(numbers < 0, numbers + total, numbers)
        videos = np.searchsorted(self._ends, numbers, side="right")
        places = numbers - (self._ends[videos] - self.num_frames[videos])
        return (videos, places) if numbers.ndim else (int(videos), int(places))

    # --- lifetime -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the file. Indexes returned before stay valid; other use of the catalog raises."""
        with self._lock:
            self._file = None
            self._recent.clear()
            for name in ("paths", "report", "num_frames", "_ends", "_hashes"):
                self.__dict__.pop(name, None)

    def __enter__(self) -> Catalog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._path, self._content())

    def _content(self) -> bytes:
        """Digest of the videos, their order and their versions."""
        digest = blake2b(digest_size=16)
        for name in ("path_hash", "checksum"):
            digest.update(self._rows.numbers(name).data)
        return digest.digest()

    # --- how ------------------------------------------------------------------------------------------------------

    @property
    def _rows(self) -> CatalogFile:
        if self._file is None:
            raise CatalogError(self._path, "this catalog is closed; open it again with Catalog.open")
        return self._file

    @cached_property
    def _hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.intp]]:
        """Hashes of all paths, rising, and the row of each."""
        hashes = self._rows.numbers("path_hash")
        order = np.argsort(hashes)
        return hashes[order], order

    def _find(self, path: str) -> int | None:
        """Returns the number of a video by any spelling of its path."""
        hashes, order = self._hashes
        for stored in candidates(path, self._folder):
            wanted = np.uint64(path_hash(stored))
            place = int(np.searchsorted(hashes, wanted))
            while place < len(hashes) and hashes[place] == wanted:
                number = int(order[place])
                if self._path_of(number) == stored:
                    return number
                place += 1
        return None

    def _index(self, number: int) -> VideoIndex:
        with self._lock:
            index = self._held.get(number)
            if index is None:
                index = self._held[number] = self._read(number)
            self._recent[number] = index
            self._recent.move_to_end(number)
            if len(self._recent) > MAX_CACHED:
                self._recent.popitem(last=False)
            return index

    def _row(self, number: int) -> Any:
        rows = self._rows
        try:
            return rows.row(number)
        except ValueError as error:  # Arrow's errors
            raise self._damaged(number, error) from error

    def _path_of(self, number: int) -> str:
        row = self._row(number)
        try:
            return row_path(row)
        except ValueError as error:
            raise self._damaged(number, error) from error

    def _read(self, number: int) -> VideoIndex:
        row = self._row(number)
        try:
            return decode(row, resolve(row_path(row), self._folder), self._folder)
        except (ValueError, ArithmeticError, TypeError) as error:
            raise self._damaged(number, error) from error

    def _damaged(self, number: int, error: Exception) -> CatalogError:
        reason = f"the row of video {number} is damaged ({error}); delete the catalog and build it again"
        return CatalogError(self._path, reason)


def _reopen(path: str, content: bytes) -> Catalog:
    """Opens the same file when unpickled; raises if a later build changed its videos or their order."""
    catalog = Catalog.open(path)
    if catalog._content() != content:
        raise CatalogError(path, "was rebuilt with other content since this catalog was opened; open it again")
    return catalog


_catalogs: weakref.WeakSet[Catalog] = weakref.WeakSet()


def _after_fork() -> None:
    # A thread of the parent may have held a lock, which the child could never acquire.
    for catalog in list(_catalogs):
        catalog._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
