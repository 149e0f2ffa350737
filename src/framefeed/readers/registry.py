"""All readers by name, and which of them can be used here."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from framefeed.errors import MissingBackend
from framefeed.readers.base import AbstractVideoReader

__all__ = ["READERS", "ReaderInfo", "open_reader", "usable"]

# They are loaded in this order: TorchCodec crashes on AV1 where decord2 was loaded before it.
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
    """Classes by name; a module is imported when its class is asked for."""

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
"""Reader classes by name. None of their libraries is imported before a reader is made."""


@dataclass(frozen=True)
class ReaderInfo:
    """Whether a reader can be used here.

    Attributes:
        name: Of the reader.
        version: Of its library, None where it is not installed.
        devices: Where it can decode, given the hardware.
        usable: Whether it can be used here, on the device that was asked for.
        why: Why it cannot, and what to do; empty where it can.
        exact: Whether every frame is the one that was asked for.
        remarks: Where it is not exact.
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
        ValueError: There is no such reader, or an argument is not possible.
        MissingBackend: Its library cannot be used here; the error says what to do.
    """
    return _find(name)(video_path, **arguments)


def usable(device: str | None = None) -> list[ReaderInfo]:
    """Which readers can be used here. Loads every library that is installed.

    Args:
        device: Where frames should be decoded; None takes any device that a reader has.
    """
    return [_examine(READERS[name], device) for name in READERS]


def _find(name: str) -> type[AbstractVideoReader]:
    if name not in READERS:
        raise ValueError(f"there is no reader {name!r}; possible: {', '.join(READERS)}")
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
    """Why it cannot be used; empty where it can."""
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
