"""Decides whether time stamps give the presentation order.

Raw streams and AVI files have no presentation times, streams cut from a broadcast begin with pictures that cannot be
decoded, and field-coded streams spread a picture over two packets. Other files have times that no decoder can follow:
decoding times instead (ASF, MXF), or times that restart where files were joined. Only a decoder knows which pictures
such a stream shows, and in which order. `framefeed.index.bitstream.Gaps` has the times that contradict the numbers in
headers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream import PacketKind, has_known_faults
from framefeed.index.containers.container import MAX_REORDER, Scan
from framefeed.types import NO_PTS

__all__ = ["needs_decoding", "order_of_types"]

# Codecs that reorder pictures, and codecs that do not.
_MPEG = ("mpeg1video", "mpeg2video", "mpeg4")
_REORDERED = ("h264", "hevc", *_MPEG)
_IN_ORDER = ("vp8", "vp9", "av1")

_NEW_HEADERS, _CLOSED, _NONREF, _INTRA = (
    np.uint16(kind) for kind in (PacketKind.NEW_HEADERS, PacketKind.CLOSED, PacketKind.NONREF, PacketKind.INTRA)
)


def needs_decoding(scan: Scan, order: NDArray[np.int64] | None) -> bool:
    """Returns whether the order by time stamps may differ from that of a linear decode."""
    if order is None or not scan.understood:
        return True
    if scan.stream.container == "avi" and scan.stream.reorder_depth > 0:
        return True  # AVI has decoding times only, which FFmpeg reports as presentation times
    codec, kinds = scan.stream.codec, scan.kinds
    if codec == "mpeg4" and has_known_faults(scan.stream.extradata):
        return True  # the decoder's view of damage depends on the end of its first pictures
    if codec in _REORDERED and (kinds[1:] & _NEW_HEADERS).any():
        return True  # a decoder may drop pictures that it holds back
    if not _can_be_shown(scan, order):
        return True
    first = int(kinds[0])
    if codec in _IN_ORDER:
        return not first & PacketKind.RAP
    starts_clean = first & PacketKind.CLOSED or (codec == "hevc" and first & PacketKind.RAP)
    # A stream that starts in mid-GOP: its first pictures may refer to missing ones.
    if codec == "mpeg4" and first & PacketKind.RAP and not order[:1].any():
        return False  # nothing is shown before the first picture; few encoders mark closed GOPs
    return codec in _REORDERED and not starts_clean


def _can_be_shown(scan: Scan, order: NDArray[np.int64]) -> bool:
    """Returns whether a decoder can certainly show pictures in that order."""
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
    # All pictures decoded before a closed GOP are shown before all that are decoded after it.
    earliest_left = np.minimum.accumulate(ranks[::-1])[::-1]
    if (earliest_left[1:] < latest[:-1])[(kinds[1:] & _CLOSED) != 0].any():
        return False
    droppable = (kinds & _NONREF) != 0
    if codec in _MPEG and not np.array_equal(order_of_types(scan, shown), order):
        return False
    # Non-reference pictures are mostly B-frames, which are decoded late. H.264 need not mark them.
    may_reorder = scan.stream.reorder_depth > 0 or codec != "hevc"
    return not (in_decode_order and may_reorder and (droppable & ((kinds & _INTRA) == 0)).any())


def order_of_types(scan: Scan, packets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the order in which decoders of MPEG-1, -2 and -4 show pictures: B-frames at once, others when the next
    one comes.

    Args:
        scan: The stream.
        packets: Packets with pictures, rising.
    """
    places = np.arange(1, len(packets) + 1)
    waits = (scan.kinds[packets] & _NONREF) == 0
    # Each one comes before the next waiting picture, behind the B-frames in between.
    places[waits] = np.append(places[waits][1:], len(packets) + 1)
    return packets[np.lexsort((waits, places - waits))]
