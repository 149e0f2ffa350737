"""Packets become the same byte stream, one by one and many at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import av
import numpy as np
import pytest

from clips.base import read_packets
from framefeed import VideoIndex
from framefeed.decode.nvdec.annexb import Framing, framing
from framefeed.media.native import NativeFrame
from framefeed.testing.samples import write_clip

START = b"\0\0\0\1"
UNITS = [[b"\x65abc"], [b"\x41d", b"\x41efgh"], [b"\x01"], [b"\x41" * 70_000, b"\x06xy", b"\x41z"]]


def _counted(units: list[bytes], size: int) -> bytes:
    return b"".join(len(unit).to_bytes(size, "big") + unit for unit in units)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("size", [0, 2, 3, 4])
def test_units_get_start_codes(size: int, first: bool) -> None:
    units = UNITS if size != 2 else UNITS[:3]
    packets = [_counted(each, size) if size else b"".join(START + unit for unit in each) for each in units]
    framing = Framing(START + b"\x67sps" + START + b"\x68pps", size)
    expected = (framing.headers if first else b"") + b"".join(START + unit for each in units for unit in each)
    assert framing.join([memoryview(packet) for packet in packets], first) == expected
    one_by_one = b"".join(framing.convert(packet, first and not place) for place, packet in enumerate(packets))
    assert one_by_one == expected


@pytest.mark.parametrize(
    "packet",
    [b"", b"\0", b"\0\0\0", b"\0\0\0\7abc", b"\xff\xff\xff\xffabc", b"\0\0\0\0", b"\0\0\0\2ab\0\0"],
    ids=["empty", "one", "three", "cut", "huge", "nothing", "rest"],
)
def test_bad_lengths_stay_within_their_packet(packet: bytes) -> None:
    """What follows a packet whose lengths are wrong is as it should be."""
    framing = Framing(b"", 4)
    joined = framing.join([packet, _counted([b"\x41good"], 4)], False)
    assert len(joined) == len(packet) + 9
    assert joined.endswith(START + b"\x41good")
    assert joined[: len(packet)] == framing.convert(packet, False)


def test_odd_sizes_of_vp8_become_even(tmp_path: Path) -> None:
    """NVDEC rounds them down; what is coded is the same."""
    path = write_clip(tmp_path / "odd.mkv", codec="libvpx", frames=12, gop=6, width=177, height=145)
    stream, how = VideoIndex.scan(path).stream, framing("vp8", b"")
    assert how == framing("vp8", stream.extradata)
    packets = read_packets(path)
    converted = [bytes(how.convert(bytes(packet), not number)) for number, packet in enumerate(packets)]
    changed = [number for number, packet in enumerate(packets) if bytes(packet) != converted[number]]
    assert changed == [number for number, packet in enumerate(packets) if packet.is_keyframe]
    before, after = (_decode(each) for each in (map(bytes, packets), converted))
    assert [(picture.width, picture.height) for picture in after] == [(178, 146)] * 12
    for even, odd in zip(after, before, strict=True):
        for plane, (height, width) in enumerate(((145, 177), (73, 89), (73, 89))):
            assert np.array_equal(even.planes[plane][:height, :width], odd.planes[plane])


def _decode(packets: Iterable[bytes]) -> list[NativeFrame]:
    context = av.CodecContext.create("vp8", "r")
    assert isinstance(context, av.VideoCodecContext)
    return [NativeFrame.copy_of(frame) for data in packets for frame in context.decode(av.Packet(data))]
