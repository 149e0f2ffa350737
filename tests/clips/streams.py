"""Several streams in one file, and what may lie beside the video."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import av
import numpy as np

from clips.base import EVERY, FRAMES, ClipKind
from framefeed.testing import samples

SMALL, LARGE = (96, 64), (128, 96)
LARGE_FIRST_NUMBER = 500  # a frame of the wrong stream is noticed by its number


def _add_video(container: av.container.OutputContainer, size: tuple[int, int]) -> av.VideoStream:
    stream = container.add_stream("libx264", rate=30)
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    stream.codec_context.options = {"threads": "1"}
    stream.codec_context.gop_size = 12
    return stream


def _mux_painted(
    container: av.container.OutputContainer, streams: Sequence[av.VideoStream], firsts: Sequence[int]
) -> None:
    """Encodes frame by frame in turn, so that the packets lie interleaved."""
    for place in range(FRAMES):
        for stream, first in zip(streams, firsts, strict=True):
            frame = samples.painted_frame(first + place, stream.width, stream.height)
            frame.pts, frame.time_base = place, Fraction(1, 30)
            container.mux(stream.encode(frame))
    for stream in streams:
        container.mux(stream.encode(None))


def _two_streams(folder: Path, name: str, sizes: Sequence[tuple[int, int]], default: int) -> Path:
    """The default stream shows 0, 1, 2 ...; the other one numbers that are far away."""
    target = folder / name
    with av.open(target, "w") as container:
        streams = [_add_video(container, size) for size in sizes]
        streams[default].disposition = av.stream.Disposition.default
        streams[1 - default].disposition = av.stream.Disposition(0)
        _mux_painted(container, streams, [0 if place == default else LARGE_FIRST_NUMBER for place in range(2)])
    return target


def _with_audio(folder: Path, name: str, audio_first: bool, codec: str = "aac") -> Path:
    target = folder / name
    with av.open(target, "w") as container:
        audio = container.add_stream(codec, rate=48000) if audio_first else None
        video = _add_video(container, SMALL)
        sound = cast("av.AudioStream", audio or container.add_stream(codec, rate=48000))
        _mux_sound(container, sound)
        _mux_painted(container, [video], [0])
    return target


def _mux_sound(container: av.container.OutputContainer, stream: av.AudioStream) -> None:
    rate, size = 48000, 1024
    for start in range(0, FRAMES * rate // 30, size):
        wave = np.sin(np.arange(start, start + size, dtype=np.float32) * (2 * np.pi * 440 / rate))[None]
        frame = av.AudioFrame.from_ndarray(wave.astype(np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def _picture_bytes() -> bytes:
    """A JPEG of another size than the video."""
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = 64, 64, "yuvj420p"
    encoder.time_base = Fraction(1, 30)
    frame = samples.painted_frame(999, 64, 64, pix_fmt="yuvj420p")
    frame.pts = 0
    return b"".join(bytes(packet) for packet in [*encoder.encode(frame), *encoder.encode(None)])


def _cover_mkv(folder: Path) -> Path:
    target = folder / "cover_mkv.mkv"
    with av.open(target, "w") as container:
        video = _add_video(container, SMALL)
        container.add_attachment("cover.jpg", "image/jpeg", _picture_bytes())
        _mux_painted(container, [video], [0])
    return target


def _cover_mp4(folder: Path) -> Path:
    target = folder / "cover_mp4.mp4"
    with av.open(target, "w") as container:
        cover: Any = container.add_stream("mjpeg", rate=30)
        cover.width, cover.height, cover.pix_fmt = 64, 64, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        video = _add_video(container, SMALL)
        packet = av.Packet(_picture_bytes())
        packet.pts = packet.dts = 0
        packet.time_base, packet.is_keyframe, packet.stream = Fraction(1, 30), True, cover
        container.mux(packet)
        _mux_painted(container, [video], [0])
    return target


def _size_change(folder: Path, suffix: str) -> Path:
    """Two Annex B streams one after the other: the second brings its own parameter sets."""
    target = folder / f"h264_size_change_{suffix}.{suffix}"
    half = FRAMES // 2
    data = b""
    for first, (width, height) in ((0, SMALL), (half, LARGE)):
        part = folder / f".size_change_part.{suffix}"
        samples.write_clip(
            part,
            frames=half,
            width=width,
            height=height,
            first_number=first,
            pts=lambda place, start=first: start + place,
        )
        data += part.read_bytes()
        part.unlink()
    target.write_bytes(data)
    return target


def _kind(name: str, suffix: str, notes: str, sizes: Sequence[tuple[int, int]], default: int) -> ClipKind:
    return ClipKind(name, lambda folder: _two_streams(folder, name + suffix, sizes, default), EVERY, notes)


KINDS = (
    _kind("two_streams_mp4", ".mp4", "the first is the default and the smaller one", (SMALL, LARGE), 0),
    _kind("two_streams_second_default_mkv", ".mkv", "the second is the default", (LARGE, SMALL), 1),
    _kind("two_streams_second_best_mp4", ".mp4", "the second is the default and the larger", (SMALL, LARGE), 1),
    _kind("two_streams_ts", ".ts", "the first is taken", (LARGE, SMALL), 0),
    ClipKind(
        "with_audio", lambda folder: _with_audio(folder, "with_audio.mp4", False), EVERY, "interleaved with sound"
    ),
    ClipKind(
        "audio_first_mp4", lambda folder: _with_audio(folder, "audio_first_mp4.mp4", True), EVERY, "video is stream 1"
    ),
    ClipKind(
        "audio_first_ts", lambda folder: _with_audio(folder, "audio_first_ts.ts", True), EVERY, "video is stream 1"
    ),
    ClipKind("cover_mkv", _cover_mkv, EVERY, "an attached picture is a video stream too"),
    ClipKind("cover_mp4", _cover_mp4, EVERY, "an attached picture is a video stream too"),
    ClipKind("h264_size_change_ts", lambda folder: _size_change(folder, "ts"), EVERY, "96x64, then 128x96 at frame 24"),
    ClipKind(
        "h264_size_change_h264", lambda folder: _size_change(folder, "h264"), EVERY, "the same without a container"
    ),
)
