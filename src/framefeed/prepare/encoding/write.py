"""Writes outputs: encoded pictures, or packets of the source, at exact times."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import av
import av.error

from framefeed._util.encoders import usual_priority
from framefeed.errors import InvalidFile
from framefeed.prepare.codecs import ENCODERS, encoder_options
from framefeed.prepare.encoding.audio import AudioCopy
from framefeed.prepare.encoding.picture_format import PictureFormat
from framefeed.prepare.encoding.timeline import OutputTimeline, nominal_rate
from framefeed.prepare.options import PrepareOptions

__all__ = ["EXACT", "Progress", "WriteFailed", "copy_packets", "encode"]

Progress = Callable[[int], None]
"""``progress(frames)``: called with the number of newly finished frames."""

EXACT = ("mp4", "mov")
"""Containers with arbitrary time bases; the others use milliseconds."""

MIN_SCALE = 10_000  # lowest time scale that FFmpeg's MP4 muxer chooses
_FORMATS = {"mkv": "matroska"}


class WriteFailed(Exception):
    """The output cannot be written, as with a full disk. The source is not at fault."""


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:  # includes FFmpeg's
        raise WriteFailed(error.strerror or str(error)) from error


class _OutputFile:
    """A container being written, with one video stream and optional audio.

    Packets arrive in decode order. Their times are replaced by those of the timeline.
    """

    def __init__(self, path: Path, options: PrepareOptions, timeline: OutputTimeline, audio: AudioCopy | None) -> None:
        self._path = path
        self._timeline = timeline
        self._audio = audio
        self._count = 0
        self._delay: int | None = None
        self.stream: Any = None
        settings = {}
        if options.container in EXACT:
            scale = timeline.time_base.denominator
            while scale < MIN_SCALE:
                scale *= 2
            # Edit lists, which store the first frame's time, use the movie's clock: make it equal to the track's.
            settings = {"movflags": "faststart", "video_track_timescale": str(scale), "movie_timescale": str(scale)}
        with _writing():
            self.container = av.open(path, "w", _FORMATS.get(options.container, options.container), options=settings)

    def __enter__(self) -> _OutputFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            with suppress(Exception):  # report the first error
                self.container.close()
            return
        if self._audio is not None:
            for packet in self._audio.until(None):
                self._mux(packet)
        with _writing():
            self.container.close()
            with self._path.open("rb+") as file:
                os.fsync(file.fileno())

    def write_all(self, packets: Iterable[Any]) -> None:
        """Writes the next packets of an encoder whose times count frames."""
        for packet in packets:
            # Some encoders report the lead of decoding before the first frame only here.
            self.write(packet, packet.pts, max(0, -packet.dts))

    def write(self, packet: Any, frame: int, reorder_depth: int) -> None:
        """Writes the next packet.

        Args:
            packet: The packet.
            frame: Number of its frame in presentation order.
            reorder_depth: Largest delay of packets relative to their frames' order; the first packet's value counts.
        """
        timeline = self._timeline
        if self._delay is None:
            # Lead of decoding times, so that none is later than its frame's time.
            depth = min(reorder_depth, len(timeline) - 1)
            self._delay = int((timeline.pts[depth:] - timeline.pts[: len(timeline) - depth]).max())
        packet.pts = int(timeline.pts[frame])
        packet.dts = int(timeline.pts[self._count]) - self._delay
        packet.duration = int(timeline.duration[frame])
        packet.time_base = timeline.time_base
        packet.stream = self.stream
        if packet.dts > packet.pts:
            raise InvalidFile(self._path, f"the encoder returned frame {frame} later than announced")
        if self._audio is not None:
            for sound in self._audio.until(packet.dts * timeline.time_base):
                self._mux(sound)
        self._mux(packet)
        self._count += 1

    def _mux(self, packet: Any) -> None:
        with _writing():
            self.container.mux(packet)


def encode(
    path: Path,
    pictures: Iterable[Any],
    timeline: OutputTimeline,
    target: PictureFormat,
    options: PrepareOptions,
    *,
    audio: AudioCopy | None = None,
    progress: Progress = lambda frames: None,
) -> None:
    """Encodes pictures into a file.

    Args:
        path: The file.
        pictures: One for each frame of the timeline, in the format ``target``.
        timeline: Times of the frames.
        target: Format of the pictures.
        options: Encoder options.
        audio: Audio to copy.
        progress: Called as frames are encoded.

    Raises:
        WriteFailed: The file cannot be written.
    """
    encoder = ENCODERS[options.codec]
    rate = nominal_rate(timeline)
    with _OutputFile(path, options, timeline, audio) as output:
        stream = cast("av.VideoStream", output.container.add_stream(encoder.name, rate=rate))
        output.stream = stream
        context = stream.codec_context
        stream.width, stream.height, stream.pix_fmt = (
            target.width,
            target.height,
            target.pix_fmt,
        )
        context.options = encoder_options(options)
        context.gop_size = options.gop
        context.max_b_frames = options.b_frames
        # The encoder counts frames, and its packets get the exact times: so no encoder rounds them.
        context.time_base = 1 / rate
        stream.time_base = timeline.time_base
        if target.sample_aspect_ratio is not None:
            context.sample_aspect_ratio = target.sample_aspect_ratio
        if encoder.tag is not None and options.container in EXACT:
            context.codec_tag = encoder.tag
        context.colorspace, context.color_range = target.color_space, target.color_range
        context.color_primaries, context.color_trc = target.color_primaries, target.color_transfer
        if audio is not None:
            audio.add_to(output.container)
        with usual_priority():
            context.open(strict=False)
        for number, picture in enumerate(pictures):
            picture.pts, picture.time_base = number, context.time_base
            output.write_all(stream.encode(picture))
            progress(1)
        output.write_all(stream.encode(None))


def copy_packets(
    path: Path,
    packets: Iterable[tuple[bytes | memoryview, bool, int]],
    timeline: OutputTimeline,
    template: Any,
    options: PrepareOptions,
    *,
    reorder_depth: int,
    audio: AudioCopy | None = None,
    progress: Progress = lambda frames: None,
) -> None:
    """Copies packets of a video into another file.

    Args:
        path: The file.
        packets: Data, keyframe flag and frame number of each packet; in decode order.
        timeline: Times of the frames.
        template: PyAV's stream of the packets.
        options: Options with the container.
        reorder_depth: Largest delay of packets relative to their frames' order.
        audio: Audio to copy.
        progress: Called as packets are written.

    Raises:
        WriteFailed: The file cannot be written.
    """
    with _OutputFile(path, options, timeline, audio) as output:
        # Not as an encoder's stream: the encoder may be missing.
        output.stream = output.container.add_stream_from_template(template, opaque=True)
        output.stream.time_base = timeline.time_base
        if audio is not None:
            audio.add_to(output.container)
        for data, is_key, frame in packets:
            packet: av.Packet[Any] = av.Packet(len(data))
            packet.update(data)  # type: ignore[arg-type]  # accepts any buffer
            packet.is_keyframe = is_key
            output.write(packet, frame, reorder_depth)
            progress(1)
