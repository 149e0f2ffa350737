"""Source videos, and the names of their outputs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from framefeed.catalog import Catalog
from framefeed.catalog.build import build_file
from framefeed.catalog.catalog import BadFile
from framefeed.catalog.paths import STORE_CATALOG, absolute, meant
from framefeed.errors import FramefeedError, InvalidFile
from framefeed.index import VideoIndex
from framefeed.media.media import Fingerprint, PathMedia

__all__ = ["Paths", "SourceVideo", "Sources", "catalog_of", "find_sources", "index_of", "with_indexes"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, eq=False)
class SourceVideo:
    """A video to prepare.

    Attributes:
        path: The path as given.
        stem: Path of its outputs relative to the output folder, without suffix.
        fingerprint: Size and modification time of the file.
        catalog: Catalog with its index; None if it must be scanned.
        number: Its number in the catalog.
    """

    path: str
    stem: str
    fingerprint: Fingerprint
    catalog: Catalog | None = None
    number: int = -1


@dataclass(frozen=True, eq=False)
class Sources:
    """Source videos of a run.

    Attributes:
        good: Usable videos, in the order given.
        bad: Files that cannot be read, with reasons.
    """

    good: list[SourceVideo]
    bad: list[BadFile]


@dataclass(frozen=True)
class _FoundVideo:
    path: str
    base: str  # the path's base folder for the output's relative path
    catalog: Catalog | None = None
    number: int = -1


def find_sources(paths: Paths, out: str | os.PathLike[str] | None) -> Sources:
    """Finds videos: files, folders, patterns, catalogs and packet stores; a video found twice is used once.

    An output's path below the output folder is the video's path relative to the given folder, to the part of a pattern
    before its first wildcard, or to the catalog's folder. A file given by itself keeps its name.

    Args:
        paths: The given paths.
        out: The output folder: files in it are not sources. None if nothing is written.

    Raises:
        InvalidFile: A path does not match any file, or two videos would get the same name.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not given:
        raise InvalidFile("sources", "none given: pass files, folders, patterns or catalogs")
    target = None if out is None else absolute(os.fspath(out))
    sources = Sources([], [])
    seen: set[str] = set()
    for each in map(os.fsdecode, given):
        if target is not None and target == absolute(each):
            raise InvalidFile(each, "is also the output folder; choose another one")
        if _is_catalog(each):
            catalog = Catalog.open(each)
            sources.bad.extend(catalog.report)
            found = list(_in_catalog(catalog))
        else:
            found, bad = _in_folder(each, target)
            sources.bad.extend(each for each in bad if each not in sources.bad)
        for item in found:
            name = absolute(item.path)
            if name in seen:
                continue
            seen.add(name)
            if target is not None and _is_below(name, target):
                raise InvalidFile(item.path, f"is inside the output folder {out}; choose another one")
            try:
                sources.good.append(_source(item))
            except FramefeedError as error:
                sources.bad.append(BadFile(item.path, error.reason))
    _check_names(sources.good)
    return sources


def _is_catalog(name: str) -> bool:
    # Not by Path, which raises an error of its own if a folder cannot be read.
    if os.path.isdir(name):  # a packet store; a catalog inside a folder of videos may not list all of them
        return os.path.isfile(os.path.join(name, STORE_CATALOG)) and Catalog.open(name).is_store
    return name.lower().endswith(".arrow") and os.path.isfile(name)


def _in_folder(name: str, target: str | None) -> tuple[list[_FoundVideo], list[BadFile]]:
    """Returns files below a folder or matching a pattern, except those of a nested output folder; and unreadable
    folders.
    """
    files, bad = meant(name)
    if files == [name]:
        return [_FoundVideo(name, os.path.dirname(name))], []
    if not files:
        raise InvalidFile(bad[0].path, bad[0].reason)
    base = name if os.path.isdir(name) else _fixed_part(name)
    others = [file for file in files if target is None or not _is_below(absolute(file), target)]
    if not others:
        raise InvalidFile(name, "has no video files except in the output folder")
    unread = [BadFile(each.path, each.reason) for each in bad if target is None or not _is_in(each.path, target)]
    return [_FoundVideo(file, base) for file in others], unread


def _fixed_part(pattern: str) -> str:
    """Returns the folders of a pattern before its first wildcard."""
    parts = pattern.split(os.sep)
    fixed = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    return os.sep.join(parts[:fixed]) or (os.sep if pattern.startswith(os.sep) else "")


def _in_catalog(catalog: Catalog) -> Iterator[_FoundVideo]:
    folder = os.path.dirname(catalog.path)
    elsewhere = [os.path.dirname(path) for path in catalog.paths if not _is_below(path, folder)]
    common = os.path.commonpath(elsewhere) if elsewhere else ""
    for number, path in enumerate(catalog.paths):
        yield _FoundVideo(path, folder if _is_below(path, folder) else common, catalog, number)


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_in(path: str, folder: str) -> bool:
    return absolute(path) == folder or _is_below(absolute(path), folder)


def _source(item: _FoundVideo) -> SourceVideo:
    place = os.path.relpath(item.path, item.base or os.curdir)
    stem = Path(os.path.splitext(place)[0]).as_posix()
    if item.catalog is not None:
        stored = item.catalog[item.number].stored
        if stored is not None:
            return SourceVideo(item.path, stem, stored.video, item.catalog, item.number)
    return SourceVideo(item.path, stem, PathMedia(item.path).fingerprint, item.catalog, item.number)


def _check_names(sources: list[SourceVideo]) -> None:
    taken: dict[str, SourceVideo] = {}
    for source in sources:
        other = taken.setdefault(source.stem, source)
        if other is not source:
            raise InvalidFile(
                source.path,
                f"and {other.path} would both become {source.stem!r} in the output folder; rename one of them, "
                f"{_other_ways(source.path, other.path)}",
            )


def _other_ways(path: str, other: str) -> str:
    """Suggests other ways than renaming to separate two videos of one name."""
    if os.path.dirname(absolute(path)) == os.path.dirname(absolute(other)):
        kinds = " and ".join(f"*{os.path.splitext(each)[1]}" for each in (other, path))
        return f"or prepare them into different folders, using patterns such as {kinds}"
    return "prepare them into different folders, or give a folder above both"


def with_indexes(sources: Sequence[SourceVideo], folder: Path, progress: bool | None) -> Sources:
    """Returns the same videos, each with a catalog.

    Args:
        sources: Videos; those without a catalog are scanned.
        folder: Folder for their catalog; videos already in it are not scanned again.
        progress: Shows progress; None does on a terminal.
    """
    files = [source.path for source in sources if source.catalog is None]
    if not files:
        return Sources(list(sources), [])
    scanned = Catalog(build_file(files, folder / "sources.arrow", progress=progress, is_own=True))
    reasons = {bad.path: bad.reason for bad in scanned.report}
    found = Sources([], [])
    for source in sources:
        reason = reasons.get(absolute(source.path)) if source.catalog is None else None
        if reason is not None:
            found.bad.append(BadFile(source.path, reason))
        elif source.catalog is None:
            found.good.append(replace(source, catalog=scanned, number=scanned.number_of(source.path)))
        else:
            found.good.append(source)
    return found


def catalog_of(source: SourceVideo) -> Catalog:
    """Returns the catalog of a source that has one."""
    assert source.catalog is not None
    return source.catalog


def index_of(source: SourceVideo) -> VideoIndex:
    """Returns the index of a source with a catalog."""
    return catalog_of(source)[source.number]
