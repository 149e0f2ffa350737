"""Where one scene ends and the next begins: hard cuts, found on small grey pictures.

Two pictures are compared by the mean difference of their pixels, in grey levels. Where both show something, it counts
only as far as they do not have the same structure (as far as they are not correlated): light that is switched on or
dimmed is no cut.

A cut is a place where

- the difference is large, and many times larger than at other places nearby: there is none within quick movement or a
  dissolve, where all differences are large;
- no frame shortly before it is like the one behind it, and no frame shortly after it like the one before: after a
  flash, the picture is the old one again.
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

REACH = 8  # frames that a flash may last, and a little more
NEAR = 12  # frames on each side that a difference is compared with

LEAST = 1.5  # difference of a cut, in grey levels
TIMES = 3.0  # and how much larger than the mean of those nearby,
NEXT, TIMES_NEXT = 3, 1.8  # and than each of these next to it
NOISE = 0.4  # added to both, so that a still picture with a little change is no cut

EVEN = 1.0  # grey levels that an even picture may vary by: its structure is noise
MOST = 32.0  # grey levels that two scenes differ by; what is above is light

Picture = NDArray[np.float32]


class Differences:
    """Differences between frames of a video, one entry a frame.

    Attributes:
        step: To the frame before, or how much brighter or darker it was where that is more; 0 for the first.
        back: The least of those between a frame and the ``REACH`` frames before it.
        ahead: The least of those between the frame before and a frame or one of the ``REACH - 1`` frames after it.
    """

    def __init__(self, step: list[float], back: list[float], ahead: list[float]) -> None:
        self.step = np.array(step)
        self.back = np.array(back)
        self.ahead = np.array(ahead)

    def __len__(self) -> int:
        return len(self.step)


class Shrink:
    """Makes small grey pictures of large ones."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def __call__(self, picture: Any) -> Picture:
        """Grey, 0 to 255, about a thousand pixels."""
        small = self._reformatter.reformat(picture, WIDTH, HEIGHT, "gray", interpolation="AREA")
        lines = np.frombuffer(memoryview(small.planes[0]), np.uint8).reshape(HEIGHT, -1)
        return lines[:, :WIDTH].astype(np.float32)


class _SmallPicture:
    """A small picture, and what is needed to compare it."""

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
    """Compares the small pictures of a video; only a few are held at a time."""
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
        # Of each pair the later frame is this one: it lies ahead of the place behind the earlier one.
        for distance, difference in enumerate(reversed(differences), start=1):
            place = number - distance + 1
            ahead[place] = min(ahead[place], difference)
        recent.append(seen)
    return Differences(step, back, ahead)


def find_cuts(differences: Differences, seconds: NDArray[np.float64], min_scene_seconds: float) -> list[int]:
    """The first frames of all scenes but the first.

    Args:
        differences: Between the frames of a video.
        seconds: When each frame is shown, and at last when the last one ends.
        min_scene_seconds: No scene is shorter. Of cuts that are too close the clearest stays.
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
    """Whether a difference is large beside those around it."""
    around = np.delete(step[max(1, place - NEAR) : place + NEAR + 1], min(NEAR, place - 1))
    close = np.delete(step[max(1, place - NEXT) : place + NEXT + 1], min(NEXT, place - 1))
    if not len(close):
        return True
    mean = float(np.sort(around)[:-1].mean()) if len(around) > 1 else 0.0  # without the largest: a scene may be short
    return score >= TIMES * (mean + NOISE) and score >= TIMES_NEXT * (float(close.max()) + NOISE)
