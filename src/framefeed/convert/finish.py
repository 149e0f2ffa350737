"""Finishes intermediates into batches: flip, crop, type, normalisation and layout."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.convert.buffers import allocate
from framefeed.convert.desc import BoundDesc, Draw, ProcessDesc

__all__ = ["Finisher"]

# Each type as a torch type and as the NumPy type with its bits; NumPy lacks bfloat16.
DTYPES: dict[str, tuple[torch.dtype, Any]] = {
    "float": (torch.float32, np.float32),
    "half": (torch.float16, np.float16),
    "byte": (torch.uint8, np.uint8),
    "bfloat16": (torch.bfloat16, np.int16),
}

# Pixels looked up at once: they fit the cache, and are enough to make the overhead of calls negligible.
CHUNK = 1 << 16


class _Scratch(threading.local):
    """Scratch memory of one thread."""

    def __init__(self) -> None:
        self.indices = np.empty(CHUNK, np.intp)
        self.values = np.empty(CHUNK, np.uint32)

    def grow(self, size: int) -> None:
        """Makes room for a line of that many pixels."""
        if size > len(self.indices):
            self.indices, self.values = np.empty(size, np.intp), np.empty(size, np.uint32)

    @staticmethod
    def array(memory: NDArray[Any], dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """Returns the start of the memory as an array."""
        return memory.view(dtype)[: math.prod(shape)].reshape(shape)


_SCRATCH = _Scratch()


class Finisher:
    """Writes frames into batches as a description specifies. Safe to use from several threads.

    Each of the 256 possible values is computed once, in double precision, and rounded to the type; finishing a frame is
    a table lookup. Everything runs in NumPy, without the GIL and on the calling thread alone: PyTorch's operations
    would start threads of their own in each of them.

    Args:
        bound: The description.
    """

    def __init__(self, bound: BoundDesc) -> None:
        desc = bound.desc
        self.bound = bound
        self._dtype, self._word = DTYPES[desc.type]
        self._tables = value_tables(desc)
        # Plain conversion and plain division are exact too, and faster than a lookup.
        self._divisor = _plain_divisor(desc)
        # Order of (c, h, w) in the dimensions of one frame.
        self._frame_axis = desc.dimension_order.index("f")
        left = desc.dimension_order.replace("f", "")
        self._axes = tuple(left.index(letter) for letter in "chw")

    def empty(self, batch: int, num_frames: int) -> torch.Tensor:
        """Returns an uninitialised batch; its memory is reused when the last tensor that views it is gone."""
        shape = (batch, *self.bound.shape(num_frames))
        memory = allocate((int(np.prod(shape)) * np.dtype(self._word).itemsize,))
        return torch.from_numpy(memory.view(self._word).reshape(shape)).view(self._dtype)

    def finish(self, intermediate: NDArray[np.uint8], sample: torch.Tensor, place: int, draw: Draw) -> None:
        """Writes one frame.

        Args:
            intermediate: The frame, (3, height, width) of ``bound.intermediate_size``.
            sample: One element of a batch.
            place: Index of the frame in the sample.
            draw: The sample's random numbers.
        """
        expected = (3, *self.bound.intermediate_size)
        if intermediate.shape != expected:
            raise ValueError(f"the description is for intermediates of {expected}, got {intermediate.shape}")
        pixels = self._kept_part(intermediate, draw)
        words = sample.view(torch.int16) if self._dtype == torch.bfloat16 else sample
        frame = words.numpy()[(slice(None),) * self._frame_axis + (place,)].transpose(self._axes)
        # One channel at a time: with channels last, NumPy would run along the three values of each pixel.
        for table, plane, out in zip(self._tables, pixels, frame, strict=True):
            if self._divisor == 1:
                np.copyto(out, plane)
            else:
                self._convert(table, plane, out)

    def _convert(self, table: NDArray[Any], plane: NDArray[np.uint8], out: NDArray[Any]) -> None:
        """Writes the final values of a plane, a chunk of lines at a time."""
        height, width = plane.shape
        _SCRATCH.grow(width)
        lines = max(1, CHUNK // width)
        for top in range(0, height, lines):
            pixels, target = plane[top : top + lines], out[top : top + lines]
            direct = target.flags.c_contiguous
            found = target if direct else _SCRATCH.array(_SCRATCH.values, target.dtype, pixels.shape)
            if self._divisor:
                _divide(pixels, self._divisor, found)
            else:
                _look_up(table, pixels, found)
            if not direct:
                np.copyto(target, found)

    def _kept_part(self, intermediate: NDArray[np.uint8], draw: Draw) -> NDArray[np.uint8]:
        """Returns a view of the kept part of an intermediate, flipped if necessary."""
        changes = self.bound.changes(draw)
        if changes.flip:
            intermediate = intermediate[:, :, ::-1]
        if self.bound.intermediate_size == self.bound.output_size:
            return intermediate
        top, left, height, width = changes.crop
        return intermediate[:, top : top + height, left : left + width]


def value_tables(desc: ProcessDesc) -> NDArray[Any]:
    """Returns the final value of each of the 256 values of each channel; bfloat16 as bits."""
    values = np.tile(np.arange(256, dtype=np.float64), (3, 1))
    if desc.normalized:
        values /= 255
    values -= np.array(desc.channel_mean)[:, None]
    values /= np.array(desc.channel_std)[:, None]
    with np.errstate(over="ignore"):  # values too large for the type become infinite
        return _bfloat16_bits(values) if desc.type == "bfloat16" else values.astype(DTYPES[desc.type][1])


def _bfloat16_bits(values: NDArray[np.float64]) -> NDArray[np.int16]:
    """Rounds to the 8 bits of a bfloat16's mantissa; its bits are the upper half of a float's."""
    exponent = np.maximum(np.frexp(values)[1], -125)  # subnormal numbers have fewer bits
    rounded = np.ldexp(np.rint(np.ldexp(values, 8 - exponent)), exponent - 8)
    bits: NDArray[np.int16] = rounded.astype(np.float32).view(np.int16)[..., 1::2]
    return bits.copy()


def _plain_divisor(desc: ProcessDesc) -> np.float32 | int:
    """Returns the divisor if dividing is all that a description does, else 0."""
    if desc.mean is not None or desc.std is not None or desc.type not in ("float", "byte"):
        return 0
    return np.float32(255) if desc.normalized else 1


def _divide(pixels: NDArray[np.uint8], divisor: np.float32 | int, out: NDArray[Any]) -> None:
    if pixels.strides[1] != 1:  # swapping bytes first is faster
        turned = _SCRATCH.array(_SCRATCH.indices, np.dtype(np.uint8), pixels.shape)
        np.copyto(turned, pixels)
        pixels = turned
    # Two steps take two thirds of the time of one: the second finds its values in the cache.
    np.copyto(out, pixels)
    np.divide(out, divisor, out=out)


def _look_up(table: NDArray[Any], pixels: NDArray[np.uint8], out: NDArray[Any]) -> None:
    indices = _SCRATCH.array(_SCRATCH.indices, np.dtype(np.intp), pixels.shape)
    np.copyto(indices, pixels)
    np.take(table, indices, out=out, mode="wrap")  # the other modes check or copy more, and no index is out of range
