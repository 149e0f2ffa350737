"""How the picture is to be shown: turned, stretched, cropped, in which colours."""

from fractions import Fraction
from typing import Literal

from clips.base import ClipKind, clip
from framefeed.testing.samples import Color


def _color(space: Literal["bt601", "bt709", "bt2020nc"], full_range: bool) -> ClipKind:
    extent = "full" if full_range else "limited"
    return clip(
        f"color_{space}_{extent}",
        ".mp4",
        f"{space}, {extent} range",
        frames=12,
        color=Color(space, full_range=full_range),
    )


def _turned(degrees: int) -> ClipKind:
    return clip(f"rotated_{degrees}", ".mp4", f"to be turned by {degrees} counter-clockwise", rotation=degrees)


_COLORS = tuple(_color(space, full) for space in ("bt601", "bt709", "bt2020nc") for full in (False, True))

KINDS = (
    _turned(90),
    _turned(180),
    _turned(270),
    clip("mirrored", ".mp4", "to be mirrored left and right", hflip=True),
    clip("mirrored_rotated_90", ".mp4", "mirrored and turned", hflip=True, rotation=90),
    clip("rotated_mkv", ".mkv", "rotation in Matroska's projection", rotation=90),
    clip("wide_pixels", ".mp4", "pixels are 4:3", sample_aspect_ratio=Fraction(4, 3)),
    clip("cropped_h264", ".mp4", "162x98: coded as 176x112 and cropped", width=162, height=98),
    clip(
        "odd_size_h264_444", ".mp4", "161x97, which H.264 allows in 4:4:4 only", width=161, height=97, pix_fmt="yuv444p"
    ),
    clip("tall", ".mp4", "higher than wide", width=64, height=112),
    *_COLORS,
    clip("color_untagged", ".mp4", "nothing said: guessing is up to the reader", frames=12),
    clip(
        "color_hevc_10bit_2020",
        ".mp4",
        "bt2020nc in 10 bits",
        codec="libx265",
        frames=12,
        pix_fmt="yuv420p10le",
        color=Color("bt2020nc"),
        options={"preset": "ultrafast"},
    ),
)
