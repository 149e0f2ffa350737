"""Scans MP4 and MOV files from their sample tables, without reading the media data."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import attrgetter

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from framefeed.errors import InvalidFile
from framefeed.index.bitstream import HEAD, NO_GAPS, Gaps, make_classifier
from framefeed.index.bitstream.shown_size import has_size
from framefeed.index.containers import mp4
from framefeed.index.containers.container import (
    Scan,
    check_palette,
    kinds_from_container,
    stream_info,
    understood,
)
from framefeed.index.orientation import first_packet_turns, from_matrix
from framefeed.index.table import RawPackets
from framefeed.media.media import Media, read_rows, reading

# Packets of the sample table to compare with the demuxer before trusting it.
CHECKED_PACKETS = 4

# Codecs that FFmpeg parses after demuxing, which puts the mark of a hidden packet on the packet before it.
_SHIFTED = ("mpeg1video", "mpeg2video")

_ENTRY = attrgetter("pos", "size", "timestamp", "flags")

Payload = Callable[[int, int, int], bytes]


def scan_mp4(container: InputContainer, stream: VideoStream, media: Media) -> Scan | None:
    """Scans an MP4 or MOV file without reading its media data; returns None if its tables are not trusted."""
    with reading(media) as read:
        return _scan(container, stream, media, read)


def _scan(container: InputContainer, stream: VideoStream, media: Media, read: mp4.Read) -> Scan | None:
    size = media.fingerprint[0]
    try:
        track = mp4.read_track(read, size, stream.id)
    except (mp4.BoxError, ValueError, IndexError):
        return None
    if track is None:
        return None
    raw = _fragment_packets(track) if track.fragmented else _indexed_packets(stream, track)
    if raw is None or not len(raw) or not _agrees_with_demuxer(container, stream, raw, media):
        return None
    # A truncated file keeps all its frames: those in the file can be read, the others raise.
    if int(raw.pos[0] + raw.size[0]) > size:
        raise InvalidFile(media.name, "its media data is missing: the file is truncated")
    codec = stream.codec_context.codec.canonical_name
    if codec in _SHIFTED and raw.discard.any():
        return None
    extradata = bytes(stream.codec_context.extradata or b"")

    def payload(packet: int, offset: int, length: int) -> bytes:
        rest = int(raw.size[packet]) - offset
        return read(int(raw.pos[packet]) + offset, min(length, rest)) if rest > 0 else b""

    kinds, gaps = _classify_all(codec, extradata, raw, payload, stream, media)
    orientation = from_matrix(track.matrix)
    opening, context = payload(0, 0, 4096), stream.codec_context
    may_turn = not orientation and first_packet_turns(codec, extradata, opening)
    doubtful = not has_size(codec, extradata, opening, context.width, context.height)
    info = stream_info(media, container, stream, orientation, may_turn, look_at_size=doubtful)
    return Scan(info, raw, kinds, gaps, byte_ranges=True, understood=understood(stream))


def _indexed_packets(stream: VideoStream, track: mp4.Track) -> RawPackets | None:
    """Joins FFmpeg's index, which has edit lists applied, with the presentation offsets by byte position."""
    entries = stream.index_entries
    rows = np.fromiter(chain.from_iterable(map(_ENTRY, entries)), np.int64, 4 * len(entries)).reshape(-1, 4)
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
    # FFmpeg shifts decoding times down to make all offsets non-negative; adding the largest shift undoes it.
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


def _agrees_with_demuxer(container: InputContainer, stream: VideoStream, raw: RawPackets, media: Media) -> bool:
    """Compares the first packets with FFmpeg's demuxer; shifts all times by the constant that edit lists add."""
    first: list[tuple[int, int, int | None, int | None]] = []
    for packet in container.demux(stream):
        if packet.size == 0 or packet.pos is None:
            break
        check_palette(packet, media)
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


def _classify_all(
    codec: str, extradata: bytes, raw: RawPackets, payload: Payload, stream: VideoStream, media: Media
) -> tuple[NDArray[np.uint16], Gaps]:
    """Returns the flags of all packets, and the gaps between them."""
    classifier = make_classifier(codec, extradata)
    if classifier is None:
        return kinds_from_container(raw.key, stream.codec_context.codec.intra_only), NO_GAPS
    heads = read_rows(media, raw.pos, raw.size, HEAD)
    return classifier.classify(heads, raw.size, payload).kinds, classifier.gaps()
