"""Multi-camera clip index: a JSON file or a dict becomes clips and their files, without opening any video."""

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
    """A clip as the index describes it, before its files are checked."""

    folder: str
    num_frames: int | None
    files: dict[str, str]
    where: str


def describe_clips(clips: str | os.PathLike[str] | Mapping[str, Any]) -> list[DescribedClip]:
    """Returns the clips of an index, in index order."""
    if isinstance(clips, Mapping):
        return list(_entries(clips, "the dict", [""]))
    path = os.fspath(clips)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise source_error(path, error) from None
    except UnicodeDecodeError:
        raise InvalidFile(path, "is not a JSON file: it is not text") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFile(path, f"is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidFile(path, "has another structure than {video_dir: {clip_id: num_frames}}")
    try:
        return list(_entries(content, path, [os.path.dirname(path), ""]))
    except FramefeedError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidFile(path, str(error)) from None


def _entries(content: Mapping[str, Any], where: str, folders: Sequence[str]) -> Iterator[DescribedClip]:
    """Yields the clips of an index, in index order.

    Args:
        content: The index.
        where: Name of the index in error messages.
        folders: Folders in which relative paths are looked up.
    """
    if not content:
        raise ValueError("the index has no clips")
    for folder, inside in content.items():
        if not isinstance(inside, Mapping) or not inside:
            raise ValueError(f"{folder!r} maps to {inside!r}; expected {{clip_id: num_frames}} or {{camera: file}}")
        files = [name for name, value in inside.items() if isinstance(value, str | os.PathLike)]
        if files and len(files) < len(inside):
            raise ValueError(f"{folder!r} mixes files such as {files[0]!r} with other values")
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
                raise SourceError(path, f"no such folder (named in {where})")
            yield DescribedClip(known, count, _camera_files(known), where)


def _count(what: str, value: Any) -> int:
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"{what}: expected a positive number of frames, got {value!r}")
    return count


def _found(path: str, folders: Sequence[str], there: Callable[[str], bool]) -> tuple[str | None, str]:
    """Returns the existing path, or None, and the first candidate."""
    choices = [path] if os.path.isabs(path) else [os.path.join(folder, path) for folder in folders]
    return next(filter(there, choices), None), choices[0]


def _camera_files(folder: str) -> dict[str, str]:
    """Returns the video files of a folder, by camera name."""
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
            raise InvalidFile(folder, f"has two files for camera {camera!r}: {os.path.basename(files[camera])}, {name}")
        files[camera] = file
    if not files:
        raise InvalidFile(folder, "has no video file; expected one file for each camera")
    return files


def choose_cameras(described: Sequence[DescribedClip], cameras: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the named cameras, or all cameras of all clips."""
    known = sorted({camera for each in described for camera in each.files})
    if cameras is None:
        return tuple(known)
    if isinstance(cameras, str):
        raise ValueError(f"cameras must be a list of names, such as [{cameras!r}]")
    names = tuple(cameras)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"cameras must be one or more distinct names, got {list(names)}")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no clip has camera {unknown[0]!r}; available cameras: {', '.join(known)}")
    return names
