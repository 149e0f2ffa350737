"""A file -> its stream facts and raw packets. Demuxes; decodes nothing but, where a container hides it, one picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import av
import av.error
import av.logging
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from framefeed.errors import InvalidFile, NoVideoStream, UnsupportedCodec
from framefeed.ffmpeg_log import quiet
from framefeed.index import mp4
from framefeed.index.bitstream import HEAD, Classifier, PacketKind, make_classifier
from framefeed.index.bitstream.h264_look import Look, read_look
from framefeed.index.orientation import from_frame, from_matrix, mentions_orientation
from framefeed.index.table import RawPackets
from framefeed.media import Media, PathMedia, read_rows, source_error
from framefeed.types import NO_PTS, Orientation, StreamInfo

# A box or header that claims more pixels than this is damage: no decoder here could hold a handful of such pictures.
MAX_PIXELS = 1 << 28

# Which packets of an MP4's sample table are compared with the demuxer's before the table is believed.
CHECKED_PACKETS = 4

_MATROSKA_PROJECTION = b"\x76\x70"  # the element that may say that pictures are turned

CHUNK = 512  # packets classified at once while demuxing; bounds how much payload is held

Payload = Callable[[int, int, int], bytes]

quiet()


class Scan:
    """The result of a scan, still without a frame order."""

    def __init__(
        self, stream: StreamInfo, raw: RawPackets, kinds: NDArray[np.uint16], *, byte_ranges: bool, understood: bool
    ) -> None:
        self.stream = stream
        self.raw = raw
        self.kinds = kinds
        self.byte_ranges = byte_ranges
        self.understood = understood  # whether the flags come from the bitstream and not from the container


# FFmpeg decodes a picture or two of an H.264 stream when it opens a file, for facts that we read from its headers.
# It reads no further than this for them.
_WITHOUT_DECODING = {"skip_frame": "all", "threads": "1", "probesize": "2048"}


@contextmanager
def open_container(media: Media, options: dict[str, str] | None = None) -> Iterator[InputContainer]:
    """Opens a container; whatever goes wrong becomes a framefeed error that names the file."""
    if isinstance(media, PathMedia):
        size = media.fingerprint[0]  # raises for what is missing or no file, before FFmpeg words it worse
        if size == 0:
            raise InvalidFile(media.name, "empty file (0 bytes)")
    try:
        with av.open(media.for_demuxer(), "r", options=options, metadata_errors="replace") as container:
            yield container
    except av.error.FFmpegError as error:
        raise _av_error(media, error) from error
    except (MemoryError, OverflowError) as error:
        raise InvalidFile(media.name, f"its headers are damaged ({error or type(error).__name__})") from error


def _av_error(media: Media, error: av.error.FFmpegError) -> Exception:
    if isinstance(error, av.error.FileNotFoundError | av.error.PermissionError | av.error.IsADirectoryError):
        return source_error(media.name, error)
    return InvalidFile(media.name, f"not a video file that can be read, or a damaged one ({error.strerror or error})")


def scan(media: Media, stream_index: int | None = None) -> Scan:
    """Reads the packet list of a video stream.

    Args:
        media: The video.
        stream_index: Place among all streams of the file; None takes the one FFmpeg calls the best.
    """
    if _looks_like_mp4(media):
        with open_container(media, _WITHOUT_DECODING) as container:
            stream = _choose(container, media, stream_index)
            found = _scan_mp4(container, stream, media) if _is_mp4(container) else None
            if found is not None and found.stream.pix_fmt is not None:
                return found
    with open_container(media) as container:
        stream = _choose(container, media, stream_index)
        found = _scan_mp4(container, stream, media) if _is_mp4(container) else None
        return found or _scan_by_demuxer(container, stream, media)


def _looks_like_mp4(media: Media) -> bool:
    return media.read(4, 4) in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")


def _is_mp4(container: InputContainer) -> bool:
    return "mp4" in container.format.name.split(",")


def _choose(container: InputContainer, media: Media, stream_index: int | None) -> VideoStream:
    if stream_index is None:
        best = container.streams.best("video")
        if best is None:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "none"
            raise NoVideoStream(media.name, f"has no video stream (its streams: {kinds})")
        stream: Any = best
    else:
        videos = [stream.index for stream in container.streams.video]
        if stream_index not in videos:
            raise NoVideoStream(media.name, f"stream {stream_index} is no video stream; video streams: {videos}")
        stream = container.streams[stream_index]
    context = stream.codec_context
    if context is None or not context.codec.is_decoder:
        raise UnsupportedCodec(media.name, "FFmpeg here has no decoder for its video stream")
    if context.width <= 0 or context.height <= 0:
        raise InvalidFile(media.name, "its video stream has no picture size: damaged or without a decodable frame")
    if context.width * context.height > MAX_PIXELS:
        raise InvalidFile(media.name, f"claims pictures of {context.width}x{context.height} pixels: damaged")
    assert isinstance(stream, VideoStream)
    return stream


def _stream_info(container: InputContainer, stream: VideoStream, orientation: Orientation) -> StreamInfo:
    context = stream.codec_context
    ratio = stream.sample_aspect_ratio
    assert stream.time_base is not None
    codec, extradata = context.codec.canonical_name, bytes(context.extradata or b"")
    look = read_look(extradata) if context.pix_fmt is None and codec == "h264" else None
    if look is None:
        colors = (context.color_range, context.color_primaries, context.color_trc, context.colorspace)
        look = Look(context.pix_fmt or "", *(int(value) for value in colors))
    return StreamInfo(
        codec=codec,
        codec_tag=context.codec_tag,
        extradata=extradata,
        width=context.width,
        height=context.height,
        pix_fmt=look.pix_fmt or None,
        color_space=look.color_space,
        color_range=look.color_range,
        color_primaries=look.color_primaries,
        color_transfer=look.color_transfer,
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


# --- MP4 and MOV: from the sample tables -------------------------------------------------------------------------


def _scan_mp4(container: InputContainer, stream: VideoStream, media: Media) -> Scan | None:
    """The scan of an MP4 or MOV file without reading its media data; None where its tables are not trusted."""
    size = media.fingerprint[0]
    read = _reader(media)
    try:
        track = mp4.read_track(read, size, stream.id)
    except (mp4.BoxError, ValueError, IndexError):
        return None
    if track is None:
        return None
    raw = _fragment_packets(track) if track.fragmented else _indexed_packets(stream, track)
    if raw is None or not len(raw) or not _agrees_with_demuxer(container, stream, raw):
        return None
    # A file that is cut in mid-data keeps all its frames: the ones that are there can be read, the others raise.
    if int(raw.pos[0] + raw.size[0]) > size:
        raise InvalidFile(media.name, "its media data is missing: the file is cut off")
    codec = stream.codec_context.codec.canonical_name
    extradata = bytes(stream.codec_context.extradata or b"")

    def payload(packet: int, offset: int, length: int) -> bytes:
        rest = int(raw.size[packet]) - offset
        return read(int(raw.pos[packet]) + offset, min(length, rest)) if rest > 0 else b""

    kinds = _classify_all(codec, extradata, raw, payload, stream, media)
    orientation = from_matrix(track.matrix)
    if not orientation and _first_packet_turns(codec, extradata, payload(0, 0, 4096)):
        orientation = _orientation_by_decoding(container, stream)
    info = _stream_info(container, stream, orientation)
    return Scan(info, raw, kinds, byte_ranges=True, understood=_understood(stream))


def _first_packet_turns(codec: str, extradata: bytes, head: bytes) -> bool:
    """Whether the stream itself, not its container, may say that pictures are to be turned."""
    place = {"h264": 4, "hevc": 21}.get(codec)
    if place is None or len(extradata) <= place or extradata[0] != 1:
        return False
    return mentions_orientation(head, codec, (extradata[place] & 3) + 1)


def _reader(media: Media) -> mp4.Read:
    if isinstance(media, PathMedia):
        fingerprint = media.fingerprint
        return lambda offset, length: media.read(offset, length, fingerprint)
    return media.read


def _indexed_packets(stream: VideoStream, track: mp4.Track) -> RawPackets | None:
    """FFmpeg's index, which knows what edit lists do, joined with the presentation offsets by byte position."""
    entries = stream.index_entries
    rows = np.array([(e.pos, e.size, e.timestamp, e.flags) for e in entries], np.int64).reshape(-1, 4)
    samples = track.samples
    if not len(rows) or not len(samples):
        return None
    pos, size, dts, flags = rows.T
    by_pos = np.argsort(samples.pos, kind="stable")
    found = np.minimum(np.searchsorted(samples.pos[by_pos], pos), len(by_pos) - 1)
    sample = by_pos[found]
    if not (samples.pos[sample] == pos).all() or not (samples.size[sample] == size).all():
        return None
    offset = samples.offset[sample]
    # FFmpeg shifts decoding times down so that no offset is negative; the largest shift is what it adds back.
    shift = max(0, -int(samples.offset.min()))
    return RawPackets(
        pos=np.ascontiguousarray(pos),
        size=np.ascontiguousarray(size),
        pts=dts + offset + shift,
        dts=np.ascontiguousarray(dts),
        duration=samples.duration[sample],
        key=(flags & 1) != 0,
        discard=(flags & 2) != 0,
    )


def _fragment_packets(track: mp4.Track) -> RawPackets:
    samples = track.samples
    shift = max(0, -int(samples.offset.min())) if len(samples) else 0
    return RawPackets(
        pos=samples.pos,
        size=samples.size,
        pts=samples.dts + samples.offset,
        dts=samples.dts - shift,
        duration=samples.duration,
        key=samples.key,
        discard=np.zeros(len(samples), np.bool_),
    )


def _agrees_with_demuxer(container: InputContainer, stream: VideoStream, raw: RawPackets) -> bool:
    """Compares the first packets with what FFmpeg demuxes; moves all times by the constant that edit lists add."""
    first: list[tuple[int, int, int | None, int | None]] = []
    for packet in container.demux(stream):
        if packet.size == 0 or packet.pos is None:
            break
        first.append((packet.pos, packet.size, packet.pts, packet.dts))
        if len(first) == min(CHECKED_PACKETS, len(raw)):
            break
    if not first or first[0][2] is None:
        return False
    shift = first[0][2] - int(raw.pts[0])
    dts_shift = (first[0][3] if first[0][3] is not None else first[0][2]) - int(raw.dts[0])
    raw.pts = raw.pts + shift
    raw.dts = raw.dts + dts_shift
    ours = zip(raw.pos.tolist(), raw.size.tolist(), raw.pts.tolist(), raw.dts.tolist(), strict=True)
    return all(theirs == mine for theirs, mine in zip(first, ours, strict=False))


# --- every other container: from the demuxer ---------------------------------------------------------------------


def _scan_by_demuxer(container: InputContainer, stream: VideoStream, media: Media) -> Scan:
    codec = stream.codec_context.codec.canonical_name
    extradata = bytes(stream.codec_context.extradata or b"")
    classifier = make_classifier(codec, extradata)
    intra_only = stream.codec_context.codec.intra_only
    locator = _Locator(media)
    rows: list[tuple[int, int, int, int, bool, bool]] = []
    kinds: list[NDArray[np.uint16]] = []
    pending: list[Any] = []

    def classify() -> None:
        kinds.append(_classify_packets(classifier, intra_only, pending))
        pending.clear()

    with _at_the_start(media, container, stream) as (fresh, fresh_stream):
        for packet in fresh.demux(fresh_stream):
            if packet.size == 0:
                continue
            data = bytes(packet)
            locator.locate(packet.pos, data)
            rows.append(
                (
                    len(data),
                    NO_PTS if packet.pts is None else packet.pts,
                    NO_PTS if packet.dts is None else packet.dts,
                    packet.duration or 0,
                    bool(packet.is_keyframe),
                    bool(packet.is_discard),
                )
            )
            pending.append((data, bool(packet.is_keyframe), bool(packet.is_disposable)))
            if len(pending) == CHUNK:
                classify()
    classify()
    if not rows:
        raise InvalidFile(media.name, "its video stream has no packets")
    sizes, pts, dts, durations, keys, discards = (np.array(column) for column in zip(*rows, strict=True))
    raw = RawPackets(
        pos=np.array(locator.found if locator.exact else locator.claimed, np.int64),
        size=sizes.astype(np.int64),
        pts=pts.astype(np.int64),
        dts=dts.astype(np.int64),
        duration=durations.astype(np.int64),
        key=keys.astype(np.bool_),
        discard=discards.astype(np.bool_),
    )
    may_turn = codec in ("h264", "hevc") or _MATROSKA_PROJECTION in media.read(0, 1 << 16)
    orientation = _orientation_by_decoding(container, stream) if may_turn else Orientation()
    info = _stream_info(container, stream, orientation)
    return Scan(info, raw, np.concatenate(kinds), byte_ranges=locator.exact, understood=_understood(stream))


@contextmanager
def _at_the_start(
    media: Media, container: InputContainer, stream: VideoStream
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """A container at its first packet: an MP4's may have been read from, and not every format can seek back."""
    if not _is_mp4(container):
        yield container, stream
        return
    with open_container(media) as fresh:
        other = fresh.streams[stream.index]
        assert isinstance(other, VideoStream)
        yield fresh, other


class _Locator:
    """Finds out whether packets lie in the file in one piece, by comparing their bytes with the file's.

    Matroska, AVI, FLV, IVF and raw streams store a packet's bytes as they are, a few bytes after where the demuxer
    says the packet is. When that holds for every packet, frames can be read without a demuxer.
    """

    WINDOW = 512

    def __init__(self, media: Media) -> None:
        self._read = _reader(media)
        self._delta = 0
        self._end = 0
        self.exact = True
        self.found: list[int] = []
        self.claimed: list[int] = []

    def locate(self, claimed: int | None, data: bytes) -> None:
        """Notes where a packet's data starts."""
        self.claimed.append(-1 if claimed is None else claimed)
        position = self._find(claimed, data) if self.exact else None
        if position is None:
            self.exact = False
            return
        self.found.append(position)
        self._end = position + len(data)

    def _find(self, claimed: int | None, data: bytes) -> int | None:
        if claimed is not None and claimed >= 0:
            if self._read(claimed + self._delta, len(data)) == data:
                return claimed + self._delta
            window = self._read(claimed, self.WINDOW + len(data))
            offset = window.find(data, 0, self.WINDOW + len(data))
            if offset >= 0:
                self._delta = offset
                return claimed + offset
        if self._read(self._end, len(data)) == data:
            return self._end
        return None


def _orientation_by_decoding(container: InputContainer, stream: VideoStream) -> Orientation:
    """The display matrix is only told on a decoded frame where the container is no MP4."""
    try:
        container.seek(0, stream=stream)
        for number, packet in enumerate(container.demux(stream)):
            for frame in packet.decode():
                return from_frame(frame)
            if number > 64:
                break
    except av.error.FFmpegError:
        pass  # a damaged beginning is reported when its frames are asked for
    return Orientation()


def _understood(stream: VideoStream) -> bool:
    codec = stream.codec_context.codec
    return codec.intra_only or make_classifier(codec.canonical_name, b"") is not None


# --- flags from the bitstream ------------------------------------------------------------------------------------


def _classify_all(
    codec: str, extradata: bytes, raw: RawPackets, payload: Payload, stream: VideoStream, media: Media
) -> NDArray[np.uint16]:
    classifier = make_classifier(codec, extradata)
    if classifier is None:
        return _kinds_from_container(raw.key, stream.codec_context.codec.intra_only)
    heads = read_rows(media, raw.pos, raw.size, HEAD)
    return classifier.classify(heads, raw.size, payload).kinds


def _kinds_from_container(key: NDArray[np.bool_], intra_only: bool) -> NDArray[np.uint16]:
    """For codecs whose bitstream is not looked into: the container's word, and nothing is left out."""
    if intra_only:
        every = PacketKind.RAP | PacketKind.CLOSED | PacketKind.INTRA | PacketKind.NONREF
        return np.full(len(key), int(every), np.uint16)
    return np.where(key, np.uint16(PacketKind.RAP), np.uint16(0)).astype(np.uint16)


def _classify_packets(
    classifier: Classifier | None, intra_only: bool, packets: list[tuple[bytes, bool, bool]]
) -> NDArray[np.uint16]:
    if classifier is None:
        return _kinds_from_container(np.array([key for _, key, _ in packets], np.bool_), intra_only)
    heads = np.zeros((len(packets), HEAD), np.uint8)
    for number, (data, _, _) in enumerate(packets):
        heads[number, : min(HEAD, len(data))] = np.frombuffer(data[:HEAD], np.uint8)
    sizes = np.array([len(data) for data, _, _ in packets], np.int64)
    return classifier.classify(heads, sizes, lambda i, offset, length: packets[i][0][offset : offset + length]).kinds
