"""Ticks of a steady rate and the frames that are shown at them. Exact: fractions, no sums of floats."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

__all__ = ["Ticks", "exact_fraction", "exact_time"]

_MAX = 1 << 62


def exact_fraction(value: float | Fraction) -> Fraction:
    """The fraction that a float stands for: a simple one that is rounded to it, such as 2997/100 or 1/3."""
    if isinstance(value, Fraction):
        return value
    exact = Fraction(float(value))
    simple = (exact.limit_denominator(10**digits) for digits in range(17))
    return next((fraction for fraction in simple if float(fraction) == value), exact)


def exact_time(seconds: float, time_base: Fraction) -> Fraction:
    """The time that a float stands for: a whole number of units of the time base where one is rounded to it."""
    whole = round(Fraction(float(seconds)) / time_base) * time_base
    return whole if float(whole) == seconds else exact_fraction(seconds)


class Ticks:
    """Times from ``start`` on, ``1 / fps`` seconds apart: as many as the length of the range times ``fps``, rounded.

    Args:
        start, stop: The range, in seconds.
        fps: Ticks a second.
    """

    def __init__(self, start: Fraction, stop: Fraction, fps: Fraction) -> None:
        self.start = start
        self.fps = fps
        self.count = math.floor((stop - start) * fps + Fraction(1, 2))

    def seconds(self) -> NDArray[np.float64]:
        """The time of each tick, correctly rounded."""
        unit = math.lcm(self.start.denominator, self.fps.numerator)
        first, step = int(self.start * unit), int(unit / self.fps)
        return np.array([(first + tick * step) / unit for tick in range(self.count)], np.float64)

    def frames(self, pts: NDArray[np.int64], time_base: Fraction) -> NDArray[np.int64]:
        """The frame that is shown at each tick, or the first one where none is shown yet.

        Args:
            pts: When frames begin to be shown, in units of the time base, rising.
            time_base: Seconds.
        """
        start, period = self.start / time_base, 1 / (self.fps * time_base)
        unit = math.lcm(start.denominator, period.denominator)
        first, step = int(start * unit), int(period * unit)
        if max(abs(first), unit) + self.count * step < _MAX:
            ticks = (first + np.arange(self.count, dtype=np.int64) * step) // unit
        else:
            ticks = np.array([(first + tick * step) // unit for tick in range(self.count)], np.int64)
        found: NDArray[np.int64] = np.searchsorted(pts, ticks, side="right").astype(np.int64) - 1
        return np.maximum(found, 0)
