"""Descriptions: what they accept, which sizes they give, what is kept of a frame, where random crops lie."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framefeed.convert.desc import Changes, Draw, IntermediateSpec, ProcessDesc

MIDDLE = Draw(0.5, 0.5, 0.5)

BAD: list[tuple[dict[str, Any], str]] = [
    ({"type": "double"}, "type must be one of float, half, byte, bfloat16, got 'double'"),
    ({"color_space": "rgb"}, "color_space must be one of RGB, YCbCr"),
    ({"scale_width": 100.5}, "scale_width must be a whole number, got 100.5; divide with //"),
    ({"scale_height": math.nan}, "scale_height must be a whole number"),
    ({"width": "224"}, "width must be a whole number, got '224'"),
    ({"height": -1}, "height must be positive, or 0 for none, got -1"),
    ({"normalized": 1}, "normalized must be True or False"),
    ({"random_flip": "no"}, "random_flip must be True or False"),
    ({"type": "byte", "normalized": True}, "normalized cannot be combined with type='byte'"),
    ({"type": "byte", "mean": 1.0}, "mean cannot be combined with type='byte'"),
    ({"type": "byte", "std": (1, 1, 1)}, "std cannot be combined with type='byte'"),
    ({"random_crop": True, "center_crop": True, "width": 8}, "cannot be combined"),
    ({"random_crop": True}, "random_crop needs a crop's width or height"),
    ({"center_crop": True}, "center_crop needs a crop's width or height"),
    ({"mean": (1, 2)}, "mean must be three finite numbers or one"),
    ({"mean": "red"}, "mean must be three finite numbers or one"),
    ({"mean": math.inf}, "mean must be three finite numbers or one"),
    ({"std": (1, math.nan, 1)}, "std must be three finite numbers or one"),
    ({"std": 0}, "std must be positive"),
    ({"std": (1, 1, -1)}, "std must be positive"),
    ({"index_map": []}, "index_map must use each place"),
    ({"index_map": [-1, -1]}, "index_map must use each place"),
    ({"index_map": [0, 0]}, "index_map must use each place"),
    ({"index_map": [0, 2]}, "index_map must use each place"),
    ({"index_map": [0, -2]}, "index_map must use each place"),
    ({"index_map": [0.0, 1.0]}, "index_map must be a sequence of whole numbers"),
    ({"index_map": 3}, "index_map must be a sequence of whole numbers"),
    ({"dimension_order": "fhw"}, "dimension_order must contain each of the letters"),
    ({"dimension_order": "nchw"}, "dimension_order must contain each of the letters"),
    ({"dimension_order": "FCHW"}, "dimension_order must contain each of the letters"),
    ({"dimension_order": None}, "dimension_order must contain each of the letters"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[str(arguments) for arguments, _ in BAD])
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        ProcessDesc(**arguments)
    assert message in str(caught.value)


def test_defaults_are_nvvls() -> None:
    desc = ProcessDesc()
    assert (desc.type, desc.color_space, desc.dimension_order) == ("float", "RGB", "fchw")
    assert not (desc.normalized or desc.random_crop or desc.random_flip or desc.center_crop)
    bound = desc.bind(48, 64)
    assert bound.intermediate == IntermediateSpec("RGB", None, None)
    assert bound.intermediate_size == bound.scaled_size == bound.output_size == (48, 64)
    assert bound.shape(5) == (5, 3, 48, 64)


def test_whole_floats_are_sizes() -> None:
    desc = ProcessDesc(scale_width=640 / 4, scale_height=np.float64(90), width=np.int64(8))  # type: ignore[arg-type]
    assert (desc.scale_width, desc.scale_height, desc.width) == (160, 90, 8)
    assert {type(desc.scale_width), type(desc.scale_height), type(desc.width)} == {int}


def test_values_are_kept_as_tuples() -> None:
    desc = ProcessDesc(index_map=np.array([1, -1, 0]), mean=[1, 2, 3], std=0.5)  # type: ignore[arg-type]
    assert desc.index_map == (1, -1, 0)
    assert desc.mean == desc.channel_mean == (1.0, 2.0, 3.0)
    assert desc.std == desc.channel_std == (0.5, 0.5, 0.5)
    assert hash(desc) == hash(ProcessDesc(index_map=(1, -1, 0), mean=(1, 2, 3), std=(0.5, 0.5, 0.5)))


@pytest.mark.parametrize(
    ("index_map", "length", "places"),
    [
        (None, 3, [0, 1, 2]),
        ([-1, -1, 0], 5, [-1, -1, 0, -1, -1]),
        ([2, 0, -1, 1], 4, [2, 0, -1, 1]),
        ([0], 1, [0]),
    ],
)
def test_places(index_map: list[int] | None, length: int, places: list[int]) -> None:
    desc = ProcessDesc(index_map=index_map)
    found = desc.places(length)
    assert found.dtype == np.int64
    assert found.tolist() == places
    assert desc.num_frames(length) == sum(place >= 0 for place in places)


def test_a_map_longer_than_the_sequence() -> None:
    desc = ProcessDesc(index_map=[0, 1, 2])
    for ask in (desc.places, desc.num_frames):
        with pytest.raises(ValueError, match="index_map has 3 entries, more than the 2 frames"):
            ask(2)


@pytest.mark.parametrize(
    ("frame", "scale", "scaled"),
    [
        ((360, 640), (0, 0), (360, 640)),
        ((360, 640), (112, 224), (112, 224)),
        ((360, 640), (256, 0), (256, 455)),  # 455.1
        ((360, 640), (0, 455), (256, 455)),  # 255.9
        ((640, 360), (0, 256), (455, 256)),
        ((2, 1000), (0, 100), (1, 100)),  # 0.2
        ((1000, 3), (500, 0), (500, 2)),  # 1.5
    ],
)
def test_scaled_sizes(frame: tuple[int, int], scale: tuple[int, int], scaled: tuple[int, int]) -> None:
    bound = ProcessDesc(scale_height=scale[0], scale_width=scale[1]).bind(*frame)
    assert bound.scaled_size == bound.intermediate_size == bound.output_size == scaled
    assert bound.intermediate.resize == (scaled if any(scale) else None)


def test_scaling_to_the_frames_own_size_is_scaling() -> None:
    assert ProcessDesc(scale_height=36, scale_width=64).bind(36, 64).intermediate.resize == (36, 64)


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ({"width": 65}, ("65x48", "frames of 64x48")),
        ({"height": 49}, ("64x49", "frames of 64x48")),
        ({"scale_height": 24, "height": 24, "width": 33}, ("33x24", "scaled frames of 32x24")),
    ],
)
def test_a_crop_that_does_not_fit(arguments: dict[str, int], sizes: tuple[str, str]) -> None:
    with pytest.raises(ValueError) as caught:
        ProcessDesc(**arguments).bind(48, 64)  # type: ignore[arg-type]
    assert all(size in str(caught.value) for size in sizes)


@pytest.mark.parametrize(
    ("arguments", "crop"),
    [
        ({"width": 20, "height": 10}, (0, 0, 10, 20)),
        ({"width": 20}, (0, 0, 48, 20)),
        ({"height": 10}, (0, 0, 10, 64)),
        ({"width": 64, "height": 48}, None),
        ({"width": 20, "height": 10, "center_crop": True}, (19, 22, 10, 20)),
        ({"width": 21, "height": 11, "center_crop": True}, (18, 22, 11, 21)),  # 18.5 and 21.5: to the even one
        ({"width": 20, "height": 10, "random_crop": True}, None),
        # A flip comes before the crop, so only a crop that is its own mirror image can be done beforehand.
        ({"width": 20, "height": 10, "random_flip": True}, None),
        ({"height": 10, "random_flip": True}, (0, 0, 10, 64)),
        ({"width": 20, "height": 10, "random_flip": True, "center_crop": True}, (19, 22, 10, 20)),
        ({"width": 21, "height": 10, "random_flip": True, "center_crop": True}, None),
    ],
)
def test_crops_that_are_done_before_finishing(
    arguments: dict[str, Any], crop: tuple[int, int, int, int] | None
) -> None:
    bound = ProcessDesc(**arguments).bind(48, 64)
    assert bound.intermediate.crop == crop
    assert bound.intermediate_size == (crop[2:] if crop else (48, 64))
    assert bound.output_size == (arguments.get("height", 48), arguments.get("width", 64))


def test_equal_bases_are_shared() -> None:
    scaled = {"scale_height": 24, "scale_width": 32}
    first = ProcessDesc(type="half", normalized=True, random_flip=True, **scaled).bind(48, 64)  # type: ignore[arg-type]
    second = ProcessDesc(
        width=8, height=8, random_crop=True, index_map=[0], dimension_order="cfhw", mean=1, scale_height=24
    ).bind(48, 64)
    assert first.intermediate == second.intermediate
    assert len({first.intermediate, second.intermediate}) == 1
    others = [
        ProcessDesc(**scaled, color_space="YCbCr"),  # type: ignore[arg-type]
        ProcessDesc(**scaled, width=8),  # type: ignore[arg-type]
        ProcessDesc(scale_height=24, scale_width=33),
        ProcessDesc(),
    ]
    assert len({first.intermediate, *(desc.bind(48, 64).intermediate for desc in others)}) == 5


@pytest.mark.parametrize("order", ["fchw", "fhwc", "cfhw", "whcf"])
def test_shape_follows_the_dimension_order(order: str) -> None:
    bound = ProcessDesc(dimension_order=order, width=20, height=10).bind(48, 64)
    assert bound.shape(5) == tuple({"f": 5, "c": 3, "h": 10, "w": 20}[letter] for letter in order)


def test_changes() -> None:
    whole = ProcessDesc(scale_height=24, scale_width=32).bind(48, 64)
    assert whole.changes(MIDDLE) == Changes((24, 32), (0, 0, 24, 32), False)
    corner = ProcessDesc(width=20, height=10).bind(48, 64)
    assert corner.changes(MIDDLE) == Changes((48, 64), (0, 0, 10, 20), False)
    center = ProcessDesc(width=20, height=10, center_crop=True).bind(48, 64)
    assert center.changes(MIDDLE) == Changes((48, 64), (19, 22, 10, 20), False)
    anywhere = ProcessDesc(width=20, height=10, random_crop=True).bind(48, 64)
    assert anywhere.changes(MIDDLE) == Changes((48, 64), (19, 22, 10, 20), False)
    assert anywhere.changes(Draw(0.0, 0.0, 0.0)).crop == (0, 0, 10, 20)
    assert anywhere.changes(Draw(np.nextafter(1, 0), np.nextafter(1, 0), 0)).crop == (38, 44, 10, 20)


def test_flips() -> None:
    flips = ProcessDesc(random_flip=True).bind(48, 64)
    assert flips.changes(Draw(0, 0, 0.0)).flip
    assert flips.changes(Draw(0, 0, np.nextafter(0.5, 0))).flip
    assert not flips.changes(Draw(0, 0, 0.5)).flip
    assert not ProcessDesc().bind(48, 64).changes(Draw(0, 0, 0.0)).flip


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(1, 4),
)
def test_crops_of_proportional_sizes_correspond(number: float, crop: int, room: int, factor: int) -> None:
    small = ProcessDesc(width=crop, height=crop, random_crop=True).bind(crop + room, crop + room)
    large = ProcessDesc(width=crop * factor, height=crop * factor, random_crop=True).bind(
        (crop + room) * factor, (crop + room) * factor
    )
    draw = Draw(number, number, 0.9)
    top, left, *_ = small.changes(draw).crop
    assert top == left == math.floor(number * (room + 1))
    assert abs(large.changes(draw).crop[0] / factor - top) <= 1


@pytest.mark.parametrize("numbers", [(1.0, 0, 0), (0, -0.1, 0), (0, 0, math.nan)])
def test_draws_are_fractions(numbers: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"must be in \[0, 1\)"):
        Draw(*numbers)


def test_descriptions_load_without_torch() -> None:
    code = "import sys, framefeed.convert.desc; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
