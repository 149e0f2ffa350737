"""Frames whose time stamps are damaged, in files of which everything else is whole."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import av
import pytest

from clips.base import read_packets, remux
from framefeed import VideoIndex
from framefeed.index.scan import scan
from framefeed.media.media import open_media
from framefeed.testing import samples
from random_damage import check, linear_truth

_X264 = {"codec": "libx264", "options": {"x264-params": "bframes=2:b-adapt=0:scenecut=0"}}
_IN_ORDER = {"codec": "libx264", "options": {"x264-params": "bframes=0:scenecut=0"}}
_X265 = {"codec": "libx265", "options": {"x265-params": "bframes=3:b-adapt=0:scenecut=0:log-level=none"}}


def _with_exchanged_times(packets: list[av.Packet[Any]], rng: random.Random) -> bool:
    """Gives two packets each other's time stamp, where a container can still write them."""
    for _ in range(100):
        first = rng.randrange(len(packets))
        second = min(len(packets) - 1, first + rng.randrange(1, 8))
        one, two = packets[first], packets[second]
        assert one.pts is not None and two.pts is not None and one.dts is not None and two.dts is not None
        if first != second and min(one.pts, two.pts) >= max(one.dts, two.dts):
            one.pts, two.pts = two.pts, one.pts
            return True
    return False


@pytest.mark.parametrize("suffix", [".ts", ".mkv", ".mp4"])
@pytest.mark.parametrize("settings", [_X264, _IN_ORDER, _X265], ids=["h264", "h264_in_order", "hevc"])
def test_frames_keep_the_order_of_a_linear_decode(settings: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    source = tmp_path / f"whole{suffix}"
    samples.write_clip(source, **{"frames": 60, "gop": 20, "width": 96, "height": 64} | settings)
    found = scan(open_media(source))
    order = VideoIndex.scan(source).packets.frames
    assert found.gaps.places[order].tolist() == sorted(found.gaps.places.tolist())
    assert not len(found.gaps.with_order_breaks(order).packets)
    for seed in range(4):
        rng = random.Random(seed)
        packets = read_packets(source)
        if not _with_exchanged_times(packets, rng):
            continue  # as where each is shown when it is decoded
        damaged = tmp_path / f"damaged{suffix}"
        remux(source, damaged, packets)
        assert VideoIndex.scan(damaged).packets.frames.tolist() == linear_truth(damaged).shown == order.tolist()
        assert not check(damaged, rng, [])


@pytest.mark.parametrize("settings", [_X264, _IN_ORDER, _X265], ids=["h264", "h264_in_order", "hevc"])
def test_any_time_stamp_of_a_transport_stream_may_be_damaged(settings: dict[str, Any], tmp_path: Path) -> None:
    source = tmp_path / "whole.ts"
    samples.write_clip(source, **{"frames": 40, "gop": 20, "width": 96, "height": 64} | settings)
    data = source.read_bytes()
    table = VideoIndex.scan(source).packets
    for seed in range(12):
        rng = random.Random(seed)
        place = data.index(b"\0\0\1\xe0", int(table.pos[rng.randrange(len(table))])) + 9  # the time stamp of a packet
        harmed = bytearray(data)
        harmed[place + rng.choice([2, 3, 3, 4, 4])] ^= 1 << rng.randrange(1, 8)
        damaged = tmp_path / "damaged.ts"
        damaged.write_bytes(harmed)
        assert VideoIndex.scan(damaged).packets.frames.tolist() == linear_truth(damaged).shown
