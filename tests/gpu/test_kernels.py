"""Kernels against the CPU: what is kept of pictures, bit for bit or nearly so, and finished frames, bit for bit."""

from __future__ import annotations

import dataclasses
import itertools
import platform
import threading
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from framefeed.convert.conversion import Conversion, SurfaceFormat
from framefeed.convert.cpu.intermediate import YCbCrWriter
from framefeed.convert.cpu.rgb import RgbWriter
from framefeed.convert.cuda.launch import batch_layout, convert, copy_pictures, finish, finish_pictures, placement
from framefeed.convert.cuda.tables import TableRing, on_stream
from framefeed.convert.desc import BoundDesc, Draw, ProcessDesc
from framefeed.convert.finish import Finisher
from framefeed.convert.transforms import Geometry
from framefeed.media.native import NativeFrame
from framefeed.types import Orientation, StreamInfo

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

FORMATS = {
    "yuv420p": SurfaceFormat.NV12,
    "yuv420p10le": SurfaceFormat.P016,
    "yuv420p12le": SurfaceFormat.P016,
    "yuv444p": SurfaceFormat.YUV444,
    "yuv444p10le": SurfaceFormat.YUV444_16,
    "yuv444p12le": SurfaceFormat.YUV444_16,
}
MATRICES = [1, 2, 4, 6, 7, 9]
RANGES = [1, 2]
TURNS = [Orientation(turns, mirrored) for turns in range(4) for mirrored in (False, True)]
PADDING = 0xA5
GUARD = 64

# Largest and mean difference in levels of 255 that are allowed. libswscale's fast converter is another one elsewhere.
UNSCALED = (0.0, 0.0) if platform.machine() == "x86_64" else (2.0, 0.5)
SCALED = (1.0, 0.05)


# --- pictures -------------------------------------------------------------------------------------------------------


def _noise(shape: tuple[int, int], number: int, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng([number, seed]).random(shape)


def _smooth(shape: tuple[int, int], number: int, seed: int) -> NDArray[np.float64]:
    """Soft texture with a few sharp edges."""
    v, u = (np.mgrid[0 : shape[0], 0 : shape[1]] + 0.5) / np.array(shape)[:, None, None]
    image = 0.5 + 0.25 * np.sin(7 * u + 3 * v + number + seed) + 0.1 * np.sin(31 * u - 17 * v + 2 * number)
    image[abs(u - v - 0.1 * seed) < 0.03] = 0.1
    image[(abs(u - 0.7) < 0.1) & (abs(v - 0.3) < 0.2)] = 0.9 - 0.2 * number
    return np.asarray(np.clip(image, 0, 1))


CONTENTS = {"noise": _noise, "smooth": _smooth}


def make_picture(pix_fmt: str, size: tuple[int, int], content: str = "noise", seed: int = 0) -> av.VideoFrame:
    """A picture of (height, width) whose samples use all bits."""
    picture = av.VideoFrame(size[1], size[0], pix_fmt)
    bits = picture.format.components[0].bits
    word = np.dtype(np.uint8 if bits == 8 else "<u2")
    for number, plane in enumerate(picture.planes):
        lines = np.zeros((plane.height, plane.line_size // word.itemsize), word)
        values = CONTENTS[content]((plane.height, plane.width), number, seed)
        lines[:, : plane.width] = np.minimum(values * (1 << bits), (1 << bits) - 1).astype(word)
        plane.update(lines.tobytes())
    return picture


class Surface:
    """A picture as the decoder lays it out on a device, with lines that are longer than it needs."""

    def __init__(self, picture: Any, pitch: int, device: torch.device) -> None:
        bits = picture.format.components[0].bits
        surface = FORMATS[picture.format.name]
        word = np.dtype(np.uint16 if surface.wide else np.uint8)
        native = [plane.view(word) for plane in NativeFrame.copy_of(picture).planes]
        planes = [plane << (16 - bits) if surface.wide else plane for plane in native]
        if not surface.planar:
            planes = [planes[0], np.stack(planes[1:], -1).reshape(planes[1].shape[0], -1)]
        offsets = np.cumsum([0] + [len(plane) * pitch for plane in planes])
        memory = np.full(int(offsets[-1]), PADDING, np.uint8)
        for plane, offset in zip(planes, offsets, strict=False):
            lines = memory[offset : offset + len(plane) * pitch].reshape(len(plane), pitch).view(word)
            lines[:, : plane.shape[1]] = plane
        self._memory = torch.from_numpy(memory).to(device)
        first = self._memory.data_ptr()
        self.addresses = ([first + int(offset) for offset in offsets[: len(planes)]] + [0])[:3]


def least_pitch(picture: Any) -> int:
    """Bytes of the longest line."""
    surface = FORMATS[picture.format.name]
    return int((picture.width + picture.width % 2) * (2 if surface.wide else 1))


def stream_of(picture: Any, matrix: int, color_range: int, orientation: Orientation) -> StreamInfo:
    return dataclasses.replace(
        STREAM,
        width=picture.width,
        height=picture.height,
        color_space=matrix,
        color_range=color_range,
        orientation=orientation,
    )


def on_cpu(picture: Any, stream: StreamInfo, conversion: Conversion) -> NDArray[np.uint8]:
    """What the CPU makes of a picture."""
    geometry = Geometry(conversion.resize, conversion.crop)
    if conversion.color_space == "YCbCr":
        planes = np.zeros((3, *conversion.output_size), np.uint8)
        YCbCrWriter(stream, "CHW", geometry).write(picture, planes)
        return planes if conversion.layout == "CHW" else planes.transpose(1, 2, 0)
    out = np.zeros(conversion.output_shape, np.uint8)
    RgbWriter(stream, conversion.layout, geometry).write(picture, out)
    return out


def _sent(device: torch.device, *tables: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(table, dtype=torch.int64, device=device) for table in tables)


def on_device(
    pictures: Sequence[Any], conversion: Conversion, device: torch.device, extra_pitch: int = 32
) -> NDArray[np.uint8]:
    """What the device makes of pictures, in one launch that must not write anywhere else."""
    pitch = least_pitch(pictures[0]) + extra_pitch
    surfaces = [Surface(picture, pitch, device) for picture in pictures]
    size = int(np.prod(conversion.output_shape))
    memory = torch.full((len(pictures), size + 2 * GUARD), PADDING, dtype=torch.uint8, device=device)
    addresses = [memory[number].data_ptr() + GUARD for number in range(len(pictures))]
    sources, targets = _sent(device, [surface.addresses for surface in surfaces], addresses)
    convert(conversion, sources, pitch, targets)
    got = memory.cpu().numpy()
    assert (got[:, :GUARD] == PADDING).all() and (got[:, -GUARD:] == PADDING).all()
    return got[:, GUARD:-GUARD].reshape(len(pictures), *conversion.output_shape)


def differences(
    device: torch.device,
    pix_fmt: str,
    size: tuple[int, int],
    content: str = "noise",
    color_range: int = 1,
    count: int = 2,
    extra_pitch: int = 32,
    **arguments: Any,
) -> NDArray[np.int64]:
    """Between CPU and device, for several pictures."""
    pictures = [make_picture(pix_fmt, size, content, seed) for seed in range(count)]
    depth = pictures[0].format.components[0].bits
    conversion = Conversion(FORMATS[pix_fmt], depth, size, full_range=color_range == 2, **arguments)
    stream = stream_of(pictures[0], conversion.matrix, color_range, conversion.orientation)
    expected = np.stack([on_cpu(picture, stream, conversion) for picture in pictures])
    return np.asarray(np.abs(on_device(pictures, conversion, device, extra_pitch).astype(np.int64) - expected))


def check(limits: tuple[float, float], error: NDArray[np.int64]) -> None:
    assert error.max() <= limits[0], error.max()
    assert error.mean() <= limits[1], error.mean()


# --- conversion -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("color_range", RANGES)
def test_every_matrix_and_range(device: torch.device, pix_fmt: str, matrix: int, color_range: int) -> None:
    check(UNSCALED, differences(device, pix_fmt, (34, 130), matrix=matrix, color_range=color_range))


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("size", [(48, 64), (17, 33), (2, 15), (7, 2), (5, 257), (145, 178), (6, 31)])
def test_every_size(device: torch.device, pix_fmt: str, color_space: str, layout: str, size: tuple[int, int]) -> None:
    for content in CONTENTS:
        check(UNSCALED, differences(device, pix_fmt, size, content, color_space=color_space, layout=layout))


@pytest.mark.parametrize("pix_fmt", ["yuv420p", "yuv420p10le", "yuv444p"])
@pytest.mark.parametrize("orientation", TURNS, ids=lambda turns: f"{turns.quarter_turns}{'m' * turns.mirrored}")
@pytest.mark.parametrize("crop", [None, (3, 5, 11, 9), (0, 0, 1, 1)])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
def test_turned_and_cropped(
    device: torch.device, pix_fmt: str, orientation: Orientation, crop: Any, layout: str
) -> None:
    arguments: dict[str, Any] = {"orientation": orientation, "crop": crop, "layout": layout, "count": 1}
    check(UNSCALED, differences(device, pix_fmt, (23, 38), matrix=1, **arguments))
    resize = (19, 17)
    check(SCALED, differences(device, pix_fmt, (23, 38), "smooth", matrix=1, resize=resize, **arguments))


RESIZES = [
    ((48, 64), (24, 32)),
    ((48, 64), (20, 20)),
    ((90, 160), (22, 23)),
    ((90, 160), (11, 9)),
    ((45, 61), (46, 61)),
    ((45, 61), (45, 40)),
    ((24, 32), (48, 64)),
    ((24, 32), (61, 75)),
    ((17, 33), (50, 20)),
]


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
@pytest.mark.parametrize(("size", "resize"), RESIZES)
def test_scaled(
    device: torch.device, pix_fmt: str, color_space: str, size: tuple[int, int], resize: tuple[int, int]
) -> None:
    for color_range in RANGES:
        arguments: dict[str, Any] = {"resize": resize, "color_space": color_space, "color_range": color_range}
        check(SCALED, differences(device, pix_fmt, size, "smooth", matrix=1, count=1, **arguments))


@pytest.mark.parametrize("matrix", MATRICES)
def test_scaled_in_every_matrix(device: torch.device, matrix: int) -> None:
    check(SCALED, differences(device, "yuv420p", (60, 80), "smooth", matrix=matrix, resize=(31, 43), count=1))


@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
@pytest.mark.parametrize("layout", ["CHW", "HWC"])
@pytest.mark.parametrize("resize", [None, (224, 224), (112, 150), (1000, 1800)])
def test_pictures_of_usual_size(device: torch.device, color_space: str, layout: str, resize: Any) -> None:
    if device.type != "cuda":
        pytest.skip("takes too long without a GPU")
    for pix_fmt in ("yuv420p", "yuv420p10le"):
        arguments: dict[str, Any] = {"color_space": color_space, "layout": layout, "resize": resize, "matrix": 1}
        error = differences(device, pix_fmt, (900, 1600), "smooth", count=8, **arguments)
        check(SCALED if resize else UNSCALED, error)


@pytest.mark.parametrize("extra_pitch", [0, 1, 14, 96])
def test_any_pitch(device: torch.device, extra_pitch: int) -> None:
    check(UNSCALED, differences(device, "yuv420p", (10, 34), extra_pitch=extra_pitch))
    check(SCALED, differences(device, "yuv420p", (10, 34), "smooth", extra_pitch=extra_pitch, resize=(8, 8)))


def test_unused_bits_do_not_count(device: torch.device) -> None:
    picture = make_picture("yuv420p10le", (10, 16))
    pitch = least_pitch(picture)
    surface = Surface(picture, pitch, device)
    surface._memory.view(torch.int16).bitwise_or_(0b111111)
    cases: list[dict[str, Any]] = [{}, {"color_space": "YCbCr"}, {"resize": (10, 15)}]
    for arguments in cases:
        conversion = Conversion(SurfaceFormat.P016, 10, (10, 16), **arguments)
        out = torch.zeros(conversion.output_shape, dtype=torch.uint8, device=device)
        sources, targets = _sent(device, [surface.addresses], [out.data_ptr()])
        convert(conversion, sources, pitch, targets)
        assert np.array_equal(out.cpu().numpy(), on_device([picture], conversion, device)[0])


@pytest.mark.parametrize("extra_pitch", [0, 1, 32])
@pytest.mark.parametrize("size", [(1, 1), (9, 16), (15, 300), (33, 257)])
def test_copies(device: torch.device, size: tuple[int, int], extra_pitch: int) -> None:
    """Bytes as they are, without what lies between lines, and nothing beside them."""
    count, (lines, columns), pitch = 5, size, size[1] + extra_pitch
    rng = np.random.default_rng(lines)
    given = torch.from_numpy(rng.integers(0, 256, (count, lines, pitch), np.uint8)).to(device)
    room = torch.full((count, lines * columns + 7), 99, dtype=torch.uint8, device=device)
    begins, targets = ([each.data_ptr() for each in tensor] for tensor in (given, room))
    sources, to = _sent(device, begins, targets)
    copy_pictures(sources, pitch, to, size)
    assert torch.equal(room[:, : lines * columns].reshape(count, lines, columns), given[..., :columns])
    assert (room[:, lines * columns :] == 99).all()
    copy_pictures(sources[:0], pitch, to[:0], size)  # none is no launch
    with pytest.raises(ValueError, match="targets must be"):
        copy_pictures(sources, pitch, to[:3], size)


def test_no_frames_are_no_launch(device: torch.device) -> None:
    conversion = Conversion(SurfaceFormat.NV12, 8, (48, 64))
    convert(
        conversion,
        torch.empty((0, 3), dtype=torch.int64, device=device),
        64,
        torch.empty(0, dtype=torch.int64, device=device),
    )


def test_conversions_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="10 bits"):
        Conversion(SurfaceFormat.NV12, 10, (48, 64))
    with pytest.raises(ValueError, match="store RGB"):
        Conversion(SurfaceFormat.YUV444, 8, (48, 64), matrix=0)
    with pytest.raises(ValueError, match="is not inside"):
        Conversion(SurfaceFormat.NV12, 8, (48, 64), crop=(40, 0, 9, 9))
    assert Conversion(SurfaceFormat.NV12, 8, (48, 64), orientation=Orientation(1)).output_size == (64, 48)


def test_tables_of_the_wrong_kind_are_refused(device: torch.device) -> None:
    conversion = Conversion(SurfaceFormat.NV12, 8, (48, 64))
    with pytest.raises(ValueError, match="targets must be"):
        convert(
            conversion,
            torch.empty((2, 3), dtype=torch.int64, device=device),
            64,
            torch.empty(2, dtype=torch.int32, device=device),
        )
    with pytest.raises(ValueError, match="sources must be"):
        convert(
            conversion,
            torch.empty((1, 3), dtype=torch.int64, device=device),
            64,
            torch.empty(2, dtype=torch.int64, device=device),
        )


@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
def test_a_conversion_of_a_stream(color_space: Any) -> None:
    stream = dataclasses.replace(STREAM, pix_fmt="yuvj420p", color_space=1, orientation=Orientation(1))
    kind = ProcessDesc(color_space=color_space, width=20, height=30, center_crop=True).bind(64, 48).intermediate
    conversion = Conversion.of(stream, kind, SurfaceFormat.NV12, 8)
    assert conversion.full_range and conversion.matrix == 1
    assert (conversion.upright_size, conversion.output_size) == ((64, 48), (30, 20))
    assert conversion.color_space == color_space


# --- finishing ------------------------------------------------------------------------------------------------------

IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
DRAWS = [Draw(0.0, 0.0, 0.2), Draw(0.99, 0.6, 0.7), Draw(0.4, 0.99, 0.49)]


def bits_of(values: torch.Tensor) -> NDArray[Any]:
    return values.cpu().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[values.itemsize]).numpy()


def check_finished(device: torch.device, bound: BoundDesc, length: int = 2) -> None:
    """Every sample of two batches, each with its own draw; one sample of each is not written to."""
    rng = np.random.default_rng(0)
    samples = len(DRAWS) + 1
    frames = rng.integers(0, 256, (len(DRAWS), length, 3, *bound.intermediate_size)).astype(np.uint8)
    finisher = Finisher(bound)
    expected = finisher.empty(samples, length)
    expected.view(torch.uint8).fill_(0x5A)
    batches = [expected.clone().to(device) for _ in range(2)]
    for (row, draw), place in itertools.product(enumerate(DRAWS), range(length)):
        finisher.finish(frames[row, place], expected[row + 1], length - 1 - place, draw)
    kept = torch.from_numpy(frames).to(device)
    layouts = [batch_layout(bound, batch) for batch in batches]
    order = list(itertools.product(layouts, range(len(DRAWS)), range(length)))
    bases, targets, placements = _sent(
        device,
        [kept[row, place].data_ptr() for _, row, place in order],
        [layout.address(row + 1, length - 1 - place) for layout, row, place in order],
        [placement(bound, DRAWS[row]) for _, row, _ in order],
    )
    finish(bound, layouts[0].steps, bases, targets, placements)
    for batch in batches:
        assert np.array_equal(bits_of(batch), bits_of(expected))


@pytest.mark.parametrize("kind", ["float", "half", "bfloat16", "byte"])
@pytest.mark.parametrize("order", ["".join(letters) for letters in itertools.permutations("fchw")])
def test_every_type_and_order(device: torch.device, kind: Any, order: str) -> None:
    arguments = {} if kind == "byte" else {"normalized": True, **IMAGENET}
    desc = ProcessDesc(type=kind, dimension_order=order, random_flip=True, **arguments)
    check_finished(device, desc.bind(13, 37))


@pytest.mark.parametrize("kind", ["float", "half", "bfloat16", "byte"])
@pytest.mark.parametrize("scaled", [{}, {"normalized": True}, IMAGENET, {"std": 0.001}])
@pytest.mark.parametrize("crop", ["random_crop", "center_crop", "corner", "none"])
@pytest.mark.parametrize("flip", [False, True])
def test_every_crop_and_flip(device: torch.device, kind: Any, scaled: dict[str, Any], crop: str, flip: bool) -> None:
    arguments: dict[str, Any] = dict(scaled) if kind != "byte" else {}
    if crop != "none":
        arguments |= {"width": 15, "height": 11} | ({crop: True} if crop != "corner" else {})
    check_finished(device, ProcessDesc(type=kind, random_flip=flip, **arguments).bind(16, 21))


def test_wide_frames(device: torch.device) -> None:
    desc = ProcessDesc(type="half", random_flip=True, random_crop=True, width=200, height=30, **IMAGENET)
    check_finished(device, desc.bind(33, 270), length=1)


# --- both at once ---------------------------------------------------------------------------------------------------


def check_at_once(
    device: torch.device,
    pix_fmt: str,
    size: tuple[int, int],
    desc: ProcessDesc,
    orientation: Orientation | None = None,
    extra_pitch: int = 32,
) -> None:
    """What one launch makes of pictures is what two make of them, for every draw, and nothing else is written."""
    orientation = orientation or Orientation()
    pictures = [make_picture(pix_fmt, size, seed=seed) for seed in range(len(DRAWS))]
    stream = stream_of(pictures[0], 1, 1, orientation)
    bound = desc.bind(*stream.display_size)
    depth = pictures[0].format.components[0].bits
    conversion = Conversion.of(stream, bound.intermediate, FORMATS[pix_fmt], depth)
    bases = torch.from_numpy(on_device(pictures, conversion, device, extra_pitch)).to(device)
    empty = torch.zeros((len(DRAWS) + 1, *bound.shape(2)), dtype=Finisher(bound).empty(1, 1).dtype)
    empty.view(torch.uint8).fill_(0x5A)
    expected, got = empty.clone().to(device), empty.clone().to(device)
    steps = batch_layout(bound, got).steps
    at, there = (
        [batch_layout(bound, batch).address(row + 1, row % 2) for row in range(len(DRAWS))] for batch in (expected, got)
    )
    pitch = least_pitch(pictures[0]) + extra_pitch
    surfaces = [Surface(picture, pitch, device) for picture in pictures]
    kept, sources, at_first, at_once, placements = _sent(
        device,
        [base.data_ptr() for base in bases],
        [surface.addresses for surface in surfaces],
        at,
        there,
        [placement(bound, draw) for draw in DRAWS],
    )
    finish(bound, steps, kept, at_first, placements)
    finish_pictures(conversion, bound, steps, sources, pitch, at_once, placements)
    assert np.array_equal(bits_of(got), bits_of(expected))
    assert not np.array_equal(bits_of(got), bits_of(empty))


@pytest.mark.parametrize("pix_fmt", FORMATS)
@pytest.mark.parametrize("color_space", ["RGB", "YCbCr"])
@pytest.mark.parametrize("scale", [{}, {"scale_width": 23, "scale_height": 9}, {"scale_width": 90}])
def test_at_once(device: torch.device, pix_fmt: str, color_space: Any, scale: dict[str, Any]) -> None:
    desc = ProcessDesc(type="half", normalized=True, color_space=color_space, **scale, **IMAGENET)
    check_at_once(device, pix_fmt, (34, 49), desc)


@pytest.mark.parametrize("orientation", TURNS, ids=lambda turns: f"{turns.quarter_turns}{'m' * turns.mirrored}")
@pytest.mark.parametrize("crop", ["random_crop", "center_crop", "none"])
@pytest.mark.parametrize("scale", [{}, {"scale_width": 25, "scale_height": 21}])
def test_turned_and_cropped_at_once(
    device: torch.device, orientation: Orientation, crop: str, scale: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {} if crop == "none" else {"width": 17, "height": 11, crop: True}
    check_at_once(device, "yuv420p", (30, 44), ProcessDesc(random_flip=True, **arguments, **scale), orientation)


@pytest.mark.parametrize("kind", ["float", "half", "bfloat16", "byte"])
@pytest.mark.parametrize("order", ["fchw", "whcf", "chwf"])
def test_every_type_and_order_at_once(device: torch.device, kind: Any, order: str) -> None:
    check_at_once(device, "yuv420p", (9, 140), ProcessDesc(type=kind, dimension_order=order, random_flip=True))


@pytest.mark.parametrize("scale", [{}, {"scale_width": 224, "scale_height": 224}])
def test_pictures_of_usual_size_at_once(device: torch.device, scale: dict[str, Any]) -> None:
    if device.type != "cuda":
        pytest.skip("takes the interpreter long")
    for pix_fmt in ("yuv420p", "yuv420p10le"):
        check_at_once(device, pix_fmt, (360, 640), ProcessDesc(type="half", normalized=True, **scale, **IMAGENET))


def test_pictures_of_another_size_are_refused(device: torch.device) -> None:
    sources, targets, placements = _sent(device, [[0, 0, 0]], [0], [[0, 0, 0]])
    bound = ProcessDesc(scale_width=20, scale_height=10).bind(48, 64)
    with pytest.raises(ValueError, match=r"gives \(48, 64\), but the description needs \(10, 20\)"):
        finish_pictures(Conversion(SurfaceFormat.NV12, 8, (48, 64)), bound, (1, 1, 1), sources, 64, targets, placements)


def test_batches_of_the_wrong_kind_are_refused(device: torch.device) -> None:
    bound = ProcessDesc().bind(4, 4)
    with pytest.raises(ValueError, match=r"frames of \(4, 4\)"):
        batch_layout(bound, torch.zeros((1, 1, 3, 4, 5), device=device))
    with pytest.raises(ValueError, match="a batch of"):
        batch_layout(bound, torch.zeros((1, 1, 3, 4, 4), dtype=torch.uint8, device=device))


# --- sending --------------------------------------------------------------------------------------------------------


def test_tables_arrive(device: torch.device) -> None:
    """In rings that go round several times, with and without something that keeps the stream busy."""
    stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
    ring = TableRing(device, stream, (3, 1), capacity=8, blocks=4)
    for number in range(30):
        count = number % 9
        rows = [[(number << 40) + row, row, -1] for row in range(count)]
        with on_stream(stream, device):
            sent = ring.send(count, rows if count else np.empty((0, 3)), [number] * count)
            addresses, numbers = (table[:count].clone() for table in sent)
        if stream is not None:
            stream.synchronize()
        assert addresses.tolist() == rows and numbers.tolist() == [number] * count
    with pytest.raises(ValueError, match="9 rows do not fit into 8"):
        ring.send(9, np.zeros((9, 3)), np.zeros(9))


def test_a_table_on_its_way_is_not_written_over(device: torch.device) -> None:
    if device.type != "cuda":
        pytest.skip("needs CUDA")
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ring = TableRing(device, stream, (1,), capacity=64, blocks=4)
    copies = []
    with torch.cuda.stream(stream):
        for number in range(200):
            torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]
            copies.append(ring.send(64, [number] * 64)[0].clone())
    stream.synchronize()
    assert [sorted(set(copy.tolist())) for copy in copies] == [[number] for number in range(200)]


def test_several_threads_and_streams(device: torch.device) -> None:
    """Each thread sends and converts on a stream of its own."""
    picture = make_picture("yuv420p", (48, 64))
    pitch = least_pitch(picture) + 64
    surface = Surface(picture, pitch, device)
    conversion = Conversion(SurfaceFormat.NV12, 8, (48, 64))
    expected = on_cpu(picture, stream_of(picture, 2, 1, Orientation()), conversion)
    repeat = 50 if device.type == "cuda" else 1
    threads = 4 if device.type == "cuda" else 1  # the interpreter is for one thread
    wrong: list[float] = []

    def work() -> None:
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        ring = TableRing(device, stream, (3, 1), capacity=16, blocks=2)
        for _ in range(repeat):
            out = torch.zeros((8, 3, 48, 64), dtype=torch.uint8, device=device)
            if stream is not None:
                stream.wait_stream(torch.cuda.current_stream(device))
            sources, targets = ring.send(8, [surface.addresses] * 8, [frame.data_ptr() for frame in out])
            convert(conversion, sources, pitch, targets, stream, 8)
            if stream is not None:
                stream.synchronize()
            error = np.abs(out.cpu().numpy().astype(np.int64) - expected)
            if error.max() > UNSCALED[0]:
                wrong.append(float(error.max()))

    started = [threading.Thread(target=work) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert wrong == []
