"""Which sample is which, and the random numbers that belong to it."""

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
"""A sample's number, or its file's name and its first frame, and anything behind these."""

# So that sample 5 and a file whose hash is 5 have nothing in common.
_NUMBERED, _NAMED = 0, 1


class SampleLabel(NamedTuple):
    """A label that says which sample it belongs to.

    Attributes:
        filename: The sample's file.
        frame_index: The number of its first frame.
        label: What the dataset's user has to say of it.
    """

    filename: str
    frame_index: int
    label: Any = None


@dataclass(frozen=True)
class SampleLabels:
    """A ``get_label`` for ``VideoDataset`` whose labels are ``SampleLabel``.

    Args:
        get_label: Makes what is put into ``label``; None leaves that empty.
        root: Names are given relative to this folder, so that they are the same where the videos lie elsewhere.
    """

    get_label: GetLabel | None = None
    root: str | os.PathLike[str] | None = None

    def __call__(self, filename: str, frame_index: int, changes: Mapping[str, Changes]) -> SampleLabel:
        """The label of the sample that begins with that frame."""
        name = filename if self.root is None else os.path.relpath(filename, self.root)
        label = None if self.get_label is None else self.get_label(filename, frame_index, changes)
        return SampleLabel(name, frame_index, label)


def sample_label(filename: str, frame_index: int, changes: Mapping[str, Changes]) -> SampleLabel:
    """A ``get_label`` for ``VideoDataset`` that says which sample it is, and nothing else."""
    return SampleLabel(filename, frame_index)


def sample_keys(count: int, seed: int, epoch: int, sample: Sample) -> list[int]:
    """Seeds for torch that are a function of seed, epoch and sample; as many as are asked for.

    Args:
        count: How many; fewer are the first of more.
        seed: The seed of the run.
        epoch: The number of the epoch.
        sample: Which sample.
    """
    kind, number = _identity(sample)
    return [int(key) >> 1 for key in keys(count, seed, epoch, kind, number)]  # torch takes 63 bits on all devices


def _identity(sample: Sample) -> tuple[int, int]:
    if isinstance(sample, tuple):
        if len(sample) >= 2 and isinstance(sample[0], str | os.PathLike):
            name, frame = os.fsencode(sample[0]), operator.index(sample[1])
            digest = blake2b(name + b"\0" + str(frame).encode(), digest_size=8).digest()
            return _NAMED, int.from_bytes(digest, "little")
        raise TypeError(f"a sample is a number or (filename, frame_index), got {sample!r}")
    return _NUMBERED, whole_number("a sample", sample)
