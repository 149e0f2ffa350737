"""Reads the packets of all other containers with FFmpeg's demuxer, from start to end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from framefeed.errors import InvalidFile
from framefeed.index.bitstream import HEAD, NO_GAPS, Classifier, make_classifier
from framefeed.index.containers.container import (
    Scan,
    check_palette,
    is_mp4,
    kinds_from_container,
    open_container,
    stream_info,
    understood,
)
from framefeed.index.table import RawPackets
from framefeed.media.media import Media, reading
from framefeed.types import NO_PTS, Orientation

_MATROSKA_PROJECTION = b"\x76\x70"  # the element that may rotate pictures

CHUNK = 512  # packets classified at once while demuxing, which bounds the payload in memory


def scan_by_demuxer(container: InputContainer, stream: VideoStream, media: Media) -> Scan:
    """Scans a container by demuxing it from start to end."""
    codec = stream.codec_context.codec.canonical_name
    extradata = bytes(stream.codec_context.extradata or b"")
    classifier = make_classifier(codec, extradata)
    intra_only = stream.codec_context.codec.intra_only
    rows: list[tuple[int, int, int, int, bool, bool]] = []
    kinds: list[NDArray[np.uint16]] = []
    pending: list[Any] = []

    def classify() -> None:
        kinds.append(_classify_packets(classifier, intra_only, pending))
        pending.clear()

    with reading(media) as read, _at_the_start(media, container, stream) as (fresh, fresh_stream):
        locator = _Locator(read)
        for packet in _demux(fresh, fresh_stream, media):
            if packet.size == 0:
                continue
            if classifier is None:  # codecs with a classifier have no palettes
                check_palette(packet, media)
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
    info = stream_info(media, container, stream, Orientation(), may_turn)
    gaps = NO_GAPS if classifier is None else classifier.gaps()
    return Scan(info, raw, np.concatenate(kinds), gaps, byte_ranges=locator.exact, understood=understood(stream))


def _demux(container: InputContainer, stream: VideoStream, media: Media) -> Iterator[av.Packet[VideoStream]]:
    try:
        yield from container.demux(stream)
    except IndexError as error:  # raised by PyAV, which knows only the streams at the beginning
        raise InvalidFile(media.name, "another stream begins in mid-file: damaged, or several files joined") from error


@contextmanager
def _at_the_start(
    media: Media, container: InputContainer, stream: VideoStream
) -> Iterator[tuple[InputContainer, VideoStream]]:
    """Yields a container at its first packet. Some packets of an MP4 were read, and not every format can seek back."""
    if not is_mp4(container):
        yield container, stream
        return
    with open_container(media) as fresh:
        other = fresh.streams[stream.index]
        assert isinstance(other, VideoStream)
        yield fresh, other


class _Locator:
    """Finds packets in the file by comparing their bytes.

    Matroska, AVI, FLV, IVF and raw streams store a packet contiguously, a few bytes after the demuxer's position. If
    that holds for every packet, frames can be read without a demuxer.
    """

    WINDOW = 512

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self._read = read
        self._delta = 0
        self._end = 0
        self.exact = True
        self.found: list[int] = []
        self.claimed: list[int] = []

    def locate(self, claimed: int | None, data: bytes) -> None:
        """Records the position of a packet's data."""
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


def _classify_packets(
    classifier: Classifier | None, intra_only: bool, packets: list[tuple[bytes, bool, bool]]
) -> NDArray[np.uint16]:
    if classifier is None:
        return kinds_from_container(np.array([key for _, key, _ in packets], np.bool_), intra_only)
    heads = np.zeros((len(packets), HEAD), np.uint8)
    for number, (data, _, _) in enumerate(packets):
        heads[number, : min(HEAD, len(data))] = np.frombuffer(data[:HEAD], np.uint8)
    sizes = np.array([len(data) for data, _, _ in packets], np.int64)
    return classifier.classify(heads, sizes, lambda i, offset, length: packets[i][0][offset : offset + length]).kinds
