"""What videos are to become: all that decides about the bytes that are written."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from framefeed.prepare.codecs import ENCODERS, CodecName

__all__ = ["Audio", "Container", "PrepareOptions", "Size", "parse_fps", "parse_size"]

Container = Literal["mp4", "mov", "mkv", "webm"]
Audio = Literal["drop", "copy"]
Size = str | tuple[int, int]

CONTAINERS: dict[str, tuple[str, ...]] = {
    "mp4": ("h264", "hevc", "vp9", "av1"),
    "mov": ("h264", "hevc"),
    "mkv": ("h264", "hevc", "vp9", "av1"),
    "webm": ("vp9", "av1"),
}
"""Which codecs each container takes."""

MAX_SIDE = 16384  # what HEVC and AV1 allow, roughly; a typing error must not take all memory


@dataclass(frozen=True)
class PrepareOptions:
    """What videos are to become. Two runs with equal options write equal bytes.

    Attributes:
        size: (width, height) of all outputs, or None.
        short_side: Of the shorter side, the other one by the picture's shape; None leaves the size as it is.
        codec: Of the outputs.
        gop: Frames from one keyframe to the next.
        b_frames: Most B-frames in a row. AV1 has none: there 0 means that no frame is hidden, and any other number
            leaves it to the encoder. VP9 is written without hidden frames in any case.
        crf: Quality by the encoder's scale, less is better.
        preset: The encoder's word or number for how much time it takes.
        fps: Frames a second, or None for the source's own times.
        pixel_format: ``"auto"`` (4:2:0; more than 8 bits only where decoders in hardware take that), ``"keep"``, or
            FFmpeg's name of one.
        container: Of the outputs.
        audio: What becomes of sound.
        scenes: Whether each scene becomes a file.
        min_scene_seconds: No scene is shorter.
        force: Whether to encode also what is as it should be.
        threads: Of an encoder: other numbers give other bytes.
    """

    size: tuple[int, int] | None = None
    short_side: int | None = None
    codec: CodecName = "h264"
    gop: int = 30
    b_frames: int = 0
    crf: int | None = None
    preset: str | None = None
    fps: Fraction | None = None
    pixel_format: str = "auto"
    container: Container = "mp4"
    audio: Audio = "drop"
    scenes: bool = False
    min_scene_seconds: float = 1.0
    force: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        if self.codec not in ENCODERS:
            raise ValueError(f"codec {self.codec!r} is not possible; possible are {', '.join(ENCODERS)}")
        encoder = ENCODERS[self.codec]
        if self.crf is None:
            object.__setattr__(self, "crf", encoder.crf)
        if self.preset is None:
            object.__setattr__(self, "preset", encoder.preset)
        self._check_size()
        self._check_coding()
        if self.container not in CONTAINERS:
            raise ValueError(f"container {self.container!r} is not possible; possible are {', '.join(CONTAINERS)}")
        if self.codec not in CONTAINERS[self.container]:
            able = ", ".join(name for name, codecs in CONTAINERS.items() if self.codec in codecs)
            raise ValueError(f"{self.codec} is not put into {self.container} files; possible are {able}")
        if self.audio not in ("drop", "copy"):
            raise ValueError(f"audio {self.audio!r} is not possible; possible are drop, copy")
        if self.fps is not None and not 0 < self.fps <= 1000:
            raise ValueError(f"fps {self.fps} is not possible; possible are numbers above 0, up to 1000")
        if not (self.min_scene_seconds >= 0 and math.isfinite(self.min_scene_seconds)):
            raise ValueError(f"min_scene_seconds {self.min_scene_seconds} is not possible; it is 0 or more")
        if self.threads < 1:
            raise ValueError(f"threads is at least 1, got {self.threads}")

    def _check_size(self) -> None:
        if self.size is not None and self.short_side is not None:
            raise ValueError("give either size or short_side")
        sides = self.size or ((self.short_side,) if self.short_side is not None else ())
        for side in sides:
            if side < 2 or side % 2 or side > MAX_SIDE:
                raise ValueError(f"{side} pixels are not possible; a side is even, and from 2 to {MAX_SIDE}")

    def _check_coding(self) -> None:
        encoder = ENCODERS[self.codec]
        if self.gop < 1:
            raise ValueError(f"gop is at least 1, got {self.gop}")
        if not 0 <= self.b_frames <= 16:
            raise ValueError(f"b_frames {self.b_frames} is not possible; possible are 0 to 16")
        if self.crf is not None and not 0 <= self.crf <= encoder.max_crf:
            raise ValueError(f"crf {self.crf} is not possible for {self.codec}; possible are 0 to {encoder.max_crf}")
        if self.preset not in encoder.presets:
            possible = ", ".join(encoder.presets)
            raise ValueError(f"preset {self.preset!r} is not possible for {self.codec}; possible are {possible}")

    def identity(self) -> dict[str, Any]:
        """The same as plain values."""
        found = dataclasses.asdict(self)
        found["size"] = None if self.size is None else f"{self.size[0]}x{self.size[1]}"
        found["fps"] = None if self.fps is None else str(self.fps)
        return found


def parse_size(size: Size | None) -> tuple[int, int] | None:
    """(width, height) of ``"640x360"`` (width x height) or (height, width)."""
    if size is None:
        return None
    if not isinstance(size, str):
        height, width = size
        return int(width), int(height)
    sides = size.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise ValueError(f"{size!r} is no size; possible is 640x360 (width x height)")
    return int(sides[0]), int(sides[1])


def parse_fps(fps: str | float | Fraction | None) -> Fraction | None:
    """An exact rate; 29.97 and the like are taken for what they stand for, 30000/1001."""
    if fps is None:
        return None
    try:
        rate = Fraction(fps) if not isinstance(fps, float) else Fraction(str(fps))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{fps!r} is no frame rate; possible are 30, 29.97, 30000/1001 ...") from None
    ntsc = Fraction(math.ceil(rate) * 1000, 1001)
    return ntsc if rate.denominator > 1 and abs(rate - ntsc) < Fraction(1, 200) else rate
