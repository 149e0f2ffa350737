"""Sources of a video's bytes: a file, a bytes object or a file-like object, read at positions.

Positional reads share no file offset, so threads and forked workers may read one file at once. A small pool keeps files
open, however many videos there are.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from framefeed.errors import FileChanged, SourceError

__all__ = ["BytesMedia", "FileMedia", "Fingerprint", "Media", "PathMedia", "open_media"]

MAX_OPEN_FILES = 64  # an open costs about 10 microseconds on a local disk, so a larger pool gains nothing

NEAR = 4096  # a read call costs more than copying this many bytes, which are on the same or the next page of a disk
BLOCK = 120 << 10  # bytes read before they are processed: they stay in the cache, and malloc needs no system call

_ZERO = np.zeros(1, np.int64)

Fingerprint = tuple[int, int]
"""Size in bytes and time of the last change in nanoseconds; of a packet store's shard, size and check value."""


class Media(Protocol):
    """Random access to the bytes of one video."""

    @property
    def name(self) -> str:
        """Name for error messages."""

    @property
    def fingerprint(self) -> Fingerprint:
        """Value that changes when the content changes; queried on every access."""

    def read(self, offset: int, length: int) -> bytes:
        """Reads bytes from ``offset``; fewer than ``length`` only at the end of the file."""

    def for_demuxer(self) -> int | IO[bytes]:
        """Returns FFmpeg's input: a stream with an offset of its own, or a descriptor, which the caller closes."""


class _FilePool:
    """Pool of open file descriptors by path; closes the least recently used ones that are not in use."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, Fingerprint], list[int]] = OrderedDict()  # [descriptor, users]

    def forget(self) -> None:
        """Resets the pool after a fork: the child gets descriptors of its own and a free lock."""
        for descriptor, _ in self._files.values():
            os.close(descriptor)
        self._reset()

    @contextmanager
    def descriptor(self, path: str, fingerprint: Fingerprint) -> Iterator[int]:
        """Lends an open descriptor of the file with that fingerprint."""
        key = (path, fingerprint)
        entry = self._use(key)
        if entry is None:
            # Without the lock: on a network disk this may hang, and must not block reads of other files.
            opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            entry = self._use(key, opened)
            assert entry is not None
            if entry[0] != opened:  # another thread was faster
                os.close(opened)
        try:
            yield entry[0]
        finally:
            with self._lock:
                entry[1] -= 1

    def _use(self, key: tuple[str, Fingerprint], opened: int | None = None) -> list[int] | None:
        """Adds a user to the entry of a file; makes the entry from ``opened`` if there is none."""
        with self._lock:
            entry = self._files.get(key)
            if entry is None:
                if opened is None:
                    return None
                entry = self._files[key] = [opened, 0]
            entry[1] += 1
            self._files.move_to_end(key)
            self._evict()
            return entry

    def _evict(self) -> None:
        idle = [key for key, entry in self._files.items() if entry[1] == 0]
        for key in idle[: max(0, len(self._files) - self.limit)]:
            os.close(self._files.pop(key)[0])


_POOL = _FilePool(MAX_OPEN_FILES)
os.register_at_fork(after_in_child=_POOL.forget)

_REASONS = {
    errno.ENOENT: "no such file",
    errno.EACCES: "not readable (permission denied)",
    errno.EISDIR: "a directory, not a video file",
    errno.ELOOP: "a broken symbolic link",
}


URL_REASON = "URLs are not supported; pass a file object, for example fsspec.open(url).open()"


def is_url(path: object) -> bool:
    """Returns whether a path looks like ``scheme://`` and no such file exists."""
    return bool(re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*://", str(path))) and not os.path.lexists(str(path))


def source_error(path: object, error: OSError) -> SourceError:
    """Returns a ``SourceError`` with the operating system's reason."""
    if is_url(path):
        return SourceError(path, URL_REASON)
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    if error.errno == errno.ENOENT and Path(str(path)).is_symlink():
        reason = "a broken symbolic link"
    return SourceError(path, reason)


class PathMedia:
    """A file on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    @property
    def name(self) -> str:
        """Path of the file."""
        return self.path

    @property
    def fingerprint(self) -> Fingerprint:
        """Current size and modification time of the file."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            raise source_error(self.path, error) from None
        if not stat.S_ISREG(status.st_mode):
            if not stat.S_ISDIR(status.st_mode):
                raise SourceError(self.path, "not a regular file")
            can_be_read = os.access(self.path, os.R_OK | os.X_OK)
            raise SourceError(
                self.path, "a directory, not a video file" if can_be_read else "a directory that cannot be read"
            )
        return status.st_size, status.st_mtime_ns

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Lends an open descriptor, for many reads in a row."""
        try:
            with _POOL.descriptor(self.path, self.fingerprint) as descriptor:
                yield descriptor
        except SourceError:
            raise
        except OSError as error:
            raise source_error(self.path, error) from None

    def read(self, offset: int, length: int, fingerprint: Fingerprint | None = None) -> bytes:
        """Reads at a position; safe from any thread and after a fork."""
        try:
            with _POOL.descriptor(self.path, fingerprint or self.fingerprint) as descriptor:
                return _read_fully(descriptor, offset, length)
        except SourceError:
            raise
        except OSError as error:
            raise source_error(self.path, error) from None

    def for_demuxer(self) -> int:
        """Returns a descriptor with an offset of its own."""
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise source_error(self.path, error) from None


def _read_fully(descriptor: int, offset: int, length: int) -> bytes:
    """Reads bytes of an open file; fewer only at its end."""
    data = os.pread(descriptor, length, offset)
    while len(data) < length:
        part = os.pread(descriptor, length - len(data), offset + len(data))
        if not part:
            break
        data += part
    return data


class BytesMedia:
    """A whole video in memory."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data).cast("B")

    @property
    def name(self) -> str:
        """``<N bytes>``."""
        return f"<{len(self.data)} bytes>"

    @property
    def fingerprint(self) -> Fingerprint:
        """Size of the object; the caller must not change the content."""
        return len(self.data), 0

    def read(self, offset: int, length: int) -> bytes:
        """Returns a copy of the slice."""
        return bytes(self.data[offset : offset + length])

    def for_demuxer(self) -> IO[bytes]:
        """Returns a stream over the same memory."""
        return io.BytesIO(self.data)

    def __reduce__(self) -> tuple[Any, ...]:
        return BytesMedia, (bytes(self.data),)


# Wrappers that pass on the bytes of a plain file unchanged, and the attribute with that file. Other objects with a
# descriptor may not: that of a gzip file reads compressed data.
_WRAPPERS = {
    "_io.BufferedReader": "raw",
    "_io.BufferedRandom": "raw",
    "tempfile._TemporaryFileWrapper": "file",
    "fsspec.implementations.local.LocalFileOpener": "f",
}


def _plain_file(file: Any) -> io.FileIO | None:
    """Returns the regular file whose bytes an object reads; None for any other object."""
    while type(file) is not io.FileIO:
        attribute = _WRAPPERS.get(f"{type(file).__module__}.{type(file).__qualname__}")
        if attribute is None:
            return None
        file = getattr(file, attribute)
    return file if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None


class FileMedia:
    """A file-like object with ``read`` and ``seek``.

    An open file of the operating system is read at positions, because all forked processes share its offset. Other
    objects are read under a lock, and only in the process that opened them.
    """

    def __init__(self, file: Any) -> None:
        missing = [method for method in ("read", "seek") if not callable(getattr(file, method, None))]
        if missing:
            raise TypeError(f"a file-like source needs the methods read and seek; {file!r} lacks {', '.join(missing)}")
        self.file = file
        self._lock = threading.Lock()
        self._size = int(file.seek(0, os.SEEK_END))  # also flushes buffered writes
        self._plain = _plain_file(file)
        self._process = os.getpid()

    @property
    def name(self) -> str:
        """Name of the object, if it has one."""
        name = getattr(self.file, "name", None)  # a number where the file has none
        return name if isinstance(name, str) and name else f"<{type(self.file).__name__}>"

    @property
    def fingerprint(self) -> Fingerprint:
        """Size and modification time of an open file; for other objects the size at the start."""
        if self._plain is None:
            return self._size, 0
        status = os.fstat(self._plain.fileno())
        return status.st_size, status.st_mtime_ns

    def read(self, offset: int, length: int) -> bytes:
        """Reads bytes from ``offset``; safe from any thread.

        Raises:
            SourceError: The object belongs to another process.
        """
        if self._plain is not None:
            try:
                return _read_fully(self._plain.fileno(), offset, length)
            except OSError as error:
                raise source_error(self.name, error) from None
        if self._process != os.getpid():
            reason = (
                f"a {type(self.file).__name__} object cannot be read in a forked process, which shares its state with "
                "the parent; open it in that process, or pass a path, an open local file or bytes"
            )
            raise SourceError(self.name, reason)
        with self._lock:
            self.file.seek(offset, os.SEEK_SET)
            parts = []
            while length > 0:
                part = self.file.read(length)
                if not part:
                    break
                parts.append(part)
                length -= len(part)
        return b"".join(parts)

    def for_demuxer(self) -> IO[bytes]:
        """Returns a stream with an offset of its own over the shared object."""
        return io.BufferedReader(_Window(self), 1 << 16)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self.name}: a file object cannot be sent to another process; pass a path or bytes instead")


class _Window(io.RawIOBase):
    """A raw stream over a Media."""

    def __init__(self, media: Media) -> None:
        super().__init__()
        self._media = media
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._media.fingerprint[0]}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = self._media.read(self._at, len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextmanager
def reading(media: Media) -> Iterator[Callable[[int, int], bytes]]:
    """Returns a read function for many reads in a row; looks the file up once."""
    if isinstance(media, PathMedia):
        with media.opened() as descriptor:
            yield partial(_read_fully, descriptor)
    else:
        yield media.read


def read_rows(media: Media, pos: NDArray[np.int64], size: NDArray[np.int64], length: int) -> NDArray[np.uint8]:
    """Reads the first ``length`` bytes at many positions, one row each, padded with zeros where ``size`` is smaller.

    Neighbouring positions share one read: they are on the same or the next page of the disk.
    """
    if not len(pos):
        return np.empty((0, length), np.uint8)
    buffer = np.empty(BLOCK + length, np.uint8)
    view = buffer.data
    row = np.dtype((np.void, length))
    # All rows that the buffer can hold, one starting at each byte.
    every: NDArray[np.void] = np.ndarray(BLOCK + 1, row, buffer, strides=(1,))
    rows = np.empty(len(pos), row)
    with media.opened() if isinstance(media, PathMedia) else nullcontext() as descriptor:
        for first, last, places, runs in _blocks(pos, length):
            for start, at, count in runs:
                part = view[at : at + count]
                if descriptor is None or os.preadv(descriptor, (part,), start) < count:
                    data = media.read(start, count)
                    part[:] = data.ljust(count, b"\0")
            rows[first:last] = every[places]
    found = rows.view(np.uint8).reshape(len(pos), length)
    for number in (size < length).nonzero()[0].tolist():
        found[number, size[number] :] = 0
    return found


def _blocks(
    pos: NDArray[np.int64], length: int
) -> Iterator[tuple[int, int, NDArray[np.int64], list[tuple[int, int, int]]]]:
    """Plans reads of ``length`` bytes at each position, in portions that fit a buffer of ``BLOCK + length`` bytes.

    Yields:
        First row, last row + 1, offsets of the rows in the buffer, and the reads: file offset, buffer offset, number of
        bytes.
    """
    steps = pos[1:] - pos[:-1]
    breaks = (steps > NEAR) | (steps < 0)
    place = np.zeros(len(pos), np.int64)  # offset of each row if all reads were put one behind the other
    np.where(breaks, length, steps).cumsum(out=place[1:])
    edges = sorted({*place.searchsorted(np.arange(0, int(place[-1]) + 1, BLOCK)).tolist(), len(pos)})
    breaks[np.array(edges[1:-1], np.int64) - 1] = True
    lasts = breaks.nonzero()[0]
    runs = np.concatenate([_ZERO, lasts + 1])
    begins = place[runs]
    sizes = np.append(place[lasts], place[-1]) - begins + length
    reads = list(zip(pos[runs].tolist(), begins.tolist(), sizes.tolist(), strict=True))
    cuts = runs.searchsorted(edges).tolist()
    for number, (first, last) in enumerate(pairwise(edges)):
        here = reads[cuts[number] : cuts[number + 1]]
        base = here[0][1]
        yield first, last, place[first:last] - base, [(start, at - base, size) for start, at, size in here]


def check_unchanged(media: Media, expected: Fingerprint) -> None:
    """Raises ``FileChanged`` if the content is not the indexed one."""
    found = media.fingerprint
    if found != expected:
        what = f"size {expected[0]} -> {found[0]}" if found[0] != expected[0] else "modification time differs"
        raise FileChanged(media.name, f"changed since it was indexed ({what}); index it again")


def open_media(source: Any) -> Media:
    """Returns a Media for a path, bytes, a uint8 tensor or a file-like object."""
    if isinstance(source, str | os.PathLike):
        return PathMedia(source)
    if isinstance(source, bytes | bytearray | memoryview):
        return BytesMedia(source)
    if hasattr(source, "numpy") and hasattr(source, "dtype"):  # torch.Tensor, without importing torch
        return BytesMedia(memoryview(source.contiguous().numpy()).cast("B"))
    if isinstance(source, io.BytesIO) and (type(source).read, type(source).seek) == (io.BytesIO.read, io.BytesIO.seek):
        return BytesMedia(source.getvalue())  # no copy as long as nothing is written to it
    if hasattr(source, "read"):
        return FileMedia(source)
    raise TypeError(
        f"a video source is a path, bytes, a uint8 tensor or a file-like object, not {type(source).__name__}"
    )
