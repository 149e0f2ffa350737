"""Flags are claims about decoding; here they are proved by decoding tiny streams of every codec."""

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.index.bitstream import PacketKind

from .test_bitstream_support import Recipe, Stream, classify, decode, encode, having

_X264 = (("threads", "1"), ("g", "12"), ("bf", "3"))
_X265 = "pools=none:frame-threads=1:log-level=none:keyint=16:min-keyint=16"
_VPX = (("g", "20"), ("b", "200k"), ("cpu-used", "4"), ("lag-in-frames", "16"))
_LIVE = (("g", "20"), ("b", "200k"), ("cpu-used", "6"), ("lag-in-frames", "0"), ("deadline", "realtime"))

RECIPES = {
    "h264-pyramid": Recipe("libx264", "mp4", (*_X264, ("b-pyramid", "normal"))),
    "h264-open-gop": Recipe("libx264", "mp4", (*_X264, ("x264-params", "open-gop=1:scenecut=0"))),
    "h264-open-gop-mpegts": Recipe("libx264", "mpegts", (*_X264, ("x264-params", "open-gop=1:scenecut=0"))),
    "h264-intra-refresh": Recipe("libx264", "mp4", (*_X264, ("intra-refresh", "1"))),
    "h264-interlaced": Recipe("libx264", "mp4", (*_X264, ("x264-params", "tff=1"))),
    "h264-pic-struct": Recipe("libx264", "mp4", (*_X264, ("x264-params", "pic-struct=1:aud=1"))),
    "h264-slices-mpegts": Recipe("libx264", "mpegts", (*_X264, ("slices", "3"))),
    "h264-raw": Recipe("libx264", "h264", _X264),
    "h264-baseline": Recipe("libx264", "matroska", (("threads", "1"), ("profile", "baseline"), ("g", "12"))),
    "hevc-default": Recipe("libx265", "mp4", (("x265-params", _X265),)),
    "hevc-closed": Recipe("libx265", "mp4", (("x265-params", _X265 + ":open-gop=0"),)),
    "hevc-open-mpegts": Recipe("libx265", "mpegts", (("x265-params", _X265 + ":open-gop=1"),)),
    "hevc-sub-layers": Recipe("libx265", "mp4", (("x265-params", _X265 + ":temporal-layers=2"),)),
    "hevc-radl": Recipe("libx265", "mp4", (("x265-params", _X265 + ":open-gop=0:radl=2"),)),
    "hevc-repeated-headers": Recipe("libx265", "matroska", (("x265-params", _X265 + ":repeat-headers=1:aud=1"),)),
    "vp8-alt-ref": Recipe("libvpx", "webm", (*_VPX, ("auto-alt-ref", "1"))),
    "vp8-resilient": Recipe("libvpx", "webm", (*_LIVE, ("error-resilient", "1"))),
    "vp8-layers": Recipe("libvpx", "webm", (*_LIVE, ("error-resilient", "1"), ("ts-parameters", (
        "ts_number_layers=3:ts_target_bitrate=80,120,200:ts_rate_decimator=4,2,1:"
        "ts_periodicity=4:ts_layer_id=0,2,1,2:ts_layering_mode=3")))),
    "vp9-alt-ref": Recipe("libvpx-vp9", "webm", (*_VPX, ("auto-alt-ref", "1"))),
    "vp9-resilient": Recipe("libvpx-vp9", "webm", (*_LIVE, ("error-resilient", "1"))),
    "vp9-live": Recipe("libvpx-vp9", "webm", (*_LIVE, ("frame-parallel", "1"))),
    "vp9-layers": Recipe("libvpx-vp9", "webm", (*_LIVE, ("error-resilient", "1"), ("ts-parameters", (
        "ts_number_layers=3:ts_target_bitrate=80,120,200:ts_rate_decimator=4,2,1:"
        "ts_periodicity=4:ts_layer_id=0,2,1,2:ts_layering_mode=3")))),
    "av1": Recipe("libsvtav1", "mp4", (("preset", "10"), ("g", "20"), ("svtav1-params", "lp=1"))),
    "av1-low-delay": Recipe(
        "libsvtav1", "matroska", (("preset", "10"), ("g", "20"), ("svtav1-params", "lp=1:pred-struct=1"))),
    "mpeg1": Recipe("mpeg1video", "mpeg", (("bf", "2"), ("g", "9"))),
    "mpeg2": Recipe("mpeg2video", "mpegts", (("bf", "2"), ("g", "9"))),
    "mpeg2-closed": Recipe(
        "mpeg2video", "mpegts", (("bf", "2"), ("g", "9"), ("flags", "+cgop"), ("sc_threshold", "1000000000"))),
    "mpeg2-interlaced": Recipe("mpeg2video", "mpegts", (("bf", "2"), ("g", "9"), ("flags", "+ilme+ildct"))),
    "mpeg4": Recipe("mpeg4", "mp4", (("bf", "2"), ("g", "9"))),
    "mpeg4-avi": Recipe("mpeg4", "avi", (("bf", "0"), ("g", "9"))),
}  # fmt: skip


@pytest.fixture(params=RECIPES)
def stream(request: pytest.FixtureRequest) -> Stream:
    return encode(RECIPES[request.param])


def _check_without(stream: Stream, truth: dict[int, list[str]], dropped: set[int]) -> None:
    kept = [number for number in range(len(stream.packets)) if number not in dropped]
    frames = decode(stream, kept)
    assert frames == {number: truth[number] for number in kept if number in truth}


def test_packets_without_dependents_can_be_left_out(stream: Stream) -> None:
    truth = decode(stream, range(len(stream.packets)))
    dropped = having(classify(stream), PacketKind.NONREF)
    _check_without(stream, truth, set(dropped))
    _check_without(stream, truth, set(dropped[::2]))
    for number in dropped[:3]:
        _check_without(stream, truth, {number})


def test_decoding_may_start_at_random_access_points(stream: Stream) -> None:
    truth = decode(stream, range(len(stream.packets)))
    kinds = classify(stream)
    starts = having(kinds, PacketKind.RAP)
    assert starts and starts[0] == 0
    for start in starts:
        frames = decode(stream, range(start, len(stream.packets)))
        closed = bool(kinds[start] & PacketKind.CLOSED)
        for number in range(start, len(stream.packets)):
            if number in truth and (closed or stream.pts[number] >= stream.pts[start]):
                assert frames.get(number) == truth[number], (start, number)


def test_hidden_packets_are_those_without_a_frame(stream: Stream) -> None:
    truth = decode(stream, range(len(stream.packets)))
    silent = [number for number in range(len(stream.packets)) if number not in truth]
    kinds = classify(stream)
    assert having(kinds, PacketKind.HIDDEN) == silent
    assert having(kinds, PacketKind.MULTIPLE) == [number for number, frames in truth.items() if len(frames) > 1]


@pytest.mark.parametrize("chunk", [1, 2, 7])
def test_chunks_change_nothing_but_missing_look_ahead(stream: Stream, chunk: int) -> None:
    whole = classify(stream)
    parts = classify(stream, chunk)
    lost = np.flatnonzero(whole != parts)
    assert np.all((whole[lost] ^ parts[lost]) == PacketKind.NONREF)
    assert np.all((lost + 1) % chunk == 0), "only the last packet of a chunk may lack NONREF"
    assert np.all(whole[lost] & PacketKind.NONREF)


def _kinds(name: str) -> NDArray[np.uint16]:
    return classify(encode(RECIPES[name]))


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("h264-pyramid", 0.3),
        ("h264-open-gop", 0.3),
        ("h264-open-gop-mpegts", 0.3),
        ("h264-interlaced", 0.2),
        ("h264-pic-struct", 0.2),
        ("h264-slices-mpegts", 0.2),
        ("hevc-default", 0.3),
        ("hevc-closed", 0.3),
        ("hevc-open-mpegts", 0.3),
        ("hevc-sub-layers", 0.3),
        ("vp8-layers", 0.2),
        ("av1", 0.2),
        ("mpeg1", 0.4),
        ("mpeg2", 0.4),
        ("mpeg4", 0.4),
    ],
)
def test_a_good_share_is_found_to_be_without_dependents(name: str, share: float) -> None:
    kinds = _kinds(name)
    assert len(having(kinds, PacketKind.NONREF)) >= share * len(kinds)


def test_open_groups_are_random_access_points_but_not_closed() -> None:
    for name in ("h264-open-gop", "h264-open-gop-mpegts", "hevc-default", "hevc-open-mpegts", "mpeg2"):
        kinds = _kinds(name)
        starts = having(kinds, PacketKind.RAP)
        assert len(starts) > 2
        assert any(not kinds[start] & PacketKind.CLOSED for start in starts), name


def test_closed_groups_are_closed() -> None:
    for name in ("h264-pyramid", "hevc-closed", "hevc-radl", "vp8-alt-ref", "vp9-alt-ref", "av1", "mpeg2-closed"):
        kinds = _kinds(name)
        assert len(having(kinds, PacketKind.RAP)) > 1
        assert having(kinds, PacketKind.RAP) == having(kinds, PacketKind.CLOSED), name


def test_leading_pictures_of_hevc() -> None:
    assert having(_kinds("hevc-default"), PacketKind.RASL)
    assert having(_kinds("hevc-radl"), PacketKind.RADL)


def test_intra_refresh_is_gradual() -> None:
    kinds = _kinds("h264-intra-refresh")
    assert len(having(kinds, PacketKind.GRADUAL)) > 1
    assert having(kinds, PacketKind.RAP) == [0]


def test_only_the_first_of_repeated_headers_is_new() -> None:
    assert having(_kinds("hevc-repeated-headers"), PacketKind.NEW_HEADERS) in ([], [0])
    assert having(_kinds("h264-open-gop-mpegts"), PacketKind.NEW_HEADERS) in ([], [0])
