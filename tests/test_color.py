"""Colours: the right matrix and range for every format, and pictures the right way up."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import clips
from framefeed import VideoDecoder
from framefeed.index.orientation import from_matrix
from framefeed.media.native import NativeFrame
from framefeed.testing.samples import read_number
from framefeed.types import Orientation

# Luma weights of red and blue.
WEIGHTS = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020nc": (0.2627, 0.0593)}


def _plane(frame: NativeFrame, number: int, depth: int) -> NDArray[np.float64]:
    plane = frame.planes[number]
    return (plane if depth == 8 else plane.view(np.uint16)).astype(np.float64)


def _spread(samples: NDArray[np.float64], length: int, *, mixed: bool) -> NDArray[np.float64]:
    """As many lines of chroma as luma has: the nearest ones, or mixed of two."""
    count = len(samples)
    if count == length or not mixed:
        return samples[np.arange(length) // (1 if count == length else 2)]
    place = (np.arange(length) + 0.5) * count / length - 0.5
    first = np.floor(place).astype(int) - 1
    weights = np.stack([_bicubic(abs(place - first - tap)) for tap in range(4)])
    taps = np.stack([samples[np.clip(first + tap, 0, count - 1)] for tap in range(4)])
    return np.asarray((weights[..., None] * taps).sum(0) / weights.sum(0)[:, None])


def _bicubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    near = 1.4 * distance**3 - 2.4 * distance**2 + 1
    far = 0.6 * (-(distance**3) + 5 * distance**2 - 8 * distance + 4)
    return np.where(distance < 1, near, np.where(distance < 2, far, 0))


def _reference(frame: NativeFrame, matrix: str, *, full: bool, depth: int = 8) -> NDArray[np.float64]:
    """RGB by the textbook, with the chroma samples that libswscale takes: it mixes lines where it has no faster way."""
    y, u, v = (_plane(frame, number, depth) for number in range(3))
    height, width = y.shape
    mixed = depth > 8 or height % 2 == 1
    u, v = (_spread(chroma, height, mixed=mixed) for chroma in (u, v))
    u, v = (_spread(chroma.T, width, mixed=mixed and width % 2 == 1).T for chroma in (u, v))
    unit = 1 << (depth - 8)
    peak = (1 << depth) - 1
    if full:
        luma, blue, red = y / peak, (u - 128 * unit) / peak, (v - 128 * unit) / peak
    else:
        luma, blue, red = (
            (y - 16 * unit) / (219 * unit),
            (u - 128 * unit) / (224 * unit),
            (v - 128 * unit) / (224 * unit),
        )
    kr, kb = WEIGHTS[matrix]
    r = luma + 2 * (1 - kr) * red
    b = luma + 2 * (1 - kb) * blue
    g = (luma - kr * r - kb * b) / (1 - kr - kb)
    return np.asarray(np.clip(np.stack([r, g, b]) * 255, 0, 255))


def _compare(name: str, folder: Path, matrix: str, *, full: bool, depth: int = 8) -> None:
    path = clips.make(name, folder)
    for order in ("NCHW", "NHWC"):
        decoder = VideoDecoder(path, dimension_order=order)
        for number in (0, 7):
            native = decoder.get_native_frames_at([number])[0]
            got = decoder[number].numpy().astype(np.float64)
            got = got if order == "NCHW" else got.transpose(2, 0, 1)
            error = np.abs(got - _reference(native, matrix, full=full, depth=depth))
            # Where FFmpeg mixes lines of chroma, it goes on with 8 bits of it.
            assert error.mean() < (1.0 if depth == 8 else 1.5), f"{order}: {error.mean()}"
            assert error.max() <= 4.5, f"{order}: {error.max()}"


@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt2020nc"])
@pytest.mark.parametrize("full", [False, True])
def test_matrix_and_range(matrix: str, full: bool, clip_folder: Path) -> None:
    _compare(f"color_{matrix}_{'full' if full else 'limited'}", clip_folder, matrix, full=full)


def test_without_a_tag_it_is_bt601_limited(clip_folder: Path) -> None:
    _compare("color_untagged", clip_folder, "bt601", full=False)


@pytest.mark.parametrize(
    ("name", "depth"),
    [("h264_10bit", 10), ("h264_422", 8), ("h264_444", 8), ("odd_size_h264_444", 8), ("vp9_odd_size", 8)]
    + [("mpeg4_odd_size", 8), ("cropped_h264", 8), ("vp9_10bit", 10), ("ffv1_16bit", 16), ("prores_mov", 10)],
)
def test_formats(name: str, depth: int, clip_folder: Path) -> None:
    matrix = VideoDecoder(clips.make(name, clip_folder)).metadata.color_space
    chosen = {None: "bt601", "bt709": "bt709", "bt2020nc": "bt2020nc"}.get(matrix, "bt601")
    _compare(name, clip_folder, chosen, full=False, depth=depth)


def test_high_depth_2020(clip_folder: Path) -> None:
    _compare("color_hevc_10bit_2020", clip_folder, "bt2020nc", full=False, depth=10)


@pytest.mark.parametrize(
    ("name", "orientation"),
    [
        ("rotated_90", Orientation(1)),
        ("rotated_180", Orientation(2)),
        ("rotated_270", Orientation(3)),
        ("mirrored", Orientation(0, True)),
        ("mirrored_rotated_90", None),
        ("rotated_mkv", None),
    ],
)
def test_pictures_are_the_right_way_up(name: str, orientation: Orientation | None, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    decoder = VideoDecoder(path)
    found = decoder.index.stream.orientation
    assert found and (orientation is None or found == orientation)
    stored = decoder.index.stream
    assert decoder[0].shape[1:] == stored.display_size
    assert (decoder.metadata.height, decoder.metadata.width) == stored.display_size
    # Turned back by hand the number can be read, and in no other way.
    upright = decoder[5].permute(1, 2, 0)
    back = torch.rot90(upright, -found.quarter_turns, (0, 1))
    if found.mirrored:
        back = torch.flip(back, (1,))
    assert read_number(back.numpy()) == clips.KINDS[name].numbers[5]  # type: ignore[index]
    batch = VideoDecoder(path, dimension_order="NHWC").get_frames_at([5, 6]).data
    assert torch.equal(batch[0], upright)


def test_display_matrices() -> None:
    one = 1 << 16
    assert from_matrix((one, 0, 0, 0, one, 0, 0, 0, 1 << 30)) == Orientation()
    assert from_matrix((0, one, 0, -one, 0, 0, 0, 0, 1 << 30)) == Orientation(3)  # a phone held upright
    assert from_matrix((0, -one, 0, one, 0, 0, 0, 0, 1 << 30)) == Orientation(1)
    assert from_matrix((-one, 0, 0, 0, one, 0, 0, 0, 1 << 30)) == Orientation(0, True)
    assert from_matrix((one, 0, 0, 0, -one, 0, 0, 0, 1 << 30)) == Orientation(2, True)  # upside down, by a mirror
    assert from_matrix((0, 0, 0, 0, 0, 0, 0, 0, 0)) == Orientation()
    assert from_matrix((46341, 46340, 0, -46340, 46341, 0, 0, 0, 1 << 30)) == Orientation()  # 45 degrees: not ours


def test_pixels_that_are_not_square_are_reported_not_stretched(clip_folder: Path) -> None:
    decoder = VideoDecoder(clips.make("wide_pixels", clip_folder))
    ratio = decoder.metadata.pixel_aspect_ratio
    assert ratio is not None and ratio != Fraction(1)
    assert decoder[0].shape[1:] == (decoder.index.stream.height, decoder.index.stream.width)


@pytest.mark.parametrize("size", [(48, 64), (17, 33), (224, 224), (100, 10)])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_resize_matches_antialiased_bilinear(size: tuple[int, int], order: str, clip_folder: Path) -> None:
    from framefeed import Resize

    path = clips.make("color_bt709_limited", clip_folder)
    full = VideoDecoder(path)[3]
    got = VideoDecoder(path, dimension_order=order, transforms=[Resize(size)])[3]  # type: ignore[arg-type]
    got = got if order == "NCHW" else got.permute(2, 0, 1)
    expected = torch.nn.functional.interpolate(full[None].float(), size, mode="bilinear", antialias=True)[0]
    error = (got.float() - expected).abs()
    assert error.mean() < 3.0, error.mean()
