"""Random numbers that are functions of whole numbers: the same on every machine and with every NumPy."""

from __future__ import annotations

import operator

import numpy as np
from numpy.typing import NDArray

__all__ = ["keys", "to_unit", "uniforms", "whole_number"]

_LARGEST = 2**64 - 1

# Constants of splitmix64: the step of its counter and the two factors of its finaliser.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def whole_number(name: str, value: int, *, least: int = 0, most: int = _LARGEST) -> int:
    """The value as an ``int``, if it is a whole number in ``least..most``."""
    try:
        number = int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} has to be a whole number, got {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} has to be in {least}..{most}, got {number}")
    return number


def keys(count: int, *entropy: int) -> NDArray[np.uint64]:
    """Random 64-bit keys.

    NumPy promises the bits of ``SeedSequence`` and ``Philox``, and does not promise those of ``Generator``'s methods.

    Args:
        count: How many; fewer keys from the same entropy are the first of more.
        entropy: Whole numbers in ``0..2**64-1``: seed, epoch, what the keys are for. Other numbers, other keys.
    """
    # SeedSequence splits large numbers and pads short lists with zeros: a fixed width and the length keep [1], [1, 0]
    # and [2**32, 0] apart.
    words = [len(entropy)]
    for value in entropy:
        number = whole_number("a seed, an epoch and whatever else keys are made from", value)
        words += [number & 0xFFFFFFFF, number >> 32]
    bits = np.random.Philox(np.random.SeedSequence(words))
    found: NDArray[np.uint64] = bits.random_raw(whole_number("count", count))
    return found


def uniforms(seed: int, epoch: int, samples: NDArray[np.int64], which: int) -> NDArray[np.float64]:
    """For each sample a number in ``[0, 1)`` that no other sample has a part in.

    Args:
        seed: The seed of the run.
        epoch: The number of the epoch.
        samples: Sample numbers, in any order.
        which: Which of a sample's numbers: each use of randomness takes another.
    """
    state: NDArray[np.uint64] = np.zeros(1, np.uint64)
    for name, value in (("seed", seed), ("epoch", epoch), ("which", which)):
        state = _absorb(state, np.array([whole_number(name, value)], np.uint64))
    return to_unit(_absorb(state, np.asarray(samples, np.int64).astype(np.uint64)))


def to_unit(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Numbers in ``[0, 1)`` from the upper 53 bits of each word; exact in float64."""
    unit: NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit


def _absorb(state: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _finish(_finish(words + _STEP) ^ state)


def _finish(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64: one to one, and each bit depends on all bits."""
    words = (words ^ (words >> np.uint64(30))) * _FACTORS[0]
    words = (words ^ (words >> np.uint64(27))) * _FACTORS[1]
    finished: NDArray[np.uint64] = words ^ (words >> np.uint64(31))
    return finished
