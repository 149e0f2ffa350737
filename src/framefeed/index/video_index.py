"""``VideoIndex``: the facts and packets of one video, known without decoding."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.errors import InvalidFile
from framefeed.index.bitstream import PacketKind
from framefeed.index.table import PacketTable, build_table, presentation_order
from framefeed.media.media import Fingerprint, Media, open_media
from framefeed.types import StreamInfo, VideoStreamMetadata

__all__ = ["Stored", "VideoIndex"]


@dataclass(frozen=True, eq=False)
class Stored:
    """Location of packets that were copied to a packet store.

    Attributes:
        shard: The file with the packets, at ``packets.pos``.
        checksums: CRC-32 of each packet.
        video: Fingerprint of the original video.
    """

    shard: str
    checksums: NDArray[np.uint32]
    video: Fingerprint


@dataclass(frozen=True, eq=False)
class VideoIndex:
    """The packets and stream facts of one video.

    Attributes:
        path: The file, or a description such as ``<bytes>``.
        fingerprint: Size and modification time of the file when it was indexed. For packets in a store, size and check
            value of their shard.
        stream: Facts about the video stream.
        packets: The packet table.
        byte_ranges: Whether packets are contiguous in the file at ``packets.pos``, so that no demuxer is needed.
        stored: Their location in a packet store; None if they are read from the file.
    """

    path: str
    fingerprint: Fingerprint
    stream: StreamInfo
    packets: PacketTable
    byte_ranges: bool
    stored: Stored | None = None

    @classmethod
    def scan(cls, source: Any, *, stream_index: int | None = None) -> VideoIndex:
        """Indexes a video.

        For MP4 and MOV files, only the few bytes per packet that its flags need are read from the media data; other
        containers are read from start to end. Only streams without usable time stamps are decoded.

        Args:
            source: Path, bytes, uint8 tensor or file-like object.
            stream_index: Index of the stream among all streams of the file; None for the best video stream.

        Raises:
            SourceError: The file cannot be read.
            InvalidFile: The file is not a readable video.
        """
        return cls.scan_media(open_media(source), stream_index=stream_index)

    @classmethod
    def scan_media(cls, media: Media, *, stream_index: int | None = None) -> VideoIndex:
        """Indexes a ``Media``."""
        # Imported here, so that an existing index can be used without loading PyAV.
        from framefeed.index.decode_once import decode_once
        from framefeed.index.order import needs_decoding
        from framefeed.index.scan import scan

        fingerprint = media.fingerprint
        found = scan(media, stream_index)
        frames = presentation_order(found.raw, found.kinds)
        if frames is None or needs_decoding(found, frames):
            frames = decode_once(media, found, None)
        else:
            found.gaps = found.gaps.with_order_breaks(frames)
            if len(found.gaps.packets):
                frames = decode_once(media, found, frames)
        if not len(frames):
            raise InvalidFile(media.name, "shows no frame: damaged, or its only packets are hidden")
        table = build_table(found.raw, found.kinds, frames)
        depth = max(found.stream.reorder_depth, _reorder_depth(frames))
        stream = found.stream
        if depth != stream.reorder_depth:
            stream = dataclasses.replace(stream, reorder_depth=depth)
        return cls(media.name, fingerprint, stream, table, found.byte_ranges)

    def __len__(self) -> int:
        return self.packets.num_frames

    @property
    def num_frames(self) -> int:
        """Number of frames that a linear decode shows, whatever the header claims."""
        return self.packets.num_frames

    @property
    def num_cut_frames(self) -> int:
        """Number of frames whose data lies beyond the end of a truncated file. Reading them raises."""
        if not self.byte_ranges:
            return 0
        packets = self.packets
        ends = packets.pos[packets.frames] + packets.size[packets.frames]
        return int(np.count_nonzero(ends > self.fingerprint[0]))

    @property
    def begin_seconds(self) -> float:
        """Start of the first frame."""
        return float(self.packets.frame_pts[0] * self.stream.time_base)

    @property
    def end_seconds(self) -> float:
        """End of the last frame."""
        return float((self.packets.frame_pts[-1] + self.packets.frame_duration[-1]) * self.stream.time_base)

    @property
    def duration_seconds(self) -> float:
        """Time from the first frame's start to the last one's end."""
        return self.end_seconds - self.begin_seconds

    @property
    def average_fps(self) -> float | None:
        """Frames per second over the whole stream; None for a stream without duration."""
        return self.num_frames / self.duration_seconds if self.duration_seconds > 0 else None

    def pts_seconds(self, frames: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the presentation time of each of the frames."""
        base = self.stream.time_base
        return self.packets.frame_pts[frames] * base.numerator / base.denominator

    def frame_seconds(self, frames: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the display duration of each of the frames."""
        base = self.stream.time_base
        return self.packets.frame_duration[frames] * base.numerator / base.denominator

    def __repr__(self) -> str:
        s = self.stream
        return f"VideoIndex({self.path!r}, {s.codec} {s.width}x{s.height}, {self.num_frames} frames)"

    def nonreference_share(self) -> float:
        """Share of packets that no other packet needs."""
        return float(self.packets.has(PacketKind.NONREF).mean())

    def metadata(self) -> VideoStreamMetadata:
        """The stream's metadata under TorchCodec's names."""
        from framefeed.index import color_names

        s = self.stream
        height, width = s.display_size
        base = s.time_base
        return VideoStreamMetadata(
            duration_seconds_from_header=None if s.header_duration is None else float(s.header_duration * base),
            begin_stream_seconds_from_header=None if s.header_start is None else float(s.header_start * base),
            bit_rate=s.bit_rate,
            codec=s.codec,
            stream_index=s.stream_index,
            duration_seconds=self.duration_seconds,
            begin_stream_seconds=self.begin_seconds,
            begin_stream_seconds_from_content=self.begin_seconds,
            end_stream_seconds_from_content=self.end_seconds,
            width=width,
            height=height,
            num_frames_from_header=s.header_frames,
            num_frames_from_content=self.num_frames,
            average_fps_from_header=None if s.average_rate is None else float(s.average_rate),
            pixel_aspect_ratio=s.sample_aspect_ratio,
            rotation=_rotation(s),
            color_primaries=color_names.PRIMARIES.get(s.color_primaries),
            color_space=color_names.SPACES.get(s.color_space),
            color_transfer_characteristic=color_names.TRANSFERS.get(s.color_transfer),
            pixel_format=s.pix_fmt,
            end_stream_seconds=self.end_seconds,
            num_frames=self.num_frames,
            average_fps=self.average_fps,
        )


def _reorder_depth(frames: NDArray[np.int64]) -> int:
    """Returns the number of pictures that a decoder holds back for reordering."""
    shown = np.zeros(int(frames.max()) + 1, np.int64)
    shown[frames] = 1
    decoded = shown.cumsum()[frames]
    return int((decoded - np.arange(1, len(frames) + 1)).max())


def _rotation(stream: StreamInfo) -> float | None:
    """Returns counter-clockwise degrees in (-180, 180], None for an upright picture, as TorchCodec does."""
    turns = stream.orientation.quarter_turns
    return {0: None, 1: 90.0, 2: 180.0, 3: -90.0}[turns]
