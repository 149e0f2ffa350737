"""Which files a catalog is asked for, and how it spells their paths.

The rule of spelling: a path that was given as an absolute one is stored as it is. A relative one is stored relative
to the catalog's folder where the file lies below that folder, so that the two can be moved together, and as an
absolute one otherwise.
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
"""What a file below a folder has to end with, in any case, to be taken for a video."""

NO_VIDEO = "no video file below this folder"
NO_MATCH = "no file matches this pattern"

STORE_CATALOG = "catalog.arrow"
"""The catalog in the folder of a packet store; it appears when the store is complete."""
UNFINISHED = "unfinished.journal"
"""What is in that folder while the store is not."""


@dataclass(frozen=True)
class Wanted:
    """A file that was asked for.

    Attributes:
        path: Absolute.
        stored: As the catalog spells it.
    """

    path: str
    stored: str


@dataclass(frozen=True)
class Missing:
    """A folder or pattern that leads to no file, or a folder that cannot be read; and why."""

    path: str
    reason: str


def absolute(path: str) -> str:
    """An absolute spelling of the path, without ``.`` and ``..``; symbolic links stay in it."""
    if ".." in path.split(os.sep):
        # "link/.." is not where the link lies but above where it leads: only the file system knows.
        head, tail = os.path.split(path)
        return os.path.realpath(path) if tail in ("", ".", "..") else os.path.join(os.path.realpath(head), tail)
    return os.path.abspath(path)


def path_hash(stored: str) -> int:
    """64 bits that stand for a path as it is stored."""
    return int.from_bytes(blake2b(os.fsencode(stored), digest_size=8).digest(), "little")


def resolve(stored: str, folder: str) -> str:
    """The absolute path of a stored one; ``folder`` is the catalog's."""
    return stored if os.path.isabs(stored) else os.path.join(folder, stored)


def candidates(path: str, folder: str) -> Iterator[str]:
    """The spellings under which a catalog in ``folder`` may hold a file, likeliest first."""
    found = absolute(path)
    yield from _spellings(found, folder)
    if not os.path.isabs(path):
        yield os.path.normpath(path)  # as the table's column has it, from whatever directory
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
    """The files that are meant by files, folders and patterns, each once, in the order given.

    Args:
        paths: Files, folders (all video files below them, sorted) and patterns such as ``"clips/**/*.mp4"``; a single
            one is fine too.
        catalog: Absolute path of the catalog, which decides about the spelling and is no video itself.
    """
    folder = os.path.dirname(catalog)
    wanted: dict[str, Wanted] = {}
    missing: dict[str, Missing] = {}
    for given in [paths] if isinstance(paths, str | os.PathLike) else paths:
        name = os.fsdecode(given)
        # An absolute spelling is no URL any more, so it is told from a file here.
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
    """The files that a file, folder or pattern stands for, spelt as it is; none for an empty folder.

    A folder below it that cannot be read is among them: whoever opens it has a bad file, and can go on with others.

    Raises:
        SourceError: There is no file, as far as can be seen, but a folder that cannot be read.
    """
    files, bad = meant(name)
    unread = [each for each in bad if each.reason not in (NO_VIDEO, NO_MATCH)]
    if unread and not files:
        raise SourceError(unread[0].path, unread[0].reason)
    return files + [each.path for each in unread]


def meant(name: str) -> tuple[list[str], list[Missing]]:
    """The files that a file, folder or pattern stands for, spelt as it is, and what is bad about it.

    Returns:
        Files; and folders that cannot be read or, where there is neither, the name itself.
    """
    bad: list[Missing] = []
    if os.path.isdir(name):
        files, none = list(_videos_below(name, bad)), NO_VIDEO
    elif glob.has_magic(name) and not os.path.lexists(name) and not is_url(name):
        # "**" goes round and round through a link to a folder above: each file once, by its shortest name.
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
    """Of paths that lead to the same place, the shortest one."""
    return list({os.path.realpath(path): path for path in sorted(paths, key=len)[::-1]}.values())


def _cannot_be_read(folder: str, error: OSError) -> Missing:
    return Missing(folder, f"a folder that cannot be read ({error.strerror or error})")


def _unread(pattern: str) -> list[Missing]:
    """Folders that a pattern leads into and that cannot be read: ``glob`` takes them for empty ones."""
    parts = pattern.split(os.sep)
    first = next(place for place, part in enumerate(parts) if glob.has_magic(part))
    found: dict[str, Missing] = {}
    for place in range(first, len(parts)):
        if parts[place - 1] == "**" and place > first and glob.has_magic(parts[place]):
            continue  # all of these have been looked at
        above = os.sep.join([*parts[:place], ""])  # the separator behind it: folders only
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
    """Video files, sorted; links to folders are followed, but no folder is walked twice.

    Args:
        folder: Where to look.
        bad: Gets the folders that cannot be read.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # removed by somebody meanwhile
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
        # Names with a dot in front are other programs' half-written files and notes.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if os.path.splitext(name)[1].lower() in VIDEO_SUFFIXES and not name.startswith("."):
                yield os.path.join(where, name)
