"""What is kept of pictures: RGB as ``VideoDecoder`` gives it, YCbCr as the planes have it, and how near scaling is."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import clips
from framefeed import CenterCrop, Resize, VideoDecoder
from framefeed.convert.cpu.intermediate import IntermediateWriter
from framefeed.convert.desc import IntermediateSpec, ProcessDesc
from framefeed.media.native import NativeFrame
from framefeed.types import Orientation, StreamInfo

BT709, LIMITED = 1, 1
STREAM = StreamInfo(
    codec="rawvideo",
    codec_tag="",
    extradata=b"",
    width=64,
    height=48,
    pix_fmt=None,
    color_space=2,
    color_range=0,
    color_primaries=2,
    color_transfer=2,
    sample_aspect_ratio=None,
    orientation=Orientation(),
    time_base=Fraction(1, 30),
    stream_index=0,
    reorder_depth=0,
    average_rate=None,
    header_frames=None,
    bit_rate=None,
    header_duration=None,
    header_start=None,
    bits_per_coded_sample=0,
    container="",
)


def _stream_of(picture: Any, orientation: Orientation | None = None) -> StreamInfo:
    return dataclasses.replace(
        STREAM, width=picture.width, height=picture.height, orientation=orientation or Orientation()
    )


def _write(stream: StreamInfo, kind: IntermediateSpec, picture: Any) -> NDArray[np.uint8]:
    writer = IntermediateWriter(stream, kind)
    out = np.full((3, *writer.output_size(picture)), 77, np.uint8)
    writer.write(picture, out)
    return out


def _noise(pix_fmt: str, width: int, height: int, seed: int = 0) -> av.VideoFrame:
    """A picture of random samples that use all bits."""
    rng = np.random.default_rng(seed)
    frame = av.VideoFrame(width, height, pix_fmt)
    bits = frame.format.components[0].bits
    for plane in frame.planes:
        if bits <= 8:
            plane.update(rng.integers(0, 256, plane.buffer_size).astype(np.uint8).tobytes())
        else:
            plane.update(rng.integers(0, 1 << bits, plane.buffer_size // 2).astype(np.uint16).tobytes())
    return frame


def _eight_bit_planes(picture: Any) -> list[NDArray[np.uint8]]:
    """The planes, rounded to 8 bits and with chroma repeated to full size."""
    native, bits = NativeFrame.copy_of(picture), picture.format.components[0].bits
    planes = []
    for plane in native.planes:
        samples = plane.view(np.uint16 if bits > 8 else np.uint8).astype(np.int64)
        half = 1 << (bits - 8) >> 1
        samples = np.minimum((samples + half) >> (bits - 8), 255)
        rows = np.arange(native.height) // -(-native.height // samples.shape[0])
        columns = np.arange(native.width) // -(-native.width // samples.shape[1])
        planes.append(samples[rows][:, columns].astype(np.uint8))
    return planes


# --- RGB ------------------------------------------------------------------------------------------------------------

RGB_CLIPS = ["color_bt709_limited", "rotated_90", "mirrored_rotated_90", "mpeg4_odd_size", "h264_10bit", "png_mov"]
GEOMETRIES: list[tuple[dict[str, Any], list[Any]]] = [
    ({}, []),
    ({"scale_height": 48, "scale_width": 64}, [Resize((48, 64))]),
    ({"scale_height": 37, "scale_width": 41}, [Resize((37, 41))]),
    (
        {"scale_height": 37, "scale_width": 41, "height": 20, "width": 22, "center_crop": True},
        [Resize((37, 41)), CenterCrop((20, 22))],
    ),
    ({"height": 31, "width": 33, "center_crop": True}, [CenterCrop((31, 33))]),
]


@pytest.mark.parametrize("name", RGB_CLIPS)
@pytest.mark.parametrize(("arguments", "transforms"), GEOMETRIES)
def test_rgb_is_what_the_decoder_gives(
    name: str, arguments: dict[str, Any], transforms: list[Any], clip_folder: Path
) -> None:
    path = clips.make(name, clip_folder)
    decoder = VideoDecoder(path, transforms=transforms)
    stream = decoder.index.stream
    bound = ProcessDesc(**arguments).bind(*stream.display_size)
    pictures = clips.linear_decode(path)
    for number in (0, 5):
        base = _write(stream, bound.intermediate, pictures[number])
        assert base.shape == (3, *bound.intermediate_size)
        assert np.array_equal(base, decoder[number].numpy())


# --- YCbCr ----------------------------------------------------------------------------------------------------------

YCBCR_CLIPS = ["h264_444", "odd_size_h264_444", "h264_422", "vp9_odd_size", "mpeg4_odd_size", "rotated_90"]
YCBCR_CLIPS += ["mirrored_rotated_90", "h264_10bit", "vp9_10bit", "prores_mov", "ffv1_16bit", "mjpeg_avi"]
UNSCALED = IntermediateSpec("YCbCr", None, None)


@pytest.mark.parametrize("name", YCBCR_CLIPS)
def test_unscaled_ycbcr_is_what_the_planes_have(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    stream = VideoDecoder(path).index.stream
    picture = clips.linear_decode(path)[3]
    base = _write(stream, UNSCALED, picture)
    assert base.shape == (3, *stream.display_size)
    turns = stream.orientation
    for channel, plane in zip(base, _eight_bit_planes(picture), strict=True):
        mirrored = plane[:, ::-1] if turns.mirrored else plane
        assert np.array_equal(channel, np.rot90(mirrored, turns.quarter_turns))


@pytest.mark.parametrize(
    "pix_fmt",
    [f"yuv{kind}p{depth}" for kind in (420, 422, 440, 444) for depth in ("", "10le", "12le")] + ["yuvj420p"],
)
@pytest.mark.parametrize("size", [(64, 48), (33, 17), (1, 1), (15, 2)])
@pytest.mark.parametrize("color_range", [1, 2])
def test_every_value_survives(pix_fmt: str, size: tuple[int, int], color_range: int) -> None:
    picture = _noise(pix_fmt, *size)
    stream = dataclasses.replace(_stream_of(picture), color_range=color_range)
    base = _write(stream, UNSCALED, picture)
    for channel, plane in zip(base, _eight_bit_planes(picture), strict=True):
        assert np.array_equal(channel, plane)


@pytest.mark.parametrize("pix_fmt", ["gray", "gray10le"])
@pytest.mark.parametrize("color_range", [1, 2])
def test_gray_has_no_chroma(pix_fmt: str, color_range: int) -> None:
    picture = _noise(pix_fmt, 33, 17)
    base = _write(dataclasses.replace(_stream_of(picture), color_range=color_range), UNSCALED, picture)
    assert np.array_equal(base[0], _eight_bit_planes(picture)[0])
    assert (base[1:] == 128).all()


@pytest.mark.parametrize("pix_fmt", ["rgb24", "bgr24", "gbrp", "gbrp10le", "bgra", "rgb48le"])
@pytest.mark.parametrize("color_space", [0, 1, 2])
def test_rgb_becomes_what_jpeg_has(pix_fmt: str, color_space: int) -> None:
    picture = _noise(pix_fmt, 33, 17)
    stream = dataclasses.replace(_stream_of(picture), color_space=color_space)
    r, g, b = _write(stream, IntermediateSpec("RGB", None, None), picture).astype(np.float64)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    expected = np.stack([y, 128 + (b - y) / 1.772, 128 + (r - y) / 1.402])
    error = np.abs(_write(stream, UNSCALED, picture) - expected)
    assert error.mean() < 0.6, error.mean()
    assert error.max() < 2.1, error.max()


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv444p", "yuv422p10le", "gray", "rgb24"])
@pytest.mark.parametrize("turns", [Orientation(), Orientation(1), Orientation(2, True), Orientation(3)])
@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
def test_crops_and_turns_are_those_of_the_whole(pix_fmt: str, turns: Orientation, color_space: Any) -> None:
    picture = _noise(pix_fmt, 70, 46)
    stream = _stream_of(picture, turns)
    for resize in (None, (40, 52), (39, 51)):
        lying = (resize[::-1] if turns.swaps_sides else resize) if resize else None
        whole = _write(_stream_of(picture), IntermediateSpec(color_space, lying, None), picture)
        mirrored = whole[:, :, ::-1] if turns.mirrored else whole
        upright = np.rot90(mirrored, turns.quarter_turns, (1, 2))
        assert np.array_equal(_write(stream, IntermediateSpec(color_space, resize, None), picture), upright)
        cropped = _write(stream, IntermediateSpec(color_space, resize, (3, 5, 20, 31)), picture)
        assert np.array_equal(cropped, upright[:, 3:23, 5:36])


@pytest.mark.parametrize(("matrix", "other"), [(1, 6), (6, 1)])
def test_matrix_and_range_do_not_matter_to_ycbcr(matrix: int, other: int) -> None:
    picture = _noise("yuv420p", 64, 48)
    for resize in (None, (31, 29)):
        kind = IntermediateSpec("YCbCr", resize, None)
        limited = _write(dataclasses.replace(_stream_of(picture), color_space=matrix), kind, picture)
        stream = dataclasses.replace(_stream_of(picture), color_space=other, color_range=2)
        assert np.array_equal(limited, _write(stream, kind, picture))


# --- size -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
def test_a_picture_of_another_size_is_noticed(color_space: Any) -> None:
    stream, picture = STREAM, _noise("yuv420p", 32, 40)
    assert IntermediateWriter(stream, IntermediateSpec(color_space, None, None)).output_size(picture) == (40, 32)
    assert IntermediateWriter(stream, IntermediateSpec(color_space, (8, 8), None)).output_size(picture) == (8, 8)
    cropping = IntermediateWriter(stream, IntermediateSpec(color_space, None, (0, 0, 16, 16)))
    assert cropping.output_size(_noise("yuv420p", 64, 48)) == (16, 16)
    assert cropping.output_size(picture) == (40, 32)
    with pytest.raises(ValueError, match=r"cannot crop a picture of \(40, 32\)"):
        cropping.write(picture, np.empty((3, 16, 16), np.uint8))


def test_several_threads_may_write_at_once() -> None:
    pictures = [_noise("yuv420p", 130, 70, seed) for seed in range(4)]
    stream, kind = _stream_of(pictures[0]), IntermediateSpec("YCbCr", (61, 83), (1, 2, 50, 60))
    writer = IntermediateWriter(stream, kind)
    expected = [_write(stream, kind, picture) for picture in pictures]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            out = np.empty((3, 50, 60), np.uint8)
            writer.write(pictures[number], out)
            if not np.array_equal(out, expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(pictures))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- scaling --------------------------------------------------------------------------------------------------------


def _natural(width: int, height: int, phase: float) -> NDArray[np.uint8]:
    """Smooth texture that moves with the phase, and a few things with sharp edges in it; RGB."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    u, v = x / width, y / height
    channel = np.arange(3.0)[:, None, None]
    image = 128 + 60 * np.sin(7 * u + 3 * v + phase + channel)
    image += 30 * np.sin(31 * u - 17 * v + 2 * phase + 2 * channel)
    image += 14 * np.sin(90 * u * (1 + 0.3 * v) + 60 * v + channel + 3 * phase)
    for place in range(6):
        across, down = 0.15 + 0.14 * place + 0.02 * np.sin(phase + place), 0.3 + 0.35 * (place * 37 % 10) / 10
        inside = ((u - across) * width / height) ** 2 + (v - down) ** 2 < (0.05 + 0.02 * place) ** 2
        image[:, inside] = np.array([[40 + 30 * place], [220 - 25 * place], [90 * place % 256]])
    image[:, (abs(u - 0.62) < 0.07) & (abs(v - 0.25) < 0.12)] = np.array([[230], [225], [215]])
    image[:, abs(u - v - 0.1 * np.sin(phase)) < 0.01] = np.array([[20], [25], [30]])
    return np.asarray(np.clip(image, 0, 255), np.uint8)


def _natural_picture(width: int, height: int, phase: float, pix_fmt: str) -> av.VideoFrame:
    image = np.ascontiguousarray(_natural(width, height, phase).transpose(1, 2, 0))
    frame = av.VideoFrame.from_ndarray(image, "rgb24").reformat(
        format=pix_fmt, dst_colorspace="ITU709", interpolation="AREA"
    )
    frame.colorspace, frame.color_range = BT709, LIMITED
    return frame


def _interpolated(planes: NDArray[Any], target: tuple[int, int]) -> NDArray[np.float64]:
    """Planes (number, height, width) scaled by PyTorch."""
    whole = torch.from_numpy(planes.astype(np.float64))[None]
    return np.asarray(torch.nn.functional.interpolate(whole, target, mode="bilinear", antialias=True)[0])


# Mean difference, the one that a pixel in a thousand exceeds, and the largest, in levels of 255; `ProcessDesc` quotes
# them. 4:2:0 differs more because unscaled frames come from libswscale's fast converter, which makes them darker by
# 1.1, and have chroma repeated: on the edges of colours that shows when frames are made larger.
SIZES = ((640, 360), (1280, 720))
SMALLER, LARGER = ((224, 224), (112, 112)), ((800, 1424),)
LIMITS = [("yuv444p", SMALLER, (0.25, 1.8, 9.0)), ("yuv444p", LARGER, (0.25, 1.0, 2.5))]
LIMITS += [("yuv420p", SMALLER, (1.2, 5.0, 14.0)), ("yuv420p", LARGER, (1.35, 18.0, 90.0))]


@pytest.mark.parametrize(("pix_fmt", "targets", "limits"), LIMITS)
@pytest.mark.parametrize("size", SIZES)
def test_scaling_is_near_to_scaling_the_whole_frame(
    size: tuple[int, int], pix_fmt: str, targets: tuple[tuple[int, int], ...], limits: tuple[float, float, float]
) -> None:
    for phase, target in itertools.product((0.3, 2.0), targets):
        picture = _natural_picture(*size, phase, pix_fmt)
        stream = _stream_of(picture)
        expected = _interpolated(_write(stream, IntermediateSpec("RGB", None, None), picture), target)
        error = np.abs(_write(stream, IntermediateSpec("RGB", target, None), picture) - expected)
        found = error.mean(), np.percentile(error, 99.9), error.max()
        assert all(value < limit for value, limit in zip(found, limits, strict=True)), found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("target", SMALLER + LARGER)
def test_scaling_is_done_before_colours_are_converted(size: tuple[int, int], target: tuple[int, int]) -> None:
    picture = _natural_picture(*size, 2.0, "yuv420p")
    y, cb, cr = (_interpolated(plane[None], target)[0] for plane in NativeFrame.copy_of(picture).planes)
    luma, blue, red = (y - 16) / 219, (cb - 128) / 224, (cr - 128) / 224
    r, b = luma + 2 * (1 - 0.2126) * red, luma + 2 * (1 - 0.0722) * blue
    g = (luma - 0.2126 * r - 0.0722 * b) / (1 - 0.2126 - 0.0722)
    expected = np.clip(np.stack([r, g, b]) * 255, 0, 255)
    error = np.abs(_write(_stream_of(picture), IntermediateSpec("RGB", target, None), picture) - expected)
    assert error.mean() < 0.27, error.mean()
    assert error.max() < 9.0, error.max()


@pytest.mark.parametrize("pix_fmt", ["yuv444p", "yuv420p", "yuv422p10le"])
@pytest.mark.parametrize("target", [(224, 224), (112, 112), (450, 800)])
def test_ycbcr_scales_each_plane(pix_fmt: str, target: tuple[int, int]) -> None:
    picture = _natural_picture(640, 360, 0.3, pix_fmt)
    base = _write(_stream_of(picture), IntermediateSpec("YCbCr", target, None), picture)
    native = NativeFrame.copy_of(picture)
    for channel, plane in zip(base, native.planes, strict=True):
        samples = plane.astype(np.float32) if pix_fmt[-2:] != "le" else plane.view(np.uint16).astype(np.float32) / 4
        error = np.abs(channel - _interpolated(samples[None], target)[0])
        assert error.mean() < 0.3, error.mean()
        assert error.max() < 9, error.max()
