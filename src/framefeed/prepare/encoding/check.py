"""Looks at a file that was written as any reader would: are these the frames, times and keyframes that were meant?"""

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

MILLISECOND = 0.00101  # Matroska rounds to whole ones, and so may whoever reads it


def has_groups_of(index: VideoIndex, gop: int) -> bool:
    """Whether every ``gop``-th frame begins a group, no other does, and no frame lies among those of another group."""
    packets = index.packets
    group = np.arange(index.num_frames) // gop
    begins = packets.frames[::gop]
    ends = np.append(begins[1:], len(packets))
    closed = bool((packets.frames < ends[group]).all())  # pictures shown before a keyframe are decoded before it
    return closed and bool(np.array_equal(packets.start[packets.frames], begins[group]))


def check_output(
    path: Path, name: str, timeline: OutputTimeline, target: PictureFormat, options: PrepareOptions
) -> None:
    """Raises where a file is not what was meant.

    Args:
        path: The file.
        name: What to call it: it may have another name for the time being.
        timeline: The frames that it should have.
        target: What they should look like.
        options: How they should be coded.

    Raises:
        InvalidFile: So it is.
    """
    index = VideoIndex.scan(path)
    stream = index.stream
    if index.num_frames != len(timeline):
        raise InvalidFile(name, f"was written with {index.num_frames} frames in place of {len(timeline)}")
    found = index.packets.frame_pts
    if options.container in EXACT:
        ratio = timeline.time_base / stream.time_base
        same = ratio.denominator == 1 and np.array_equal(found, timeline.pts * ratio.numerator)
    else:
        seconds = timeline.pts * float(timeline.time_base)
        same = bool((np.abs(found * float(stream.time_base) - seconds) <= MILLISECOND).all())
    if not same:
        raise InvalidFile(name, "was written with other times than its frames have")
    if (stream.codec, stream.width, stream.height) != (options.codec, target.width, target.height):
        raise InvalidFile(
            name,
            f"was written as {stream.codec} of {stream.width}x{stream.height}, not {options.codec} of "
            f"{target.width}x{target.height}",
        )
    if not has_groups_of(index, options.gop):
        raise InvalidFile(name, f"was written with keyframes at other places than every {options.gop} frames")
