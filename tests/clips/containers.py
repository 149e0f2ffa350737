"""Containers: the same H.264 pictures with other times, other tables and headers that lie."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from clips.base import EVERY, FRAMES, ClipKind, clip, read_packets, remux, source_clip
from clips.boxes import edit_box, find_box

B_FRAMES: dict[str, Any] = {"bframes": 2, "options": {"x264-params": "scenecut=0:b-adapt=0"}}
# Irregular, never twice the same step, in milliseconds.
VFR: dict[str, Any] = {
    "pts": lambda place: 40 * place + 11 * (place % 3) + place * place // 7,
    "time_base": Fraction(1, 1000),
}


def _movflags(name: str, flags: str, notes: str, **options: str) -> ClipKind:
    return clip(name, ".mp4", notes, container_options={"movflags": flags, **options}, **B_FRAMES)


def _lying_avi(folder: Path) -> Path:
    """AVI says the number of frames twice: in the main header and in the stream's."""
    target = folder / "avi_lying_count.avi"
    with source_clip(".avi", bframes=0) as source:
        data = bytearray(source.read_bytes())
    struct.pack_into("<I", data, data.index(b"avih") + 8 + 16, 100_000)
    struct.pack_into("<I", data, data.index(b"strh") + 8 + 32, 100_000)
    target.write_bytes(data)
    return target


def _lying_ivf(folder: Path) -> Path:
    """IVF's header has a rate and a count that nobody checks."""
    target = folder / "ivf_lying_header.ivf"
    with source_clip(".ivf", codec="libvpx", options={"deadline": "realtime", "cpu-used": "8", "b": "300k"}) as source:
        data = bytearray(source.read_bytes())
    struct.pack_into("<I", data, 24, 7)
    target.write_bytes(data)
    return target


def _lying_rate_mkv(folder: Path) -> Path:
    """Matroska's default duration says 1000 frames a second; the blocks' own times are right."""
    target = folder / "mkv_lying_rate.mkv"
    with source_clip(".mkv", **B_FRAMES) as source:
        data = source.read_bytes()
    duration = b"\x23\xe3\x83\x84" + struct.pack(">I", 1_000_000_000 // 30)
    if data.count(duration) != 1:
        raise ValueError("the muxer writes the default duration in another way")
    target.write_bytes(data.replace(duration, duration[:4] + struct.pack(">I", 1_000_000)))
    return target


def _lying_rate_mp4(folder: Path) -> Path:
    """The last frame lasts 100 s, so the average rate is far from that of the other frames."""
    target = folder / "mp4_lying_rate.mp4"
    with source_clip(**B_FRAMES) as source:
        data = source.read_bytes()

    def stretch(table: bytes) -> bytes:
        count, step = struct.unpack_from(">II", table, 8)
        return struct.pack(">6I", 0, 2, count - 1, step, 1, 15360 * 100)

    target.write_bytes(edit_box(data, "moov/trak/mdia/minf/stbl/stts", stretch))
    return target


def _lying_duration(folder: Path) -> Path:
    """Movie, track and media headers say that the clip lasts an instant."""
    target = folder / "mp4_lying_duration.mp4"
    with source_clip(bframes=0) as source:
        data = bytearray(source.read_bytes())
    for name, offset in (("moov/mvhd", 24), ("moov/trak/tkhd", 28), ("moov/trak/mdia/mdhd", 24)):
        struct.pack_into(">I", data, find_box(data, name)[0] + offset, 1)
    # The edit list would end the clip after that instant too.
    struct.pack_into(">4s", data, find_box(data, "moov/trak/edts")[0] + 4, b"free")
    target.write_bytes(data)
    return target


_KEY_TABLE = "moov/trak/mdia/minf/stbl/stss"


def _key_table(folder: Path, name: str, keys: Sequence[int] | None) -> Path:
    """An MP4 file whose table of keyframes lists ``keys`` (counted from 1), or that has no such table."""
    target = folder / name
    with source_clip(bframes=0, gop=12, options={"x264-params": "scenecut=0"}) as source:
        data = source.read_bytes()
    if keys is None:
        start, _ = find_box(data, _KEY_TABLE)
        data = data[: start + 4] + b"free" + data[start + 8 :]
    else:
        table = struct.pack(f">{2 + len(keys)}I", 0, len(keys), *keys)
        data = edit_box(data, _KEY_TABLE, lambda _: table)
    target.write_bytes(data)
    return target


def _keys(name: str, keys: Sequence[int] | None, notes: str) -> ClipKind:
    return ClipKind(name, partial(_key_table, name=f"{name}.mp4", keys=keys), EVERY, notes)


def _cut_in_group(folder: Path, name: str) -> Path:
    """Packets from the middle of a group on, as a recording that was joined late has them."""
    with source_clip(".ts", bframes=0, gop=12) as source:
        return remux(source, folder / name, read_packets(source)[5:])


KINDS = (
    clip("h264_raw", ".h264", "Annex B without any timestamp", **B_FRAMES),
    clip("h264_ts", ".ts", "packets across 188-byte cells; the start is not 0", **B_FRAMES),
    clip("h264_m2ts", ".m2ts", "cells of 192 bytes", **B_FRAMES),
    clip("h264_ps", ".mpg", "some packets have no times", format="mpeg", **B_FRAMES),
    clip("h264_flv", ".flv", "milliseconds", **B_FRAMES),
    clip("h264_avi", ".avi", "decode times only: presentation times are guessed", **B_FRAMES),
    clip("h264_mkv_cues", ".mkv", "with an index at the end", **B_FRAMES),
    clip("h264_mkv_live", ".mkv", "no index, no duration, sizes unknown", container_options={"live": "1"}, **B_FRAMES),
    clip("h264_nut", ".nut", "a container of another family", **B_FRAMES),
    clip("h264_mov", ".mov", "QuickTime", **B_FRAMES),
    clip(
        "h264_negative_ctts",
        ".mp4",
        "offsets below zero instead of an edit list",
        container_options={"movflags": "negative_cts_offsets"},
        **B_FRAMES,
    ),
    _movflags("mp4_faststart", "faststart", "the index comes first"),
    _movflags("mp4_fragments", "frag_keyframe+empty_moov+default_base_moof", "no sample table in the header"),
    _movflags("mp4_fragment_each_frame", "frag_every_frame+empty_moov+default_base_moof", "a fragment a frame"),
    _movflags("mp4_fragment_duration", "empty_moov+default_base_moof", "borders inside groups", frag_duration="250000"),
    _movflags("mp4_dash", "dash+frag_keyframe", "with an index of fragments in front (sidx)"),
    _movflags("mp4_hybrid_fragments", "frag_keyframe", "the first group in the header, the others in fragments"),
    clip("mp4_no_edit_list", ".mp4", "first pts above 0", container_options={"use_editlist": "0"}, **B_FRAMES),
    clip("mp4_start_10s", ".mp4", "an empty edit of 10 s", pts=lambda place: place + 300, **B_FRAMES),
    clip("ts_start_10s", ".ts", "first pts is 10 s", pts=lambda place: place + 300, **B_FRAMES),
    clip("mkv_start_10s", ".mkv", "first pts is 10 s", pts=lambda place: place + 300, **B_FRAMES),
    clip(
        "ts_wraps",
        ".ts",
        "the 33-bit clock starts again in mid-clip",
        pts=lambda place: 2**33 - 60_000 + 3000 * place,
        time_base=Fraction(1, 90000),
        **B_FRAMES,
    ),
    clip(
        "mkv_negative_pts",
        ".mkv",
        "starts before 0: times of the first packets are unknown",
        pts=lambda place: place - 7,
        container_options={"avoid_negative_ts": "disabled"},
        **B_FRAMES,
    ),
    clip("mp4_vfr", ".mp4", "no two frames last equally long", **VFR, **B_FRAMES),
    clip("mkv_vfr", ".mkv", "no two frames last equally long", **VFR, **B_FRAMES),
    clip("mp4_ntsc", ".mp4", "30000/1001 a second", fps=Fraction(30000, 1001), **B_FRAMES),
    ClipKind("avi_lying_count", _lying_avi, EVERY, "the header says 100,000 frames"),
    ClipKind("ivf_lying_header", _lying_ivf, EVERY, "the header says 7 frames"),
    ClipKind("mkv_lying_rate", _lying_rate_mkv, EVERY, "the header says 1000 frames a second"),
    ClipKind("mp4_lying_rate", _lying_rate_mp4, EVERY, "the average rate is below 1 because the last frame lasts long"),
    ClipKind("mp4_lying_duration", _lying_duration, EVERY, "the headers say that it lasts no time at all"),
    _keys("mp4_all_flagged_key", range(1, FRAMES + 1), "the table says that every frame is a keyframe; one in 12 is"),
    _keys("mp4_one_flagged_key", [1], "the table names the first keyframe only"),
    _keys("mp4_no_key_table", None, "nothing said about keyframes"),
    ClipKind(
        "ts_starts_in_group",
        partial(_cut_in_group, name="ts_starts_in_group.ts"),
        tuple(range(12, FRAMES)),
        "seven packets before the first keyframe",
    ),
)
