"""Validated options of outputs: everything that determines their bytes."""

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
"""Codecs supported by each container."""

MAX_SIDE = 16384  # about the limit of HEVC and AV1; a typo must not exhaust memory


@dataclass(frozen=True)
class PrepareOptions:
    """Options of outputs. Two runs with equal options write equal bytes.

    Attributes:
        size: (width, height) of all outputs, or None.
        short_side: Length of the shorter side, the other one by the picture's shape; None keeps the size.
        codec: Codec of the outputs.
        gop: Distance of keyframes, in frames.
        b_frames: Most B-frames in a row. With AV1, 0 allows no hidden frames, and any other number leaves it to the
            encoder. VP9 never gets hidden frames.
        crf: Quality on the encoder's scale, lower is better.
        preset: The encoder's word or number for its speed.
        fps: Frame rate, or None for the source's own times.
        pixel_format: ``"auto"`` (4:2:0; more than 8 bits only where hardware decoders support it), ``"keep"``, or
            FFmpeg's name of a format.
        container: Container of the outputs.
        audio: ``"drop"`` or ``"copy"``.
        scenes: Writes each scene to a file of its own.
        min_scene_seconds: Shortest scene.
        force: Re-encodes videos that already meet the options.
        threads: Threads of an encoder: other numbers give other bytes.
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
            raise ValueError(f"codec must be one of {', '.join(ENCODERS)}, got {self.codec!r}")
        encoder = ENCODERS[self.codec]
        if self.crf is None:
            object.__setattr__(self, "crf", encoder.crf)
        if self.preset is None:
            object.__setattr__(self, "preset", encoder.preset)
        self._check_size()
        self._check_coding()
        if self.container not in CONTAINERS:
            raise ValueError(f"container must be one of {', '.join(CONTAINERS)}, got {self.container!r}")
        if self.codec not in CONTAINERS[self.container]:
            able = ", ".join(name for name, codecs in CONTAINERS.items() if self.codec in codecs)
            raise ValueError(f"{self.codec} is not supported in {self.container} files; use {able}")
        if self.audio not in ("drop", "copy"):
            raise ValueError(f"audio must be drop or copy, got {self.audio!r}")
        if self.fps is not None and not 0 < self.fps <= 1000:
            raise ValueError(f"fps must be above 0 and at most 1000, got {self.fps}")
        if not (self.min_scene_seconds >= 0 and math.isfinite(self.min_scene_seconds)):
            raise ValueError(f"min_scene_seconds must be at least 0, got {self.min_scene_seconds}")
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")

    def _check_size(self) -> None:
        if self.size is not None and self.short_side is not None:
            raise ValueError("size and short_side cannot be combined")
        sides = self.size or ((self.short_side,) if self.short_side is not None else ())
        for side in sides:
            if side < 2 or side % 2 or side > MAX_SIDE:
                raise ValueError(f"sides must be even and from 2 to {MAX_SIDE}, got {side} pixels")

    def _check_coding(self) -> None:
        encoder = ENCODERS[self.codec]
        if self.gop < 1:
            raise ValueError(f"gop must be at least 1, got {self.gop}")
        if not 0 <= self.b_frames <= 16:
            raise ValueError(f"b_frames must be from 0 to 16, got {self.b_frames}")
        if self.crf is not None and not 0 <= self.crf <= encoder.max_crf:
            raise ValueError(f"crf of {self.codec} must be from 0 to {encoder.max_crf}, got {self.crf}")
        if self.preset not in encoder.presets:
            possible = ", ".join(encoder.presets)
            raise ValueError(f"preset of {self.codec} must be {possible}, got {self.preset!r}")

    def identity(self) -> dict[str, Any]:
        """Returns the options as plain values."""
        found = dataclasses.asdict(self)
        found["size"] = None if self.size is None else f"{self.size[0]}x{self.size[1]}"
        found["fps"] = None if self.fps is None else str(self.fps)
        return found


def parse_size(size: Size | None) -> tuple[int, int] | None:
    """Returns (width, height) from ``"640x360"`` (width x height) or (height, width)."""
    if size is None:
        return None
    if not isinstance(size, str):
        height, width = size
        return int(width), int(height)
    sides = size.split("x")
    if len(sides) != 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise ValueError(f"invalid size {size!r}: use 640x360 (width x height)")
    return int(sides[0]), int(sides[1])


def parse_fps(fps: str | float | Fraction | None) -> Fraction | None:
    """Returns an exact rate; 29.97 and the like stand for 30000/1001."""
    if fps is None:
        return None
    try:
        rate = Fraction(fps) if not isinstance(fps, float) else Fraction(str(fps))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"invalid frame rate {fps!r}: use 30, 29.97 or 30000/1001") from None
    ntsc = Fraction(math.ceil(rate) * 1000, 1001)
    return ntsc if rate.denominator > 1 and abs(rate - ntsc) < Fraction(1, 200) else rate
