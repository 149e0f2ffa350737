"""Frames of a stream by decoding it once, when the file is indexed.

A decoder sorts the pictures where time stamps do not tell their order (see `framefeed.index.order`); the costly steps
that do not change the order are switched off.

Where packets are missing, a decoder may drop pictures without a word, and what it shows may depend on all that it was
given before. There the pictures of a linear decode are compared with those that come when decoding begins at their
random-access point, which is how frames are read later.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import av
import av.error
import numpy as np
from av.video.codeccontext import VideoCodecContext
from av.video.stream import VideoStream
from numpy.typing import NDArray

from framefeed.errors import UnsupportedStream
from framefeed.index.bitstream import PacketKind
from framefeed.index.containers.container import MAX_REORDER, Scan, make_context, open_container
from framefeed.index.order import order_of_types
from framefeed.index.table import decode_starts
from framefeed.media.media import Media
from framefeed.media.native import NativeFrame

__all__ = ["decode_once"]

_RAP, _NONREF, _INCOMPLETE, _LOST = (
    np.uint16(kind) for kind in (PacketKind.RAP, PacketKind.NONREF, PacketKind.INCOMPLETE, PacketKind.LOST)
)
_SECOND_FIELD = np.uint16(PacketKind.SECOND_FIELD)
_UNSEEN = np.uint16(PacketKind.HIDDEN | PacketKind.SECOND_FIELD)
_NEVER_SHOWN = np.uint16(PacketKind.RASL | PacketKind.HIDDEN)

# These stages change pixels, never which pictures come out.
_CHEAP = {"skip_loop_filter": "all", "skip_idct": "all"}

# Codecs whose decoder finds out from the first pictures how the encoder ends them, and then what damage is.
_LEARNING = frozenset({"h263", "flv1", "mpeg4"})

# Random-access points in front of a gap and behind it, between which pictures are compared.
_BEFORE, _BEHIND = 2, 3


class _Part(NamedTuple):
    """Packets ``first``..``end - 1``.

    Attributes:
        lacks_references: Whether others among them refer to what is missing.
    """

    first: int
    end: int
    lacks_references: bool = False


class _Decoded(NamedTuple):
    """Output of a decoder for some packets.

    Attributes:
        shown: Packets whose pictures came out, in that order.
        alone: Those of them whose pictures stand alone.
        concealed: Those of them of which the decoder has made up a part.
        refused: Packets that the decoder refused.
        digests: Of the pictures, by packet, where they were asked for.
    """

    shown: list[int]
    alone: list[int]
    concealed: list[int]
    refused: list[int]
    digests: dict[int, int]


def decode_once(media: Media, scan: Scan, order: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Packet numbers in the order in which a linear decode shows their pictures.

    A packet that the decoder refuses keeps its place: numbers do not depend on damage. A picture that a linear decode
    leaves out without refusing it has no number.

    ``scan.kinds`` is corrected in place. Pictures near gaps that cannot be had from their random-access point become
    `PacketKind.LOST`. Where nothing is known of the codec's bitstream, the decoder's word on which pictures stand alone
    replaces the container's, which is often wrong.

    Args:
        media: The video.
        scan: Its packets.
        order: The order by time stamps, if it can be trusted but for gaps; only what is near them is decoded then.

    Raises:
        UnsupportedStream: A packet shows several pictures.
    """
    parts = _parts(scan)
    whole = [_Part(0, len(scan.raw))]
    frames: NDArray[np.int64] | None = None
    if order is not None:
        decoded = _decode(media, scan, parts, with_digests=True)
        frames = _without_unshown(scan, order, decoded, parts)
    if frames is None:
        decoded = _decode(media, scan, whole, with_digests=bool(parts))
        if len(np.unique(decoded.shown)) != len(decoded.shown):
            why = "some packets show several pictures, as where a stream begins in mid-group"
            raise UnsupportedStream(media.name, f"{why}; transcode it to read single frames")
        if not scan.understood:
            scan.kinds[~_marked(scan, decoded.alone)] &= ~np.uint16(PacketKind.RAP | PacketKind.CLOSED)
        frames = _with_refused(scan, decoded)
        if scan.stream.codec in _LEARNING:
            _lose_concealed(scan, frames, decoded.concealed)
    if parts:
        if (scan.kinds & _SECOND_FIELD).any():
            _pair_fields(scan, decoded, parts)
        _compare(media, scan, frames, decoded, parts)
    return frames


def _parts(scan: Scan) -> list[_Part]:
    """Returns the parts of the stream near gaps."""
    starts = ((scan.kinds & _RAP) != 0).nonzero()[0]
    starts = np.unique(np.concatenate([[0], starts, [len(scan.raw)]]))
    parts: list[_Part] = []
    for gap, lacks in zip(scan.gaps.packets.tolist(), scan.gaps.of_references.tolist(), strict=True):
        place = int(starts.searchsorted(gap, side="right")) - 1
        first = int(starts[max(0, place - _BEFORE)])
        end = int(starts[min(len(starts) - 1, place + _BEHIND)])
        if parts and first <= parts[-1].end:
            before = parts.pop()
            first, end, lacks = before.first, max(end, before.end), lacks or before.lacks_references
        parts.append(_Part(first, end, lacks))
    return parts


# --- decoding ---------------------------------------------------------------------------------------------------------


def _packets(media: Media, scan: Scan, parts: Sequence[_Part]) -> Iterator[tuple[int, av.Packet[VideoStream]]]:
    """The packets of these parts, stamped with their numbers."""
    with open_container(media) as container:
        stream = container.streams[scan.stream.stream_index]
        assert isinstance(stream, VideoStream)
        todo = list(reversed(parts))
        number = -1
        for packet in container.demux(stream):
            if packet.size == 0:
                continue
            number += 1
            if number >= todo[-1].end:
                todo.pop()
                if not todo:
                    return
            if number >= todo[-1].first:
                packet.pts = packet.dts = number
                yield number, packet


def _pictures(
    context: VideoCodecContext, packet: av.Packet[VideoStream] | None, refused: list[int]
) -> Iterator[tuple[int, av.VideoFrame]]:
    """The pictures that come out, with their packets; a packet that the decoder refuses shows none."""
    try:
        frames = context.decode(packet)
    except av.error.FFmpegError:
        if packet is not None and packet.pts is not None:
            refused.append(packet.pts)
        return
    for frame in frames:
        if frame.pts is not None:
            yield frame.pts, frame


def _decode(media: Media, scan: Scan, parts: Sequence[_Part], *, with_digests: bool) -> _Decoded:
    """Decodes each part from its beginning to its end."""
    found = _Decoded([], [], [], [], {})
    context: VideoCodecContext | None = None
    firsts = {part.first for part in parts}

    def decode(packet: av.Packet[VideoStream] | None) -> None:
        if context is None:
            return
        for number, frame in _pictures(context, packet, found.refused):
            found.shown.append(number)
            if frame.key_frame:
                found.alone.append(number)
            if frame.is_corrupt:
                found.concealed.append(number)
            if with_digests:
                found.digests[number] = _digest(frame)

    for number, packet in _packets(media, scan, parts):
        if number in firsts:
            decode(None)
            context = make_context(scan.stream)
            context.options = {} if with_digests else dict(_CHEAP)
        decode(packet)
    decode(None)
    return found


def _digest(frame: av.VideoFrame) -> int:
    """A checksum of a picture in the decoder's own format."""
    value = zlib.crc32(f"{frame.format.name} {frame.width}x{frame.height}".encode())
    for plane in NativeFrame.copy_of(frame).planes:
        value = zlib.crc32(plane.data, value)
    return value


def _marked(scan: Scan, packets: Sequence[int] | NDArray[np.int64]) -> NDArray[np.bool_]:
    """For each packet, whether it is one of these."""
    marks = np.zeros(len(scan.raw), np.bool_)
    marks[np.array(packets, np.int64)] = True
    return marks


# --- order ------------------------------------------------------------------------------------------------------------


def _would_show(scan: Scan, packets: Sequence[int]) -> NDArray[np.int64]:
    """Those packets that would show a picture if they were not damaged, rising."""
    found = np.unique(np.array(packets, np.int64))
    found = found[~(scan.raw.discard[found] | ((scan.kinds[found] & _UNSEEN) != 0))]
    # A video that begins in mid-group begins with its first picture that can be decoded.
    return np.setdiff1d(found, np.arange(((scan.kinds & _RAP) != 0).argmax()))


def _without_unshown(
    scan: Scan, order: NDArray[np.int64], decoded: _Decoded, parts: Sequence[_Part]
) -> NDArray[np.int64] | None:
    """The order without pictures that a linear decode leaves out; None where it shows them in another order."""
    judged = _decodable(scan, order, parts)
    shown = np.array([packet for packet in decoded.shown if judged[packet]], np.int64)
    is_shown = _marked(scan, shown)
    if not np.array_equal(order[is_shown[order]], shown):
        return None
    kept = ~judged | is_shown
    kept[_would_show(scan, decoded.refused)] = True
    return order[kept[order]]


def _decodable(scan: Scan, frames: NDArray[np.int64], parts: Sequence[_Part]) -> NDArray[np.bool_]:
    """For each packet, whether it can be decoded within one of the parts."""
    starts = decode_starts(scan.raw, scan.kinds, frames)
    found = np.zeros(len(scan.raw), np.bool_)
    for part in parts:
        found[part.first : part.end] = starts[part.first : part.end] >= part.first
    return found


def _with_refused(scan: Scan, decoded: _Decoded) -> NDArray[np.int64]:
    """The order that the decoder has shown, with the packets that it refused in their places."""
    shown = np.array(decoded.shown, np.int64)
    refused = np.setdiff1d(_would_show(scan, decoded.refused), shown)
    if not len(refused):
        return shown
    every = np.sort(np.concatenate([shown, refused]))
    by_time = every[scan.raw.pts[every].argsort(kind="stable")]
    for guess in (by_time, order_of_types(scan, every), every):
        if np.array_equal(guess[~np.isin(guess, refused)], shown):
            return guess
    return _put_in(scan, shown, refused)


def _put_in(scan: Scan, shown: NDArray[np.int64], refused: NDArray[np.int64]) -> NDArray[np.int64]:
    """Puts refused packets near their places; pictures that may come before or after them are lost."""
    depth = min(max(scan.stream.reorder_depth, 1), MAX_REORDER) + 1
    frames = shown
    for packet in refused.tolist():
        near = (np.abs(frames - packet) <= depth).nonzero()[0]
        if len(near):
            scan.kinds[frames[near[0] : near[-1] + 1]] |= _LOST
        frames = np.insert(frames, int(np.count_nonzero(frames < packet)), packet)
    return frames


def _lose_concealed(scan: Scan, frames: NDArray[np.int64], concealed: Sequence[int]) -> None:
    """Marks pictures that were made up, and those that may be built on them."""
    starts = decode_starts(scan.raw, scan.kinds, frames)
    for packet in concealed:
        scan.kinds[packet:][starts[packet:] == starts[packet]] |= _LOST


def _pair_fields(scan: Scan, decoded: _Decoded, parts: Sequence[_Part]) -> None:
    """Marks what shows no picture as the second field of the packet before, whose headers may not have told it."""
    shown = _marked(scan, decoded.shown)
    seen = shown | _marked(scan, decoded.refused) | ((scan.kinds & (_UNSEEN | _RAP)) != 0)
    for part in parts:
        here = np.arange(part.first + 1, part.end)
        scan.kinds[here[shown[here - 1] & ~seen[here]]] |= _SECOND_FIELD


# --- comparison -------------------------------------------------------------------------------------------------------


def _compare(media: Media, scan: Scan, frames: NDArray[np.int64], decoded: _Decoded, parts: Sequence[_Part]) -> None:
    """Marks pictures that decoding from their random-access point does not give as a linear decode does."""
    members = _decodable(scan, frames, parts)
    digests = _digests_by_group(media, scan, decode_starts(scan.raw, scan.kinds, frames), members, parts)
    good = _marked(scan, [number for number in decoded.shown if digests.get(number) == decoded.digests[number]])
    scan.kinds[members & _marked(scan, frames) & ~good & ~_marked(scan, decoded.refused)] |= _LOST
    shows = ~scan.raw.discard & ((scan.kinds & _UNSEEN) == 0)
    for part in parts:
        here = members & _marked(scan, range(part.first, part.end))
        # A gap that changes nothing is of pictures that nobody refers to.
        if part.lacks_references or (here & shows & ~good).any():
            scan.kinds[here] = (scan.kinds[here] | _INCOMPLETE) & ~_NONREF


def _digests_by_group(
    media: Media, scan: Scan, starts: NDArray[np.int64], members: NDArray[np.bool_], parts: Sequence[_Part]
) -> dict[int, int]:
    """Digests of pictures by packet, each decoded from its random-access point."""
    last_of = {int(starts[packet]): packet for packet in members.nonzero()[0].tolist()}
    skipped = (scan.kinds & _NEVER_SHOWN) == _NEVER_SHOWN
    running: dict[int, VideoCodecContext] = {}
    found: dict[int, int] = {}

    def decode(start: int, packet: av.Packet[VideoStream] | None) -> None:
        for shown, frame in _pictures(running[start], packet, []):
            if starts[shown] == start:
                found[shown] = _digest(frame)

    for number, packet in _packets(media, scan, parts):
        if number in last_of and starts[number] == number:
            running[number] = make_context(scan.stream)
        for start in list(running):
            if starts[number] >= start and not skipped[number]:
                decode(start, packet)
            if number == last_of[start]:
                decode(start, None)
                del running[start]
    return found
