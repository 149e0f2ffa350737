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

from framefeed.testing.samples import write_clip
from framefeed.testing.scenes import numbered_painter

__all__ = ["SETS", "SMOKE_SETS", "ClipSet", "write_set"]


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
