"""The cost that is told before decoding is the number of packets that a plan feeds, on real streams."""

from __future__ import annotations

from pathlib import Path

import pytest

import clips
from framefeed import VideoIndex
from framefeed.plan import plan_frames, random_frame_cost


@pytest.mark.parametrize("name", ["h264_bframes", "h264_paff_ts", "hevc_open_gop", "mpeg2_ts", "vp8_alt_ref"])
def test_random_frame_cost(name: str, clip_folder: Path) -> None:
    table = VideoIndex.scan(clips.make(name, clip_folder)).packets
    planned = [plan_frames(table, [frame]).num_packets for frame in range(table.num_frames)]
    assert random_frame_cost(table).tolist() == planned
