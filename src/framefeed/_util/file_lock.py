"""Files that one process has at a time."""

from __future__ import annotations

import errno
import fcntl
import os

from framefeed._util.atomic_write import make_own_folder, open_own

__all__ = ["open_locked"]


def open_locked(path: str | os.PathLike[str], *, make_folder: bool = False) -> int | None:
    """Opens a file for reading and writing, and makes it where it is missing. Whoever closes it gives it up.

    Args:
        path: The file.
        make_folder: Makes its folder, too, where that is missing.

    Returns:
        A descriptor; None where another process has the file. On a file system without locks nobody is kept out.

    Raises:
        OSError: It cannot be opened, or it is a link.
    """
    while True:
        if make_folder:
            make_own_folder(os.path.dirname(path), parents=True)
        descriptor = open_own(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except FileNotFoundError:
            pass  # whoever had it has just finished, and removed it
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                return descriptor  # a file system without locks
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        os.close(descriptor)
