"""Sizes, shapes of pixels and pixel formats: decided before anything is decoded."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import clips
from framefeed import InvalidFile, UnsupportedCodec, VideoIndex
from framefeed.prepare.encoding.picture_format import PictureFormat, plan_format
from framefeed.prepare.options import PrepareOptions
from framefeed.types import Orientation, StreamInfo


def stream(width: int, height: int, **facts: Any) -> StreamInfo:
    plain: dict[str, Any] = {
        "codec": "h264",
        "codec_tag": "avc1",
        "extradata": b"",
        "pix_fmt": "yuv420p",
        "color_space": 1,
        "color_range": 1,
        "color_primaries": 1,
        "color_transfer": 1,
        "sample_aspect_ratio": None,
        "orientation": Orientation(),
        "time_base": Fraction(1, 30),
        "stream_index": 0,
        "reorder_depth": 0,
        "average_rate": None,
        "header_frames": None,
        "bit_rate": None,
        "header_duration": None,
        "header_start": None,
        "bits_per_coded_sample": 0,
        "container": "mov,mp4",
    }
    return StreamInfo(width=width, height=height, **{**plain, **facts})


def look(width: int, height: int, options: PrepareOptions, **facts: Any) -> PictureFormat:
    return plan_format("x.mp4", stream(width, height, **facts), options)


TURNED = Orientation(1)
WIDE = Fraction(16, 15)


@pytest.mark.parametrize(
    ("source", "options", "size", "ratio"),
    [
        ((640, 480, None, None), {}, (640, 480), None),
        ((641, 481, None, None), {}, (640, 480), None),
        ((640, 480, TURNED, None), {}, (480, 640), None),
        ((720, 576, None, WIDE), {}, (720, 576), WIDE),
        ((720, 576, TURNED, WIDE), {}, (576, 720), 1 / WIDE),
        # The shorter side, and square pixels.
        ((1280, 720, None, None), {"short_side": 256}, (456, 256), None),
        ((720, 1280, None, None), {"short_side": 256}, (256, 456), None),
        ((1280, 720, TURNED, None), {"short_side": 256}, (256, 456), None),
        ((720, 576, None, WIDE), {"short_side": 288}, (384, 288), Fraction(1)),
        ((720, 576, TURNED, WIDE), {"short_side": 288}, (288, 384), Fraction(1)),
        # A size for all: the shape of the picture is kept by that of its pixels.
        ((1280, 720, None, None), {"size": (640, 360)}, (640, 360), None),
        ((640, 480, None, None), {"size": (640, 360)}, (640, 360), Fraction(3, 4)),
        ((1280, 720, TURNED, None), {"size": (640, 360)}, (640, 360), Fraction(81, 256)),
        ((854, 480, None, None), {"size": (640, 360)}, (640, 360), None),  # off by a rounded pixel
        ((720, 576, None, WIDE), {"size": (768, 576)}, (768, 576), Fraction(1)),
        ((720, 576, None, WIDE), {"size": (720, 576)}, (720, 576), WIDE),
    ],
)
def test_size_and_shape(
    source: tuple[int, int, Orientation | None, Fraction | None],
    options: dict[str, Any],
    size: tuple[int, int],
    ratio: Fraction | None,
) -> None:
    width, height, orientation, pixel = source
    found = look(
        width, height, PrepareOptions(**options), orientation=orientation or Orientation(), sample_aspect_ratio=pixel
    )
    assert (found.width, found.height) == size
    assert found.sample_aspect_ratio == ratio
    turned = orientation is not None
    assert (found.scaled_width, found.scaled_height) == (size[::-1] if turned else size)


@pytest.mark.parametrize(
    ("source", "codec", "wanted", "expected"),
    [
        ("yuv420p", "h264", "auto", "yuv420p"),
        ("yuvj420p", "h264", "auto", "yuv420p"),
        ("yuv422p10le", "h264", "auto", "yuv420p"),
        ("yuv420p10le", "hevc", "auto", "yuv420p10le"),
        ("yuv444p12le", "av1", "auto", "yuv420p10le"),
        ("yuv420p10le", "vp9", "auto", "yuv420p"),
        ("pal8", "hevc", "auto", "yuv420p"),
        ("rgb24", "h264", "auto", "yuv420p"),
        ("yuvj422p", "h264", "keep", "yuv422p"),
        ("yuv420p10le", "h264", "keep", "yuv420p10le"),
        ("yuv420p", "hevc", "yuv444p", "yuv444p"),
    ],
)
def test_pixel_formats(source: str, codec: Any, wanted: str, expected: str) -> None:
    found = look(640, 480, PrepareOptions(codec=codec, pixel_format=wanted), pix_fmt=source)
    assert found.pix_fmt == expected


def test_colours() -> None:
    assert look(64, 48, PrepareOptions(), pix_fmt="yuvj420p", color_range=0).color_range == 2
    made = look(64, 48, PrepareOptions(), pix_fmt="rgb24", color_space=0, color_range=2)
    assert (made.color_space, made.color_range) == (1, 1)
    kept = look(64, 48, PrepareOptions(codec="hevc", pixel_format="keep"), pix_fmt="gbrp", color_space=0, color_range=2)
    assert (kept.color_space, kept.color_range) == (0, 2)


def test_what_cannot_be_encoded(clip_folder: Path) -> None:
    with pytest.raises(InvalidFile, match=r"x\.mp4: pictures of 1x48 pixels are too small"):
        look(1, 48, PrepareOptions())
    index = VideoIndex.scan(clips.make("hevc_12bit_444", clip_folder))
    with pytest.raises(UnsupportedCodec, match="its pixel format yuv444p12le; use --pixel-format auto"):
        plan_format(index.path, index.stream, PrepareOptions(pixel_format="keep"))
