"""Short files, each of which shows one sort of pattern; its folder says which."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import av
import numpy as np

from framefeed.testing.samples import write_clip

PATTERNS = ("checks", "dots", "patches", "rings", "stripes")


def write_patterns(
    folder: Path,
    count: int,
    *,
    seed: int = 0,
    frames: int = 50,
    width: int = 128,
    height: int = 96,
    workers: int = 1,
    done: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Writes those of ``count`` files that are not there yet.

    Args:
        folder: Where. Each pattern has a folder of its own in there.
        count: How many.
        seed: Of the first; the others have the numbers that follow.
        frames: Of each.
        width, height: Pixels.
        workers: Processes; one means this one.
        done: Called for each file that is ready.
    """
    kinds = [PATTERNS[number % len(PATTERNS)] for number in range(count)]
    paths = [folder / kind / f"{number:03}.mp4" for number, kind in enumerate(kinds)]
    shape = frames, width, height
    jobs = [(path, kinds[number], seed + number, *shape) for number, path in enumerate(paths) if not path.exists()]
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


def _write(path: Path, kind: str, seed: int, frames: int, width: int, height: int) -> None:
    painter = _painter(kind, seed, width, height)
    options = {"preset": "veryfast"}
    write_clip(path, frames=frames, width=width, height=height, gop=25, bframes=3, options=options, painter=painter)


def _painter(kind: str, seed: int, width: int, height: int) -> Callable[[int], av.VideoFrame]:
    """A function that paints frame n: the pattern drifts and turns."""
    rng = np.random.default_rng(seed)
    dark = rng.uniform(20, 110, 3)
    colors = rng.permutation(np.stack([dark, dark + rng.uniform(60, 130, 3)]))
    period, angle, spin = rng.uniform(12, 28), rng.uniform(0, math.pi), rng.uniform(-0.02, 0.02)
    drift = rng.uniform(-1.5, 1.5, 2)
    grid = rng.random((64, 64)) < 0.5
    y, x = np.mgrid[:height, :width].astype(np.float32)
    noise = rng.normal(0, 8, (height + 16, width + 16, 1)).astype(np.float32)

    def paint(number: int) -> av.VideoFrame:
        turned = angle + spin * number
        right, down = x - width / 2 + drift[0] * number, y - height / 2 + drift[1] * number
        u = (right * math.cos(turned) + down * math.sin(turned)) / period
        v = (down * math.cos(turned) - right * math.sin(turned)) / period
        if kind == "stripes":
            first = u % 1 < 0.5
        elif kind == "checks":
            first = (u % 1 < 0.5) ^ (v % 1 < 0.5)
        elif kind == "dots":
            first = (u % 1 - 0.5) ** 2 + (v % 1 - 0.5) ** 2 < 0.1
        elif kind == "rings":
            first = np.hypot(u, v) % 1 < 0.5
        else:
            first = grid[(2 * u).astype(int) % 64, (2 * v).astype(int) % 64]
        top, left = number * 5 % 16, number * 7 % 16
        picture = colors[first.astype(int)] + noise[top : top + height, left : left + width]
        rgb = picture.clip(0, 255).astype(np.uint8)
        return av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format="yuv420p")

    return paint
