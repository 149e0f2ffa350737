"""Files that one process has at a time."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from framefeed._util.file_lock import open_locked


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    with pytest.raises(FileNotFoundError):
        open_locked(path)
    first = open_locked(path, make_folder=True)
    assert first is not None
    os.write(first, b"something")
    assert open_locked(path) is None
    os.close(first)
    second = open_locked(path)
    assert second is not None
    assert os.read(second, 100) == b"something"
    os.close(second)


def test_a_file_that_was_removed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited for it has a new one, not the one that nobody sees any more."""
    path = tmp_path / "folder" / "file"
    lock = fcntl.flock
    removed: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        lock(descriptor, operation)
        if not removed:
            removed.append(descriptor)
            path.unlink()
            path.parent.rmdir()

    monkeypatch.setattr(fcntl, "flock", flock)
    descriptor = open_locked(path, make_folder=True)
    assert descriptor is not None
    assert os.path.samestat(os.fstat(descriptor), path.stat())
    os.close(descriptor)


@pytest.mark.parametrize(("number", "opened"), [(errno.ENOLCK, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_file_systems_without_locks(number: int, opened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    if opened:
        descriptor = open_locked(tmp_path / "file")
        assert descriptor is not None
        os.close(descriptor)
        return
    with pytest.raises(OSError, match=os.strerror(number)):
        open_locked(tmp_path / "file")
