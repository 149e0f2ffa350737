"""What was made of a video, as plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from framefeed.media.media import Fingerprint

__all__ = ["Prepared", "PreparedFile", "check_below"]


@dataclass(frozen=True)
class PreparedFile:
    """A file that was written.

    Attributes:
        file: Its path below the output folder.
        num_frames: Frames in it.
        num_bytes: Its size.
        first_frame, last_frame: The frames of the source that it shows, the last one included.
        start_seconds, end_seconds: When these are shown in the source.
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
    """A video that is done.

    Attributes:
        stem: Of its outputs: their path below the output folder, without number and suffix.
        source: Absolute path of the video.
        fingerprint: Size and modification time that it had.
        how: ``"encoded"`` or ``"remuxed"``.
        outputs: Its files.
        warnings: What could not be as one might expect.
    """

    stem: str
    source: str
    fingerprint: Fingerprint
    how: str
    outputs: tuple[PreparedFile, ...]
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Prepared:
        """What ``dataclasses.asdict`` gave, from JSON; raises what dictionaries raise, or ``ValueError``, otherwise."""
        outputs = tuple(PreparedFile(**each) for each in said["outputs"])
        size, stamp = said["fingerprint"]
        found = cls(said["stem"], said["source"], (size, stamp), said["how"], outputs, tuple(said["warnings"]))
        texts = (found.source, found.how, *found.warnings)
        numbers = [size, stamp, *(n for each in outputs for n in (each.num_frames, each.num_bytes, each.first_frame))]
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(each, int) for each in numbers):
            raise ValueError("a value is of another kind")
        for name in (found.stem, *(each.file for each in outputs)):
            check_below(name)
        return found


def check_below(name: Any) -> None:
    """Raises ``ValueError`` for what does not name a file below the output folder, which could be removed."""
    if not isinstance(name, str) or not name or "\0" in name or os.path.isabs(name) or os.pardir in name.split(os.sep):
        raise ValueError(f"{name!r} is no file below the folder")
