"""Files of the exercise: many small ones of different lengths. Frames carry their own and their file's number."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from framefeed.testing.samples import write_clip
from framefeed.testing.scenes import numbered_painter

__all__ = ["GOP", "HEIGHT", "WIDTH", "num_frames", "write_files"]

WIDTH, HEIGHT = 320, 180
GOP = 30
SHORTEST, SPAN = 60, 121


def num_frames(file: int) -> int:
    """Returns the number of frames of a file: 60 to 180, roughly uniform."""
    return SHORTEST + 37 * file % SPAN


def write_files(
    folder: Path, count: int, *, workers: int = 1, done: Callable[[int, int], None] = lambda files, total: None
) -> list[Path]:
    """Writes missing files.

    Args:
        folder: Folder of the files.
        count: Number of files.
        workers: Number of processes; 1 uses this process.
        done: Called with the number of files done, and their total.
    """
    paths = [folder / f"{number:04d}.mp4" for number in range(count)]
    todo = [(path, number) for number, path in enumerate(paths) if not path.exists()]
    done(count - len(todo), count)
    if workers == 1 or len(todo) < 2:
        for place, job in enumerate(todo, start=1):
            _write(*job)
            done(count - len(todo) + place, count)
        return paths
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_write, *job) for job in todo]
        try:
            for place, future in enumerate(as_completed(futures), start=1):
                future.result()
                done(count - len(todo) + place, count)
        except BaseException:  # interrupted: finish started files, leave the rest to the next run
            pool.shutdown(cancel_futures=True)
            raise
    return paths


def _write(path: Path, file: int) -> None:
    write_clip(
        path,
        frames=num_frames(file),
        width=WIDTH,
        height=HEIGHT,
        gop=GOP,
        options={"preset": "veryfast", "x264-params": f"keyint={GOP}:min-keyint={GOP}:scenecut=0"},
        painter=numbered_painter(WIDTH, HEIGHT, file),
    )
