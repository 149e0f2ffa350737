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
from framefeed.errors import CatalogError, FramefeedError, FrameIndexError
from framefeed.index.video_index import VideoIndex

if TYPE_CHECKING:
    from framefeed.catalog.build import Paths

__all__ = ["BadFile", "Catalog", "NotInCatalog"]

MAX_CACHED = 256  # an index in use is never dropped; this many more stay for the next lookup, about 10 kB each


@dataclass(frozen=True)
class BadFile:
    """A file that could not be indexed, and why."""

    path: str
    reason: str


class NotInCatalog(FramefeedError, KeyError, IndexError):
    """The catalog has no such video."""


class Catalog:
    """The indexes of many videos, in one Arrow file that is mapped into memory and read as needed.

    Opening takes time for each few thousand videos, not for each, and a lookup takes the same time however many there
    are. The file is a table with one row a video; pyarrow, pandas, Polars and DuckDB read it.

    A path that was given as an absolute one is stored as it is. A relative one is stored relative to the catalog's
    folder where the file lies below it, so that the catalog and the videos can be moved together, and as an absolute
    one otherwise. For a lookup any spelling of the path will do.

    A catalog may be used by several threads, is safe to use after a fork, and is pickled by its path.

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
            CatalogError: It is missing, damaged, no catalog, or of another version.
        """
        name = absolute(os.fspath(path))
        inside = os.path.join(name, STORE_CATALOG)
        if os.path.isfile(inside):
            return cls(CatalogFile(inside))
        if os.path.isfile(os.path.join(name, UNFINISHED)):
            raise CatalogError(name, "an unfinished packet store; go on with the same framefeed pack command")
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

        Where the catalog exists, only files that are new or have another size or modification time are scanned; files
        that are not asked for any more are left out. A build that was interrupted goes on where it was. The catalog
        appears, or is replaced, when it is complete.

        Args:
            paths: Files, folders (all video files below them, sorted) and patterns such as ``"clips/**/*.mp4"``. A
                file that is meant twice is taken once. Videos are numbered in this order, bad files left out.
            catalog: The file to write.
            on_error: What a bad file does: ``"report"`` leaves it out and notes it in ``report``, ``"raise"`` raises
                its error.
            num_workers: How many files are scanned at once; None is one a CPU. More than a few files are scanned by
                worker processes, so that one that crashes the demuxer is a bad file like any other.
            progress: Whether to show a progress bar; None shows it on a terminal.
            timeout_seconds: A file whose scan takes longer is a bad file.

        Raises:
            CatalogError: The catalog cannot be written, it would replace what is no catalog, or no video could be
                indexed and it would replace one that has some.
            FramefeedError: With ``on_error="raise"``, what is wrong with a file.
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
        """The index of a video, by its number or path. While it is in use, the same object each time."""
        if isinstance(key, str | os.PathLike):
            return self._index(self.number_of(key))
        try:
            number = key.__index__()
        except AttributeError:
            raise TypeError(f"a video's number or path is needed, not {type(key).__name__}") from None
        if not -len(self) <= number < len(self):
            raise NotInCatalog(self._path, f"no video {number}; videos are 0..{len(self) - 1}")
        return self._index(number % len(self))

    def number_of(self, path: str | os.PathLike[str]) -> int:
        """The number of a video by any spelling of its path.

        Raises:
            NotInCatalog: The catalog does not have it; the error says why, where that is known.
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
        """The paths."""
        return iter(self.paths)

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """The absolute path of each video."""
        return tuple(resolve(path, self._folder) for path in self._rows.paths())

    @property
    def path(self) -> str:
        """The catalog's own path."""
        return self._path

    @property
    def is_store(self) -> bool:
        """Whether packets are read from shards beside the catalog, and not from the videos."""
        return self._rows.is_store

    @property
    def schema(self) -> Any:
        """The columns of the table, as pyarrow describes them."""
        return common_schema(batch.schema for batch in self._rows.batches)

    @cached_property
    def report(self) -> list[BadFile]:
        """The files that were asked for and could not be indexed."""
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
        """Where frames are that are counted through all videos.

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
        """Lets go of the file. Indexes that were handed out stay valid; the catalog refuses further use."""
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
        """Stands for which videos there are, in which order and version."""
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
        """The hashes of all paths, rising, and the row of each."""
        hashes = self._rows.numbers("path_hash")
        order = np.argsort(hashes)
        return hashes[order], order

    def _find(self, path: str) -> int | None:
        """The number of a video by any spelling of its path."""
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
        except ValueError as error:  # what Arrow raises
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
    """Unpickles: the same file, or an error where another build has put other videos or another order there."""
    catalog = Catalog.open(path)
    if catalog._content() != content:
        raise CatalogError(path, "was rebuilt with other content since this catalog was opened; open it again")
    return catalog


_catalogs: weakref.WeakSet[Catalog] = weakref.WeakSet()


def _after_fork() -> None:
    # Another thread of the parent may have held a lock; in the child nobody will release it.
    for catalog in list(_catalogs):
        catalog._lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)
