"""Opens a container, chooses its video stream, and collects the stream's facts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import av
import av.error
import numpy as np
from av.container import InputContainer
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from framefeed.errors import InvalidFile, NoVideoStream, UnsupportedCodec, UnsupportedStream
from framefeed.index.bitstream import Gaps, PacketKind, make_classifier
from framefeed.index.bitstream.av1 import Av1Classifier
from framefeed.index.bitstream.h264 import vui as h264_vui
from framefeed.index.bitstream.h264.vui import ColorFormat
from framefeed.index.bitstream.hevc import vui as hevc_vui
from framefeed.index.orientation import from_frame
from framefeed.index.table import RawPackets
from framefeed.media.media import Media
from framefeed.media.opening import invalid_file, max_pixels, open_input
from framefeed.types import Orientation, StreamInfo

MAX_REORDER = 16  # pictures that FFmpeg's decoders can hold back for reordering

# Codecs whose default decoder in FFmpeg needs hardware.
_DECODERS = {"av1": ("libdav1d", "libaom-av1")}


class NoPictureSize(InvalidFile):
    """FFmpeg found no picture size: nothing of the stream was decoded, or the stream is damaged."""


class Scan:
    """Result of a scan, without the frame order."""

    def __init__(
        self,
        stream: StreamInfo,
        raw: RawPackets,
        kinds: NDArray[np.uint16],
        gaps: Gaps,
        *,
        byte_ranges: bool,
        understood: bool,
    ) -> None:
        self.stream = stream
        self.raw = raw
        self.kinds = kinds
        self.gaps = gaps
        self.byte_ranges = byte_ranges
        self.understood = understood  # whether the flags come from the bitstream, not from the container


@contextmanager
def open_container(media: Media, options: dict[str, str] | None = None) -> Iterator[InputContainer]:
    """Opens a container; every failure becomes a framefeed error that names the file."""
    try:
        with open_input(media, options) as container:
            yield container
    except av.error.FFmpegError as error:
        raise invalid_file(media, error) from error
    except (MemoryError, OverflowError) as error:
        raise InvalidFile(media.name, f"its headers are damaged ({error or type(error).__name__})") from error


def choose_stream(container: InputContainer, media: Media, stream_index: int | None) -> VideoStream:
    """Returns the requested stream, or the best one; raises if it cannot be decoded."""
    if stream_index is None:
        best = container.streams.best("video")
        if best is None:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
            raise NoVideoStream(media.name, f"has no video stream (its streams: {kinds})")
        stream: Any = best
    else:
        videos = [stream.index for stream in container.streams.video]
        if stream_index not in videos:
            raise NoVideoStream(media.name, f"stream {stream_index} is not a video stream; video streams: {videos}")
        stream = container.streams[stream_index]
    context = stream.codec_context
    if context is None or not context.codec.is_decoder:
        raise UnsupportedCodec(media.name, "this build of FFmpeg has no decoder for its video stream")
    width, height = context.width, context.height
    if width <= 0 or height <= 0:
        width, height = _declared_size(media.read(0, 24))
    if width <= 0 or height <= 0:
        reason = f"damaged, without a decodable frame, or of more than {max_pixels():,} pixels"
        raise NoPictureSize(media.name, f"its video stream has no picture size: {reason}")
    if width * height > (limit := max_pixels()):
        claim = f"declares pictures of {width}x{height}, which is more than {limit:,} pixels: damaged, or made to use"
        raise InvalidFile(media.name, f"{claim} up memory; set FRAMEFEED_MAX_PIXELS={width * height} to read it")
    assert isinstance(stream, VideoStream)
    return stream


def _declared_size(head: bytes) -> tuple[int, int]:
    """Returns width and height of a GIF or PNG, which FFmpeg reports only after decoding; zeros for other formats."""
    if head[:4] == b"GIF8":
        return int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return (
        (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) if head[12:16] == b"IHDR" else (0, 0)
    )


def check_palette(packet: av.Packet[VideoStream], media: Media) -> None:
    """Refuses a stream whose palette is stored outside of its packets, because only packets are indexed.

    Raises:
        UnsupportedStream: The stream has such a palette.
    """
    if packet.has_sidedata("palette"):
        raise UnsupportedStream(
            media.name, "its colour palette is stored in the container; transcode it to read frames"
        )


def stream_info(
    media: Media,
    container: InputContainer,
    stream: VideoStream,
    orientation: Orientation,
    may_turn: bool,
    *,
    look_at_size: bool = False,
) -> StreamInfo:
    """Collects the stream's facts from FFmpeg, the headers and, if necessary, the first picture.

    Args:
        media: The file.
        container: The container.
        stream: The stream.
        orientation: Orientation in the container.
        may_turn: Whether pictures may have another orientation.
        look_at_size: Whether pictures may have another size than the headers.
    """
    context = stream.codec_context
    ratio = stream.sample_aspect_ratio
    assert stream.time_base is not None
    codec, extradata = context.codec.canonical_name, bytes(context.extradata or b"")
    pix_fmt = context.format.name if context.format else ""  # with PyAV 17, context.pix_fmt crashes for unknown formats
    colors = _colors(context.color_range, context.color_primaries, context.color_trc, context.colorspace)
    declared = ColorFormat(pix_fmt, *colors)
    known = _format_in_headers(codec, extradata, declared)
    picture = first_picture(media, container, stream) if may_turn or look_at_size or known is None else None
    size = (context.width, context.height) if picture is None else (picture.width, picture.height)
    if picture is not None:
        colors = _colors(picture.color_range, picture.color_primaries, picture.color_trc, picture.colorspace)
        known = ColorFormat((known or declared).pix_fmt, *colors)
        orientation = from_frame(picture) if may_turn else orientation
    known = known or declared
    return StreamInfo(
        codec=codec,
        codec_tag=context.codec_tag,
        extradata=extradata,
        width=size[0],
        height=size[1],
        pix_fmt=known.pix_fmt or None,
        color_space=known.color_space,
        color_range=known.color_range,
        color_primaries=known.color_primaries,
        color_transfer=known.color_transfer,
        sample_aspect_ratio=ratio if ratio else None,
        orientation=orientation,
        time_base=stream.time_base,
        stream_index=stream.index,
        reorder_depth=int(context.reorder_depth),
        average_rate=stream.average_rate or None,
        header_frames=stream.frames or None,
        bit_rate=context.bit_rate or None,
        header_duration=stream.duration,
        header_start=stream.start_time,
        bits_per_coded_sample=int(context.bits_per_coded_sample),
        container=container.format.name,
    )


def is_mp4(container: InputContainer) -> bool:
    """Returns whether FFmpeg reads the file as MP4 or MOV."""
    return "mp4" in container.format.name.split(",")


def _colors(*numbers: Any) -> tuple[int, int, int, int]:
    color_range, primaries, transfer, space = (int(number) for number in numbers)
    return color_range, primaries, transfer, space


def _format_in_headers(codec: str, extradata: bytes, declared: ColorFormat) -> ColorFormat | None:
    """Returns the format that the decoder will report, from its headers; None if only a picture tells."""
    if codec == "h264":
        return h264_vui.read_format(extradata, declared)
    if codec == "av1":
        sequence = Av1Classifier(extradata).sequence
        return None if sequence is None else ColorFormat(declared.pix_fmt, *sequence.colors)
    found = hevc_vui.read_format(extradata) if codec == "hevc" else None
    if found is None:
        return None
    colors = (found.color_range, found.color_primaries, found.color_transfer, found.color_space)
    return ColorFormat(declared.pix_fmt, *colors)


def first_picture(media: Media, container: InputContainer, stream: VideoStream) -> VideoFrame | None:
    """Returns the first picture that can be decoded; None if there is none."""
    if not is_mp4(container):  # seeking among many damaged samples would take quadratic time
        with suppress(av.error.FFmpegError):  # raw streams have no times
            container.seek(0, stream=stream)
            return _first_of(container, stream)
    with open_container(media) as fresh:
        return _first_of(fresh, fresh.streams.video[container.streams.video.index(stream)])


def _first_of(container: InputContainer, stream: VideoStream) -> VideoFrame | None:
    with suppress(av.error.FFmpegError):  # damage at the beginning is reported when its frames are requested
        for number, packet in enumerate(container.demux(stream)):
            for frame in packet.decode():
                return frame
            if number > 64:
                break
    return None


def make_context(stream: StreamInfo) -> VideoCodecContext:
    """Returns an unopened decoder with one thread.

    Raises:
        UnsupportedCodec: There is no such decoder.
    """
    name = next((name for name in _DECODERS.get(stream.codec, ()) if name in av.codecs_available), stream.codec)
    try:
        context = av.CodecContext.create(name, "r")
    except (av.error.FFmpegError, ValueError) as error:
        raise UnsupportedCodec(stream.codec, "this build of FFmpeg has no decoder of that name") from error
    assert isinstance(context, VideoCodecContext)
    if stream.extradata:
        context.extradata = stream.extradata
    if stream.codec_tag.strip("\x00"):
        context.codec_tag = stream.codec_tag
    context.width, context.height = stream.width, stream.height
    if stream.bits_per_coded_sample:
        context.bits_per_coded_sample = stream.bits_per_coded_sample
    if stream.pix_fmt is not None:
        context.pix_fmt = stream.pix_fmt
    # A decoder that detects reordering only while it runs drops the pictures that came too early. FFmpeg aborts the
    # process for a depth beyond its limit.
    context.reorder_depth = min(stream.reorder_depth, MAX_REORDER)
    context.thread_count = 1
    context.thread_type = "NONE"
    context.options = {"max_pixels": str(max_pixels())}
    return context


def understood(stream: VideoStream) -> bool:
    """Returns whether the flags of this codec come from its bitstream."""
    codec = stream.codec_context.codec
    return codec.intra_only or make_classifier(codec.canonical_name, b"") is not None


def kinds_from_container(key: NDArray[np.bool_], intra_only: bool) -> NDArray[np.uint16]:
    """Returns flags from the container, for codecs whose bitstream is not parsed; every packet is decoded."""
    if intra_only:
        every = PacketKind.RAP | PacketKind.CLOSED | PacketKind.INTRA | PacketKind.NONREF
        return np.full(len(key), int(every), np.uint16)
    return np.where(key, np.uint16(PacketKind.RAP), np.uint16(0)).astype(np.uint16)
