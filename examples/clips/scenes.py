"""Short files in which things move; the folder says where to and how fast. They have different frame rates."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import av
import numpy as np

from framefeed.testing.samples import write_clip

WIDTH, HEIGHT = 80, 64
RATES = (20, 30)  # frames a second, of every other file
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
SPEEDS = {"slow": 15.0, "fast": 45.0}  # pixels a second


def write_scenes(
    folder: Path,
    files: int,
    *,
    seconds: float = 3.0,
    seed: int = 0,
    workers: int = 1,
    done: Callable[[], None] = lambda: None,
) -> list[Path]:
    """Writes those files that are not there yet, so many of each class.

    Args:
        folder: Where. Each class has a folder of its own in there.
        files: Of each class.
        seconds: Length of each file.
        seed: Of the first; the others have the numbers that follow.
        workers: Processes; one means this one.
        done: Called for each file that is ready.
    """
    classes = [f"{direction}_{speed}" for direction in DIRECTIONS for speed in SPEEDS]
    names = [(kind, number) for number in range(files) for kind in classes]
    paths = [folder / kind / f"{number:03}.mp4" for kind, number in names]
    jobs = [
        (path, kind, RATES[number % len(RATES)], seconds, seed + place)
        for place, (path, (kind, number)) in enumerate(zip(paths, names, strict=True))
        if not path.exists()
    ]
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


def _write(path: Path, kind: str, rate: int, seconds: float, seed: int) -> None:
    painter = _painter(kind, rate, seed)
    frames = round(seconds * rate)
    options = {"preset": "veryfast"}
    write_clip(path, frames=frames, width=WIDTH, height=HEIGHT, fps=rate, gop=30, options=options, painter=painter)


def _painter(kind: str, rate: int, seed: int) -> Callable[[int], av.VideoFrame]:
    """A function that paints frame n: three discs before a background, which come in again where they go out."""
    direction, speed = kind.split("_")
    rng = np.random.default_rng(seed)
    step = np.array(DIRECTIONS[direction]) * SPEEDS[speed] * rng.uniform(0.9, 1.1) / rate
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    waves = rng.uniform(-0.15, 0.15, (3, 2))
    background = 110 + 40 * np.stack([np.sin(a * x + b * y) for a, b in waves], axis=2)
    begins = rng.uniform(0, 1, (3, 2)) * (WIDTH, HEIGHT)
    sizes, colors = rng.uniform(6, 11, 3), rng.choice([20.0, 235.0], (3, 3))

    def paint(number: int) -> av.VideoFrame:
        picture = background.copy()
        for begin, size, color in zip(begins, sizes, colors, strict=True):
            at = begin + step * number
            # The nearest of the places that are one picture apart.
            right = (x - at[0] + WIDTH / 2) % WIDTH - WIDTH / 2
            down = (y - at[1] + HEIGHT / 2) % HEIGHT - HEIGHT / 2
            inside = np.clip(size - np.hypot(right, down), 0, 1)[..., None]  # with a soft edge
            picture += inside * (color - picture)
        rgb = picture.clip(0, 255).astype(np.uint8)
        return av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format="yuv420p")

    return paint
