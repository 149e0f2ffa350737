"""Colours are those that FFmpeg's decoder tells, whatever the container says of them."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from framefeed import VideoDecoder

ENCODERS = {
    "libx264": ("yuv420p", {"preset": "ultrafast"}),
    "libx265": ("yuv420p10le", {"preset": "ultrafast", "x265-params": "log-level=none:bframes=0"}),
    "libvpx-vp9": ("yuv420p", {"deadline": "realtime", "cpu-used": "8"}),
    "libsvtav1": ("yuv420p", {"preset": "12"}),
    "libvpx": ("yuv420p", {"deadline": "realtime"}),
    "mpeg2video": ("yuv420p", {}),
    "mpeg4": ("yuv420p", {}),
    "prores_ks": ("yuv422p10le", {}),
    "mjpeg": ("yuvj420p", {}),
}

# Primaries, transfer, matrix, range.
TAGS = [(2, 2, 2, 0), (1, 1, 1, 1), (9, 16, 9, 1), (6, 6, 6, 2)]


def _tag(context: Any, tags: tuple[int, int, int, int]) -> None:
    context.color_primaries, context.color_trc, context.colorspace, context.color_range = tags


def _encode(path: Path, encoder: str, tags: tuple[int, int, int, int]) -> None:
    pix_fmt, options = ENCODERS[encoder]
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(encoder, rate=25, options=options)
        stream.width, stream.height, stream.pix_fmt = 64, 48, pix_fmt
        _tag(stream.codec_context, tags)
        for number in range(3):
            picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 50 * number, np.uint8), format="rgb24")
            picture = picture.reformat(format=pix_fmt)
            picture.colorspace, picture.color_range = tags[2], tags[3]
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def _copy(source: Path, path: Path, tags: tuple[int, int, int, int]) -> None:
    """The same packets in a container that says other things."""
    with av.open(str(source)) as before, av.open(str(path), "w") as after:
        stream: Any = after.add_stream_from_template(before.streams.video[0])
        _tag(stream.codec_context, tags)
        for packet in before.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                after.mux(packet)


@pytest.mark.parametrize("encoder", [encoder for encoder in ENCODERS if encoder != "libsvtav1"])
def test_colors_are_the_decoders(encoder: str, tmp_path: Path) -> None:
    containers = ["mkv"] if encoder == "libvpx" else ["mov", "mkv"] if encoder == "prores_ks" else ["mp4", "mkv"]
    for number, inside in enumerate(TAGS):
        source = tmp_path / f"{number}.{'mov' if encoder == 'prores_ks' else 'mkv'}"
        _encode(source, encoder, inside)
        for outside, container in product(TAGS, containers):
            path = tmp_path / f"copy.{container}"
            _copy(source, path, outside)
            _compare(path, f"{inside} in a {container} that says {outside}")


def _compare(path: Path, what: str) -> None:
    with av.open(str(path)) as opened:
        picture: Any = next(opened.decode(video=0))
    told = (picture.color_primaries, picture.color_trc, picture.colorspace, picture.color_range)
    stream = VideoDecoder(path).index.stream
    found = (stream.color_primaries, stream.color_transfer, stream.color_space, stream.color_range)
    assert found == tuple(int(value) for value in told), what


def test_colors_of_av1_are_the_decoders(tmp_path: Path) -> None:
    """PyAV cannot copy its packets into a container that says other things, so the ``colr`` box is changed."""
    for inside, outside in product(TAGS[1:], TAGS):
        path = tmp_path / "clip.mp4"
        _encode(path, "libsvtav1", inside)
        data = path.read_bytes()
        place = data.index(b"colrnclx") + 8
        box = struct.pack(">HHHB", *outside[:3], 128 if outside[3] == 2 else 0)
        path.write_bytes(data[:place] + box + data[place + 7 :])
        _compare(path, f"{inside} in an MP4 that says {outside}")
