"""The clips themselves: everything else is tested with them, so they have to be what they claim."""

from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

import clips
import damaged
from clips.base import read_packets
from framefeed.testing import samples

SIZES = [(48, 36), (64, 48), (96, 64), (161, 97), (320, 180), (64, 112)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


# --- the painted number ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_painted_number_is_read_back(width: int, height: int) -> None:
    numbers = [0, 1, 2, 255, 256, 4095, 0xAAAA, samples.MAX_NUMBER]
    assert [samples.read_number(samples.paint(number, width, height).y) for number in numbers] == numbers


def test_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"0\.\.65535"):
        samples.paint(samples.MAX_NUMBER + 1, 64, 48)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("shrink", [2, 4])
def test_number_survives_resizing(width: int, height: int, shrink: int) -> None:
    if width // shrink < 16 or height // shrink < 12:
        pytest.skip("blocks of about one pixel are blurred into each other")
    frame = samples.painted_frame(1234, width, height)
    small = frame.to_ndarray(format="rgb24", width=width // shrink, height=height // shrink)
    assert samples.read_number(small) == 1234
    assert samples.read_number(frame.to_ndarray(format="rgb24", width=width * 2, height=height * 3)) == 1234


@pytest.mark.parametrize("pix_fmt", ["rgb24", "bgr24", "gray", "nv12", "yuv422p", "yuv444p", "yuvj420p", "gbrp"])
def test_number_survives_8_bit_formats(pix_fmt: str) -> None:
    frame = samples.painted_frame(77, 96, 64, pix_fmt=pix_fmt)
    assert frame.format.name == pix_fmt
    assert clips.painted_numbers([frame]) == [77]
    assert samples.read_number(frame.to_ndarray(format="rgb24").astype(np.float32) / 255) == 77


@pytest.mark.parametrize("pix_fmt", ["yuv420p10le", "yuv422p12le", "yuv444p16le"])
def test_number_survives_wide_formats(pix_fmt: str) -> None:
    frame = samples.painted_frame(77, 96, 64, pix_fmt=pix_fmt)
    assert clips.luma(frame).dtype == np.uint16
    assert clips.painted_numbers([frame]) == [77]


def test_every_wrong_block_is_noticed() -> None:
    good = samples.paint(300, 64, 48).y
    for row, col in np.ndindex(samples.CODE_ROWS, samples.GRID):
        wrong = good.copy()
        block = wrong[row * 6 : row * 6 + 6, col * 8 : col * 8 + 8]
        block[:] = samples.BLACK + samples.WHITE - block
        with pytest.raises(ValueError, match="checksum"):
            samples.read_number(wrong)


def test_blended_pictures_are_noticed() -> None:
    first, second = (samples.paint(number, 64, 48).y.astype(np.float64) for number in (7, 8))
    with pytest.raises(ValueError, match="neither black nor white"):
        samples.read_number(((first + second) / 2).astype(np.uint8))


@pytest.mark.parametrize("shape", [(48,), (4, 64), (2, 3, 64, 48)])
def test_wrong_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        samples.read_number(np.zeros(shape, np.uint8))


def test_pictures_depend_on_seed_and_number_only() -> None:
    def same(one: samples.Picture, other: samples.Picture) -> list[bool]:
        return [bool((a == b).all()) for a, b in zip(one, other, strict=True)]

    reference = samples.paint(5, 96, 64, seed=1)
    assert same(reference, samples.paint(5, 96, 64, seed=1)) == [True] * 3
    assert same(reference, samples.paint(6, 96, 64, seed=1)) == [False] * 3
    assert same(reference, samples.paint(5, 96, 64, seed=2)) == [False] * 3


# --- writing --------------------------------------------------------------------------------------------------------


def test_failed_clip_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot paint"):
        samples.write_clip(tmp_path / "clip.mp4", frames=3, first_number=samples.MAX_NUMBER)
    assert list(tmp_path.iterdir()) == []


def test_samples_show_their_numbers_and_are_written_once(folder: Path) -> None:
    paths = samples.write_samples(folder / "samples")
    times = [path.stat().st_mtime_ns for path in paths]
    for path in paths:
        assert clips.painted_numbers(clips.linear_decode(path)) == list(range(samples.SAMPLES[path.name]["frames"]))
    assert [path.stat().st_mtime_ns for path in samples.write_samples(folder / "samples")] == times


# --- the zoo --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", clips.KINDS)
def test_linear_decode_shows_the_numbers(name: str, folder: Path) -> None:
    path = clips.make(name, folder)
    assert path.stem == name
    frames = clips.linear_decode(path)
    if (numbers := clips.KINDS[name].numbers) is not None:
        assert clips.painted_numbers(frames) == list(numbers)


def test_clip_is_made_once(folder: Path) -> None:
    path = clips.make("h264_one_frame", folder)
    path.write_bytes(b"")
    assert clips.make("h264_one_frame", folder) == path
    assert path.read_bytes() == b""
    path.unlink()
    assert clips.make("h264_one_frame", folder).stat().st_size > 0


# Packets that a demuxer gives and frames that are shown: the kinds where the two differ.
COUNTS = {
    "h264_open_gop_cut": (39, 36),
    "h264_paff_mp4": (48, 24),
    "hevc_rasl_at_start_mkv": (39, 36),
    "vp8_alt_ref": (50, 48),
    "ts_starts_in_group": (43, 36),
    "edit_negative_pts": (48, 41),
    "edit_starts_in_group": (36, 31),
    "edit_ends_early": (48, 30),
}


@pytest.mark.parametrize("name", COUNTS)
def test_packets_are_not_frames(name: str, folder: Path) -> None:
    path = clips.make(name, folder)
    assert (len(read_packets(path)), len(clips.linear_decode(path))) == COUNTS[name]


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("rotated_90", "rotation", 90),
        ("rotated_270", "rotation", -90),
        ("rotated_mkv", "rotation", 90),
        ("h264_mbaff", "interlaced_frame", True),
        ("h264_paff_ts", "interlaced_frame", True),
        ("mpeg2_interlaced", "interlaced_frame", True),
        ("color_bt601_full", "colorspace", 6),
        ("color_bt709_limited", "colorspace", 1),
        ("color_bt2020nc_limited", "colorspace", 9),
        ("color_bt601_full", "color_range", 2),
        ("color_bt709_limited", "color_range", 1),
        ("h264_size_change_ts", "width", 128),
        ("vp9_size_change", "width", 128),
        ("two_streams_second_best_mp4", "width", 128),
        ("two_streams_second_default_mkv", "width", 96),
    ],
)
def test_last_frame_has_the_oddity(name: str, attribute: str, value: object, folder: Path) -> None:
    assert getattr(clips.linear_decode(clips.make(name, folder))[-1], attribute) == value


def _nal_types(path: Path) -> list[int]:
    """Type of the last NAL unit of each packet of an HEVC stream in MP4."""
    types = []
    for packet in read_packets(path):
        data, start = bytes(packet), 0
        while start < len(data):
            kind = data[start + 4] >> 1 & 63
            start += 4 + int.from_bytes(data[start : start + 4], "big")
        types.append(kind)
    return types


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("hevc_open_gop", {8, 9, 21}), ("hevc_radl", {6, 7, 19}), ("hevc_rasl_at_start_mp4", {8, 9, 21})],
)
def test_leading_pictures_are_there(name: str, wanted: set[int], folder: Path) -> None:
    assert wanted <= set(_nal_types(clips.make(name, folder)))


@pytest.mark.parametrize(
    ("name", "read", "claim"),
    [
        ("avi_lying_count", lambda stream: stream.frames, 100_000),
        ("ivf_lying_header", lambda stream: stream.frames, 7),
        ("mkv_lying_rate", lambda stream: stream.average_rate, 1000),
        ("mp4_lying_rate", lambda stream: stream.average_rate < 1, True),
        ("mp4_hybrid_fragments", lambda stream: stream.frames, 12),
        ("edit_empty", lambda stream: stream.start_time * stream.time_base, 1.5),
        ("wide_pixels", lambda stream: stream.sample_aspect_ratio * 3, 4),
    ],
)
def test_headers_say_what_the_kind_promises(name: str, read: Any, claim: object, folder: Path) -> None:
    with av.open(clips.make(name, folder)) as container:
        assert read(container.streams.video[0]) == claim


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", damaged.DAMAGED)
def test_damaged_input_is_made(name: str, tmp_path: Path) -> None:
    path = damaged.DAMAGED[name](tmp_path)
    assert path.stem == name
    assert path.parent == tmp_path
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if name == "missing" else [path.name])


def test_flipped_bits_stay_in_their_range(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    path.write_bytes(bytes(100))
    damaged.flip_bits(path, 40, 60, count=9, seed=1)
    data = path.read_bytes()
    assert sum(byte.bit_count() for byte in data) == sum(byte.bit_count() for byte in data[40:60]) == 9


def test_only_the_flipped_group_changes(folder: Path) -> None:
    flipped = clips.linear_decode(damaged.flipped_group(folder))
    assert clips.painted_numbers(flipped[:12] + flipped[24:]) == [*range(12), *range(24, 48)]
