"""The weights of libswscale's bicubic filter, seen in what it makes of single bright lines and columns."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.convert.cpu.rgb import padded
from framefeed.convert.cpu.swscale import ACCURATE, BICUBIC, Scaler
from framefeed.convert.filters import bicubic

RESULTS = [*range(2, 66), 101, 181, 241, 480, 721, 1080, 1081]


def _scaled(samples: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.int64]:
    height, width = samples.shape
    lines = np.zeros((height, padded(width)), np.uint8)
    lines[:, :width] = samples
    out = np.zeros((size[0], padded(size[1])), np.uint16)
    scaler = Scaler((width, height, "gray"), (size[1], size[0], "gray16le"), 2, True, BICUBIC | ACCURATE)
    scaler((lines.ctypes.data,), (lines.strides[0],), (out.ctypes.data,), (out.strides[0],))
    return out[:, : size[1]].astype(np.int64)


@pytest.mark.parametrize("results", RESULTS)
def test_lines(results: int) -> None:
    samples = -(-results // 2)
    bright = np.full((samples, samples), 64, np.uint8) + 64 * np.eye(samples, dtype=np.uint8)
    got = (_scaled(bright, (results, samples)) - (64 << 8)) / 4
    expected = np.zeros((results, samples), np.int64)
    for result, (first, weights) in enumerate(bicubic(samples, results, 1 << 12)):
        for tap, weight in enumerate(weights):
            expected[result, min(first + tap, samples - 1)] += weight
    assert np.abs(got - expected).max() < 1


@pytest.mark.parametrize("results", RESULTS)
def test_columns(results: int) -> None:
    samples = -(-results // 2)
    bright = np.full((samples, samples), 64, np.uint8) + 64 * np.eye(samples, dtype=np.uint8)
    got = _scaled(bright, (samples, results)) - (64 << 8)
    expected = np.zeros((samples, results), np.int64)
    for result, (first, weights) in enumerate(bicubic(samples, results, 1 << 14)):
        for tap, weight in enumerate(weights):
            expected[min(first + tap, samples - 1), result] += weight
    assert np.abs(got - expected).max() <= 1
