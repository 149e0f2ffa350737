"""Checks of a written file: frames, times, keyframes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framefeed.errors import InvalidFile
from framefeed.index.video_index import VideoIndex
from framefeed.prepare.encoding.picture_format import PictureFormat
from framefeed.prepare.encoding.timeline import OutputTimeline
from framefeed.prepare.encoding.write import EXACT
from framefeed.prepare.options import PrepareOptions

__all__ = ["check_output", "has_groups_of"]

MILLISECOND = 0.00101  # Matroska rounds to milliseconds, and readers may round again


def has_groups_of(index: VideoIndex, gop: int) -> bool:
    """Returns True if exactly every ``gop``-th frame starts a group, and groups are closed and do not interleave."""
    packets = index.packets
    group = np.arange(index.num_frames) // gop
    begins = packets.frames[::gop]
    ends = np.append(begins[1:], len(packets))
    closed = bool((packets.frames < ends[group]).all())  # pictures shown before a keyframe decode before it
    return closed and bool(np.array_equal(packets.start[packets.frames], begins[group]))


def check_output(
    path: Path, name: str, timeline: OutputTimeline, target: PictureFormat, options: PrepareOptions
) -> None:
    """Checks that a written file has the planned frames, times, format and keyframes.

    Args:
        path: The file.
        name: Its name in errors: it may have a temporary name.
        timeline: Expected frames.
        target: Expected picture format.
        options: Expected coding.

    Raises:
        InvalidFile: The file differs.
    """
    index = VideoIndex.scan(path)
    stream = index.stream
    if index.num_frames != len(timeline):
        raise InvalidFile(name, f"was written with {index.num_frames} frames, expected {len(timeline)}")
    found = index.packets.frame_pts
    if options.container in EXACT:
        ratio = timeline.time_base / stream.time_base
        same = ratio.denominator == 1 and np.array_equal(found, timeline.pts * ratio.numerator)
    else:
        seconds = timeline.pts * float(timeline.time_base)
        same = bool((np.abs(found * float(stream.time_base) - seconds) <= MILLISECOND).all())
    if not same:
        raise InvalidFile(name, "was written with wrong frame times")
    if (stream.codec, stream.width, stream.height) != (options.codec, target.width, target.height):
        raise InvalidFile(
            name,
            f"was written as {stream.codec} of {stream.width}x{stream.height}, expected {options.codec} of "
            f"{target.width}x{target.height}",
        )
    if not has_groups_of(index, options.gop):
        raise InvalidFile(name, f"was written without keyframes exactly every {options.gop} frames")
