"""Plain MP4 files are scanned without FFmpeg, and what comes out is what comes out with FFmpeg."""

from __future__ import annotations

import dataclasses
import random
import re
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import clips
import damaged
from clips.base import new_packet, read_packets, remux
from clips.boxes import box, edit_box, edit_list, find_box
from framefeed import FramefeedError, VideoIndex
from framefeed.index import scan as scanning
from framefeed.index.containers.scan_plain import scan_plain
from framefeed.index.table import PacketTable
from framefeed.media.media import BLOCK, open_media
from framefeed.testing.samples import Color, write_clip

PLAIN = {
    "color_hevc_10bit_2020",
    "hevc_10bit",
    "hevc_12bit_444",
    "hevc_b_pyramid",
    "hevc_closed",
    "hevc_closed_bframes",
    "hevc_defaults",
    "hevc_fields",
    "hevc_hev1",
    "hevc_hvc1",
    "hevc_open_gop",
    "hevc_radl",
    "hevc_temporal_layers",
}
STBL = "moov/trak/mdia/minf/stbl"
X265: dict[str, Any] = {"codec": "libx265", "gop": 12, "options": {"preset": "ultrafast", "x265-params": "bframes=2"}}

Outcome = dict[str, Any] | str


def _is_plain(source: Any) -> bool:
    try:
        return scan_plain(open_media(source)) is not None
    except FramefeedError:
        return False


def _scan(source: Any) -> Outcome:
    try:
        index = VideoIndex.scan(source)
    except FramefeedError as error:
        return f"{type(error).__name__}: {error}"
    table = {field.name: getattr(index.packets, field.name) for field in dataclasses.fields(PacketTable)}
    columns = {name: (values.dtype, values.tolist()) for name, values in table.items()}
    return {"fingerprint": index.fingerprint, "byte_ranges": index.byte_ranges} | vars(index.stream) | columns


def _scan_with_ffmpeg(source: Any) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "scan_plain", lambda media, stream_index=None: None)
        return _scan(source)


@pytest.mark.parametrize("name", sorted(clips.KINDS))
def test_clips_are_the_same_with_ffmpeg(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    assert _is_plain(path) == (name in PLAIN)
    assert _scan(path) == _scan_with_ffmpeg(path)


@pytest.mark.parametrize("name", sorted(damaged.DAMAGED))
def test_damaged_files_are_the_same_with_ffmpeg(name: str, tmp_path: Path) -> None:
    path = damaged.DAMAGED[name](tmp_path)
    assert _scan(path) == _scan_with_ffmpeg(path)


def _square(place: int) -> int:
    return place * place


@pytest.mark.parametrize(
    "spec",
    [
        {"width": 162, "height": 98},
        {"pix_fmt": "yuv422p"},
        {"pix_fmt": "yuv444p"},
        {"pix_fmt": "yuv422p10le"},
        {"sample_aspect_ratio": Fraction(4, 3)},
        {"color": Color("bt709", full_range=True)},
        {"color": Color("bt601")},
        {"color": Color("bt2020nc", full_range=True), "pix_fmt": "yuv420p10le"},
        {"fps": Fraction(30000, 1001), "tag": "hvc1"},
        {"frames": 2},
        {"pts": _square, "time_base": Fraction(1, 600)},
        {"container_options": {"movflags": "faststart"}},
        {"container_options": {"use_editlist": "0"}},
        {"options": {"preset": "ultrafast", "x265-params": "bframes=0:overscan=crop:ref=4"}},
        {"options": {"preset": "slow", "x265-params": "hrd=0:repeat-headers=1:aud=1:range=full:videoformat=pal"}},
        {"options": {"preset": "ultrafast", "x265-params": "lossless=1:ctu=16:min-cu-size=8"}},
    ],
    ids=lambda spec: re.sub(" at 0x[0-9a-f]+", "", str(spec)),
)
def test_looks_and_timing(spec: dict[str, Any], tmp_path: Path) -> None:
    path = write_clip(tmp_path / "clip.mp4", **{**X265, "frames": 24, **spec})
    assert _is_plain(path)
    assert _scan(path) == _scan_with_ffmpeg(path)


@pytest.mark.parametrize("place", [0, 1])
def test_sound_beside_it(place: int, tmp_path: Path, clip_folder: Path) -> None:
    path = tmp_path / "clip.mp4"
    sources = [clips.make("hevc_hvc1", clip_folder), clips.make("with_audio", clip_folder)]
    with av.open(sources[1]) as template, av.open(sources[0]) as video, av.open(path, "w") as container:
        sound = template.streams.audio[0]
        inputs = [sound, video.streams.video[0]] if place else [video.streams.video[0], sound]
        outputs = [container.add_stream_from_template(stream) for stream in inputs]
        packets: list[Any] = [*template.demux(sound), *read_packets(sources[0])]
        for packet in packets:
            if packet.size:
                packet.stream = outputs[place if packet.stream is not sound else 1 - place]
                container.mux(packet)
    assert _is_plain(path)
    found = _scan(path)
    assert isinstance(found, dict)
    assert found["stream_index"] == place
    assert found == _scan_with_ffmpeg(path)
    assert scan_plain(open_media(path), place) is not None
    assert scan_plain(open_media(path), 1 - place) is None


def _hevc(clip_folder: Path) -> bytes:
    return clips.make("hevc_hvc1", clip_folder).read_bytes()


def _patched(place: str, at: int, value: bytes) -> Callable[[bytes], bytes]:
    """Overwrites bytes at an offset of a box's body."""
    return lambda data: edit_box(data, place, lambda body: body[:at] + value + body[at + len(value) :])


def _added(place: str, extra: bytes) -> Callable[[bytes], bytes]:
    return lambda data: edit_box(data, place, lambda body: body + extra)


def _replaced(place: str, body: bytes) -> Callable[[bytes], bytes]:
    return lambda data: edit_box(data, place, lambda _: body)


def _renamed(place: str, name: bytes) -> Callable[[bytes], bytes]:
    def rename(data: bytes) -> bytes:
        start, _ = find_box(data, place)
        return data[: start + 4] + name + data[start + 8 :]

    return rename


def _in_entry(extra: bytes) -> Callable[[bytes], bytes]:
    """Adds a box to the sample entry."""

    def add(body: bytes) -> bytes:
        (size,) = struct.unpack_from(">I", body, 8)
        return body[:8] + struct.pack(">I", size + len(extra)) + body[12:] + extra

    return lambda data: edit_box(data, f"{STBL}/stsd", add)


ELST = "moov/trak/edts/elst"
EDITS: dict[str, Callable[[bytes], bytes]] = {
    "edit ends early": _replaced(ELST, edit_list((1000, 1024))),
    "edit ends a little early": _replaced(ELST, edit_list((1590, 1024))),
    "edit ends late": _replaced(ELST, edit_list((5000, 1024))),
    "edit starts early": _replaced(ELST, edit_list((1600, 0))),
    "edit starts late": _replaced(ELST, edit_list((1600, 1536))),
    "edit starts in a group": _replaced(ELST, edit_list((1000, 12000))),
    "empty edit first": _replaced(ELST, edit_list((500, -1), (1600, 1024))),
    "two edits": _replaced(ELST, edit_list((800, 1024), (800, 14000))),
    "no edit": _replaced(ELST, edit_list()),
    "edit without length": _replaced(ELST, edit_list((0, 1024))),
    "edit at half speed": _patched(ELST, 16, b"\0\0\x80\0"),
    "wide edit": _replaced(ELST, struct.pack(">IIQqHH", 1 << 24, 1, 1600, 1024, 1, 0)),
    "short movie time scale": _patched("moov/mvhd", 12, struct.pack(">I", 30)),
    "turned movie": _patched("moov/mvhd", 36, struct.pack(">5i", 0, 1 << 16, 0, -1 << 16, 0)),
    "turned": _patched("moov/trak/tkhd", 40, struct.pack(">5i", 0, 1 << 16, 0, -1 << 16, 0)),
    "track is off": _patched("moov/trak/tkhd", 0, b"\0\0\0\2"),
    "shown wider": _patched("moov/trak/tkhd", 76, struct.pack(">I", 200 << 16)),
    "stored wider": _patched(f"{STBL}/stsd", 40, struct.pack(">H", 200)),
    "another depth": _patched(f"{STBL}/stsd", 90, struct.pack(">H", 32)),
    "short duration": _patched("moov/trak/mdia/mdhd", 16, struct.pack(">I", 9000)),
    "long duration": _patched("moov/trak/mdia/mdhd", 16, struct.pack(">I", 90000)),
    "no duration": _patched("moov/trak/mdia/mdhd", 16, bytes(4)),
    "unknown duration": _patched("moov/trak/mdia/mdhd", 16, b"\xff\xff\xff\xff"),
    "odd time scale": _patched("moov/trak/mdia/mdhd", 12, struct.pack(">I", 1_000_003)),
    "square pixels": _in_entry(box("pasp", struct.pack(">II", 1, 1))),
    "wide pixels": _in_entry(box("pasp", struct.pack(">II", 40, 33))),
    "impossible pixels": _in_entry(box("pasp", struct.pack(">II", 40, 0))),
    "colours of another kind": _in_entry(box("colr", struct.pack(">4sHHHB", b"nclx", 9, 16, 9, 128))),
    "colours as they are": _in_entry(box("colr", struct.pack(">4sHHHB", b"nclx", 2, 2, 2, 0))),
    "colours of old": _in_entry(box("colr", struct.pack(">4sHHH", b"nclc", 1, 1, 1))),
    "clean aperture": _in_entry(box("clap", struct.pack(">8I", 80, 1, 60, 1, 0, 1, 0, 1))),
    "no bit rate box": lambda data: data.replace(b"btrt", b"free"),
    "two entries": _patched(f"{STBL}/stsd", 4, struct.pack(">I", 2)),
    "no key table": _renamed(f"{STBL}/stss", b"free"),
    "empty key table": _replaced(f"{STBL}/stss", bytes(8)),
    "first is no key": _replaced(f"{STBL}/stss", struct.pack(">3I", 0, 1, 13)),
    "last is a key": _replaced(f"{STBL}/stss", struct.pack(">4I", 0, 2, 1, 48)),
    "keys out of order": _replaced(f"{STBL}/stss", struct.pack(">5I", 0, 3, 1, 25, 13)),
    "no offsets": _renamed(f"{STBL}/ctts", b"free"),
    "few offsets": _replaced(f"{STBL}/ctts", struct.pack(">4I", 0, 1, 20, 1024)),
    "negative offsets": _replaced(f"{STBL}/ctts", struct.pack(">4Iii", 0, 2, 40, 1024, 8, -512)),
    "few durations": _replaced(f"{STBL}/stts", struct.pack(">4I", 0, 1, 20, 512)),
    "many durations": _replaced(f"{STBL}/stts", struct.pack(">4I", 0, 1, 60, 512)),
    "zero durations": _replaced(f"{STBL}/stts", struct.pack(">4I", 0, 1, 48, 0)),
    "negative duration": _replaced(f"{STBL}/stts", struct.pack(">6I", 0, 2, 47, 512, 1, 0xFFFFFF00)),
    "durations that vary": _replaced(f"{STBL}/stts", struct.pack(">8I", 0, 3, 10, 500, 20, 513, 18, 1001)),
    "table in another order": _patched(f"{STBL}/stsc", 8, struct.pack(">I", 2)),
    "another entry": _patched(f"{STBL}/stsc", 16, struct.pack(">I", 2)),
    "sample of no size": _patched(f"{STBL}/stsz", 20, bytes(4)),
    "data elsewhere": _patched("moov/trak/mdia/minf/dinf", 27, b"\0"),
    "group table": _added(STBL, box("sbgp", struct.pack(">I4sIII", 0, b"rap ", 1, 48, 1))),
    "shifted times": _added(STBL, box("cslg", struct.pack(">6i", 0, 512, 0, 1024, 0, 30000))),
    "track of another track": _added("moov/trak", box("tref", box("chap", struct.pack(">I", 1)))),
    "fragments follow": _added("moov", box("mvex", box("trex", struct.pack(">6I", 0, 1, 1, 0, 0, 0)))),
    "cover picture": _added("moov", box("udta", box("covr", bytes(40)))),
    "uncommon box": _added("moov", box("abcd", bytes(40))),
    "file ends in a box": lambda data: data + b"\0\0\1\0free",
    "box behind": lambda data: data + box("free", bytes(4)),
    "unknown box behind": lambda data: data + box("abcd", bytes(4)),
    "index twice": lambda data: data + data[find_box(data, "moov")[0] :],
    "another brand": lambda data: data[:8] + b"heic" + data[12:],
    "cut": lambda data: data[:-1],
}  # fmt: skip
STILL_PLAIN = {
    "edit ends late",
    "wide edit",
    "long duration",
    "short duration",
    "odd time scale",
    "square pixels",
    "wide pixels",
    "colours as they are",
    "box behind",
}


@pytest.mark.parametrize("name", EDITS)
def test_edited_boxes_are_the_same_with_ffmpeg(name: str, clip_folder: Path) -> None:
    data = EDITS[name](_hevc(clip_folder))
    if name in STILL_PLAIN:
        assert _is_plain(data)
    assert _scan(data) == _scan_with_ffmpeg(data)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_are_the_same_with_ffmpeg(seed: int, clip_folder: Path) -> None:
    good = _hevc(clip_folder)
    start, end = find_box(good, "moov")
    sets = good.index(b"hvcC", start) + 4
    chance = random.Random(seed)
    plain = 0
    for _ in range(100):
        data = bytearray(good)
        place = chance.randrange(sets, sets + 120) if chance.random() < 0.3 else chance.randrange(start, end)
        data[place] = chance.randrange(256)
        plain += _is_plain(bytes(data))
        assert _scan(bytes(data)) == _scan_with_ffmpeg(bytes(data)), (place - start, data[place])
    assert plain > 20


def test_ffmpeg_is_not_asked(clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clips.make("hevc_hvc1", clip_folder)
    monkeypatch.setattr(av, "open", None)
    index = VideoIndex.scan(path)
    assert index.num_frames == 48
    assert index.stream.pix_fmt == "yuv420p"
    assert VideoIndex.scan(path.read_bytes(), stream_index=0).packets.pts.tolist() == index.packets.pts.tolist()


def test_orientation_in_the_stream_is_left_to_ffmpeg(tmp_path: Path, clip_folder: Path) -> None:
    """A display-orientation message before the first picture: a quarter turn."""
    source = clips.make("hevc_hvc1", clip_folder)
    packets = read_packets(source)
    message = bytes((39 << 1, 1, 47, 3, 0x10, 0, 0x08, 0x80))
    packets[0] = new_packet(struct.pack(">I", len(message)) + message + bytes(packets[0]), packets[0])
    path = remux(source, tmp_path / "turned.mp4", packets)
    assert not _is_plain(path)
    assert VideoIndex.scan(path).stream.orientation


def test_packets_of_a_long_file(tmp_path: Path) -> None:
    """Rows that are read in several portions."""
    path = write_clip(tmp_path / "clip.mp4", **{**X265, "frames": 60, "width": 640, "height": 360, "gop": 4})
    table = VideoIndex.scan(path).packets
    assert int(table.size.sum()) > 2 * BLOCK
    assert np.array_equal(table.flags, VideoIndex.scan(path.read_bytes()).packets.flags)
    assert _scan(path) == _scan_with_ffmpeg(path)
