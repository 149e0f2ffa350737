"""Weights of libswscale's bicubic filter, in its own integer arithmetic."""

from __future__ import annotations

__all__ = ["TAPS", "bicubic"]

TAPS = 4

_ONE = 1 << 54
_NEGLIGIBLE = _ONE // 500
_SHARPNESS = int(0.6 * (1 << 24))


def bicubic(samples: int, results: int, unit: int) -> list[tuple[int, list[int]]]:
    """Returns for each of ``results`` the first of the ``samples`` that count, and ``TAPS`` weights.

    There are more results than samples, both evenly spaced over the same length.

    Args:
        samples: Number of samples.
        results: Number of results.
        unit: Sum of the weights of a result.
    """
    step = ((samples << 16) + (results >> 1)) // results
    taps = max(1, min(5, samples - 2))
    found: list[tuple[int, list[int]]] = []
    after = None  # the first sample of the next result: first samples never move back
    for result in reversed(range(results)):
        middle = (2 * result + 1) * step - (1 << 16)  # in 1/131072
        start = middle - ((taps - 2) << 16)
        first = start >> 17 if start >= 0 else -(-start >> 17)
        weights = [_weight(abs(((first + tap) << 17) - middle) << 13) for tap in range(taps)]
        left = 0
        for _ in range(taps):
            left += abs(weights[0])
            if left > _NEGLIGIBLE or (after is not None and first >= after):
                break
            weights = [*weights[1:], 0]
            first += 1
        after = first
        found.append((first, weights))
    needed = max(_needed(weights) for _, weights in found)
    return [_within(first, weights[:needed], samples, unit) for first, weights in reversed(found)]


def _weight(distance: int) -> int:
    """Returns the weight of a sample; the distance is in 1/2**30 of the distance between two samples."""
    if distance >= 1 << 31:
        return 0
    square = (distance * distance) >> 30
    cube = (square * distance) >> 30
    if distance < 1 << 30:
        return ((12 << 24) - 6 * _SHARPNESS) * cube + ((-18 << 24) + 6 * _SHARPNESS) * square + (6 << 54)
    return 6 * _SHARPNESS * (-cube + 5 * square - 8 * distance + (4 << 30))


def _needed(weights: list[int]) -> int:
    """Returns the number of weights without the negligible ones at the end."""
    total = 0
    for count in reversed(range(1, len(weights))):
        total += abs(weights[count])
        if total > _NEGLIGIBLE:
            return count + 1
    return 1


def _within(first: int, weights: list[int], samples: int, unit: int) -> tuple[int, list[int]]:
    """Returns the weights as integers that sum to the unit; samples at the edge take the weights of those beyond."""
    kept = [0] * TAPS
    begin = min(max(first, 0), max(samples - TAPS, 0))
    for tap, weight in enumerate(weights):
        kept[min(max(first + tap, 0), samples - 1) - begin] += weight
    total = (sum(kept) + unit // 2) // unit or 1
    error = 0
    rounded = []
    for weight in kept:
        value = weight + error
        rounded.append(_rounded(value, total))
        error = value - rounded[-1] * total
    return begin, rounded


def _rounded(value: int, by: int) -> int:
    return (value + (by >> 1)) // by if value >= 0 else -((-value + (by >> 1)) // by)
