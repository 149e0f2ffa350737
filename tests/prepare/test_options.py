"""What is possible, and what is said where something is not."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from framefeed import UnsupportedCodec
from framefeed.prepare.codecs import ENCODERS, encoder_options
from framefeed.prepare.encoding.picture_format import check_pixel_format
from framefeed.prepare.options import PrepareOptions, parse_fps, parse_size


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"size": (640, 361)}, "sides must be even and from 2 to 16384, got 361 pixels"),
        ({"short_side": 0}, "got 0 pixels"),
        ({"short_side": 256, "size": (640, 360)}, "size and short_side cannot be combined"),
        ({"codec": "mpeg4"}, "one of h264, hevc, vp9, av1"),
        ({"gop": 0}, "gop must be at least 1"),
        ({"b_frames": 17}, "from 0 to 16"),
        ({"crf": 52}, "from 0 to 51"),
        ({"codec": "av1", "crf": 64}, "from 0 to 63"),
        ({"preset": "8"}, "must be ultrafast"),
        ({"codec": "vp9", "preset": "medium"}, "must be 0, 1"),
        ({"container": "avi"}, "one of mp4, mov, mkv, webm"),
        ({"container": "webm"}, "h264 is not supported in webm files; use mp4, mov, mkv"),
        ({"audio": "mute"}, "drop or copy"),
        ({"fps": Fraction(0)}, "must be above 0"),
        ({"min_scene_seconds": float("nan")}, "must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_what_is_not_possible(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PrepareOptions(**wrong)


def test_defaults_are_the_encoders() -> None:
    for codec, encoder in ENCODERS.items():
        options = PrepareOptions(codec=codec)  # type: ignore[arg-type]
        assert (options.crf, options.preset) == (encoder.crf, encoder.preset)
        assert str(encoder.crf) in encoder_options(options).values()
        check_pixel_format(options)  # the encoder is there


@pytest.mark.parametrize("width", [96, 112, 192])
def test_the_same_bytes_again(width: int) -> None:
    options = PrepareOptions(preset="medium", gop=12, b_frames=3)
    y, x = np.mgrid[:96, :width]
    noise = np.random.default_rng(0).integers(0, 21, (96, width))
    pictures = [
        (np.sin((x + 3 * k) / 9) * 50 + np.cos((y + 2 * k) / 7) * 50 + 110 + noise).astype(np.uint8) for k in range(24)
    ]

    def encoded() -> bytes:
        encoder = av.CodecContext.create(ENCODERS["h264"].name, "w")
        assert isinstance(encoder, av.VideoCodecContext)
        encoder.width, encoder.height, encoder.pix_fmt, encoder.time_base = width, 64, "yuv420p", Fraction(1, 30)
        encoder.options = encoder_options(options)
        frames = [av.VideoFrame.from_ndarray(picture, format="yuv420p") for picture in pictures]
        for number, frame in enumerate(frames):
            frame.pts = number
        return b"".join(bytes(packet) for frame in [*frames, None] for packet in encoder.encode(frame))

    assert len({encoded() for _ in range(40)}) == 1


def test_pixel_formats() -> None:
    check_pixel_format(PrepareOptions(codec="hevc", pixel_format="yuv420p10le"))
    with pytest.raises(
        UnsupportedCodec, match=r"does not support the pixel format yuv410p; use auto, keep or one of yuv4"
    ):
        check_pixel_format(PrepareOptions(pixel_format="yuv410p"))


def test_identity_tells_options_apart() -> None:
    assert PrepareOptions().identity() == PrepareOptions().identity()
    assert PrepareOptions(fps=Fraction(30)).identity()["fps"] == "30"
    assert PrepareOptions(size=(64, 48)).identity()["size"] == "64x48"
    assert len({str(PrepareOptions(gop=gop).identity()) for gop in (1, 2, 3)}) == 3


def test_sizes_and_rates() -> None:
    assert parse_size("640x360") == (640, 360) == parse_size((360, 640))
    assert parse_size(None) is None
    for text in ("640", "640x", "axb", "0x10", "1x2x3"):
        with pytest.raises(ValueError, match="640x360"):
            parse_size(text)
    assert parse_fps(None) is None
    assert [parse_fps(rate) for rate in ("30", 25, 12.5)] == [30, 25, Fraction(25, 2)]
    assert parse_fps("30000/1001") == Fraction(30000, 1001)
    assert [parse_fps(rate) for rate in (29.97, "23.976", 59.94)] == [Fraction(n * 1000, 1001) for n in (30, 24, 60)]
    for text in ("many", "1/0"):
        with pytest.raises(ValueError, match="invalid frame rate"):
            parse_fps(text)
