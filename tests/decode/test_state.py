"""What decoders remember of packets: nothing of it may show in frames of others."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import av
import pytest

from clips.base import read_packets, remux
from framefeed import VideoDecoder, VideoIndex
from framefeed.decode.cpu.jpeg_headers import MissingTables, remembered_of
from framefeed.decode.default import cpu_engine
from framefeed.index.bitstream import has_several_slices, nal_length_size
from framefeed.testing import samples
from random_damage import Answer, ask, check, linear_truth

_QUIET = "log-level=none"


def _write(path: Path, **settings: Any) -> Path:
    samples.write_clip(path, **{"frames": 24, "width": 160, "height": 96} | settings)
    return path


def _payloads(path: Path) -> list[bytes]:
    return [bytes(packet) for packet in read_packets(path)]


def _with_payloads(path: Path, payloads: list[bytes]) -> Path:
    """A copy with other bytes in its packets."""
    packets: list[av.Packet[Any]] = []
    for packet, payload in zip(read_packets(path), payloads, strict=True):
        other = av.Packet(payload)
        other.pts, other.dts, other.time_base = packet.pts, packet.dts, packet.time_base
        other.duration, other.is_keyframe = packet.duration or 0, packet.is_keyframe
        packets.append(other)
    target = path.with_name(f"other_{path.name}")
    remux(path, target, packets)
    return target


def _read(path: Path, frames: list[int], threads: int = 1) -> dict[int, Answer]:
    return ask(VideoDecoder(path, num_ffmpeg_threads=threads), frames)


# --- slices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".mp4", ".ts"])
@pytest.mark.parametrize("slices", [1, 2, 3])
def test_packets_with_several_slices_are_told(slices: int, suffix: str, tmp_path: Path) -> None:
    params = f"slices={slices}:{_QUIET}"
    path = _write(tmp_path / f"a{suffix}", codec="libx265", height=192, options={"x265-params": params})
    length_size = nal_length_size(VideoIndex.scan(path).stream.extradata)
    assert (length_size > 0) == (suffix == ".mp4")
    told = {has_several_slices(payload, length_size) for payload in _payloads(path)}
    assert told == {slices > 1}
    assert not has_several_slices(b"", length_size)


def test_a_slice_that_runs_into_the_next_gives_one_picture_only(tmp_path: Path) -> None:
    """With threads, others were built on what had been there before the next slice."""
    path = _write(tmp_path / "a.mp4", codec="libx265", gop=12, options={"x265-params": f"slices=2:{_QUIET}"})
    payloads = _payloads(path)
    for seed in range(12):
        rng = random.Random(seed)
        number = rng.choice([1, 2, 3])
        harmed = bytearray(payloads[number])
        harmed[rng.randrange(20, len(harmed) // 2)] ^= 1 << rng.randrange(8)
        other = _with_payloads(path, [*payloads[:number], bytes(harmed), *payloads[number + 1 :]])
        truth = linear_truth(other)
        right = dict(zip(truth.shown, truth.digests, strict=True))
        cpu_engine.cache_clear()
        single = VideoDecoder(other, num_ffmpeg_threads=1)
        threaded = VideoDecoder(other, num_ffmpeg_threads=2)
        packets = single.index.packets.frames.tolist()
        for frame in range(8):
            answer = ask(single, [frame])
            assert answer[frame] in (None, right.get(packets[frame]))
            assert ask(threaded, [frame]) == answer


# --- JPEG -------------------------------------------------------------------------------------------------------------


def _jpeg(folder: Path, huffman: str) -> Path:
    return _write(folder / "a.avi", codec="mjpeg", gop=None, frames=8, pix_fmt="yuvj420p", options={"huffman": huffman})


@pytest.mark.parametrize("marker", [b"\xff\xdb", b"\xff\xc4"])
@pytest.mark.parametrize("instead", [b"\xff\xfe", b"\xff\xe7", b"\x00\xdb", b"\xff\x01"])
def test_a_hidden_table_is_not_taken_from_elsewhere(marker: bytes, instead: bytes, tmp_path: Path) -> None:
    path = _jpeg(tmp_path, "optimal")
    payloads = _payloads(path)
    assert marker in payloads[3]
    harmed = payloads[3].replace(marker, instead)
    other = _with_payloads(path, [*payloads[:3], harmed, *payloads[4:]])
    whole = _read(path, list(range(8)))
    for frames in ([3], [2, 3], [3]):
        assert _read(other, frames)[3] is None
    rest = [frame for frame in range(8) if frame != 3]
    assert _read(other, rest) == {frame: whole[frame] for frame in rest}


def test_cameras_leave_out_the_usual_tables(tmp_path: Path) -> None:
    path = _jpeg(tmp_path, "default")
    tables = re.compile(rb"\xff\xc4\x01\xa2.{416}", re.DOTALL)
    payloads = [tables.sub(b"", payload, count=1) for payload in _payloads(path)]
    assert all(b"\xff\xc4" not in payload[:600] for payload in payloads)
    other = _with_payloads(path, payloads)
    folder = tmp_path / "optimal"
    folder.mkdir()
    optimal = _jpeg(folder, "optimal")
    whole, others = _read(path, list(range(8))), _read(optimal, list(range(8)))
    for _ in range(3):  # whatever other tables decoders have seen
        assert _read(other, list(range(8))) == whole
        assert _read(optimal, list(range(8))) == others


def test_headers_of_noise_do_not_confuse() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        markers = bytes(rng.choice([0xFF, 0xC4, 0xDB, 0xDA, 0xC0, 0, 1, 9, 17]) for _ in range(rng.randrange(60)))
        data = b"\xff\xd8" * rng.randrange(2) + markers
        try:
            assert remembered_of(data) == remembered_of(memoryview(data))
        except MissingTables:
            continue


# --- MPEG -------------------------------------------------------------------------------------------------------------


def test_a_damaged_sequence_header_is_not_made_good_by_another_group(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.mkv", codec="mpeg2video", gop=8)
    payloads = _payloads(path)
    assert payloads[0].startswith(b"\0\0\1\xb3")
    harmed = bytearray(payloads[0])
    harmed[11] ^= 4
    other = _with_payloads(path, [bytes(harmed), *payloads[1:]])
    for frames in ([2], [17, 2], [9]):
        cpu_engine.cache_clear()
        fresh = _read(other, [2])
        assert _read(other, frames)[frames[0]] is not None or frames[0] == 2
        assert _read(other, [2]) == fresh


@pytest.mark.parametrize("name", ["h263.avi", "flv1.flv"])
def test_damage_is_what_the_decoder_says_after_all_pictures_before(name: str, tmp_path: Path) -> None:
    """It finds out from some pictures how an encoder ends them, and only then takes what is left over for damage."""
    codec = {"h263.avi": "h263", "flv1.flv": "flv"}[name]
    path = _write(tmp_path / name, codec=codec, width=176, height=144, frames=36, gop=12)
    index = VideoIndex.scan(path)
    data = path.read_bytes()
    lost = 0
    for seed in range(12):
        rng = random.Random(seed)
        harmed = bytearray(data)
        number = rng.randrange(14, 36)
        begin, size = int(index.packets.pos[number]), int(index.packets.size[number])
        harmed[begin + rng.randrange(8, size)] = rng.randrange(256)
        other = tmp_path / f"harmed_{name}"
        other.write_bytes(harmed)
        assert not check(other, rng, [], path)
        lost += _read(other, [number])[number] is None
    assert lost


# --- the end ----------------------------------------------------------------------------------------------------------

_LEAVE = """
import sys
from framefeed import VideoDecoder

decoders = [VideoDecoder(sys.argv[1], num_ffmpeg_threads=2) for _ in range(6)]
for decoder in decoders:
    decoder.get_native_frames_at([11])
"""


@pytest.mark.parametrize("turn", range(4))
def test_a_process_ends_while_threads_decode(turn: int, tmp_path: Path) -> None:
    """They want Python's lock for the memory of pictures; at the end nobody gets it any more."""
    path = _write(tmp_path / "a.webm", codec="libvpx", frames=48, gop=48, width=640, height=480)
    ran = subprocess.run([sys.executable, "-c", _LEAVE, str(path)], capture_output=True, timeout=60, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
