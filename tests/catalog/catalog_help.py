"""What the tests of catalogs share."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framefeed.catalog import build as catalog_build
from framefeed.catalog import catalog_scan
from framefeed.catalog.catalog_scan import Outcome, scan_files
from framefeed.index.video_index import VideoIndex

SMALL = "h264_one_frame"

# What worker processes do in place of a plain scan, chosen by the file's name.
_ODD_WORKER = """
import os, signal, sys, time
import framefeed.catalog.catalog_scan as scanning
real, seconds = scanning.scan_one, {seconds}
def odd(path):
    name = os.path.basename(path)
    if "crash" in name:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(60 if "slow" in name else seconds)
    return real(path)
scanning.scan_one = odd
"""


def odd_worker(seconds: float = 0.0) -> str:
    """A worker's command line program that crashes at files named ``crash`` and hangs at those named ``slow``."""
    return _ODD_WORKER.format(seconds=seconds) + catalog_scan._COMMAND


def copies(source: Path, folder: Path, count: int) -> list[Path]:
    """Copies of a clip under different names."""
    folder.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy(source, folder / f"{number:03d}{source.suffix}")) for number in range(count)]


def assert_same(found: VideoIndex, expected: VideoIndex) -> None:
    """Every field, every element, every type."""
    assert (found.path, found.fingerprint) == (expected.path, expected.fingerprint)
    assert found.byte_ranges is expected.byte_ranges
    assert found.stream == expected.stream
    for field in dataclasses.fields(found.stream):
        assert type(getattr(found.stream, field.name)) is type(getattr(expected.stream, field.name)), field.name
    for field in dataclasses.fields(found.packets):
        ours: Any = getattr(found.packets, field.name)
        theirs: Any = getattr(expected.packets, field.name)
        assert ours.dtype == theirs.dtype, field.name
        assert np.array_equal(ours, theirs), field.name


def close_folder(monkeypatch: pytest.MonkeyPatch, folder: Path, code: int = errno.EACCES) -> None:
    """Makes a folder one that cannot be read; taking the rights away would not do for root."""
    real: Any = os.scandir

    def scandir(path: Any = ".") -> Any:
        if not isinstance(path, int) and os.path.realpath(path) == os.path.realpath(folder):
            raise OSError(code, os.strerror(code), os.fspath(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that builds have scanned."""
    names: list[str] = []

    def counting(paths: list[str], **options: Any) -> Iterator[tuple[str, Outcome] | None]:
        names.extend(os.path.basename(path) for path in paths)
        return scan_files(paths, **options)

    monkeypatch.setattr(catalog_build, "scan_files", counting)
    return names
