"""Registry of readers, and checks of which are usable."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from framefeed.errors import MissingBackend
from framefeed.readers.base import AbstractVideoReader

__all__ = ["READERS", "ReaderInfo", "open_reader", "usable"]

# Import order: TorchCodec crashes on AV1 if decord2 was loaded before it.
NAMES = (
    "framefeed",
    "torchcodec",
    "pyav",
    "decord",
    "opencv",
    "spdl",
    "torchvision",
    "pynvvideocodec",
    "dali",
    "vali",
)


class _ReaderClasses(Mapping[str, type[AbstractVideoReader]]):
    """Reader classes by name; each module is imported on first access."""

    def __getitem__(self, name: str) -> type[AbstractVideoReader]:
        if name not in NAMES:
            raise KeyError(name)
        module = importlib.import_module(f"framefeed.readers.{name}_reader")
        reader: type[AbstractVideoReader] = getattr(module, f"{name.capitalize()}Reader")
        return reader

    def __iter__(self) -> Iterator[str]:
        return iter(NAMES)

    def __len__(self) -> int:
        return len(NAMES)


READERS: Mapping[str, type[AbstractVideoReader]] = _ReaderClasses()
"""Reader classes by name. No library is imported before a reader is created."""


@dataclass(frozen=True)
class ReaderInfo:
    """Availability of a reader.

    Attributes:
        name: Name of the reader.
        version: Version of its library, None if it is not installed.
        devices: Devices it supports on this machine.
        usable: True if it is usable on the requested device.
        why: Reason and remedy if it is not; otherwise empty.
        exact: True if every frame is the requested one.
        remarks: Files for which it is not exact.
    """

    name: str
    version: str | None
    devices: tuple[str, ...]
    usable: bool
    why: str
    exact: bool
    remarks: str


def open_reader(name: str, video_path: str | os.PathLike[str], **arguments: Any) -> AbstractVideoReader:
    """Opens a video with a reader.

    Args:
        name: One of `READERS`.
        video_path: A file.
        arguments: Those of `AbstractVideoReader`.

    Raises:
        ValueError: There is no such reader, or an argument is invalid.
        MissingBackend: Its library cannot be used; the error tells what to do.
    """
    return _find(name)(video_path, **arguments)


def usable(device: str | None = None) -> list[ReaderInfo]:
    """Returns the availability of all readers. Imports every installed library.

    Args:
        device: Device for decoding; None for any device of a reader.
    """
    return [_examine(READERS[name], device) for name in READERS]


def _find(name: str) -> type[AbstractVideoReader]:
    if name not in READERS:
        raise ValueError(f"unknown reader {name!r}; expected one of {', '.join(READERS)}")
    return READERS[name]


def _examine(reader: type[AbstractVideoReader], device: str | None) -> ReaderInfo:
    return ReaderInfo(
        name=reader.name,
        version=reader.version(),
        devices=reader.devices,
        usable=not (why := _obstacle(reader, device)),
        why=why,
        exact=reader.exact,
        remarks=reader.remarks,
    )


def _obstacle(reader: type[AbstractVideoReader], device: str | None) -> str:
    """Returns the reason why it is not usable; empty if it is."""
    try:
        reader.load()
    except MissingBackend as error:
        return str(error)
    obstacles = []
    for wanted in reader.devices if device is None else (device,):
        try:
            reader.check_device(wanted)
        except (MissingBackend, ValueError) as error:
            obstacles.append(str(error))
        else:
            return ""
    return "; ".join(obstacles)
