"""Bad input of every sort: files that are cut, flipped, lying, or no video at all.

Each function of `DAMAGED` writes one into a folder and returns its path. Nothing here says what a reader should do
with it, except: name the file in an error, and neither hang, nor eat the memory, nor hand out a wrong picture.
"""

import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from clips.base import read_packets, source_clip
from clips.boxes import HEADER, box, edit_box, find_box
from clips.fields import field_picture, parameter_sets

GOOD: dict[str, Any] = {"gop": 12, "bframes": 2, "options": {"x264-params": "scenecut=0:b-adapt=0"}}
STBL = "moov/trak/mdia/minf/stbl"


def flip_bits(path: Path, start: int, end: int, count: int, seed: int) -> None:
    """Flips ``count`` different bits of the bytes ``start``..``end - 1`` in place."""
    data = bytearray(path.read_bytes())
    for bit in random.Random(seed).sample(range(start * 8, end * 8), count):
        data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def group_bytes(path: Path, group: int) -> tuple[int, int]:
    """The bytes from the group's keyframe to the end of its last packet (file order, groups counted from 0)."""
    packets = read_packets(path)
    keys = [place for place, packet in enumerate(packets) if packet.is_keyframe]
    members = packets[keys[group] : keys[group + 1] if group + 1 < len(keys) else None]
    spans = [(packet.pos, packet.pos + packet.size) for packet in members if packet.pos is not None]
    return min(span[0] for span in spans), max(span[1] for span in spans)


@contextmanager
def _good(folder: Path, name: str, **options: str) -> Iterator[tuple[Path, bytes]]:
    """The path to write to, and the bytes of a good clip of that sort."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    with source_clip(path.suffix, container_options=options, **GOOD) as source:
        yield path, source.read_bytes()


def _write(path: Path, data: bytes | bytearray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# --- no video -------------------------------------------------------------------------------------------------------


def zero_bytes(folder: Path) -> Path:
    return _write(folder / "zero_bytes.mp4", b"")


def text(folder: Path) -> Path:
    return _write(folder / "text.mp4", b"This is not a video, whatever its name says.\n" * 50)


def garbage(folder: Path) -> Path:
    """A file type box that promises MP4, then noise."""
    noise = random.Random(1).randbytes(20_000)
    return _write(folder / "garbage.mp4", box("ftyp", b"isom\x00\x00\x02\x00isomiso2avc1mp41") + noise)


def audio_only(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "audio_only.mp4"
    with av.open(path, "w") as container:
        stream = container.add_stream("aac", rate=48000)
        for start in range(0, 48000, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, start, Fraction(1, 48000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def directory(folder: Path) -> Path:
    path = folder / "directory.mp4"
    path.mkdir(parents=True, exist_ok=True)
    return path


def dangling_link(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dangling_link.mp4"
    if not path.is_symlink():
        path.symlink_to(folder / "nowhere.mp4")
    return path


def missing(folder: Path) -> Path:
    return folder / "missing.mp4"


def unreadable(folder: Path) -> Path:
    """Without permission to read. Root reads it all the same, and then it is a good clip."""
    path = folder / "unreadable.mp4"
    path.unlink(missing_ok=True)
    with _good(folder, path.name) as (_, data):
        path.write_bytes(data)
    path.chmod(0)
    return path


# --- cut ------------------------------------------------------------------------------------------------------------


def no_moov(folder: Path) -> Path:
    """As a recorder leaves it when the power fails: media data, no index."""
    with _good(folder, "no_moov.mp4") as (path, data):
        return _write(path, data[: find_box(data, "moov")[0]])


def cut_in_data(folder: Path) -> Path:
    """A download that stopped: the index promises more than there is."""
    with _good(folder, "cut_in_data.mp4", movflags="faststart") as (path, data):
        return _write(path, data[: len(data) * 6 // 10])


def cut_fragment(folder: Path) -> Path:
    flags = "frag_keyframe+empty_moov+default_base_moof"
    with _good(folder, "cut_fragment.mp4", movflags=flags) as (path, data):
        return _write(path, data[: len(data) * 6 // 10])


def cut_mkv(folder: Path) -> Path:
    with _good(folder, "cut_mkv.mkv") as (path, data):
        return _write(path, data[: len(data) * 6 // 10])


def cut_ts(folder: Path) -> Path:
    """Cut inside a cell, so the last packet is short."""
    with _good(folder, "cut_ts.ts") as (path, data):
        return _write(path, data[: len(data) * 6 // 10 // 188 * 188 + 77])


def lost_cells(folder: Path) -> Path:
    """A broadcast with gaps: every 40th cell of the transport stream is missing."""
    with _good(folder, "lost_cells.ts") as (path, data):
        cells = [data[start : start + 188] for start in range(0, len(data), 188)]
        return _write(path, b"".join(cell for place, cell in enumerate(cells) if place < 20 or place % 40))


def past_end(folder: Path) -> Path:
    """The table of chunks points 10 MB behind the end of the file."""

    def shift(table: bytes) -> bytes:
        count = struct.unpack_from(">I", table, 4)[0]
        offsets = struct.unpack_from(f">{count}I", table, 8)
        return table[:8] + struct.pack(f">{count}I", *(offset + 10_000_000 for offset in offsets))

    with _good(folder, "past_end.mp4") as (path, data):
        return _write(path, edit_box(data, f"{STBL}/stco", shift))


# --- flipped bits ---------------------------------------------------------------------------------------------------


def flipped_group(folder: Path) -> Path:
    """Forty wrong bits in the second group; the first, third and fourth are whole."""
    with _good(folder, "flipped_group.mp4") as (path, data):
        _write(path, data)
    start, end = group_bytes(path, 1)
    flip_bits(path, start, end, count=40, seed=3)
    return path


def zeroed_packet(folder: Path) -> Path:
    """Packet 17 (a reference of the second group) is all zeros."""
    with _good(folder, "zeroed_packet.mp4") as (path, data):
        _write(path, data)
    packet = read_packets(path)[17]
    start = packet.pos or 0
    return _write(path, data[:start] + bytes(packet.size) + data[start + packet.size :])


def flipped_header(folder: Path) -> Path:
    with _good(folder, "flipped_header.mp4") as (path, data):
        _write(path, data)
    start, end = find_box(data, "moov")
    flip_bits(path, start + HEADER, end, count=60, seed=4)
    return path


def no_parameter_sets(folder: Path) -> Path:
    """The decoder's configuration is noise."""
    with _good(folder, "no_parameter_sets.mp4") as (path, data):
        start = data.index(b"avcC") + 4
        return _write(path, data[:start] + random.Random(5).randbytes(30) + data[start + 30 :])


# --- absurd claims --------------------------------------------------------------------------------------------------


def huge_picture_in_header(folder: Path) -> Path:
    """The container says 65535x65535, the stream 96x64."""
    with _good(folder, "huge_picture_in_header.mp4") as (path, data):
        changed = bytearray(data)
        struct.pack_into(">HH", changed, data.index(b"avc1", find_box(data, "moov")[0]) + 28, 65535, 65535)
        return _write(path, changed)


def huge_picture_in_stream(folder: Path) -> Path:
    """The parameter set says 16,000,000 pixels each way; the slices hold a few."""
    units = parameter_sets(16_000_000, 16_000_000) + b"".join(field_picture(0, bottom) for bottom in (0, 1))
    return _write(folder / "huge_picture_in_stream.h264", units)


def large_picture_in_stream(folder: Path) -> Path:
    """16384x16384: possible, a gigabyte a few frames, and the slices hold 64x64."""
    units = parameter_sets(16384, 16384) + b"".join(field_picture(0, bottom) for bottom in (0, 1))
    return _write(folder / "large_picture_in_stream.h264", units)


def huge_sample_count(folder: Path) -> Path:
    """The table of sizes claims 2^31 samples."""
    with _good(folder, "huge_sample_count.mp4") as (path, data):
        return _write(path, edit_box(data, f"{STBL}/stsz", lambda table: table[:8] + b"\x80\0\0\0" + table[12:]))


def huge_constant_samples(folder: Path) -> Path:
    """2^31 samples of one size: a table that needs no bytes in the file."""
    with _good(folder, "huge_constant_samples.mp4") as (path, data):
        return _write(path, edit_box(data, f"{STBL}/stsz", lambda _: struct.pack(">III", 0, 100, 2**31)))


def huge_box(folder: Path) -> Path:
    """The index claims to be 4 GB long."""
    with _good(folder, "huge_box.mp4") as (path, data):
        start, _ = find_box(data, "moov")
        return _write(path, data[:start] + b"\xff\xff\xff\xff" + data[start + 4 :])


def huge_time_step(folder: Path) -> Path:
    """Every frame lasts 2^31 - 1 ticks, so times leave 32 bits at once."""
    with _good(folder, "huge_time_step.mp4") as (path, data):
        table = struct.pack(">4I", 0, 1, 48, 2**31 - 1)
        return _write(path, edit_box(data, f"{STBL}/stts", lambda _: table))


def zero_timescale(folder: Path) -> Path:
    """Zero ticks a second."""
    with _good(folder, "zero_timescale.mp4") as (path, data):
        start, _ = find_box(data, "moov/trak/mdia/mdhd")
        return _write(path, data[: start + 20] + bytes(4) + data[start + 24 :])


def empty_moov(folder: Path) -> Path:
    """An index with no track in it."""
    with _good(folder, "empty_moov.mp4") as (path, data):
        start, end = find_box(data, "moov/mvhd")
        return _write(path, data[: find_box(data, "moov")[0]] + box("moov", data[start:end]))


def no_samples(folder: Path) -> Path:
    """The header of a fragmented file, without a fragment: a video stream of no frames."""
    with _good(folder, "no_samples.mp4", movflags="frag_keyframe+empty_moov+default_base_moof") as (path, data):
        return _write(path, data[: find_box(data, "moov")[1]])


def unknown_codec(folder: Path) -> Path:
    """A sample entry that no decoder knows."""
    with _good(folder, "unknown_codec.mp4") as (path, data):
        return _write(path, data.replace(b"avc1\0\0\0\0\0\0\0\1", b"zzzz\0\0\0\0\0\0\0\1"))


_MAKERS = (
    zero_bytes, text, garbage, audio_only, directory, dangling_link, missing, unreadable,
    no_moov, cut_in_data, cut_fragment, cut_mkv, cut_ts, lost_cells, past_end,
    flipped_group, zeroed_packet, flipped_header, no_parameter_sets,
    huge_picture_in_header, huge_picture_in_stream, large_picture_in_stream, huge_sample_count, huge_constant_samples,
    huge_box, huge_time_step, zero_timescale, empty_moov, no_samples, unknown_codec,
)  # fmt: skip
DAMAGED: dict[str, Callable[[Path], Path]] = {maker.__name__: maker for maker in _MAKERS}
