"""The training benchmark's files: sets of H.264 clips that differ in content and share one distance of keyframes.

Every frame carries two numbers in strips at its top, its own and its file's, so that frames of many files in one batch
can be checked.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from framefeed.bench.clips import BITS, BLACK, STRIP_ROWS, WHITE, _strip_bits, read_strip, scene_painter
from framefeed.samples import plane_samples, write_clip

__all__ = ["SETS", "SMOKE_SETS", "UNCLEAR", "ClipSet", "read_frame", "write_set"]

UNCLEAR = (-1, -1)  # what a picture without clear numbers reads as


@dataclass(frozen=True)
class ClipSet:
    """Files that are alike but for their content.

    Attributes:
        gop: Distance of keyframes, exactly.
        files: How many.
        frames: Of each file.
        width: Pixels.
        height: Pixels.
        b_frames: Whether there are any: as many as x264 likes by itself.
    """

    gop: int
    files: int = 40
    frames: int = 500
    width: int = 640
    height: int = 360
    b_frames: bool = True

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"gop{self.gop}" if self.b_frames else f"gop{self.gop}, no B-frames"

    @property
    def folder(self) -> str:
        """Another one for files that are made differently, so that what is found there can be used."""
        return f"gop{self.gop}-{self.width}x{self.height}-{self.frames}" + ("" if self.b_frames else "-no-b")


def _sets(long: int, short: int, **size: Any) -> tuple[ClipSet, ...]:
    """Two for timing; and two for counting, small, because the size of pictures does not count there."""
    timed = [ClipSet(gop, **size) for gop in (long, short)]
    return *timed, *(replace(clips, width=192, height=128, b_frames=False) for clips in timed)


SETS: tuple[ClipSet, ...] = _sets(250, 30)
SMOKE_SETS: tuple[ClipSet, ...] = _sets(40, 10, files=6, frames=80, width=192, height=128)


def write_set(
    clips: ClipSet, folder: Path, *, workers: int = 1, done: Callable[[int], None] = lambda files: None
) -> list[Path]:
    """Writes those files of a set that are not there yet.

    Args:
        clips: What to write.
        folder: Where the set's own folder is, or will be.
        workers: Processes; one means this one.
        done: Told how many files have become ready since it was last told.
    """
    paths = [folder / clips.folder / f"{number:03d}.mp4" for number in range(clips.files)]
    todo = [(clips, path, number) for number, path in enumerate(paths) if not path.exists()]
    done(len(paths) - len(todo))
    if workers == 1 or not todo:
        for job in todo:
            _write_file(*job)
            done(1)
        return paths
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_write_file, *job) for job in todo]):
            future.result()
            done(1)
    return paths


def _write_file(clips: ClipSet, path: Path, file: int) -> None:
    write_clip(
        path,
        frames=clips.frames,
        width=clips.width,
        height=clips.height,
        gop=clips.gop,
        bframes=None if clips.b_frames else 0,
        options={"preset": "veryfast", "x264-params": f"keyint={clips.gop}:min-keyint={clips.gop}:scenecut=0"},
        painter=numbered_painter(clips.width, clips.height, file),
    )


def numbered_painter(width: int, height: int, file: int) -> Callable[[int], av.VideoFrame]:
    """Paints a file's frames: its own textures, and its own part of the paths along which the scene's things move.

    Two strips at the top carry the frame's number and the file's.
    """
    scene = scene_painter(width, height, seed=1000 * (file + 1))

    def paint(number: int) -> av.VideoFrame:
        frame = scene(number + 997 * file)
        y, u, v = (plane_samples(plane, np.dtype(np.uint8)) for plane in frame.planes)
        rows = height // STRIP_ROWS
        _paint_strip(y[:rows], number)
        _paint_strip(y[rows : 2 * rows], file)
        u[:rows], v[:rows] = 128, 128
        return frame

    return paint


def _paint_strip(strip: NDArray[np.uint8], number: int) -> None:
    edges = np.linspace(0, strip.shape[1], 2 * BITS + 1).astype(int)
    for left, right, bit in zip(edges, edges[1:], _strip_bits(number), strict=False):
        strip[:, left:right] = WHITE if bit else BLACK


def read_frame(rgb: NDArray[np.uint8]) -> tuple[int, int]:
    """Reads file and number from an (H, W, 3) picture; `UNCLEAR` when they cannot be read."""
    try:
        return read_strip(rgb[rgb.shape[0] // STRIP_ROWS :]), read_strip(rgb)
    except ValueError:
        return UNCLEAR
