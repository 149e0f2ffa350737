"""Packets become the same byte stream, one by one and many at once."""

from __future__ import annotations

import pytest

from framefeed.decode.annexb import Framing

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
