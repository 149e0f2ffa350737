"""Presentation order where time stamps do not tell it: by letting a decoder sort the pictures once.

Raw streams and AVI files carry no presentation times, streams cut out of a broadcast begin with pictures that no
decoder can show, and field-coded streams spread a picture over two packets. Only a decoder knows which pictures such a
stream shows, and in which order. It is run once, when the file is indexed, with the costly steps that do not change
the order switched off.
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

# These stages change pixels, never which pictures come out.
_CHEAP = {"skip_loop_filter": "all", "skip_idct": "all"}


def needs_decoding(scan: Scan, order: NDArray[np.int64] | None) -> bool:
    """Whether the order from the time stamps cannot be trusted to be what a linear decode shows."""
    if order is None or not scan.understood:
        return True
    if scan.stream.container == "avi" and scan.stream.reorder_depth > 0:
        return True  # AVI has decoding times only, and FFmpeg passes them off as presentation times
    first = int(scan.kinds[0])
    starts_clean = first & PacketKind.CLOSED or (scan.stream.codec == "hevc" and first & PacketKind.RAP)
    # A stream that starts in the middle: its first pictures may refer to what is not there.
    return (
        scan.stream.codec in ("h264", "hevc", "mpeg1video", "mpeg2video", "mpeg4")
        and not starts_clean
        and (scan.stream.codec != "mpeg4" or not first & PacketKind.RAP)
    )


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
        raise UnsupportedStream(media.name, "some packets show several pictures; transcode it to read single frames")
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
