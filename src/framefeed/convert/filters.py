"""libswscale's bicubic filter in its own integers: which samples of a line or column become one, and their weights."""

from __future__ import annotations

__all__ = ["TAPS", "bicubic"]

TAPS = 4

_ONE = 1 << 54
_NEGLIGIBLE = _ONE // 500
_SHARPNESS = int(0.6 * (1 << 24))


def bicubic(samples: int, results: int, unit: int) -> list[tuple[int, list[int]]]:
    """For each of ``results``, the first of the ``samples`` that count, and the weights of ``TAPS`` of them.

    There are more results than samples, and both lie evenly over the same length.

    Args:
        samples: How many there are.
        results: How many are wanted.
        unit: What the weights of a result sum up to.
    """
    step = ((samples << 16) + (results >> 1)) // results
    taps = max(1, min(5, samples - 2))
    found: list[tuple[int, list[int]]] = []
    after = None  # the first sample of the next result: first samples do not go back
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
    """That of a sample; the distance is in 1/2**30 of that of two samples."""
    if distance >= 1 << 31:
        return 0
    square = (distance * distance) >> 30
    cube = (square * distance) >> 30
    if distance < 1 << 30:
        return ((12 << 24) - 6 * _SHARPNESS) * cube + ((-18 << 24) + 6 * _SHARPNESS) * square + (6 << 54)
    return 6 * _SHARPNESS * (-cube + 5 * square - 8 * distance + (4 << 30))


def _needed(weights: list[int]) -> int:
    """How many of them are left where those that hardly count are left out at the end."""
    total = 0
    for count in reversed(range(1, len(weights))):
        total += abs(weights[count])
        if total > _NEGLIGIBLE:
            return count + 1
    return 1


def _within(first: int, weights: list[int], samples: int, unit: int) -> tuple[int, list[int]]:
    """The weights as integers of that unit; the samples at the edge stand for those that lie beyond."""
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
