"""Input videos of a run: files, folders, patterns and catalogs, each indexed once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from framefeed.catalog import Catalog
from framefeed.catalog.build import build_file
from framefeed.catalog.catalog import BadFile
from framefeed.catalog.paths import STORE_CATALOG, absolute, meant
from framefeed.errors import InvalidFile
from framefeed.index import VideoIndex
from framefeed.infer.execution.segments import cut_places, sampled_frames

__all__ = ["InputVideo", "InputVideos", "find_videos"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, eq=False)
class InputVideo:
    """An input video.

    Attributes:
        name: The path as given.
        catalog: Catalog with its index.
        number: Its number in the catalog.
        size: (height, width) of its upright frames.
        fingerprint: Size and modification time of the file, or their stored values in a packet store.
        num_frames: Number of frames.
        places: Positions where its sampled frames can be cut into segments; see ``cut_places``.
    """

    name: str
    catalog: Catalog
    number: int
    size: tuple[int, int]
    fingerprint: tuple[int, int]
    num_frames: int
    places: NDArray[np.int64]

    @property
    def num_sampled(self) -> int:
        """Number of sampled frames."""
        return int(self.places[-1])

    @property
    def index(self) -> VideoIndex:
        """Index of the video."""
        return self.catalog[self.number]

    def seconds(self, frames: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the times of frames, in seconds."""
        return self.index.pts_seconds(frames)


@dataclass(frozen=True, eq=False)
class InputVideos:
    """Input videos of a run.

    Attributes:
        good: Usable videos, in the order given.
        bad: Unusable files, with reasons.
    """

    good: list[InputVideo]
    bad: list[BadFile]


def find_videos(paths: Paths, folder: Path, frame_skip: int, *, progress: bool | None = None) -> InputVideos:
    """Finds videos, and indexes those without a catalog.

    Args:
        paths: Files, folders, patterns, catalogs (``.arrow``) and packet stores. A file found twice is used once.
        folder: Folder for the catalog of videos without one; videos already in it are not scanned again.
        frame_skip: Distance of sampled frames.
        progress: Shows progress; None does on a terminal.

    Raises:
        InvalidFile: A path does not match any file.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise InvalidFile("videos", "none given: pass files, folders, patterns or catalogs")
    found = InputVideos([], [])
    entries: list[str | Catalog] = []
    for each in map(os.fsdecode, given):
        if _is_catalog(each):
            entries.append(Catalog.open(each))
            continue
        files, bad = meant(each)
        if not files:
            raise InvalidFile(bad[0].path, bad[0].reason)
        entries += files
        unread = [BadFile(missing.path, missing.reason) for missing in bad]
        found.bad.extend(each for each in unread if each not in found.bad)
    files = [entry for entry in entries if isinstance(entry, str)]
    scanned = Catalog(build_file(files, folder / "catalog.arrow", progress=progress, is_own=True)) if files else None
    reasons = {bad.path: bad.reason for bad in scanned.report} if scanned is not None else {}
    seen: set[str] = set()
    for entry in entries:
        if isinstance(entry, Catalog):
            found.bad.extend(entry.report)
            names = [(name, entry, number) for number, name in enumerate(entry.paths)]
        elif absolute(entry) in reasons:
            names = []
            if absolute(entry) not in seen:
                found.bad.append(BadFile(entry, reasons[absolute(entry)]))
        else:
            assert scanned is not None
            names = [(entry, scanned, scanned.number_of(entry))]
        if isinstance(entry, str) and not names:
            seen.add(absolute(entry))
        for name, catalog, number in names:
            if absolute(name) not in seen:
                seen.add(absolute(name))
                found.good.append(_video(name, catalog, number, frame_skip))
    return found


def _is_catalog(name: str) -> bool:
    # Not by Path, which raises an error of its own if a folder cannot be read.
    if os.path.isdir(name):  # a packet store; a catalog inside a folder of videos may not list all of them
        return os.path.isfile(os.path.join(name, STORE_CATALOG)) and Catalog.open(name).is_store
    return name.lower().endswith(".arrow") and os.path.isfile(name)


def _video(name: str, catalog: Catalog, number: int, frame_skip: int) -> InputVideo:
    index = catalog[number]
    places = cut_places(index.packets, sampled_frames(index.num_frames, frame_skip))
    size, stamp = index.fingerprint if index.stored is None else index.stored.video
    return InputVideo(
        name, catalog, number, index.stream.display_size, (int(size), int(stamp)), index.num_frames, places
    )
