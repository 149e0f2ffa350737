"""Transforms that a decoder applies: resize and crop, with TorchCodec's names and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["CenterCrop", "Geometry", "RandomCrop", "Resize", "compile_transforms"]


def _pair(name: str, size: Sequence[int]) -> tuple[int, int]:
    if len(size) != 2:
        raise ValueError(f"{name} needs a (height, width) pair, got {size}")
    height, width = (int(side) for side in size)
    if height <= 0 or width <= 0:
        raise ValueError(f"{name} needs a positive height and width, got {size}")
    return height, width


class Resize:
    """Resizes frames to (height, width): bilinear, antialiased when it shrinks them."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = _pair("Resize", size)


class CenterCrop:
    """Cuts (height, width) out of the middle of frames."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = _pair("CenterCrop", size)


class RandomCrop:
    """Cuts (height, width) out of frames, at a position drawn once per decoder by torch's generator."""

    def __init__(self, size: Sequence[int]) -> None:
        self.size = _pair("RandomCrop", size)


@dataclass(frozen=True)
class Geometry:
    """Resize and crop that a list of transforms compiles to.

    Attributes:
        resize: (height, width) of the upright frame; None for no resizing.
        crop: (top, left, height, width) of the part to keep; None for all.
    """

    resize: tuple[int, int] | None = None
    crop: tuple[int, int, int, int] | None = None

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Returns the size of the result for an upright frame of that size."""
        if self.crop is not None:
            return self.crop[2:]
        return self.resize or (height, width)


def compile_transforms(transforms: Sequence[Any] | None, height: int, width: int) -> Geometry:
    """Compiles transforms to a geometry.

    Accepts the ones of this module and those of the same name of ``torchcodec.transforms`` and
    ``torchvision.transforms.v2``: Resize, CenterCrop and RandomCrop. The position of a random crop is drawn once, here.

    Raises:
        ValueError: A transform is unknown, or cannot be applied at this position.
    """
    resize: tuple[int, int] | None = None
    crop: tuple[int, int, int, int] | None = None
    size = (height, width)
    for transform in transforms or ():
        name = type(transform).__name__
        if name not in ("Resize", "CenterCrop", "RandomCrop"):
            raise ValueError(
                f"{transform!r} cannot be applied while decoding; supported: Resize, CenterCrop, RandomCrop"
            )
        target = _pair(name, transform.size)
        if name == "Resize":
            if resize is not None or crop is not None:
                raise ValueError("Resize can only be the first transform")
            _check_resize(transform)
            resize = target
        else:
            top, left = _crop_place(transform, name, size, target)
            before = crop or (0, 0, *size)
            crop = (before[0] + top, before[1] + left, *target)
        size = target
    return Geometry(resize, crop)


def _check_resize(transform: Any) -> None:
    if "bilinear" not in str(getattr(transform, "interpolation", "bilinear")).lower():
        raise ValueError("Resize is always bilinear; leave out interpolation=")
    if getattr(transform, "antialias", True) is False:
        raise ValueError("Resize is always antialiased; leave out antialias=False")


def _crop_place(transform: Any, name: str, size: tuple[int, int], target: tuple[int, int]) -> tuple[int, int]:
    if target[0] > size[0] or target[1] > size[1]:
        raise ValueError(f"{name} to {target} is larger than the frame of {size}")
    if name == "CenterCrop":
        return round((size[0] - target[0]) / 2.0), round((size[1] - target[1]) / 2.0)
    if getattr(transform, "padding", None) is not None or getattr(transform, "pad_if_needed", False):
        raise ValueError("RandomCrop cannot pad while decoding")
    import torch

    top = int(torch.randint(0, size[0] - target[0] + 1, size=()).item())
    left = int(torch.randint(0, size[1] - target[1] + 1, size=()).item())
    return top, left
