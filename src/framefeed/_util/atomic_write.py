"""Writes files: they appear as a whole, and no link that another user planted is followed.

A file is written under a random name in the folder of its target, created exclusively, and renamed when it is
complete. Files that only grow cannot be replaced: ``open_own`` opens them, and refuses links. All of framefeed writes
files in one of these ways.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "atomic_file",
    "atomic_path",
    "make_own_folder",
    "open_own",
    "replace",
    "sync_folder",
    "temporary_name",
    "write",
]

MAX_NAME = 255  # bytes of a file name

AnyPath = str | os.PathLike[str]


def temporary_name(path: AnyPath, folder: AnyPath | None = None) -> str:
    """Returns a random name beside ``path``, or in ``folder``, that tells which process writes the file."""
    beside, name = os.path.split(os.fspath(path))
    rest = f".{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex}.tmp"
    kept = os.fsdecode(os.fsencode(name)[: MAX_NAME - len(os.fsencode(rest)) - 1])
    return os.path.join(beside if folder is None else os.fspath(folder), f".{kept}{rest}")


@contextmanager
def atomic_file(path: AnyPath, *, sync: bool = False, folder: AnyPath | None = None) -> Iterator[BinaryIO]:
    """Opens a new file that replaces ``path`` when the block ends, and is removed when the block raises.

    Args:
        path: The target. A link there is replaced, not followed.
        sync: Flush the file and its folder to the disk before returning.
        folder: A folder for the unfinished file in the same file system; None is that of ``path``.

    Raises:
        OSError: The file cannot be written. What was at ``path`` is untouched.
    """
    part = temporary_name(path, folder)
    file = open(part, "xb")  # noqa: SIM115  # exclusive, so never through a link
    try:
        with file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        replace(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    if sync:
        sync_folder(os.path.dirname(os.fspath(path)))


def write(
    path: AnyPath,
    content: str | bytes,
    *,
    sync: bool = False,
    parents: bool = False,
    folder: AnyPath | None = None,
) -> None:
    """Writes a whole file: text as UTF-8. ``parents`` makes missing folders; the rest is as in ``atomic_file``."""
    if parents:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path, sync=sync, folder=folder) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_path(path: AnyPath) -> Iterator[Path]:
    """Gives a name to write to, for libraries that open files themselves; makes missing folders.

    The name is in a new folder that other users cannot write to. The file there replaces ``path`` when the block ends.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".framefeed-", dir=target.parent) as folder:
        part = Path(folder) / target.name
        yield part
        replace(part, target)


def replace(written: AnyPath, path: AnyPath) -> None:
    """Moves a finished file to its name in the same file system."""
    os.replace(written, path)


def open_own(path: AnyPath, *, create: bool = True, new: bool = False) -> int:
    """Opens a file that grows for reading and writing, if it is a regular file under this one name.

    Args:
        path: The file.
        create: Create a missing file.
        new: Raise ``FileExistsError`` for an existing file.

    Returns:
        A descriptor.

    Raises:
        OSError: It cannot be opened, or it is a link, a device or a pipe.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # does not wait for the other end of a pipe
    flags |= (os.O_CREAT if create or new else 0) | (os.O_EXCL if new else 0)
    descriptor = os.open(path, flags, 0o666)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.ELOOP, "a link, a device or a pipe is in its place; remove that", os.fspath(path))
    return descriptor


def make_own_folder(path: AnyPath, *, parents: bool = False) -> None:
    """Makes a folder for files that are not complete, unless it exists. A link to a folder is refused.

    Raises:
        OSError: The folder cannot be made, or a link or a file is in its place.
    """
    Path(path).mkdir(parents=parents, exist_ok=True)
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "a link is in the place of the folder for unfinished files", os.fspath(path))


def sync_folder(folder: AnyPath) -> None:
    """Makes new names in a folder survive a power cut, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(os.fspath(folder) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
