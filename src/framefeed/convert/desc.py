"""Descriptions of a sequence's output: NVVL's ``ProcessDesc``, validated and bound to a video's size."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoundDesc", "Changes", "Draw", "IntermediateSpec", "ProcessDesc"]

TYPES = ("float", "half", "byte", "bfloat16")
COLOR_SPACES = ("RGB", "YCbCr")
DIMENSIONS = "fchw"

Size = tuple[int, int]
Crop = tuple[int, int, int, int]


@dataclass(frozen=True)
class Draw:
    """Random numbers in [0, 1) of one sample, shared by all its frames and descriptions.

    Sharing keeps flips consistent, and crops of proportional sizes on the same part of the picture.

    Attributes:
        top, left: Position of a random crop between the first and the last possible one.
        flip: Below 1/2 the frame is flipped.
    """

    top: float
    left: float
    flip: float

    def __post_init__(self) -> None:
        for name in ("top", "left", "flip"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)!r}")


@dataclass(frozen=True)
class Changes:
    """Operations applied to a sample's frames, in this order.

    Attributes:
        scale: (height, width) of the upright frame after scaling.
        flip: Whether it was flipped left to right.
        crop: (top, left, height, width) of the part kept of the scaled and flipped frame.
    """

    scale: Size
    crop: Crop
    flip: bool


@dataclass(frozen=True)
class IntermediateSpec:
    """The form in which frames are cached before they are finished. Descriptions with equal specs share frames.

    Attributes:
        color_space: ``"RGB"`` or ``"YCbCr"``.
        resize: (height, width) to scale the upright frame to; None for no scaling.
        crop: (top, left, height, width) of the part to keep; None for all.
    """

    color_space: Literal["RGB", "YCbCr"]
    resize: Size | None
    crop: Crop | None


@dataclass(frozen=True, kw_only=True)
class ProcessDesc:
    """Description of one output tensor of a sequence. Names and meanings are NVVL's.

    A frame is rotated upright, scaled, flipped, cropped and converted, in this order.

    Scaling is bilinear, antialiased when it shrinks frames, and done before colours are converted. Compared with
    ``torch.nn.functional.interpolate(..., mode="bilinear", antialias=True)`` of the whole RGB frame, in levels of 255:
    4:4:4 differs by 0.25 on average and by 9 at most. 4:2:0 differs by 1.2 and 14 when frames shrink; 1.1 of that comes
    from the fast conversion of unscaled frames, which is darker. When frames grow, it differs by 1.35 on average, and
    by up to 90 in single pixels on the edges of colours, where chroma is interpolated instead of repeated.

    Args:
        type: ``"float"``, ``"half"``, ``"byte"`` or ``"bfloat16"``. Values are computed in double precision from the
            frame's 8 bits and rounded once.
        width, height: Size of the crop; 0 does not crop in that dimension.
        scale_width, scale_height: Size to scale frames to; 0 for none. If only one is given, the other keeps the aspect
            ratio.
        normalized: Values in [0, 1] rather than [0, 255].
        random_crop: Crop at a random position; otherwise at the upper left corner.
        random_flip: Flip half of the samples left to right.
        color_space: ``"RGB"``, or ``"YCbCr"`` for 8-bit Y, Cb and Cr with the stream's matrix and range. Unscaled
            frames repeat chroma samples, more than 8 bits are rounded, gray has chroma 128, and RGB streams become
            full-range BT.601, as in JPEG.
        index_map: Output index of each frame of the sequence, -1 to leave it out. Frames behind the end of the map are
            left out. None keeps all in order.
        dimension_order: The letters f (frame), c (channel), h and w in any order.
        center_crop: Crop in the middle.
        mean, std: ``(value - mean) / std`` is applied last, in the units that ``normalized`` gives: three numbers, or
            one for all channels.

    Raises:
        ValueError: An argument is invalid, or cannot be combined with another one.
    """

    type: Literal["float", "half", "byte", "bfloat16"] = "float"
    width: int = 0
    height: int = 0
    scale_width: int = 0
    scale_height: int = 0
    normalized: bool = False
    random_crop: bool = False
    random_flip: bool = False
    color_space: Literal["RGB", "YCbCr"] = "RGB"
    index_map: Sequence[int] | None = None
    dimension_order: str = DIMENSIONS
    center_crop: bool = False
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _check_choice("type", self.type, TYPES)
        _check_choice("color_space", self.color_space, COLOR_SPACES)
        for name in ("width", "height", "scale_width", "scale_height"):
            self._set(name, _whole_size(name, getattr(self, name)))
        for name in ("normalized", "random_crop", "random_flip", "center_crop"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        for name in ("mean", "std"):
            self._set(name, _three_numbers(name, getattr(self, name)))
        if self.std is not None and min(self.channel_std) <= 0:
            raise ValueError(f"std must be positive, got {self.std}")
        if self.index_map is not None:
            self._set("index_map", _checked_map(self.index_map))
        if not isinstance(self.dimension_order, str) or sorted(self.dimension_order) != sorted(DIMENSIONS):
            raise ValueError(
                f"dimension_order must contain each of the letters f, c, h and w once, got {self.dimension_order!r}"
            )
        self._check_together()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_together(self) -> None:
        if self.type == "byte":
            for name, given in (("normalized", self.normalized), ("mean", self.mean), ("std", self.std)):
                if given not in (None, False):
                    raise ValueError(f"{name} cannot be combined with type='byte'; use 'float', 'half' or 'bfloat16'")
        if self.random_crop and self.center_crop:
            raise ValueError("random_crop and center_crop cannot be combined")
        for name in ("random_crop", "center_crop"):
            if getattr(self, name) and not (self.width or self.height):
                raise ValueError(f"{name} needs a crop's width or height")

    @property
    def channel_mean(self) -> tuple[float, float, float]:
        """Returns the mean of each channel."""
        return (0.0, 0.0, 0.0) if self.mean is None else self.mean  # type: ignore[return-value]

    @property
    def channel_std(self) -> tuple[float, float, float]:
        """Returns the standard deviation of each channel."""
        return (1.0, 1.0, 1.0) if self.std is None else self.std  # type: ignore[return-value]

    def places(self, sequence_length: int) -> NDArray[np.int64]:
        """Returns the output index of each frame of a sequence, -1 for frames that are left out."""
        if self.index_map is None:
            return np.arange(sequence_length)
        if len(self.index_map) > sequence_length:
            raise ValueError(
                f"index_map has {len(self.index_map)} entries, more than the {sequence_length} frames of a sequence"
            )
        places = np.full(sequence_length, -1)
        places[: len(self.index_map)] = self.index_map
        return places

    def num_frames(self, sequence_length: int) -> int:
        """Number of frames in the output."""
        return int(np.count_nonzero(self.places(sequence_length) >= 0))

    def bind(self, height: int, width: int) -> BoundDesc:
        """Binds this description to videos whose upright frames have that size.

        Raises:
            ValueError: The crop is larger than the frames.
        """
        scaled = self._scaled_size(height, width)
        output = (self.height or scaled[0], self.width or scaled[1])
        if output[0] > scaled[0] or output[1] > scaled[1]:
            what = "scaled frames" if scaled != (height, width) else "frames"
            raise ValueError(f"a crop to {_named(output)} does not fit into {what} of {_named(scaled)}")
        resize = scaled if self.scale_width or self.scale_height else None
        intermediate = IntermediateSpec(self.color_space, resize, self._fixed_crop(scaled, output))
        return BoundDesc(self, intermediate, output if intermediate.crop else scaled, scaled, output)

    def _scaled_size(self, height: int, width: int) -> Size:
        if self.scale_height and self.scale_width:
            return self.scale_height, self.scale_width
        if self.scale_height:
            return self.scale_height, _proportional(width, self.scale_height, height)
        if self.scale_width:
            return _proportional(height, self.scale_width, width), self.scale_width
        return height, width

    def _fixed_crop(self, scaled: Size, output: Size) -> Crop | None:
        """Returns the crop that can be done before the flip is known."""
        if output == scaled or self.random_crop:
            return None
        top, left = _fixed_corner(self, scaled, output)
        if self.random_flip and 2 * left + output[1] != scaled[1]:
            return None
        return top, left, *output


@dataclass(frozen=True)
class BoundDesc:
    """A description for frames of a certain size.

    Attributes:
        desc: The description.
        intermediate: The form in which frames are cached.
        intermediate_size: (height, width) of that.
        scaled_size: (height, width) of the frame after scaling.
        output_size: (height, width) of the output.
    """

    desc: ProcessDesc
    intermediate: IntermediateSpec
    intermediate_size: Size
    scaled_size: Size
    output_size: Size

    def shape(self, num_frames: int) -> tuple[int, ...]:
        """Returns the shape of a sample's output with that many frames."""
        lengths = dict(zip(DIMENSIONS, (num_frames, 3, *self.output_size), strict=True))
        return tuple(lengths[letter] for letter in self.desc.dimension_order)

    def changes(self, draw: Draw) -> Changes:
        """Returns the operations for a sample's random numbers."""
        height, width = self.output_size
        if self.desc.random_crop:
            top = _drawn_place(draw.top, self.scaled_size[0] - height)
            left = _drawn_place(draw.left, self.scaled_size[1] - width)
        else:
            top, left = _fixed_corner(self.desc, self.scaled_size, self.output_size)
        return Changes(self.scaled_size, (top, left, height, width), self.desc.random_flip and draw.flip < 0.5)


def _fixed_corner(desc: ProcessDesc, scaled: Size, output: Size) -> Size:
    """Returns the position of a crop that is not random."""
    if desc.center_crop:
        return round((scaled[0] - output[0]) / 2.0), round((scaled[1] - output[1]) / 2.0)
    return 0, 0


def _drawn_place(number: float, last: int) -> int:
    return min(last, math.floor(number * (last + 1)))


def _proportional(length: int, numerator: int, denominator: int) -> int:
    return max(1, (2 * length * numerator + denominator) // (2 * denominator))


def _named(size: Size) -> str:
    return f"{size[1]}x{size[0]} (width x height)"


def _check_choice(name: str, value: Any, possible: tuple[str, ...]) -> None:
    if value not in possible:
        raise ValueError(f"{name} must be one of {', '.join(possible)}, got {value!r}")


def _whole_size(name: str, value: Any) -> int:
    if isinstance(value, float | np.floating):
        if not float(value).is_integer():
            raise ValueError(f"{name} must be a whole number, got {value!r}; divide with // instead of /")
        value = int(value)
    try:
        whole = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if whole < 0:
        raise ValueError(f"{name} must be positive, or 0 for none, got {whole}")
    return whole


def _three_numbers(name: str, value: Any) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        numbers = np.empty(0)
    if numbers.shape not in ((), (1,), (3,)) or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be three finite numbers or one, got {value!r}")
    return tuple(np.broadcast_to(numbers, 3).tolist())


def _checked_map(index_map: Any) -> tuple[int, ...]:
    try:
        places = tuple(operator.index(place) for place in index_map)
    except TypeError:
        raise ValueError(f"index_map must be a sequence of whole numbers, got {index_map!r}") from None
    used = sorted(place for place in places if place != -1)
    if not used or used != list(range(len(used))):
        raise ValueError(
            f"index_map must use each place of 0..k-1 once, and -1 for frames that are left out, got {list(places)}"
        )
    return places
