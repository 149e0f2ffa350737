"""Frames and times of what is written are those of the source, whatever it is; groups are as they were asked for."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

import clips
from framefeed import VideoDecoder, VideoIndex
from framefeed.compare.verify import verify_file
from framefeed.prepare.encoding import task
from framefeed.testing.samples import painted_frame, plane_samples, write_clip
from prepare.helpers import prepare_one, prepared, rgb

TURNED = tuple(name for name in clips.KINDS if "rotated" in name or "mirrored" in name)
SMALL: dict[str, Any] = {"width": 96, "height": 64}


@pytest.mark.parametrize("name", sorted(set(clips.KINDS) - set(TURNED)))
def test_every_kind_of_video(name: str, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make(name, clip_folder)
    file = prepared(path, tmp_path, crf=18, gop=7, force=True)
    before, after = VideoIndex.scan(path), VideoIndex.scan(file)
    numbers = clips.KINDS[name].numbers
    if numbers is not None:
        assert clips.painted_numbers(clips.linear_decode(file)) == list(numbers)
    assert after.num_frames == before.num_frames
    first = min(0, int(before.packets.frame_pts[0]))  # there is nothing before 0
    times = [(tick - first) * before.stream.time_base for tick in before.packets.frame_pts.tolist()]
    assert [tick * after.stream.time_base for tick in after.packets.frame_pts.tolist()] == times
    assert after.packets.keyframes.tolist() == list(range(0, after.num_frames, 7))
    facts = ("color_primaries", "color_transfer", "sample_aspect_ratio")
    assert [getattr(after.stream, fact) for fact in facts] == [getattr(before.stream, fact) for fact in facts]
    assert after.stream.pix_fmt in ("yuv420p", "yuvj420p")


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9", "av1"])
@pytest.mark.parametrize(("gop", "b_frames"), [(1, 0), (10, 0), (12, 3), (250, 0)])
def test_groups(codec: Any, gop: int, b_frames: int, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("mp4_vfr", clip_folder)
    file = prepared(path, tmp_path, codec=codec, gop=gop, b_frames=b_frames, crf=20, size=(128, 96))
    index = VideoIndex.scan(file)
    table = index.packets
    assert table.keyframes.tolist() == list(range(0, 48, gop))
    # Closed: what follows a keyframe, in decode order and in presentation order, is decoded from it.
    assert table.start[table.frames].tolist() == [int(table.frames[number // gop * gop]) for number in range(48)]
    reorders = b_frames > 0 and codec in ("h264", "hevc")
    assert (index.stream.reorder_depth > 0) == reorders
    assert index.stream.codec == codec
    assert verify_file(file).equal
    data = file.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


@pytest.mark.parametrize("codec", ["h264", "hevc", "vp9", "av1"])
def test_cuts_bring_no_keyframes(codec: Any, tmp_path: Path) -> None:
    """As presets that look for them would."""
    shown = [painted_frame(number, 96, 64, seed=number // 5) for number in range(30)]
    path = write_clip(tmp_path / "cuts.mp4", frames=30, painter=lambda number: shown[number], **SMALL)
    preset = {"h264": "veryfast", "hevc": "veryfast", "vp9": "5", "av1": "8"}[codec]
    file = prepared(path, tmp_path, codec=codec, gop=12, preset=preset)
    assert VideoIndex.scan(file).packets.keyframes.tolist() == [0, 12, 24]


@pytest.mark.parametrize("name", TURNED)
def test_pictures_are_stored_upright(name: str, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make(name, clip_folder)
    file = prepared(path, tmp_path, crf=4)
    assert not VideoIndex.scan(file).stream.orientation
    assert np.abs(rgb(file) - rgb(path)).mean() < 1.5


@pytest.mark.parametrize("codec", ["h264", "av1"])
@pytest.mark.parametrize("name", sorted(name for name in clips.KINDS if name.startswith("color_")))
def test_colours(name: str, codec: Any, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make(name, clip_folder)
    file = prepared(path, tmp_path, crf=4, codec=codec, short_side=48)
    before, after = VideoIndex.scan(path).stream, VideoIndex.scan(file).stream
    facts = ("color_space", "color_primaries", "color_transfer")
    assert [getattr(after, fact) for fact in facts] == [getattr(before, fact) for fact in facts]
    assert (after.color_range or 1) == (before.color_range or 1)
    assert after.pix_fmt == ("yuv420p10le" if "10bit" in name and codec == "av1" else after.pix_fmt)
    large = torch.from_numpy(rgb(path)).permute(0, 3, 1, 2)
    small = torch.nn.functional.interpolate(large, size=(48, 72), mode="bilinear", antialias=True)
    found = torch.from_numpy(rgb(file)).permute(0, 3, 1, 2)
    assert (found.mean((0, 2, 3)) - small.mean((0, 2, 3))).abs().max() < 1.5
    assert (found - small).abs().mean() < 4.5


def test_rgb_becomes_bt709(tmp_path: Path) -> None:
    def stripes(number: int) -> av.VideoFrame:
        colours = np.array(
            [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0], [0, 255, 255], [255, 0, 255]], np.uint8
        )
        return av.VideoFrame.from_ndarray(np.repeat(np.repeat(colours[None], 16, 1), 64, 0), format="rgb24")

    path = write_clip(tmp_path / "x.mov", codec="png", frames=3, pix_fmt="rgb24", painter=stripes, gop=None, **SMALL)
    file = prepared(path, tmp_path, crf=1)
    stream = VideoIndex.scan(file).stream
    assert (stream.color_space, stream.color_range, stream.pix_fmt) == (1, 1, "yuv420p")
    middles = slice(8, None, 16)
    assert np.abs(rgb(file) - rgb(path))[:, :, middles].max() < 6


def test_10_bits(clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("hevc_10bit", clip_folder)
    outcome = prepare_one(path, tmp_path)
    assert outcome.warnings == ("10 bits per sample were reduced to 8",)
    kept = prepare_one(path, tmp_path, codec="hevc", gop=9)
    assert kept.warnings == () and VideoIndex.scan(kept.files[0]).stream.pix_fmt == "yuv420p10le"
    deep = prepared(path, tmp_path, pixel_format="keep")
    assert VideoIndex.scan(deep).stream.pix_fmt == "yuv420p10le"


def test_odd_sizes_lose_a_line(clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("odd_size_h264_444", clip_folder)
    file = prepared(path, tmp_path, crf=4)
    assert np.abs(rgb(file) - rgb(path)[:, :96, :160]).mean() < 3
    deep = prepared(path, tmp_path, crf=4, pixel_format="keep")
    assert np.abs(rgb(deep) - rgb(path)[:, :96, :160]).mean() < 1.5


def test_turned_422(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "x.mp4", frames=6, gop=2, pix_fmt="yuv422p", rotation=90, **SMALL)
    file = prepared(path, tmp_path, crf=4, pixel_format="keep")
    assert VideoIndex.scan(file).stream.pix_fmt == "yuv422p"
    assert np.abs(rgb(file, 1) - rgb(path, 1)).mean() < 3  # chroma is halved in the other direction now


def test_interlaced_is_left_so(clip_folder: Path, tmp_path: Path) -> None:
    outcome = prepare_one(clips.make("h264_mbaff", clip_folder), tmp_path)
    assert "is interlaced and remains so" in outcome.warnings[0]

    # Where the size changes, each field is resized by itself: lines of two moments are not mixed.
    def field(number: int) -> av.VideoFrame:
        picture = painted_frame(number, 96, 64)
        lines = plane_samples(picture.planes[0], np.dtype(np.uint8))
        lines[::2], lines[1::2] = 40, 200
        return picture

    path = write_clip(tmp_path / "f.mp4", frames=4, interlaced=True, painter=field, options={"crf": "1"}, **SMALL)
    file = prepared(path, tmp_path, crf=1, size=(48, 32))
    lines = clips.luma(clips.linear_decode(file)[0])[:, 8:40].mean(axis=1)
    assert np.abs(lines[::2] - 40).max() < 12 and np.abs(lines[1::2] - 200).max() < 12


def test_sizes_that_change(clip_folder: Path, tmp_path: Path) -> None:
    outcome = prepare_one(clips.make("h264_size_change_ts", clip_folder), tmp_path)
    assert outcome.warnings == ("changes its size to 128x96; all frames were scaled to one size",)
    assert {frame.width for frame in clips.linear_decode(outcome.files[0])} == {96}


@pytest.mark.parametrize("fps", [10, 75])
def test_a_steady_rate(fps: int, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("mp4_vfr", clip_folder)
    decoder = VideoDecoder(path)
    file = prepared(path, tmp_path, fps=Fraction(fps), crf=18)
    index = VideoIndex.scan(file)
    expected = decoder.get_all_frames(fps=fps)
    assert index.pts_seconds(np.arange(len(index))).tolist() == pytest.approx(expected.pts_seconds.tolist(), abs=1e-9)
    numbers = clips.painted_numbers(clips.linear_decode(file))
    assert numbers == sorted(numbers) and (max(np.bincount(numbers)) > 1) == (fps == 75)
    assert verify_file(file).equal


@pytest.mark.parametrize(("container", "codec"), [("mov", "hevc"), ("mkv", "h264"), ("webm", "vp9")])
def test_containers(container: Any, codec: Any, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("mp4_vfr", clip_folder)
    file = prepared(path, tmp_path, container=container, codec=codec, gop=8)
    before, after = VideoIndex.scan(path), VideoIndex.scan(file)
    every = np.arange(48)
    tolerance = 0 if container == "mov" else 0.00101
    assert np.abs(after.pts_seconds(every) - before.pts_seconds(every)).max() <= tolerance
    assert file.suffix == f".{container}" and verify_file(file).equal


def test_a_damaged_video(tmp_path: Path) -> None:
    """Far enough from its beginning that something has been written before."""
    data = bytearray(write_clip(tmp_path / "whole.mp4", frames=90, width=64, height=48, bframes=0).read_bytes())
    index = VideoIndex.scan(bytes(data))
    first, size = int(index.packets.pos[80]), int(index.packets.size[80])
    data[first + 8 : first + size] = b"\xff" * (size - 8)
    path = tmp_path / "damaged.mp4"
    path.write_bytes(data)
    outcome = prepare_one(path, tmp_path)
    assert "frame 80 cannot be decoded exactly" in outcome.error and not outcome.stops
    assert list(tmp_path.glob("made-*")) == []


# --- what need not be encoded -------------------------------------------------------------------------------------


def packets_of(path: Path) -> list[bytes]:
    with av.open(path) as container:
        return [bytes(packet) for packet in container.demux(container.streams.video[0]) if packet.size]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_what_is_right_is_taken_over(codec: Any, suffix: str, clip_folder: Path, tmp_path: Path) -> None:
    made = prepared(clips.make("mp4_vfr", clip_folder), tmp_path, codec=codec, gop=12)
    path = tmp_path / f"right{suffix}"
    with av.open(made) as source, av.open(path, "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(source.streams.video[0]):
            if packet.size:
                packet.stream = stream
                container.mux(packet)
    outcome = prepare_one(path, tmp_path, codec=codec, gop=12, crf=51)
    file = Path(outcome.files[0])
    assert outcome.how == "remuxed"
    if suffix == ".mp4":
        assert packets_of(file) == packets_of(path)
    assert verify_file(file).equal
    for change in ({"gop": 6}, {"force": True}, {"short_side": 48}, {"fps": Fraction(30)}):
        assert prepare_one(path, tmp_path, codec=codec, **{"gop": 12, **change}).how == "encoded"
    with_b = prepared(path, tmp_path, codec=codec, gop=6, b_frames=2)
    assert prepare_one(with_b, tmp_path, codec=codec, gop=6).how == "encoded"
    with_b = prepared(path, tmp_path, codec=codec, gop=6, b_frames=2)
    again = prepare_one(with_b.rename(tmp_path / "b.mp4"), tmp_path, codec=codec, gop=6, b_frames=2)
    assert again.how == "remuxed" and verify_file(Path(again.files[0])).equal


def test_what_shows_other_frames_than_it_has_is_encoded(clip_folder: Path, tmp_path: Path) -> None:
    for name in ("edit_ends_early", "h264_open_gop"):
        path = clips.make(name, clip_folder)
        assert prepare_one(path, tmp_path, gop=12, b_frames=3).how == "encoded"
    plain: dict[str, Any] = {"frames": 10, "gop": 5, "bframes": 0, "options": {"preset": "ultrafast"}, **SMALL}
    for rotation, how in ((None, "remuxed"), (180, "encoded")):
        path = write_clip(tmp_path / f"{rotation}.mp4", rotation=rotation, **plain)
        assert prepare_one(path, tmp_path, gop=5).how == how


# --- sound --------------------------------------------------------------------------------------------------------


def sound_of(path: Path) -> list[tuple[Fraction, bytes]]:
    with av.open(path) as container:
        stream = container.streams.audio[0]
        found = [(packet.pts, packet.time_base, bytes(packet)) for packet in container.demux(stream) if packet.size]
    return [(pts * base, data) for pts, base, data in found if pts is not None]


@pytest.mark.parametrize("b_frames", [0, 2])
@pytest.mark.parametrize("name", ["with_audio", "audio_first_mp4"])
def test_sound_is_copied(name: str, b_frames: int, clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make(name, clip_folder)
    file = prepared(path, tmp_path, audio="copy", b_frames=b_frames)
    before, after = sound_of(path), sound_of(file)
    assert [data for _, data in after] == [data for _, data in before]
    assert [float(when) for when, _ in after] == pytest.approx([float(when) for when, _ in before], abs=1e-4)
    assert clips.painted_numbers(clips.linear_decode(file)) == list(range(48))
    with av.open(prepared(path, tmp_path)) as container:
        assert not container.streams.audio
    silent = prepared(clips.make("mp4_vfr", clip_folder), tmp_path, audio="copy")
    with av.open(silent) as container:
        assert not container.streams.audio


def test_sound_of_scenes(clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "find_cuts", lambda *_: [24])
    path = clips.make("with_audio", clip_folder)
    outcome = prepare_one(path, tmp_path, audio="copy", scenes=True)
    whole, parts = sound_of(path), [sound_of(Path(file)) for file in outcome.files]
    assert [data for part in parts for _, data in part] == [data for _, data in whole]
    assert float(parts[1][0][0]) == pytest.approx(float(whole[len(parts[0])][0]) - 24 / 30, abs=1e-4)


def test_sound_that_has_no_place(clip_folder: Path, tmp_path: Path) -> None:
    path = clips.make("with_audio", clip_folder)
    outcome = prepare_one(path, tmp_path, codec="vp9", container="webm", audio="copy")
    assert "its audio codec (aac) is not supported by this container" in outcome.error
