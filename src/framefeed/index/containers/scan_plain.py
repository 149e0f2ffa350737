"""Scans plain MP4 and MOV files from their boxes, without FFmpeg."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from framefeed.index.bitstream import HEAD
from framefeed.index.bitstream.hevc.classifier import HevcClassifier
from framefeed.index.bitstream.hevc.vui import HevcFormat, read_format
from framefeed.index.bitstream.shown_size import has_size
from framefeed.index.containers.container import Scan
from framefeed.index.containers.mp4_plain import PlainTrack, read_plain_track
from framefeed.index.orientation import first_packet_turns
from framefeed.index.table import RawPackets
from framefeed.media.media import Media, read_rows, reading
from framefeed.media.opening import max_pixels
from framefeed.types import Orientation, StreamInfo

_CONTAINER = "mov,mp4,m4a,3gp,3g2,mj2"
_OPENING = 4096  # bytes of the first packet that are searched for SEI messages
_MAX_RATIO = (1 << 31) - 1  # FFmpeg rounds ratios of larger numbers


def scan_plain(media: Media, stream_index: int | None = None) -> Scan | None:
    """Scans a file with unambiguous boxes; returns None for any other."""
    with reading(media) as read:
        track = read_plain_track(read, media.fingerprint[0])
        if track is None or stream_index not in (None, track.stream_index):
            return None
        picture = read_format(track.extradata)
        raw = _packets(track)
        if picture is None or raw is None or not _fits(track, picture):
            return None
        info = _stream_info(track, picture, raw)
        opening = read(int(raw.pos[0]), min(_OPENING, int(raw.size[0])))
        if info is None or first_packet_turns("hevc", track.extradata, opening):
            return None
        if not has_size("hevc", track.extradata, opening, info.width, info.height):
            return None
        heads = read_rows(media, raw.pos, raw.size, HEAD)

        def payload(packet: int, offset: int, length: int) -> bytes:
            if packet == 0 and offset + length <= len(opening):
                return opening[offset : offset + length]
            rest = int(raw.size[packet]) - offset
            return read(int(raw.pos[packet]) + offset, min(length, rest)) if rest > 0 else b""

        classifier = HevcClassifier(track.extradata)
        kinds = classifier.classify(heads, raw.size, payload).kinds
    return Scan(info, raw, kinds, classifier.gaps(), byte_ranges=True, understood=True)


def _fits(track: PlainTrack, picture: HevcFormat) -> bool:
    """Returns whether container and stream agree on the size of pictures."""
    return (track.width, track.height) == (
        picture.width,
        picture.height,
    ) and picture.width * picture.height <= max_pixels()


def _packets(track: PlainTrack) -> RawPackets | None:
    """Returns the packets; None if the edit list leaves some out."""
    samples = track.samples
    shown = samples.dts + samples.offset
    dts = samples.dts
    if track.edit is not None:
        first, length = track.edit
        end = first + length
        if int(shown[0]) != first or int(shown.min()) != first or int(shown.max()) >= end or not samples.key[0]:
            return None
        # FFmpeg stops behind a keyframe that reaches the end of the edit.
        keys = np.flatnonzero(samples.key[:-1])
        if len(keys) and int((shown + samples.duration)[keys].max()) >= end:
            return None
        if first:
            dts, shown = dts - first, shown - first
    return RawPackets(
        pos=samples.pos,
        size=samples.size,
        pts=shown,
        dts=dts,
        duration=samples.duration,
        key=samples.key,
        discard=np.zeros(len(samples), np.bool_),
    )


def _stream_info(track: PlainTrack, picture: HevcFormat, raw: RawPackets) -> StreamInfo | None:
    """Returns the facts that FFmpeg would report; None if it would round."""
    count = len(raw)
    total = int(track.samples.dts[-1] + track.samples.duration[-1])
    rate = Fraction(track.time_scale * count, total)
    if max(rate.numerator, rate.denominator) > _MAX_RATIO:
        return None
    duration = min(track.duration, total)
    bit_rate = int(raw.size.sum()) * 8 * track.time_scale // duration
    return StreamInfo(
        codec="hevc",
        codec_tag=track.codec_tag,
        extradata=track.extradata,
        width=picture.width,
        height=picture.height,
        pix_fmt=picture.pix_fmt,
        color_space=picture.color_space,
        color_range=picture.color_range,
        color_primaries=picture.color_primaries,
        color_transfer=picture.color_transfer,
        sample_aspect_ratio=picture.sample_aspect_ratio if track.aspect is None else Fraction(*track.aspect),
        orientation=Orientation(),
        time_base=Fraction(1, track.time_scale),
        stream_index=track.stream_index,
        reorder_depth=picture.reorder_depth,
        average_rate=rate,
        header_frames=count,
        bit_rate=bit_rate or None,
        header_duration=duration if track.edit is None else min(duration, track.edit[1]),
        header_start=int(raw.pts[0]),
        bits_per_coded_sample=24,
        container=_CONTAINER,
    )
