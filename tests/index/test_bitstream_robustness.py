"""Broken bytes never raise or hang, and ordinary files are read quickly."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from framefeed.index.bitstream import HEAD, PacketKind, make_classifier

from .test_bitstream_support import Recipe, classify_packets, encode

RECIPES = {
    "h264": Recipe("libx264", "mp4", (("threads", "1"), ("g", "12"))),
    "hevc": Recipe("libx265", "mp4", (("x265-params", "pools=none:frame-threads=1:log-level=none:keyint=16"),)),
    "vp8": Recipe("libvpx", "webm", (("deadline", "realtime"), ("lag-in-frames", "0"))),
    "vp9": Recipe("libvpx-vp9", "webm", (("deadline", "realtime"), ("lag-in-frames", "0"))),
    "av1": Recipe("libsvtav1", "mp4", (("preset", "10"), ("svtav1-params", "lp=1"))),
    "mpeg1video": Recipe("mpeg1video", "mpeg", (("bf", "2"),)),
    "mpeg2video": Recipe("mpeg2video", "mpegts", (("bf", "2"),)),
    "mpeg4": Recipe("mpeg4", "mp4", (("bf", "2"),)),
}
QUICK = settings(
    max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
# Bytes that mean something to one of the parsers are more trying than noise.
PIECES = st.one_of(
    st.binary(max_size=120),
    st.sampled_from([b"\0\0\1", b"\0\0\0\1", b"\0\0\3", b"\0" * 40, b"\xff" * 70, b"\0\0\0\2", b"\x06\x06\xff\xff"]),
    st.builds(lambda code: b"\0\0\1" + bytes((code,)), st.integers(0, 255)),
)
PACKETS = st.lists(st.lists(PIECES, max_size=6).map(b"".join), min_size=1, max_size=8)


@pytest.mark.parametrize("codec", RECIPES)
@QUICK
@given(
    extradata=st.one_of(st.just(b""), st.binary(max_size=60), st.binary(max_size=60).map(b"\1".__add__)),
    packets=PACKETS,
)
def test_noise(codec: str, extradata: bytes, packets: list[bytes]) -> None:
    kinds, recovery = classify_packets(codec, extradata, packets, chunk=3)
    assert len(kinds) == len(recovery) == len(packets)


@pytest.mark.parametrize("codec", RECIPES)
@QUICK
@given(data=st.data())
def test_damaged_streams(codec: str, data: st.DataObject) -> None:
    stream = encode(RECIPES[codec])
    first = data.draw(st.integers(0, len(stream.packets) - 3))
    packets = list(stream.packets[first : first + 3])
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, 2))
        packet = bytearray(packets[number])
        at = data.draw(st.integers(0, min(80, len(packet))))
        packet[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9))
        packets[number] = bytes(
            packet[: data.draw(st.integers(0, len(packet)))] if data.draw(st.booleans()) else packet
        )
    extradata = bytearray(stream.extradata)
    if extradata and data.draw(st.booleans()):
        extradata[data.draw(st.integers(0, len(extradata) - 1))] ^= data.draw(st.integers(1, 255))
    classify_packets(stream.codec, bytes(extradata), packets, chunk=2)


@pytest.mark.parametrize("codec", RECIPES)
def test_a_file_that_ends_within_a_packet(codec: str) -> None:
    stream = encode(RECIPES[codec])
    for kept in (0, 1, 5, HEAD):
        heads = np.zeros((3, HEAD), np.uint8)
        heads[1, :kept] = np.frombuffer(stream.packets[1][:kept].ljust(kept, b"\0"), np.uint8)
        classifier = make_classifier(stream.codec, stream.extradata)
        assert classifier is not None
        result = classifier.classify(heads, np.array([0, 100_000, -1]), lambda *_: b"")
        assert not np.any(result.kinds[[0, 2]])


@pytest.mark.parametrize("codec", RECIPES)
def test_a_large_packet_of_nothing_does_not_stall(codec: str) -> None:
    stream = encode(RECIPES[codec])
    started = time.perf_counter()
    for filler in (b"\0", b"\0\0\1", b"\0\0\0\1\x09", b"\0\0\1\xb2", b"\x12\0", b"\xff"):
        for extradata in (b"", stream.extradata):
            kinds, _ = classify_packets(codec, extradata, [filler * (3_000_000 // len(filler))])
            assert not kinds[0] & (PacketKind.RAP | PacketKind.NONREF)
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize("codec", RECIPES)
def test_how_long_a_packet_takes(codec: str) -> None:
    """Prints microseconds a packet (shown with ``pytest -s``); asserts nothing, machines differ."""
    stream = encode(RECIPES[codec])
    repeats = 400 if codec in ("h264", "hevc") else 20
    packets = stream.packets * repeats
    heads = np.zeros((len(packets), HEAD), np.uint8)
    for row, packet in enumerate(packets):
        heads[row, : len(packet[:HEAD])] = np.frombuffer(packet[:HEAD], np.uint8)
    sizes = np.array([len(packet) for packet in packets], np.int64)
    classifier = make_classifier(stream.codec, stream.extradata)
    assert classifier is not None
    chunk = 48 * 80  # whole repetitions, so that packet i of any chunk is packet i of the first
    started = time.perf_counter()
    for at in range(0, len(packets), chunk):
        classifier.classify(heads[at : at + chunk], sizes[at : at + chunk], lambda i, o, n: packets[i][o : o + n])
    print(f"{codec}: {(time.perf_counter() - started) / len(packets) * 1e6:.2f} us a packet ({len(packets)} packets)")
