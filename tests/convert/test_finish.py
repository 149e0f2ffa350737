"""Finishing frames: every option against plain arithmetic, bit for bit, and from the file to the batch."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import clips
from framefeed import Resize, VideoDecoder
from framefeed.convert import buffers, finish
from framefeed.convert.cpu.intermediate import IntermediateWriter
from framefeed.convert.desc import BoundDesc, Draw, ProcessDesc
from framefeed.convert.finish import Finisher
from framefeed.media.native import NativeFrame

TYPES = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "byte": torch.uint8}
ORDERS = ["".join(letters) for letters in itertools.permutations("fchw")]
IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


# --- what is right --------------------------------------------------------------------------------------------------


def _bits(values: torch.Tensor) -> torch.Tensor:
    return values.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[values.itemsize])


def _nearest(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of that type that are nearest, found among the neighbours of a first guess."""
    guess = values.to(dtype)
    if dtype == torch.uint8:
        return guess
    near = torch.stack([(_bits(guess) + step).view(dtype) for step in (-1, 0, 1)])
    # Differences of numbers so near to each other are exact. A tie goes to the one whose last bit is 0.
    distance = (near.double() - values).abs().nan_to_num(torch.inf, torch.inf)
    nearest = distance == distance.amin(0)
    even = _bits(near) % 2 == 0
    chosen = (nearest.int() * 2 + even.int()).argmax(0)
    return near.gather(0, chosen[None])[0]


def _table(channel: int, desc: ProcessDesc) -> torch.Tensor:
    """What each byte becomes."""
    values = torch.arange(256, dtype=torch.float64)
    if desc.normalized:
        values = values / 255
    if desc.mean is not None:
        values = values - np.broadcast_to(desc.mean, 3)[channel].item()
    if desc.std is not None:
        values = values / np.broadcast_to(desc.std, 3)[channel].item()
    return _nearest(values, TYPES[desc.type])


def _expected_sample(frames: NDArray[np.uint8], desc: ProcessDesc, draw: Draw) -> torch.Tensor:
    """A sample made of scaled frames (frame, channel, height, width)."""
    height, width = frames.shape[2:]
    crop_height, crop_width = desc.height or height, desc.width or width
    top = left = 0
    if desc.random_crop:
        top, left = int(draw.top * (height - crop_height + 1)), int(draw.left * (width - crop_width + 1))
    if desc.center_crop:
        top, left = round((height - crop_height) / 2), round((width - crop_width) / 2)
    if desc.random_flip and draw.flip < 0.5:
        frames = frames[..., ::-1]
    frames = frames[:, :, top : top + crop_height, left : left + crop_width]
    if desc.index_map is not None:
        order = {place: number for number, place in enumerate(desc.index_map) if place >= 0}
        frames = frames[[order[place] for place in range(len(order))]]
    tables = [_table(channel, desc) for channel in range(3)]
    pixels = torch.from_numpy(frames.astype(np.int64))
    values = torch.stack([tables[channel][pixels[:, channel]] for channel in range(3)], 1)
    return values.permute(["fchw".index(letter) for letter in desc.dimension_order])


def _finished(frames: NDArray[np.uint8], bound: BoundDesc, draw: Draw) -> torch.Tensor:
    """The same by way of what is kept of each frame."""
    finisher = Finisher(bound)
    length = len(frames)
    batch = finisher.empty(3, bound.desc.num_frames(length))
    _bits(batch).fill_(0x5A)
    before = batch.clone()
    for frame, place in zip(frames, bound.desc.places(length), strict=True):
        if place >= 0:
            kept = frame
            if bound.intermediate.crop is not None:
                top, left, height, width = bound.intermediate.crop
                kept = frame[:, top : top + height, left : left + width]
            finisher.finish(np.ascontiguousarray(kept), batch[1], int(place), draw)
    for untouched in (0, 2):
        assert _same_bits(batch[untouched], before[untouched])
    return batch[1]


def _same_bits(got: torch.Tensor, expected: torch.Tensor) -> bool:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    return torch.equal(_bits(got), _bits(expected))


@st.composite
def descriptions(draw: st.DrawFn) -> tuple[ProcessDesc, tuple[int, int], int]:
    """A description, the size of scaled frames and the length of a sequence."""
    kind = draw(st.sampled_from(sorted(TYPES)))
    size = draw(st.integers(1, 12)), draw(st.integers(1, 19))
    length = draw(st.integers(1, 4))
    arguments: dict[str, Any] = {"type": kind, "dimension_order": draw(st.sampled_from(ORDERS))}
    arguments["random_flip"] = draw(st.booleans())
    arguments["color_space"] = draw(st.sampled_from(["RGB", "YCbCr"]))
    if kind != "byte":
        arguments["normalized"] = draw(st.booleans())
        numbers = st.floats(-300, 300)
        arguments["mean"] = draw(st.none() | numbers | st.tuples(numbers, numbers, numbers))
        positive = st.floats(0.01, 300)
        arguments["std"] = draw(st.none() | positive | st.tuples(positive, positive, positive))
    arguments["height"] = draw(st.integers(0, size[0]))
    arguments["width"] = draw(st.integers(0, size[1]))
    if arguments["height"] or arguments["width"]:
        where = draw(st.sampled_from(["random_crop", "center_crop", None]))
        arguments |= {where: True} if where else {}
    if draw(st.booleans()):
        used = draw(st.integers(1, length))
        places = draw(st.permutations(list(range(used)) + [-1] * (length - used)))
        while places[-1] == -1 and draw(st.booleans()):
            places = places[:-1]
        arguments["index_map"] = places
    return ProcessDesc(**arguments), size, length


numbers = st.floats(0, 1, exclude_max=True)


@settings(max_examples=250, deadline=None)
@given(descriptions(), st.builds(Draw, numbers, numbers, numbers), st.integers(0, 1000))
def test_every_option_is_plain_arithmetic(
    case: tuple[ProcessDesc, tuple[int, int], int], draw: Draw, seed: int
) -> None:
    desc, size, length = case
    frames = np.random.default_rng(seed).integers(0, 256, (length, 3, *size)).astype(np.uint8)
    got = _finished(frames, desc.bind(*size), draw)
    assert _same_bits(got, _expected_sample(frames, desc, draw))


EVERY_VALUE = np.tile(np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16), (2, 3, 1, 1))


@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("scaled", [{}, IMAGENET, {"mean": 0.5}, {"std": 3}])
@pytest.mark.parametrize("crop", ["random_crop", "center_crop", "corner", "none"])
@pytest.mark.parametrize("flip", [None, 0.2, 0.7])
def test_every_value_of_every_type(
    kind: Any, normalized: bool, scaled: dict[str, Any], crop: str, flip: float | None
) -> None:
    arguments: dict[str, Any] = {"normalized": normalized, **scaled} if kind != "byte" else {}
    if crop != "none":
        arguments |= {"width": 15, "height": 13} | ({crop: True} if crop != "corner" else {})
    for order in ("fchw", "fhwc", "cfhw"):
        desc = ProcessDesc(type=kind, random_flip=flip is not None, dimension_order=order, **arguments)
        draw = Draw(0.99, 0.6, flip or 0.0)
        got = _finished(EVERY_VALUE, desc.bind(16, 16), draw)
        assert _same_bits(got, _expected_sample(EVERY_VALUE, desc, draw))


def test_values_by_hand() -> None:
    frames = np.zeros((1, 3, 1, 2), np.uint8)
    frames[0, :, 0, 0] = (0, 51, 255)
    desc = ProcessDesc(normalized=True, mean=(0.5, 0.1, 0.0), std=(0.5, 0.1, 2.0))
    got = _finished(frames, desc.bind(1, 2), Draw(0, 0, 0))
    assert got[0, :, 0, 0].tolist() == [-1.0, 1.0, 0.5]
    assert _finished(frames, ProcessDesc().bind(1, 2), Draw(0, 0, 0))[0, :, 0, 0].tolist() == [0.0, 51.0, 255.0]
    flipped = _finished(frames, ProcessDesc(type="byte", random_flip=True).bind(1, 2), Draw(0, 0, 0))
    assert flipped[0, :, 0].tolist() == [[0, 0], [0, 51], [0, 255]]


def test_too_large_for_half_is_infinite() -> None:
    got = _finished(EVERY_VALUE, ProcessDesc(type="half", std=0.001).bind(16, 16), Draw(0, 0, 0))
    assert torch.isinf(got).any() and not torch.isnan(got).any()
    assert got[0, 0, 0, 5] == 5000


# --- from the file to the batch -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["color_bt709_limited", "rotated_90"])
@pytest.mark.parametrize("kind", ["half", "byte"])
@pytest.mark.parametrize("order", ["fchw", "hwcf"])
def test_from_the_file_to_the_batch(name: str, kind: Any, order: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    decoder = VideoDecoder(path, transforms=[Resize((40, 50))])
    stream = decoder.index.stream
    pictures = clips.linear_decode(path)[2:6]
    draw = Draw(0.3, 0.8, 0.4)
    for crop in ("random_crop", "center_crop"):
        desc = ProcessDesc(
            type=kind,
            scale_height=40,
            scale_width=50,
            height=30,
            width=32,
            random_flip=True,
            index_map=[1, -1, 0, 2],
            dimension_order=order,
            **{crop: True},  # type: ignore[arg-type]
            **({} if kind == "byte" else {"normalized": True, **IMAGENET}),
        )
        bound = desc.bind(*stream.display_size)
        assert (bound.intermediate.crop is None) == (crop == "random_crop")
        writer, finisher = IntermediateWriter(stream, bound.intermediate), Finisher(bound)
        sample = finisher.empty(1, desc.num_frames(4))[0]
        for picture, place in zip(pictures, desc.places(4), strict=True):
            base = np.empty((3, *writer.output_size(picture)), np.uint8)
            writer.write(picture, base)
            if place >= 0:
                finisher.finish(base, sample, int(place), draw)
        assert _same_bits(sample, _expected_sample(decoder.get_frames_at([2, 3, 4, 5]).data.numpy(), desc, draw))


def test_ycbcr_from_the_file_to_the_batch(clip_folder: Path) -> None:
    path = clips.make("h264_444", clip_folder)
    stream, picture = VideoDecoder(path).index.stream, clips.linear_decode(path)[0]
    desc = ProcessDesc(color_space="YCbCr", width=31, height=21, normalized=True)
    bound = desc.bind(*stream.display_size)
    base = np.empty((3, *bound.intermediate_size), np.uint8)
    IntermediateWriter(stream, bound.intermediate).write(picture, base)
    finisher = Finisher(bound)
    sample = finisher.empty(1, 1)[0]
    finisher.finish(base, sample, 0, Draw(0, 0, 0))
    planes = np.stack(NativeFrame.copy_of(picture).planes)
    assert _same_bits(sample, _expected_sample(planes[None], desc, Draw(0, 0, 0)))


# --- memory and threads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(TYPES))
def test_memory_is_used_again(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[int] = []

    def allocate(shape: tuple[int, ...]) -> NDArray[np.uint8]:
        memory = buffers.allocate(shape)
        places.append(memory.ctypes.data)
        return memory

    monkeypatch.setattr(finish, "allocate", allocate)
    finisher = Finisher(ProcessDesc(type=kind, dimension_order="cfhw").bind(211, 173))
    batch = finisher.empty(2, 5)
    assert batch.shape == (2, 3, 5, 211, 173)
    assert batch.dtype == TYPES[kind]
    assert batch.is_contiguous()
    part, place = batch[1, 0], batch.data_ptr()
    del batch
    other = finisher.empty(2, 5)
    assert other.data_ptr() != place  # `part` still looks at it
    del part
    assert finisher.empty(2, 5).data_ptr() == place
    assert places == [place, other.data_ptr(), place]


def test_a_base_of_the_wrong_size_is_refused() -> None:
    finisher = Finisher(ProcessDesc(width=4, height=4).bind(8, 8))
    with pytest.raises(ValueError, match=r"intermediates of \(3, 4, 4\), got \(3, 8, 8\)"):
        finisher.finish(np.zeros((3, 8, 8), np.uint8), finisher.empty(1, 1)[0], 0, Draw(0, 0, 0))


@pytest.mark.parametrize("scaled", [{}, {"normalized": True}, IMAGENET])
@pytest.mark.parametrize("order", ["fchw", "fhwc"])
def test_large_frames_are_done_in_chunks(scaled: dict[str, Any], order: str) -> None:
    # Lines that are longer than a chunk, several chunks with a rest, and one that is exactly full.
    for size in ((3, finish.CHUNK + 5), (700, 400), (256, 256)):
        base = np.random.default_rng(0).integers(0, 256, (3, *size)).astype(np.uint8)
        desc = ProcessDesc(random_flip=True, dimension_order=order, **scaled)
        for flip in (0.0, 0.9):
            draw = Draw(0, 0, flip)
            assert _same_bits(_finished(base[None], desc.bind(*size), draw), _expected_sample(base[None], desc, draw))


def test_a_base_need_not_be_contiguous() -> None:
    whole = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8).transpose(2, 0, 1)
    desc = ProcessDesc(**IMAGENET)
    finisher = Finisher(desc.bind(20, 30))
    sample = finisher.empty(1, 1)[0]
    finisher.finish(whole, sample, 0, Draw(0, 0, 0))
    assert _same_bits(sample, _expected_sample(whole[None], desc, Draw(0, 0, 0)))


def _run(*works: Any) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_several_threads_may_finish_at_once() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (8, 3, 150, 170)).astype(np.uint8)
    desc = ProcessDesc(type="bfloat16", dimension_order="fhwc", random_flip=True, **IMAGENET)
    finisher = Finisher(desc.bind(150, 170))
    draw = Draw(0, 0, 0.1)
    sample = finisher.empty(1, 8)[0]
    expected = _expected_sample(frames, desc, draw)
    wrong: list[int] = []

    def work(place: int) -> None:
        for _ in range(40):
            finisher.finish(frames[place], sample, place, draw)
            if not _same_bits(sample[place], expected[place]):
                wrong.append(place)

    _run(*(lambda place=place: work(place) for place in range(8)))
    assert wrong == []


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads as Linux shows them")
@pytest.mark.parametrize("kind", sorted(TYPES))
@pytest.mark.parametrize("order", ["fchw", "whcf"])
def test_no_further_threads_are_started(kind: Any, order: str) -> None:
    desc = ProcessDesc(type=kind, dimension_order=order, **({} if kind == "byte" else IMAGENET))
    finisher = Finisher(desc.bind(400, 400))
    base = np.zeros((3, 400, 400), np.uint8)
    started: list[set[str]] = []

    def work() -> None:
        before = set(os.listdir("/proc/self/task"))
        finisher.finish(base, finisher.empty(1, 1)[0], 0, Draw(0, 0, 0))
        started.append(set(os.listdir("/proc/self/task")) - before)

    _run(work)
    assert started == [set()]
