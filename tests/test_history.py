"""Damaged files: what comes of a frame depends on the file alone, not on what was asked or read before."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import av
import pytest
import torch

import clips
from clips.base import read_packets, remux
from framefeed import DecodeError, VideoDataset, VideoDecoder, VideoIndex, VideoLoader
from framefeed.decode.default import cpu_engine
from framefeed.index.bitstream import PacketKind
from framefeed.testing import samples
from random_damage import Answer, ask, check, linear_truth, make_mutant

_CODECS: dict[str, dict[str, Any]] = {
    "hevc.mp4": {"codec": "libx265", "gop": 6, "options": {"x265-params": "log-level=none", "preset": "ultrafast"}},
    "vp8.webm": {"codec": "libvpx", "gop": 6},
    "ffv1.mkv": {"codec": "ffv1", "gop": 1, "options": {"level": "3", "slicecrc": "1", "slices": "4"}},
    "png.mov": {"codec": "png", "gop": None, "pix_fmt": "rgb24"},
    "png.avi": {"codec": "png", "gop": None, "pix_fmt": "rgb24"},
    "av1.mp4": {"codec": "libsvtav1", "gop": 6, "options": {"preset": "12"}},
}


_MUTANTS = ["hevc_closed_bframes", "h264_bframes", "vp8_plain", "mpeg4_mp4", "mjpeg.avi", "ffv1.mkv", "mpeg1.mpg"]


def _clip(folder: Path, name: str, seed: int = 0) -> Path:
    path = folder / f"{seed}_{name}"
    samples.write_clip(path, **{"frames": 12, "width": 256, "height": 192, "seed": seed} | _CODECS[name])
    return path


def _harmed(good: Path, packet: int, harm: Iterable[tuple[int, int]]) -> Path:
    """A copy with changed bytes in one packet: their places in it, and the bits of each that change."""
    index = VideoIndex.scan(good)
    data = bytearray(good.read_bytes())
    for place, bits in harm:
        data[int(index.packets.pos[packet]) + place] ^= bits
    path = good.with_name(f"harmed_{good.name}")
    path.write_bytes(data)
    return path


def _read(path: Path, frames: list[int]) -> dict[int, Answer]:
    return ask(VideoDecoder(path, num_ffmpeg_threads=1), frames)


def _first_read(path: Path, frames: list[int]) -> dict[int, Answer]:
    """The same by decoders that have not been used."""
    cpu_engine.cache_clear()
    return _read(path, frames)


# --- pixels of other videos -------------------------------------------------------------------------------------------


def test_no_pixels_of_another_video(tmp_path: Path) -> None:
    """The slice of a keyframe that ends too early, which FFmpeg does not tell."""
    good, other = _clip(tmp_path, "hevc.mp4"), _clip(tmp_path, "hevc.mp4", 1)
    index = VideoIndex.scan(good)
    assert index.stream.extradata == VideoIndex.scan(other).stream.extradata
    size = int(index.packets.size[0])
    silent = refused = 0
    for place in range(size // 4, size, size // 60):
        path = _harmed(good, 0, [(place, 0x20)])
        truth = linear_truth(path)
        if truth.reported:
            continue
        first = _first_read(path, [0])
        decoders = [VideoDecoder(each, num_ffmpeg_threads=1) for each in (path, other)]
        for _ in range(4):  # until a decoder comes back that has read it
            ask(decoders[1], list(range(12)))
            assert ask(decoders[0], [0]) == first
        assert first[0] in (None, truth.digests[0])
        silent += 1
        refused += first[0] is None
    assert silent >= 30
    assert 0 < refused < silent


def test_equal_requests_give_equal_pictures(tmp_path: Path) -> None:
    """VP8, where rows of blocks are left out behind the end of the data."""
    good = _clip(tmp_path, "vp8.webm")
    size = int(VideoIndex.scan(good).packets.size[2])
    refused = 0
    for seed in range(12):
        rng = random.Random(seed)
        path = _harmed(good, 2, [(rng.randrange(10, size), rng.randrange(1, 256)) for _ in range(3)])
        first = _first_read(path, list(range(6)))
        decoder = VideoDecoder(path, num_ffmpeg_threads=1)
        for _ in range(8):
            assert ask(decoder, list(range(6))) == first
        refused += None in first.values()
    assert refused


@pytest.mark.parametrize("threads", [1, 2])
def test_a_picture_of_which_no_slice_can_be_decoded(threads: int, clip_folder: Path) -> None:
    """Behind an open random-access point, FFmpeg gives out the memory as it was."""
    good = clips.make("h264_open_gop", clip_folder)
    path = _harmed(good, 29, [(9, 0x10)])
    index = VideoIndex.scan(path)
    frame = index.packets.frames.tolist().index(29)
    cpu_engine.cache_clear()
    decoder = VideoDecoder(path, index=index, num_ffmpeg_threads=threads)
    assert ask(decoder, [frame]) == {frame: None}
    assert None not in ask(decoder, list(range(28))).values()
    assert not check(path, random.Random(threads), [good], good)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("pyramid", [0, 2])
def test_missing_references_of_whole_files_are_not_unwritten(threads: int, pyramid: int, tmp_path: Path) -> None:
    """Interlaced, with open groups and several references: FFmpeg makes up those that are in front of a group."""
    path = tmp_path / "open.mp4"
    options = {"x264-params": f"open-gop=1:ref=4:bframes=3:b-pyramid={pyramid}:tff=1"}
    samples.write_clip(path, codec="libx264", frames=36, gop=12, width=96, height=64, interlaced=True, options=options)
    truth = linear_truth(path)
    decoder = VideoDecoder(path, num_ffmpeg_threads=threads)
    for frames in (list(range(36)), [14], [27], [24, 35]):
        assert ask(decoder, frames) == {frame: truth.digests[frame] for frame in frames}


# --- checksums --------------------------------------------------------------------------------------------------------


def test_each_changed_byte_of_ffv1_with_checksums_is_noticed(tmp_path: Path) -> None:
    good = _clip(tmp_path, "ffv1.mkv")
    whole = _first_read(good, list(range(12)))
    size = int(VideoIndex.scan(good).packets.size[3])
    for seed in range(40):
        rng = random.Random(seed)
        path = _harmed(good, 3, [(rng.randrange(size), rng.randrange(1, 256))])
        assert _first_read(path, [3]) == {3: None}
        assert _read(path, [2, 4]) == {frame: whole[frame] for frame in (2, 4)}


def test_each_changed_bit_of_hevc_with_digests_is_noticed(tmp_path: Path) -> None:
    good = tmp_path / "digests.mkv"
    options = {"x265-params": "hash=1:log-level=none"}
    samples.write_clip(good, codec="libx265", frames=10, gop=10, width=160, height=96, options=options)
    index = VideoIndex.scan(good)
    assert None not in _first_read(good, list(range(10))).values()
    for seed in range(20):
        rng = random.Random(seed)
        packet = rng.randrange(10)
        path = _harmed(good, packet, [(rng.randrange(12, int(index.packets.size[packet]) - 60), 1 << rng.randrange(8))])
        frame = index.packets.frames.tolist().index(packet)
        assert _first_read(path, [frame]) == {frame: None}


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packet", [1, 4, 11])
@pytest.mark.parametrize("name", ["png.mov", "av1.mp4", "vp8.webm"])
def test_a_damaged_packet_keeps_its_number(name: str, packet: int, tmp_path: Path) -> None:
    """And so do all others, whatever a linear decode says of them."""
    good = _clip(tmp_path, name)
    index = VideoIndex.scan(good)
    truth = linear_truth(good)
    assert truth.shown == index.packets.frames.tolist()
    path = _harmed(good, packet, [(place, 0xFF) for place in range(40)])
    found = VideoIndex.scan(path).packets
    assert found.frames.tolist() == truth.shown
    assert found.pts.tolist() == index.packets.pts.tolist()
    assert _first_read(path, [packet]) == {packet: None}
    group = 1 if name == "png.mov" else 6
    others = [frame for frame in range(12) if frame < packet or frame // group > packet // group]
    assert _read(path, others) == {frame: truth.digests[frame] for frame in others}


# --- numbers of pictures that nobody refers to ------------------------------------------------------------------------


@pytest.mark.parametrize("place, bits", [(5, 0x01), (6, 0x80), (6, 0x40), (6, 0x20)])
@pytest.mark.parametrize("packet", [20, 28])
def test_leaving_out_a_picture_with_a_damaged_number(packet: int, place: int, bits: int, clip_folder: Path) -> None:
    """FFmpeg makes up pictures between two frame numbers, and drops references for them."""
    good = clips.make("h264_open_gop", clip_folder)
    assert int(VideoIndex.scan(good).packets.flags[packet]) & PacketKind.NONREF
    path = _harmed(good, packet, [(place, bits)])
    index = VideoIndex.scan(path)
    assert not int(index.packets.flags[packet]) & PacketKind.NONREF
    frames = list(range(len(index)))
    alone = {frame: _first_read(path, [frame])[frame] for frame in frames}
    together = _first_read(path, [frame for frame in frames if alone[frame] is not None])
    assert together == {frame: answer for frame, answer in alone.items() if answer is not None}
    assert not check(path, random.Random(packet), [], good)


def test_the_second_field_of_one_that_cannot_be_read(clip_folder: Path) -> None:
    """A parameter set that FFmpeg hops over: its pictures come out whole, but the headers do not pair their fields."""
    good = clips.make("h264_paff_mp4", clip_folder)
    path = _harmed(good, 16, [(4, 0x80)])
    index = VideoIndex.scan(path)
    assert index.packets.frames.tolist() == linear_truth(path).shown == linear_truth(good).shown
    for others in ([], [7], [17], [3, 9]):
        cpu_engine.cache_clear()
        assert _read(path, [8, *others])[8] == linear_truth(path).digests[8]
    assert not check(path, random.Random(1), [], good)


def test_bytes_behind_a_field_do_not_take_it_from_its_picture(clip_folder: Path, tmp_path: Path) -> None:
    """Decoders ignore what is too short for a NAL unit and its length."""
    good = clips.make("h264_paff_mp4", clip_folder)
    table = VideoIndex.scan(good).packets
    for count in (1, 3):
        packets = read_packets(good)
        for number in (16, 20, 25):
            longer: av.Packet[Any] = av.Packet(bytes(packets[number]) + bytes([128] * count))
            longer.pts, longer.dts, longer.time_base = (
                packets[number].pts,
                packets[number].dts,
                packets[number].time_base,
            )
            longer.is_keyframe = packets[number].is_keyframe
            packets[number] = longer
        path = remux(good, tmp_path / f"{count}.mp4", packets)
        assert VideoIndex.scan(path).packets.flags.tolist() == table.flags.tolist()
        assert not check(path, random.Random(count), [])


# --- all of it --------------------------------------------------------------------------------------------------------


def _by_loader(path: Path, **options: Any) -> dict[int, bytes | None]:
    """The bytes of every frame that a loader gives; None for those that it leaves out."""
    dataset = VideoDataset([path], get_label=lambda _, frame, __: frame)
    found: dict[int, bytes | None] = {}
    loader = VideoLoader(dataset, 3, shuffle=True, drop_last=False, on_error="skip", **options)
    for batch in loader:
        for frame, picture in zip(batch["labels"], batch["default"], strict=True):
            found[frame] = picture.to(torch.uint8).numpy().tobytes()
    return found | {skipped.frame: None for skipped in loader.skipped}


def _one_by_one(path: Path) -> dict[int, bytes | None]:
    decoder = VideoDecoder(path)
    found: dict[int, bytes | None] = {}
    for frame in range(len(decoder)):
        cpu_engine.cache_clear()
        try:
            found[frame] = decoder[frame].numpy().tobytes()
        except DecodeError:
            found[frame] = None
    return found


@pytest.mark.parametrize("seed", range(12))
def test_answers_depend_on_the_file_alone(seed: int, tmp_path: Path, clip_folder: Path) -> None:
    """Files with changed bytes: requests in many orders, other videos in between, threads, loaders, packet workers."""
    rng = random.Random(seed)
    path, good, _ = make_mutant(tmp_path, rng, _MUTANTS)
    others = [clips.make(kind, clip_folder) for kind in ("h264_bframes", "hevc_closed_bframes", "vp8_plain")]
    assert check(path, rng, [good, *others], good) == []
    expected = _one_by_one(path)
    assert _by_loader(path, num_threads=1 + seed % 2) == expected
    if seed % 4 == 0:
        assert _by_loader(path, num_workers=1) == expected
