"""Clips of moving texture: shapes with hard edges and stripes that drift by half pixels, so that frames differ in what
is left of them when they are made smaller."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from framefeed.testing.samples import write_clip

MARGIN = 48  # how far the camera wanders, in pixels
SHAPES = 70


def write_textures(
    folder: Path,
    count: int,
    *,
    frames: int = 48,
    width: int = 160,
    height: int = 96,
    workers: int = 1,
    done: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Writes those of ``count`` clips that are not there yet.

    Args:
        folder: Where.
        count: How many.
        frames: Of each.
        width, height: Pixels.
        workers: Processes; one means this one.
        done: Called for each clip that is ready.
    """
    kind = folder / f"{width}x{height}-{frames}"  # clips of another kind are no part of it
    paths = [kind / f"{number:03}.mp4" for number in range(count)]
    jobs = [(path, number, frames, width, height) for number, path in enumerate(paths) if not path.exists()]
    if workers > 1 and len(jobs) > 1:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            for future in as_completed([pool.submit(_write, *job) for job in jobs]):
                future.result()
                done()
    else:
        for job in jobs:
            _write(*job)
            done()
    return paths


def _write(path: Path, seed: int, frames: int, width: int, height: int) -> None:
    options = {"preset": "veryfast", "crf": "16"}
    painter = _painter(seed, width, height)
    write_clip(path, frames=frames, width=width, height=height, gop=24, options=options, painter=painter)


def _painter(seed: int, width: int, height: int) -> Callable[[int], av.VideoFrame]:
    """A function that paints frame n: what a camera sees that wanders over a picture of twice the resolution."""
    world = _world(seed, 2 * (height + MARGIN), 2 * (width + MARGIN))
    rng = np.random.default_rng((seed, 1))
    down, right = rng.integers(1, 7, 2)  # half pixels a frame
    begin = rng.integers(0, 4 * MARGIN, 2)

    def paint(number: int) -> av.VideoFrame:
        top, left = (_wander(int(first + number * speed)) for first, speed in zip(begin, (down, right), strict=True))
        seen = world[top : top + 2 * height, left : left + 2 * width].astype(np.float32)
        small = seen.reshape(height, 2, width, 2, 3).mean(axis=(1, 3))
        return av.VideoFrame.from_ndarray(small.round().astype(np.uint8), "rgb24").reformat(format="yuv420p")

    return paint


def _wander(place: int) -> int:
    """To and fro in 0..2 * MARGIN: a jump back would be a cut."""
    return 2 * MARGIN - abs(place % (4 * MARGIN) - 2 * MARGIN)


def _world(seed: int, height: int, width: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng((seed, 0))
    world = np.empty((height, width, 3), np.uint8)
    world[:] = rng.integers(60, 200, 3)
    for _ in range(SHAPES):
        size, angle, period = rng.uniform(12, 60), rng.uniform(0, math.pi), rng.uniform(16, 60)
        middle = rng.uniform(0, height), rng.uniform(0, width)
        top, left = (max(0, int(at - 1.5 * size)) for at in middle)
        part = world[top : int(middle[0] + 1.5 * size), left : int(middle[1] + 1.5 * size)]
        y, x = np.mgrid[: part.shape[0], : part.shape[1]]
        y, x = y + (top - middle[0]), x + (left - middle[1])
        u, v = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
        square = rng.random() < 0.5
        inside = (np.abs(u) < size) & (np.abs(v) < 0.7 * size) if square else u * u + v * v < size * size
        colors = rng.integers(10, 246, (2, 3))
        stripes = (u // (period / 2) % 2).astype(np.intp)
        part[inside] = colors[stripes][inside]
    return world
