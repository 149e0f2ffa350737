"""Scanning: what the index says of a file is what FFmpeg's demuxer says, for a fraction of the bytes."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import av
import numpy as np
import pytest

import clips
from framefeed import InvalidFile, UnsupportedStream, VideoIndex
from framefeed.index import decode_once, order
from framefeed.index import scan as scanning
from framefeed.index.bitstream import PacketKind
from framefeed.index.containers.container import NoPictureSize, stream_info
from framefeed.index.table import DISCARD, KEY
from framefeed.media.media import PathMedia, open_media, read_rows
from framefeed.source import open_source
from framefeed.testing.samples import write_clip
from framefeed.types import NO_PTS, Orientation

KINDS = sorted(clips.KINDS)


def _demuxed(path: Path, stream_index: int) -> list[av.Packet[av.VideoStream]]:
    with av.open(path) as container:
        stream = container.streams[stream_index]
        return [packet for packet in container.demux(stream) if packet.size]  # type: ignore[misc]


class _Crashing:
    """What PyAV has, but for an attribute: asking PyAV 17 for an unknown pixel format ends the process."""

    def __init__(self, real: Any) -> None:
        self._real = real

    @property
    def codec_context(self) -> _Crashing:
        return _Crashing(self._real.codec_context)

    @property
    def pix_fmt(self) -> str:
        raise AssertionError("the process would have ended")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_pixel_formats_that_are_not_known_yet(clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    with av.open(path, options=scanning._WITHOUT_DECODING) as container:
        stream: Any = _Crashing(container.streams.video[0])
        assert stream.codec_context.format is None
        assert stream_info(open_media(path), container, stream, Orientation(), False).pix_fmt == "yuv420p"


@pytest.mark.parametrize("name", KINDS)
def test_packets_are_the_demuxers(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    index = VideoIndex.scan(path)
    table = index.packets
    packets = _demuxed(path, index.stream.stream_index)
    assert len(table) == len(packets)
    assert table.size.tolist() == [packet.size for packet in packets]
    assert table.pts.tolist() == [NO_PTS if packet.pts is None else packet.pts for packet in packets]
    assert table.dts.tolist() == [NO_PTS if packet.dts is None else packet.dts for packet in packets]
    assert table.has(DISCARD).tolist() == [bool(packet.is_discard) for packet in packets]
    data = dict(open_source(index, open_media(path)).read(np.arange(len(table))))
    assert all(bytes(data[number]) == bytes(packet) for number, packet in enumerate(packets))
    some = np.arange(0, len(table), 3)
    assert [bytes(part) for _, part in open_source(index, open_media(path)).read(some)] == [
        bytes(packets[number]) for number in some
    ]
    assert (np.diff(table.frame_pts) > 0).all()
    assert (table.start <= np.arange(len(table))).all()


@pytest.mark.parametrize("name", [name for name in KINDS if "mp4" in name])
def test_opening_without_decoding_finds_the_same_facts(
    name: str, clip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = clips.make(name, clip_folder)
    quick = VideoIndex.scan(path)
    monkeypatch.setattr(scanning, "_WITHOUT_DECODING", {})
    thorough = VideoIndex.scan(path)
    # How many pictures the decoder holds back it learns from the same headers as soon as it decodes.
    assert quick.stream == dataclasses.replace(thorough.stream, reorder_depth=quick.stream.reorder_depth)
    assert quick.stream.reorder_depth <= thorough.stream.reorder_depth
    assert quick.packets.flags.tolist() == thorough.packets.flags.tolist()


@pytest.mark.parametrize("name", ["color_bt709_full", "color_bt2020nc_limited", "h264_10bit", "h264_422", "h264_444"])
def test_h264_facts_are_ffmpegs(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    stream = VideoIndex.scan(path).stream
    with av.open(path) as container:
        context = container.streams.video[0].codec_context
        assert stream.pix_fmt == context.pix_fmt
        assert (stream.color_space, stream.color_range) == (context.colorspace, context.color_range)
        assert (stream.color_primaries, stream.color_transfer) == (context.color_primaries, context.color_trc)


class _Counting(io.BytesIO):
    total = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.total += len(data)
        return data


def test_little_of_an_mp4_is_read(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "large.mp4", frames=90, width=640, height=360, gop=30, options={"preset": "ultrafast", "crf": "4"}
    )
    size = path.stat().st_size
    assert size > 4 << 20
    file = _Counting(path.read_bytes())
    index = VideoIndex.scan(file)
    assert index.num_frames == 90
    assert file.total < size / 4, f"{file.total} of {size} bytes"


def test_flags_of_an_ordinary_stream(clip_folder: Path) -> None:
    table = VideoIndex.scan(clips.make("h264_bframes", clip_folder)).packets
    assert table.has(KEY).sum() == table.has(PacketKind.RAP).sum() == 4
    assert 0.2 < table.has(PacketKind.NONREF).mean() < 0.8
    assert table.keyframes.tolist() == [0, 12, 24, 36]


def test_container_flags_are_not_believed(clip_folder: Path) -> None:
    for name in ("mp4_all_flagged_key", "mp4_one_flagged_key", "mp4_no_key_table"):
        table = VideoIndex.scan(clips.make(name, clip_folder)).packets
        assert table.has(PacketKind.RAP).sum() == 4, name


def test_rows_of_bytes(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 50_000, np.uint8).tobytes()
    path = tmp_path / "bytes"
    path.write_bytes(data)
    pos = np.array([0, 100, 130, 49_990, 20_000, 25_000, 49_000], np.int64)
    size = np.array([64, 10, 64, 64, 64, 200, 64], np.int64)
    for media in (PathMedia(path), open_media(data), open_media(io.BytesIO(data))):
        rows = read_rows(media, pos, size, 64)
        for row, start, length in zip(rows, pos.tolist(), size.tolist(), strict=True):
            expected = data[start : start + min(length, 64)]
            assert row.tobytes() == expected.ljust(64, b"\0")


def test_index_of_odd_names(tmp_path: Path, clip_folder: Path) -> None:
    """Names that FFmpeg would take for protocols, patterns or options."""
    good = clips.make("h264_bframes", clip_folder).read_bytes()
    for name in ("http:x.mp4", "a%03d.mp4", "-i.mp4", "with space ä.mp4", "concat:a|b.mp4"):
        path = tmp_path / name
        path.write_bytes(good)
        assert VideoIndex.scan(path).num_frames == 48


def test_colours_that_come_beside_packets(tmp_path: Path) -> None:
    """A palette that only the container has: frames would be black."""
    path = write_clip(tmp_path / "palette.mov", codec="qtrle", frames=4, gop=None, pix_fmt="gray")
    with pytest.raises(UnsupportedStream, match=r"palette\.mov: its colour palette is stored in the container"):
        VideoIndex.scan(path)


@pytest.mark.parametrize(
    "name", ["h264_bframes", "h264_ts", "hevc_open_gop", "mp4_fragments", "mkv_vfr", "mpeg2_ts", "mpeg4_mp4", "av1_mp4"]
)
def test_times_of_ordinary_files_are_believed(name: str, clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding a file to learn its order takes a hundred times as long as reading it."""

    def decode(*_: Any) -> None:
        raise AssertionError("it was decoded")

    monkeypatch.setattr(decode_once, "_decode", decode)
    assert VideoIndex.scan(clips.make(name, clip_folder)).num_frames > 0


@pytest.mark.parametrize("name", ["h264_ts", "h264_bframes"])
def test_a_video_of_no_size(name: str, clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is looked for further on, and what is raised at last is what other bad files raise."""
    tries: list[object] = []

    def nothing(*_: Any) -> None:
        tries.append(None)
        raise NoPictureSize("it", "has no picture size")

    monkeypatch.setattr(scanning, "choose_stream", nothing)
    with pytest.raises(InvalidFile, match="it: has no picture size") as caught:
        VideoIndex.scan(clips.make(name, clip_folder))
    assert caught.type is InvalidFile and len(tries) >= 2


def test_a_stream_that_shows_nothing() -> None:
    """Whether its order can be believed is asked before it is refused."""
    none = np.empty(0, np.int64)
    encoder = b"\0\0\1\xb2Lavc62.28.102"
    stream = SimpleNamespace(codec="mpeg4", container="avi", reorder_depth=0, extradata=encoder)
    kinds = np.array([PacketKind.RAP | PacketKind.HIDDEN], np.uint16)
    scan: Any = SimpleNamespace(stream=stream, kinds=kinds, understood=True, raw=SimpleNamespace(dts=np.zeros(1)))
    assert not order.needs_decoding(scan, none)
