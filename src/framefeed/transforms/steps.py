"""Application of one Kornia augmentation to one sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from framefeed.transforms.library import kornia_augmentation

__all__ = ["Step", "make_steps", "own_randomness"]

# These draw in fractions of the frame's size and multiply by it.
_RELATIVE = ("RandomAffine", "RandomPerspective", "RandomShear", "RandomTranslate")
# These mean the same for frames of any shape.
_FLIPS = ("RandomHorizontalFlip", "RandomVerticalFlip")


def make_steps(augmentations: Sequence[Any]) -> list[Step]:
    """Returns one step for each augmentation, with ``VideoSequential`` unpacked.

    Raises:
        TypeError: An argument is not an augmentation of single pictures.
        ValueError: It has an unsupported setting.
    """
    return [Step(augmentation) for given in augmentations for augmentation in _unpacked(given)]


def _unpacked(given: Any) -> list[Any]:
    kornia = kornia_augmentation()
    if isinstance(given, kornia.VideoSequential):
        if not given.same_on_frame:
            raise ValueError("VideoSequential: same_on_frame=False is not supported: all frames of a clip change alike")
        if given.random_apply:
            raise ValueError("VideoSequential: random_apply is not supported; give each augmentation its own p")
        return [augmentation for child in given.children() for augmentation in _unpacked(child)]
    if not isinstance(given, kornia.AugmentationBase2D):
        raise TypeError(
            f"{type(given).__name__} is not a Kornia augmentation of single pictures; expected a subclass of "
            "kornia.augmentation.AugmentationBase2D, or a VideoSequential of them"
        )
    # Some that are not random set it themselves.
    if given.same_on_batch and "same_on_batch" in signature(type(given)).parameters:
        raise ValueError(f"{type(given).__name__}: same_on_batch=True is not supported: numbers are per sample")
    return [given]


class Step:
    """An augmentation that changes all frames of a clip alike.

    Args:
        augmentation: A Kornia augmentation of single pictures.

    Attributes:
        name: Its name.
        geometric: True if it moves pixels, not only changes their colours.
    """

    def __init__(self, augmentation: Any) -> None:
        kornia = kornia_augmentation()
        self.name = type(augmentation).__name__
        self.geometric = isinstance(augmentation, kornia.GeometricAugmentationBase2D)
        self._relative = isinstance(augmentation, tuple(getattr(kornia, name) for name in _RELATIVE))
        self._flips = isinstance(augmentation, tuple(getattr(kornia, name) for name in _FLIPS))
        plain = kornia.AugmentationBase2D.apply_non_transform
        self._can_skip = type(augmentation).apply_non_transform is plain
        self._sequence = kornia.VideoSequential(augmentation, data_format="BTCHW", same_on_frame=True)
        self._checked: set[tuple[torch.Size, torch.device]] = set()

    def run(self, clips: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
        """Augments the clips (F, C, H, W) of one sample alike.

        Raises:
            ValueError: The augmentation cannot treat clips of these sizes, or all of their frames, alike.
        """
        first = next(iter(clips))
        for name, clip in clips.items():
            if clip.shape[-2:] != clips[first].shape[-2:]:
                self._check_alike(first, clips[first], name, clip, seed)
        return {name: self._run(clip, seed) for name, clip in clips.items()}

    def _run(self, clip: Tensor, seed: int) -> Tensor:
        kind = (clip.shape[1:], clip.device)
        if kind not in self._checked:
            self._check_frames(clip, seed)
            self._checked.add(kind)
        _seed(clip.device, seed)
        drawn = self._sequence.forward_parameters(torch.Size((1, *clip.shape)))
        if self._can_skip and not drawn[0].data["batch_prob"].any():
            return clip  # Kornia would compute the result and discard it
        changed: Tensor = self._sequence(clip[None], params=drawn)[0]
        return changed

    def _check_frames(self, clip: Tensor, seed: int) -> None:
        """Checks that equal frames stay equal: Kornia leaves support for frames to each augmentation."""
        _seed(clip.device, seed)
        pair = clip[:1].expand(2, *clip.shape[1:])[None]
        drawn = self._sequence.forward_parameters(pair.shape)
        for item in drawn:
            item.data["batch_prob"] = torch.ones_like(item.data["batch_prob"])  # regardless of p
        before = _states(clip.device)
        one, other = self._sequence(pair, params=drawn)[0]
        if not (
            torch.allclose(one, other, atol=1e-4, equal_nan=True)
            and all(map(torch.equal, before, _states(clip.device)))
        ):
            raise ValueError(f"{self.name} does not treat all frames of a clip alike, in this release of Kornia")

    def _check_alike(self, first: str, clip: Tensor, second: str, other: Tensor, seed: int) -> None:
        pair = f"{first!r} of {_size(clip)} and {second!r} of {_size(other)}"
        if self.geometric and not self._flips and not _proportional(clip, other):
            raise ValueError(f"{self.name} cannot change {pair} alike: their aspect ratios differ")
        if self._relative or _equal(self._draw(clip, seed), self._draw(other, seed)):
            return
        what = (
            "crop with ProcessDesc(random_crop=True), which does"
            if self.geometric
            else f'give keys={{"{second}": "geometric", ...}} to leave {second!r} as it is'
        )
        raise ValueError(f"{self.name} does not change {pair} alike: it draws in pixels; {what}")

    def _draw(self, clip: Tensor, seed: int) -> dict[str, Any]:
        _seed(clip.device, seed)
        drawn: dict[str, Any] = self._sequence.forward_parameters(torch.Size((1, 1, *clip.shape[1:])))[0].data
        return {name: value for name, value in drawn.items() if name != "forward_input_shape"}


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Restores torch's generators on the CPU and on that device afterwards: Kornia has none of its own."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


def _generators(device: torch.device) -> list[torch.Generator]:
    if device.type != "cuda":
        return [torch.default_generator]
    number = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[number]]


def _seed(device: torch.device, seed: int) -> None:
    # Not torch.manual_seed, which would change all GPUs.
    for generator in _generators(device):
        generator.manual_seed(seed)


def _states(device: torch.device) -> list[Tensor]:
    return [generator.get_state() for generator in _generators(device)]


def _equal(some: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)


def _proportional(clip: Tensor, other: Tensor) -> bool:
    """Returns True if one size is a scaled version of the other, rounded to whole pixels."""
    (height, width), (high, wide) = sorted([clip.shape[-2:], other.shape[-2:]])
    return abs(height * wide - high * width) <= max(high, wide)


def _size(clip: Tensor) -> str:
    return f"{clip.shape[-1]}x{clip.shape[-2]}"
