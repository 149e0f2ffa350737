"""Scene detection: hard cuts, found on small grey pictures.

Two pictures are compared by the mean difference of their pixels, in grey levels. If both have structure, the difference
counts only as far as their structures are uncorrelated: light that is switched on or dimmed is not a cut.

A cut is a position where

- the difference is large, and many times larger than at nearby positions: not within fast motion or a dissolve, where
  all differences are large;
- no frame shortly before it resembles the one after it, and no frame shortly after it resembles the one before: after
  a flash, the old picture returns.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

__all__ = ["Differences", "Shrink", "find_cuts", "measure"]

WIDTH, HEIGHT = 48, 27  # of the small pictures

REACH = 8  # longest flash in frames, with a margin
NEAR = 12  # frames on each side to compare a difference with

LEAST = 1.5  # smallest difference of a cut, in grey levels
TIMES = 3.0  # smallest ratio to the mean of nearby differences,
NEXT, TIMES_NEXT = 3, 1.8  # and to each of these next to it
NOISE = 0.4  # added to both, so that small changes of a still picture are not cuts

EVEN = 1.0  # largest variation of an even picture, in grey levels: its structure is noise
MOST = 32.0  # largest difference of two scenes in grey levels; the rest is light

Picture = NDArray[np.float32]


class Differences:
    """Differences between frames of a video, one entry per frame.

    Attributes:
        step: Difference to the frame before, or its change of brightness if larger; 0 for the first frame.
        back: Smallest difference between a frame and the ``REACH`` frames before it.
        ahead: Smallest difference between the frame before and a frame or one of the ``REACH - 1`` frames after it.
    """

    def __init__(self, step: list[float], back: list[float], ahead: list[float]) -> None:
        self.step = np.array(step)
        self.back = np.array(back)
        self.ahead = np.array(ahead)

    def __len__(self) -> int:
        return len(self.step)


class Shrink:
    """Scales pictures down to small grey ones."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def __call__(self, picture: Any) -> Picture:
        """Returns grey values, 0 to 255, about a thousand pixels."""
        small = self._reformatter.reformat(picture, WIDTH, HEIGHT, "gray", interpolation="AREA")
        lines = np.frombuffer(memoryview(small.planes[0]), np.uint8).reshape(HEIGHT, -1)
        return lines[:, :WIDTH].astype(np.float32)


class _SmallPicture:
    """A small picture with precomputed statistics."""

    def __init__(self, picture: Picture) -> None:
        self.pixels = picture.ravel()
        self.mean = float(self.pixels.mean())
        self.rest = self.pixels - self.mean
        self.variance = float(self.rest @ self.rest) / len(self.rest)

    def difference(self, other: _SmallPicture) -> float:
        least = min(self.variance, other.variance)
        if least > 0:
            together = float(self.rest @ other.rest) / len(self.rest)
            alike = max(0.0, together / math.sqrt(self.variance * other.variance)) * least / (least + EVEN**2)
        else:
            alike = 0.0
        return min(float(np.abs(self.pixels - other.pixels).mean()), MOST) * (1.0 - alike)


def measure(pictures: Iterable[Picture]) -> Differences:
    """Compares the small pictures of a video; holds only a few at a time."""
    step: list[float] = []
    back: list[float] = []
    ahead: list[float] = []
    recent: deque[_SmallPicture] = deque(maxlen=REACH)
    for number, picture in enumerate(pictures):
        seen = _SmallPicture(picture)
        differences = [seen.difference(other) for other in recent]  # oldest first
        step.append(max(differences[-1], abs(seen.mean - recent[-1].mean)) if recent else 0.0)
        back.append(min(differences, default=0.0))
        ahead.append(differences[-1] if recent else 0.0)
        # The later frame of each pair is this one, which is after the position that follows the earlier one.
        for distance, difference in enumerate(reversed(differences), start=1):
            place = number - distance + 1
            ahead[place] = min(ahead[place], difference)
        recent.append(seen)
    return Differences(step, back, ahead)


def find_cuts(differences: Differences, seconds: NDArray[np.float64], min_scene_seconds: float) -> list[int]:
    """Returns the first frames of all scenes except the first.

    Args:
        differences: Differences between the frames of a video.
        seconds: Time of each frame, and the end of the last one.
        min_scene_seconds: Shortest scene. Of cuts that are too close, the clearest one is kept.
    """
    score = np.minimum(differences.back, differences.ahead)
    large = np.flatnonzero(score >= LEAST)
    clear = [place for place in large.tolist() if _stands_out(differences.step, place, float(score[place]))]
    kept: list[int] = []
    for place in sorted(clear, key=lambda place: -score[place]):
        edges = [seconds[0], seconds[-1], *(seconds[other] for other in kept)]
        if all(abs(seconds[place] - edge) >= min_scene_seconds for edge in edges):
            kept.append(place)
    return sorted(kept)


def _stands_out(step: NDArray[np.float64], place: int, score: float) -> bool:
    """Returns True if a difference is large compared with those around it."""
    around = np.delete(step[max(1, place - NEAR) : place + NEAR + 1], min(NEAR, place - 1))
    close = np.delete(step[max(1, place - NEXT) : place + NEXT + 1], min(NEXT, place - 1))
    if not len(close):
        return True
    mean = float(np.sort(around)[:-1].mean()) if len(around) > 1 else 0.0  # without the largest: a scene may be short
    return score >= TIMES * (mean + NOISE) and score >= TIMES_NEXT * (float(close.max()) + NOISE)
