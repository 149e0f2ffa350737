"""Outputs of a video, as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framefeed.media.media import Fingerprint

__all__ = ["Prepared", "PreparedFile", "check_below"]


@dataclass(frozen=True)
class PreparedFile:
    """A written file.

    Attributes:
        file: Path relative to the output folder.
        num_frames: Number of frames.
        num_bytes: Size in bytes.
        first_frame, last_frame: Source frames that it shows, inclusive.
        start_seconds, end_seconds: Their times in the source.
    """

    file: str
    num_frames: int
    num_bytes: int
    first_frame: int
    last_frame: int
    start_seconds: float
    end_seconds: float


@dataclass(frozen=True)
class Prepared:
    """A prepared video.

    Attributes:
        stem: Path of its outputs relative to the output folder, without number and suffix.
        source: Absolute path of the video.
        fingerprint: Size and modification time at that time.
        how: ``"encoded"`` or ``"remuxed"``.
        outputs: Its files.
        warnings: Unexpected properties of the outputs.
    """

    stem: str
    source: str
    fingerprint: Fingerprint
    how: str
    outputs: tuple[PreparedFile, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Prepared:
        """Inverse of ``dataclasses.asdict``, from JSON; raises ``ValueError`` or dict errors for other values."""
        outputs = tuple(PreparedFile(**each) for each in said["outputs"])
        size, stamp = said["fingerprint"]
        found = cls(said["stem"], said["source"], (size, stamp), said["how"], outputs, tuple(said["warnings"]))
        texts = (found.source, found.how, *found.warnings)
        numbers = [size, stamp, *(n for each in outputs for n in (each.num_frames, each.num_bytes, each.first_frame))]
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(each, int) for each in numbers):
            raise ValueError("a value has the wrong type")
        for name in (found.stem, *(each.file for each in outputs)):
            check_below(name)
        return found


def check_below(name: Any) -> None:
    """Checks that a name is a file below the output folder, because it may be removed."""
    if not isinstance(name, str) or not name or "\0" in name or os.path.isabs(name) or os.pardir in name.split(os.sep):
        raise ValueError(f"{name!r} is not a file below the folder")
