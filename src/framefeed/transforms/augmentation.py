"""``VideoAugmentation``: Kornia augmentations on batches of clips."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from framefeed.dataset.frame_dataset import LABELS
from framefeed.plan.randomness import whole_number
from framefeed.transforms.identity import Sample, SampleLabel, sample_keys
from framefeed.transforms.steps import make_steps, own_randomness

__all__ = ["VideoAugmentation"]

Treatment = Literal["all", "geometric"]

_FLOATS = (torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)
# Above any value in [0, 1] after subtracting a mean and dividing by a standard deviation, below 255.
_TOO_LARGE = 16.0

# Random numbers come from torch's global generators, which all threads share.
_one_at_a_time = threading.Lock()


class VideoAugmentation:
    """Kornia augmentations on batches of clips, on the batch's device.

    All frames of a clip share the same random numbers; each sample has its own. They depend only on the seed, the epoch
    and the sample: not on the sample's position or neighbours, the batch size or the number of ranks. Samples are
    processed one by one. torch's generators are restored, and gradients are not recorded.

    Clips are (N, F, C, H, W): ``dimension_order="fchw"``. Values are floats in [0, 1] (``normalized=True``) or uint8,
    which are computed in float32 and rounded. Half and bfloat16 are computed in float32 too. Results have the input's
    dtype, in new memory. Subtract means afterwards, or with ``kornia.augmentation.Normalize`` as the last step.

    Args:
        augmentations: Augmentations of ``kornia.augmentation`` for single pictures, or a ``VideoSequential`` of them.
            They keep their probability ``p``.
        seed: Seed of all random numbers.
        keys: Tensors of a batch to augment, all with the same random numbers; None for all. By name ``"all"``, or
            ``"geometric"`` for those that are moved but keep their colours: ``{"input": "all", "target":
            "geometric"}``. They may differ in size if an augmentation draws relative to it (flips, ``RandomAffine``,
            ``RandomRotation``, ``RandomPerspective``, colours); others, such as crops, raise. Blurs are in pixels of
            each.

    Raises:
        MissingBackend: Kornia is not installed.
        TypeError: An argument is not an augmentation of single pictures.
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        *augmentations: Any,
        seed: int = 0,
        keys: str | Iterable[str] | Mapping[str, Treatment] | None = None,
    ) -> None:
        self._steps = make_steps(augmentations)
        if not self._steps:
            raise ValueError("augmentations is empty: pass at least one")
        self.seed = whole_number("seed", seed)
        self.keys = None if keys is None else _treatments(keys)
        self._seen: set[str] = set()

    @overload
    def __call__(self, batch: Tensor, *, epoch: int, samples: Sequence[Sample] | Tensor | None = None) -> Tensor: ...

    @overload
    def __call__(
        self, batch: Mapping[str, Any], *, epoch: int, samples: Sequence[Sample] | Tensor | None = None
    ) -> dict[str, Any]: ...

    def __call__(
        self, batch: Tensor | Mapping[str, Any], *, epoch: int, samples: Sequence[Sample] | Tensor | None = None
    ) -> Tensor | dict[str, Any]:
        """Returns the augmented batch; the input is not changed.

        Args:
            batch: Clips, or a dict of them as from ``VideoLoader``.
            epoch: Number of the epoch: ``loader.epoch``.
            samples: Sample of each clip: a number, or file name and first frame. None uses the labels made by
                ``sample_label`` or ``SampleLabels``.

        Raises:
            TypeError: Values are neither floats nor uint8.
            ValueError: Shapes, values or samples do not match.
        """
        if isinstance(batch, Tensor):
            if samples is None:
                raise ValueError("a tensor has no labels: pass samples=")
            return self._augment({"batch": batch}, {"batch": "all"}, list(_plain(samples)), epoch)["batch"]
        treatments = self.keys or {name: "all" for name in batch if name != LABELS}
        for name in treatments:
            if not isinstance(batch.get(name), Tensor):
                raise ValueError(f"the batch has no tensor {name!r}; it has {', '.join(map(repr, batch))}")
        numbers = _labelled(batch) if samples is None else list(_plain(samples))
        return {**batch, **self._augment({name: batch[name] for name in treatments}, treatments, numbers, epoch)}

    def __repr__(self) -> str:
        return f"VideoAugmentation({', '.join(step.name for step in self._steps)}, seed={self.seed})"

    def _augment(
        self, clips: Mapping[str, Tensor], treatments: Mapping[str, Treatment], samples: Sequence[Sample], epoch: int
    ) -> dict[str, Tensor]:
        for name, tensor in clips.items():
            self._check(name, tensor, len(samples))
        devices = {tensor.device for tensor in clips.values()}
        if len(devices) > 1:
            raise ValueError(f"tensors of a batch must be on one device, got {', '.join(sorted(map(str, devices)))}")
        device = devices.pop()
        results: dict[str, Tensor] = {}
        with (
            _one_at_a_time,
            torch.no_grad(),
            torch.autocast(device.type, enabled=False),
            own_randomness(device),
        ):
            for row, sample in enumerate(samples):
                seeds = sample_keys(len(self._steps), self.seed, epoch, sample)
                changed = {name: _to_float(tensor[row]) for name, tensor in clips.items()}
                for step, seed in zip(self._steps, seeds, strict=True):
                    meant = {
                        name: clip for name, clip in changed.items() if step.geometric or treatments[name] == "all"
                    }
                    if meant:
                        changed.update(step.run(meant, seed))
                for name, clip in changed.items():
                    _store(results, name, row, clip, clips[name])
        return results

    def _check(self, name: str, tensor: Tensor, num_samples: int) -> None:
        if tensor.ndim != 5 or tensor.shape[2] not in (1, 3):
            raise ValueError(
                f"{name!r} has the shape {tuple(tensor.shape)}; expected (batch, frames, channels, height, width) "
                'with 1 or 3 channels: dimension_order="fchw"'
            )
        if not tensor.numel():
            raise ValueError(f"{name!r} is empty: its shape is {tuple(tensor.shape)}")
        if len(tensor) != num_samples:
            raise ValueError(f"{name!r} has {len(tensor)} clips, but there are {num_samples} samples")
        if tensor.dtype not in (*_FLOATS, *_HALVES, torch.uint8):
            raise TypeError(f"{name!r} is {tensor.dtype}; expected float, half, bfloat16 or uint8")
        if tensor.dtype != torch.uint8 and name not in self._seen:  # once: it waits for the GPU
            largest = float(tensor.detach().amax())
            if largest > _TOO_LARGE:
                raise ValueError(
                    f"{name!r} has values up to {largest:g}; augmentations need [0, 1]: use "
                    'ProcessDesc(normalized=True) or type="byte"'
                )
            self._seen.add(name)


def _treatments(keys: str | Iterable[str] | Mapping[str, Treatment]) -> dict[str, Treatment]:
    if isinstance(keys, str):
        keys = [keys]
    treatments: dict[str, Treatment] = dict(keys) if isinstance(keys, Mapping) else dict.fromkeys(keys, "all")
    if not treatments:
        raise ValueError("keys is empty: name at least one tensor, or leave it out for all")
    for name, treatment in treatments.items():
        if treatment not in ("all", "geometric"):
            raise ValueError(f'keys[{name!r}] must be "all" or "geometric", got {treatment!r}')
    return treatments


def _plain(samples: Sequence[Sample] | Tensor) -> Sequence[Sample]:
    if isinstance(samples, Tensor):
        numbers: list[int] = samples.tolist()
        return numbers
    return samples


def _labelled(batch: Mapping[str, Any]) -> list[Sample]:
    labels = batch.get(LABELS)
    # Only these: other labels may be class numbers.
    if not isinstance(labels, list) or not all(isinstance(label, SampleLabel) for label in labels):
        raise ValueError(
            "the batch has no sample labels: pass samples=, or create the dataset with get_label=sample_label, or with "
            "SampleLabels(get_label) for labels of your own"
        )
    return list(labels)


def _to_float(clip: Tensor) -> Tensor:
    if clip.dtype == torch.uint8:
        return clip.to(torch.float32).div_(255)
    return clip.detach() if clip.dtype in _FLOATS else clip.to(torch.float32)


def _store(results: dict[str, Tensor], name: str, row: int, clip: Tensor, given: Tensor) -> None:
    """Stores a clip in the result, with the input's dtype."""
    if name not in results:
        results[name] = torch.empty((len(given), *clip.shape), dtype=given.dtype, device=given.device)
    if clip.shape != results[name].shape[1:]:
        raise ValueError(
            f"samples of {name!r} have different output sizes: {tuple(clip.shape)} and "
            f"{tuple(results[name].shape[1:])}; augmentations that change the size need p=1"
        )
    if given.dtype == torch.uint8:
        clip = (clip * 255).round_().clamp_(0, 255)
    results[name][row].copy_(clip)
