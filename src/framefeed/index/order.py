"""Presentation order where time stamps do not tell it: by letting a decoder sort the pictures once.

Raw streams and AVI files carry no presentation times, streams cut out of a broadcast begin with pictures that no
decoder can show, and field-coded streams spread a picture over two packets. Other files have times that no decoder can
keep to: decoding times in their place (ASF, MXF), or times that begin again where files were joined. Only a decoder
knows which pictures such a stream shows, and in which order. It is run once, when the file is indexed, with the costly
steps that do not change the order switched off.
"""

from __future__ import annotations

import av
import av.error
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from numpy.typing import NDArray

from framefeed.errors import UnsupportedStream
from framefeed.index.bitstream import PacketKind
from framefeed.index.container import Scan, open_container
from framefeed.media import Media
from framefeed.types import NO_PTS

# Codecs whose pictures come in another order than their packets, and codecs whose do not.
_MPEG = ("mpeg1video", "mpeg2video", "mpeg4")
_REORDERED = ("h264", "hevc", *_MPEG)
_IN_ORDER = ("vp8", "vp9", "av1")

MAX_REORDER = 16  # pictures that a decoder may hold back

_NEW_HEADERS, _CLOSED, _NONREF, _INTRA = (
    np.uint16(kind) for kind in (PacketKind.NEW_HEADERS, PacketKind.CLOSED, PacketKind.NONREF, PacketKind.INTRA)
)

# These stages change pixels, never which pictures come out.
_CHEAP = {"skip_loop_filter": "all", "skip_idct": "all"}


def needs_decoding(scan: Scan, order: NDArray[np.int64] | None) -> bool:
    """Whether the order from the time stamps cannot be trusted to be what a linear decode shows."""
    if order is None or not scan.understood:
        return True
    if scan.stream.container == "avi" and scan.stream.reorder_depth > 0:
        return True  # AVI has decoding times only, and FFmpeg passes them off as presentation times
    codec, kinds = scan.stream.codec, scan.kinds
    if codec in _REORDERED and (kinds[1:] & _NEW_HEADERS).any():
        return True  # a decoder may drop what it holds back
    if not _can_be_shown(scan, order):
        return True
    first = int(kinds[0])
    if codec in _IN_ORDER:
        return not first & PacketKind.RAP
    starts_clean = first & PacketKind.CLOSED or (codec == "hevc" and first & PacketKind.RAP)
    # A stream that starts in the middle: its first pictures may refer to what is not there.
    if codec == "mpeg4" and first & PacketKind.RAP and not order[:1].any():
        return False  # nothing is shown before the first picture; few encoders say that a group is closed
    return codec in _REORDERED and not starts_clean


def _can_be_shown(scan: Scan, order: NDArray[np.int64]) -> bool:
    """Whether a decoder could show pictures in that order; where it is not sure, no."""
    decoded = scan.raw.dts[scan.raw.dts != NO_PTS]
    if (decoded[1:] < decoded[:-1]).any():
        return False  # files that were joined
    codec = scan.stream.codec
    in_decode_order = bool((order[1:] > order[:-1]).all())
    if codec in _IN_ORDER or codec not in _REORDERED:
        return in_decode_order
    ranks = np.full(len(scan.kinds), -1, np.int64)
    ranks[order] = np.arange(len(order))
    shown = np.sort(order)
    ranks, kinds = ranks[shown], scan.kinds[shown]
    latest = np.maximum.accumulate(ranks)
    if (latest - np.arange(len(ranks)) > MAX_REORDER).any():
        return False
    # All that is decoded before a closed group is shown before all that is decoded after it.
    earliest_left = np.minimum.accumulate(ranks[::-1])[::-1]
    if (earliest_left[1:] < latest[:-1])[(kinds[1:] & _CLOSED) != 0].any():
        return False
    droppable = (kinds & _NONREF) != 0
    if codec in _MPEG:  # what others refer to is shown in the order it is decoded in
        references = ranks[~droppable]
        if (references[1:] < references[:-1]).any():
            return False
    # Pictures that nobody refers to are mostly B-frames, which are decoded late. H.264 need not say that there are any.
    may_reorder = scan.stream.reorder_depth > 0 or codec != "hevc"
    return not (in_decode_order and may_reorder and (droppable & ((kinds & _INTRA) == 0)).any())


def order_by_decoding(media: Media, scan: Scan) -> NDArray[np.int64]:
    """Packet numbers in the order in which a linear decode shows their pictures.

    Where nothing is known of the codec's bitstream, the decoder's word on which pictures stand alone replaces the
    container's, which is often wrong: ``scan.kinds`` is corrected in place.

    Raises:
        UnsupportedStream: A packet shows several pictures.
    """
    shown: list[tuple[int, bool]] = []
    with open_container(media) as container:
        stream = container.streams[scan.stream.stream_index]
        assert isinstance(stream, VideoStream)
        context = stream.codec_context
        assert isinstance(context, VideoCodecContext)
        context.thread_type = "NONE"
        context.thread_count = 1
        context.options = dict(_CHEAP)
        number = 0
        for packet in container.demux(stream):
            if packet.size == 0:
                continue
            packet.pts = number
            packet.dts = number
            number += 1
            shown += _decode(context, packet)
        shown += _decode(context, None)
    shown = [(packet, alone) for packet, alone in shown if 0 <= packet < len(scan.raw)]
    order = np.array([packet for packet, _ in shown], np.int64)
    if len(np.unique(order)) != len(order):
        why = "some packets show several pictures, as where a stream begins in mid-group"
        raise UnsupportedStream(media.name, f"{why}; transcode it to read single frames")
    if not scan.understood:
        alone = np.zeros(len(scan.raw), np.bool_)
        alone[[packet for packet, stands_alone in shown if stands_alone]] = True
        scan.kinds[~alone] &= ~np.uint16(PacketKind.RAP | PacketKind.CLOSED)
    return order


def _decode(context: VideoCodecContext, packet: av.Packet[VideoStream] | None) -> list[tuple[int, bool]]:
    try:
        frames = context.decode(packet)
    except av.error.FFmpegError:
        return []  # a damaged packet shows nothing; the ones after it are asked for as usual
    return [(frame.pts, bool(frame.key_frame)) for frame in frames if frame.pts is not None]
