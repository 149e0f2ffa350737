"""Remuxing: copies the packets of videos that already meet the options, bit for bit, into a new container."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from framefeed.index.bitstream import PacketKind
from framefeed.index.containers.container import open_container
from framefeed.index.table import DISCARD
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import PathMedia
from framefeed.prepare.encoding.audio import AudioCopy
from framefeed.prepare.encoding.check import has_groups_of
from framefeed.prepare.encoding.picture_format import PictureFormat, plain_name
from framefeed.prepare.encoding.timeline import OutputTimeline
from framefeed.prepare.encoding.write import Progress, copy_packets
from framefeed.prepare.options import PrepareOptions
from framefeed.source import media_of, open_source

__all__ = ["can_be_kept", "remux"]

_ODD = int(PacketKind.HIDDEN | PacketKind.SECOND_FIELD | PacketKind.MULTIPLE) | DISCARD


def can_be_kept(index: VideoIndex, target: PictureFormat, options: PrepareOptions) -> bool:
    """Returns True if a video already has everything that is requested, except for its container.

    Quality is not compared: files do not store it.
    """
    stream, packets = index.stream, index.packets
    return (
        options.fps is None
        and not options.force
        and index.stored is None
        and stream.codec == options.codec
        and (stream.width, stream.height) == (target.width, target.height)
        and not stream.orientation
        and plain_name(stream.pix_fmt or "") == target.pix_fmt
        and (options.b_frames > 0 or stream.reorder_depth == 0)
        # One packet is one frame, and all are shown: nothing unused is copied.
        and len(packets) == index.num_frames
        and not packets.has(_ODD).any()
        and has_groups_of(index, options.gop)
    )


def remux(
    path: Path,
    index: VideoIndex,
    timeline: OutputTimeline,
    options: PrepareOptions,
    *,
    audio: AudioCopy | None = None,
    progress: Progress = lambda frames: None,
) -> None:
    """Writes the packets of a video that can be kept.

    Raises:
        WriteFailed: The file cannot be written.
    """
    with open_container(PathMedia(index.path)) as container:
        template = container.streams[index.stream.stream_index]
        copy_packets(
            path,
            _packets(index),
            timeline,
            template,
            options,
            reorder_depth=index.stream.reorder_depth,
            audio=audio,
            progress=progress,
        )


def _packets(index: VideoIndex) -> Iterator[tuple[bytes | memoryview, bool, int]]:
    table = index.packets
    frame_of = np.empty(len(table), np.int64)
    frame_of[table.frames] = np.arange(index.num_frames)
    for number, data in open_source(index, media_of(index)).read(np.arange(len(table))):
        yield data, bool(table.start[number] == number), int(frame_of[number])
