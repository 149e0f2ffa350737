"""Expands files, folders and patterns to the files of a catalog, and spells their paths.

Absolute paths are stored as given. Relative paths are stored relative to the catalog's folder if the file is below that
folder, so that the two can be moved together, and as absolute paths otherwise.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from framefeed.errors import SourceError
from framefeed.media.media import URL_REASON, is_url

__all__ = [
    "STORE_CATALOG",
    "UNFINISHED",
    "VIDEO_SUFFIXES",
    "Missing",
    "Wanted",
    "absolute",
    "candidates",
    "expand",
    "files_meant",
    "meant",
    "path_hash",
    "resolve",
]

_SUFFIXES = """
.3g2 .3gp .264 .265 .asf .avi .f4v .flv .h264 .h265 .hevc .ivf .m1v .m2ts .m2v .m4v .mj2 .mkv .mov .mp4 .mpeg .mpg .mts
.mxf .nut .obu .ogv .ts .vob .webm .wmv .y4m
"""
VIDEO_SUFFIXES = frozenset(_SUFFIXES.split())
"""Suffixes, in any case, of the files below a folder that count as videos."""

NO_VIDEO = "no video file below this folder"
NO_MATCH = "no file matches this pattern"

STORE_CATALOG = "catalog.arrow"
"""The catalog in the folder of a packet store; written when the store is complete."""
UNFINISHED = "unfinished.journal"
"""The journal in the folder of an unfinished packet store."""


@dataclass(frozen=True)
class Wanted:
    """A requested file.

    Attributes:
        path: Absolute path.
        stored: Path in the catalog's spelling.
    """

    path: str
    stored: str


@dataclass(frozen=True)
class Missing:
    """A folder or pattern without files, or an unreadable folder; with the reason."""

    path: str
    reason: str


def absolute(path: str) -> str:
    """Returns an absolute path without ``.`` and ``..``; symbolic links are kept."""
    if ".." in path.split(os.sep):
        # "link/.." is the parent of the link's target, which only the file system knows.
        head, tail = os.path.split(path)
        return os.path.realpath(path) if tail in ("", ".", "..") else os.path.join(os.path.realpath(head), tail)
    return os.path.abspath(path)


def path_hash(stored: str) -> int:
    """Returns a 64-bit hash of a stored path."""
    return int.from_bytes(blake2b(os.fsencode(stored), digest_size=8).digest(), "little")


def resolve(stored: str, folder: str) -> str:
    """Returns the absolute path of a stored one; ``folder`` is the catalog's."""
    return stored if os.path.isabs(stored) else os.path.join(folder, stored)


def candidates(path: str, folder: str) -> Iterator[str]:
    """Yields the spellings under which a catalog in ``folder`` may hold a file, likeliest first."""
    found = absolute(path)
    yield from _spellings(found, folder)
    if not os.path.isabs(path):
        yield os.path.normpath(path)  # as in the table's column, from any working directory
    real = os.path.realpath(found)
    if real != found or os.path.realpath(folder) != folder:
        yield from _spellings(real, os.path.realpath(folder))


def _spellings(path: str, folder: str) -> Iterator[str]:
    below = _below(path, folder)
    if below is not None:
        yield below
    yield path


def _below(path: str, folder: str) -> str | None:
    prefix = folder.rstrip(os.sep) + os.sep
    return path[len(prefix) :] if path.startswith(prefix) else None


def expand(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], catalog: str
) -> tuple[list[Wanted], list[Missing]]:
    """Returns the files that files, folders and patterns stand for, each once, in the given order.

    Args:
        paths: Files, folders (all video files below them, sorted) and patterns such as ``"clips/**/*.mp4"``; or a
            single one.
        catalog: Absolute path of the catalog, which decides the spelling and is never a video itself.
    """
    folder = os.path.dirname(catalog)
    wanted: dict[str, Wanted] = {}
    missing: dict[str, Missing] = {}
    for given in [paths] if isinstance(paths, str | os.PathLike) else paths:
        name = os.fsdecode(given)
        # An absolute path no longer looks like a URL, so check here.
        files, bad = ([], [Missing(name, URL_REASON)]) if is_url(name) else meant(name)
        missing.update((absolute(each.path), each) for each in bad)
        for file in files:
            path = absolute(file)
            if path == catalog or path in wanted:
                continue
            below = None if os.path.isabs(name) else _below(path, folder)
            wanted[path] = Wanted(path, path if below is None else below)
    return list(wanted.values()), list(missing.values())


def files_meant(name: str) -> list[str]:
    """Returns the files of a file, folder or pattern, in the given spelling; none for an empty folder.

    Includes unreadable folders below it: opening one then fails like a bad file, and the others can be read.

    Raises:
        SourceError: No file was found, but a folder is unreadable.
    """
    files, bad = meant(name)
    unread = [each for each in bad if each.reason not in (NO_VIDEO, NO_MATCH)]
    if unread and not files:
        raise SourceError(unread[0].path, unread[0].reason)
    return files + [each.path for each in unread]


def meant(name: str) -> tuple[list[str], list[Missing]]:
    """Returns the files of a file, folder or pattern, in the given spelling, and its problems.

    Returns:
        Files; and unreadable folders or, without either, the name itself.
    """
    bad: list[Missing] = []
    if os.path.isdir(name):
        files, none = list(_videos_below(name, bad)), NO_VIDEO
    elif glob.has_magic(name) and not os.path.lexists(name) and not is_url(name):
        # "**" loops through a link to a parent folder: take each file once, by its shortest name.
        matches = sorted(_by_shortest(glob.glob(name, recursive=True)))
        files, none = [], NO_MATCH
        bad += _unread(name)
        for match in matches:
            files += _videos_below(match, bad) if os.path.isdir(match) else [match]
    else:
        return [name], []
    bad = list({each.path: each for each in bad}.values())
    return files, bad if files or bad else [Missing(name, none)]


def _by_shortest(paths: Iterable[str]) -> list[str]:
    """Removes paths that lead to the same place as a shorter one."""
    return list({os.path.realpath(path): path for path in sorted(paths, key=len)[::-1]}.values())


def _cannot_be_read(folder: str, error: OSError) -> Missing:
    return Missing(folder, f"a folder that cannot be read ({error.strerror or error})")


def _unread(pattern: str) -> list[Missing]:
    """Returns unreadable folders that a pattern leads into: ``glob`` takes them for empty ones."""
    parts = pattern.split(os.sep)
    first = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    found: dict[str, Missing] = {}
    for place in range(first, len(parts)):
        if parts[place - 1] == "**" and place > first and glob.has_magic(parts[place]):
            continue  # all of these were checked before
        above = os.sep.join([*parts[:place], ""])  # the trailing separator matches folders only
        folders = glob.glob(above, recursive=True) if place > first else [above]
        if parts[place] == "**":
            folders += glob.glob(os.path.join(above, "**", ""), recursive=True)
        for folder in _by_shortest(folders):
            try:
                if glob.has_magic(parts[place]):
                    os.scandir(folder or os.curdir).close()
                else:
                    os.lstat(os.path.join(folder, parts[place]))
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                name = folder.rstrip(os.sep) or folder or os.curdir
                found.setdefault(os.path.realpath(name), _cannot_be_read(name, error))
    return sorted(found.values(), key=lambda missing: missing.path)


def _videos_below(folder: str, bad: list[Missing]) -> Iterator[str]:
    """Yields video files, sorted; follows links to folders, but walks no folder twice.

    Args:
        folder: The folder.
        bad: Receives unreadable folders.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # removed meanwhile
            bad.append(_cannot_be_read(os.fsdecode(error.filename or folder), error))

    seen: set[tuple[int, int]] = set()
    for where, folders, files in os.walk(folder, onerror=note, followlinks=True):
        try:
            status = os.stat(where)
        except OSError as error:
            note(error)
            folders.clear()
            continue
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        # Names that start with a dot are unfinished files and notes of other programs.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in VIDEO_SUFFIXES and not name.startswith("."):
                yield os.path.join(where, name)
