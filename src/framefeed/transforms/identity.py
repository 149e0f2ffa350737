"""Sample labels, and random seeds derived from samples."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

from framefeed.convert.desc import Changes
from framefeed.dataset.dataset import GetLabel
from framefeed.plan.randomness import keys, whole_number

__all__ = ["Sample", "SampleLabel", "SampleLabels", "sample_keys", "sample_label"]

Sample = int | tuple[Any, ...]
"""A sample number, or file name and first frame, optionally followed by anything."""

# Separates sample 5 from a file whose hash is 5.
_NUMBERED, _NAMED = 0, 1


class SampleLabel(NamedTuple):
    """A label that identifies its sample.

    Attributes:
        filename: The sample's file.
        frame_index: Number of its first frame.
        label: The user's own label.
    """

    filename: str
    frame_index: int
    label: Any = None


@dataclass(frozen=True)
class SampleLabels:
    """``get_label`` for ``VideoDataset`` that returns ``SampleLabel``.

    Args:
        get_label: Creates ``label``; None leaves it empty.
        root: Folder that file names are relative to, so that they are equal if the videos are elsewhere.
    """

    get_label: GetLabel | None = None
    root: str | os.PathLike[str] | None = None

    def __call__(self, filename: str, frame_index: int, changes: Mapping[str, Changes]) -> SampleLabel:
        """Returns the label of the sample that starts at that frame."""
        name = filename if self.root is None else os.path.relpath(filename, self.root)
        label = None if self.get_label is None else self.get_label(filename, frame_index, changes)
        return SampleLabel(name, frame_index, label)


def sample_label(filename: str, frame_index: int, changes: Mapping[str, Changes]) -> SampleLabel:
    """``get_label`` for ``VideoDataset`` that only identifies the sample."""
    return SampleLabel(filename, frame_index)


def sample_keys(count: int, seed: int, epoch: int, sample: Sample) -> list[int]:
    """Returns torch seeds as a function of seed, epoch and sample.

    Args:
        count: Number of seeds; a smaller number gives a prefix.
        seed: Seed of the run.
        epoch: Number of the epoch.
        sample: The sample.
    """
    kind, number = _identity(sample)
    return [int(key) >> 1 for key in keys(count, seed, epoch, kind, number)]  # torch takes 63 bits on all devices


def _identity(sample: Sample) -> tuple[int, int]:
    if isinstance(sample, tuple):
        if len(sample) >= 2 and isinstance(sample[0], str | os.PathLike):
            name, frame = os.fsencode(sample[0]), operator.index(sample[1])
            digest = blake2b(name + b"\0" + str(frame).encode(), digest_size=8).digest()
            return _NAMED, int.from_bytes(digest, "little")
        raise TypeError(f"a sample must be a number or (filename, frame_index), got {sample!r}")
    return _NUMBERED, whole_number("a sample", sample)
