"""Which clips there are, and which files of which cameras: a JSON file or a dict, before any video is opened."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framefeed.catalog.paths import VIDEO_SUFFIXES
from framefeed.errors import FramefeedError, InvalidFile, SourceError
from framefeed.media.media import source_error

__all__ = ["DescribedClip", "choose_cameras", "describe_clips"]


@dataclass(frozen=True, eq=False)
class DescribedClip:
    """What the index says of a clip, before any file is looked at."""

    folder: str
    num_frames: int | None
    files: dict[str, str]
    where: str


def describe_clips(clips: str | os.PathLike[str] | Mapping[str, Any]) -> list[DescribedClip]:
    """The clips of an index, in its order."""
    if isinstance(clips, Mapping):
        return list(_entries(clips, "the dict", [""]))
    path = os.fspath(clips)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise source_error(path, error) from None
    except UnicodeDecodeError:
        raise InvalidFile(path, "is no JSON file: it is not text") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFile(path, f"is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidFile(path, "is not as it should be: {video_dir: {clip_id: num_frames}}")
    try:
        return list(_entries(content, path, [os.path.dirname(path), ""]))
    except FramefeedError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidFile(path, str(error)) from None


def _entries(content: Mapping[str, Any], where: str, folders: Sequence[str]) -> Iterator[DescribedClip]:
    """The clips of an index, in its order.

    Args:
        content: The index.
        where: What it is called.
        folders: Where to look for what is not absolute.
    """
    if not content:
        raise ValueError("no clips are given")
    for folder, inside in content.items():
        if not isinstance(inside, Mapping) or not inside:
            raise ValueError(
                f"{folder!r} is given as {inside!r}, not with clips and their numbers of frames, or cameras and files"
            )
        files = [name for name, value in inside.items() if isinstance(value, str | os.PathLike)]
        if files and len(files) < len(inside):
            raise ValueError(f"{folder!r} has files such as {files[0]!r}, and others that are none")
        if files:
            found = {camera: _found(os.fspath(file), folders, os.path.exists) for camera, file in inside.items()}
            yield DescribedClip(
                str(folder), None, {name: known or file for name, (known, file) in found.items()}, where
            )
            continue
        for name, value in inside.items():
            count = _count(f"{folder}/{name}", value)
            known, path = _found(os.path.join(folder, name), folders, os.path.isdir)
            if known is None:
                raise SourceError(path, f"no such folder, and {where} names it")
            yield DescribedClip(known, count, _camera_files(known), where)


def _count(what: str, value: Any) -> int:
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"{what} has {value!r} frames; a whole number above 0 is possible")
    return count


def _found(path: str, folders: Sequence[str], there: Callable[[str], bool]) -> tuple[str | None, str]:
    """Where something is, if it is anywhere; and where it should be."""
    choices = [path] if os.path.isabs(path) else [os.path.join(folder, path) for folder in folders]
    return next(filter(there, choices), None), choices[0]


def _camera_files(folder: str) -> dict[str, str]:
    """The video files in a folder, by name."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise source_error(folder, error) from None
    files: dict[str, str] = {}
    for name in names:
        camera, suffix = os.path.splitext(name)
        file = os.path.join(folder, name)
        if suffix.lower() not in VIDEO_SUFFIXES or name.startswith(".") or os.path.isdir(file):
            continue
        if camera in files:
            raise InvalidFile(
                folder, f"has two files of the camera {camera!r}: {os.path.basename(files[camera])}, {name}"
            )
        files[camera] = file
    if not files:
        raise InvalidFile(folder, "has no video file; one for each camera is needed")
    return files


def choose_cameras(described: Sequence[DescribedClip], cameras: Sequence[str] | None) -> tuple[str, ...]:
    """The cameras that are meant: those that are named, or all that any clip has."""
    known = sorted({camera for each in described for camera in each.files})
    if cameras is None:
        return tuple(known)
    if isinstance(cameras, str):
        raise ValueError(f"cameras is a list of names, not one: [{cameras!r}]")
    names = tuple(cameras)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"cameras are one or more different names, got {list(names)}")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no clip has a camera {unknown[0]!r}; there are {', '.join(known)}")
    return names
