"""The GPU benchmark's files: three sets of six, as cameras, films and collections of small clips have them.

Scenes, and the strips with the file's and the frame's number, are those of the training benchmark. Bit rates are set
and not left to the content: how fast hardware decodes depends on them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.testing.samples import write_clip
from framefeed.testing.scenes import BITS, STRIP_ROWS, numbered_painter

__all__ = ["SETS", "TINY_SETS", "ClipSet", "expected_numbers", "read_numbers", "write_file", "write_sets"]

UNCLEAR = -1  # what a strip without a clear number reads as
CONTRAST = 80  # a bit and its opposite are at least this far apart


@dataclass(frozen=True)
class ClipSet:
    """Files that are alike but for their content. All their groups are closed.

    Attributes:
        name: What tables call it.
        codec: ``"h264"`` or ``"hevc"``.
        width: Pixels.
        height: Pixels.
        gop: Distance of keyframes, exactly.
        frames: Of each file.
        b_frames: Most in a row; with any, some are referred to.
        kilobits: A second, at 30 frames.
        files: How many.
    """

    name: str
    codec: str
    width: int
    height: int
    gop: int
    frames: int
    b_frames: int
    kilobits: int
    files: int = 6

    @property
    def title(self) -> str:
        """What it is, in words."""
        codec = {"h264": "H.264", "hevc": "HEVC"}[self.codec]
        return f"{codec} {self.width}x{self.height}, groups of {self.gop}"

    @property
    def folder(self) -> str:
        """Another one for files that are made differently, so that what is found there can be used."""
        size = f"{self.width}x{self.height}"
        return f"{self.name}-{self.codec}-{size}-gop{self.gop}-b{self.b_frames}-{self.frames}-{self.kilobits}k"

    @property
    def total(self) -> int:
        """Frames of all files."""
        return self.files * self.frames

    @property
    def frame_bytes(self) -> int:
        """Of a frame in full size, as RGB."""
        return self.width * self.height * 3


SETS: tuple[ClipSet, ...] = (
    ClipSet("cameras", "hevc", 1600, 900, gop=30, frames=300, b_frames=0, kilobits=6000),
    ClipSet("long", "h264", 1920, 1080, gop=250, frames=500, b_frames=3, kilobits=8000),
    ClipSet("small", "h264", 640, 360, gop=30, frames=600, b_frames=3, kilobits=1200),
)

# For trying the benchmark itself.
TINY_SETS: tuple[ClipSet, ...] = (
    ClipSet("cameras", "hevc", 256, 144, gop=10, frames=40, b_frames=0, kilobits=600),
    ClipSet("long", "h264", 256, 144, gop=40, frames=80, b_frames=3, kilobits=600),
    ClipSet("small", "h264", 192, 128, gop=10, frames=40, b_frames=3, kilobits=400),
)


def write_sets(
    sets: Sequence[ClipSet], folder: Path, *, workers: int = 1, done: Callable[[int], None] = lambda files: None
) -> dict[str, list[Path]]:
    """Writes those files that are not there yet; returns the files of each set by its name.

    Args:
        sets: What to write.
        folder: Where the sets' own folders are, or will be.
        workers: Processes; one means this one.
        done: Told how many files have become ready since it was last told.
    """
    paths = {clips.name: [folder / clips.folder / f"{file}.mp4" for file in range(clips.files)] for clips in sets}
    jobs = [(clips, path, file) for clips in sets for file, path in enumerate(paths[clips.name]) if not path.exists()]
    jobs.sort(key=lambda job: _effort(job[0]), reverse=True)  # none of the slow ones is begun last
    done(sum(clips.files for clips in sets) - len(jobs))
    if workers == 1 or not jobs:
        for job in jobs:
            write_file(*job)
            done(1)
        return paths
    with ProcessPoolExecutor(min(workers, len(jobs)), multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(write_file, *job) for job in jobs]):
            future.result()
            done(1)
    return paths


def _effort(clips: ClipSet) -> int:
    return clips.frames * clips.width * clips.height * (3 if clips.codec == "hevc" else 1)


def write_file(clips: ClipSet, path: Path, file: int) -> None:
    """Writes a file of a set; its number is painted into its frames."""
    groups = f"keyint={clips.gop}:min-keyint={clips.gop}:scenecut=0:bframes={clips.b_frames}:open-gop=0"
    if clips.codec == "hevc":
        options = {"preset": "ultrafast", "x265-params": groups}
    else:
        options = {"preset": "superfast", "x264-params": f"{groups}:b-pyramid=normal"}
    write_clip(
        path,
        codec="libx265" if clips.codec == "hevc" else "libx264",
        frames=clips.frames,
        width=clips.width,
        height=clips.height,
        gop=clips.gop,
        bframes=clips.b_frames,
        tag="hvc1" if clips.codec == "hevc" else None,
        options={**options, "b": f"{clips.kilobits}k"},
        painter=numbered_painter(clips.width, clips.height, file),
    )


def read_numbers(frames: torch.Tensor) -> NDArray[np.int64]:
    """Reads file and number of each frame, (n, 2), where the frames are; `UNCLEAR` for what cannot be read.

    Args:
        frames: (n, channels, height, width), bytes or floats in 0..1, of the clips' size or resized.
    """
    height, width = frames.shape[-2:]
    rows = height // STRIP_ROWS
    centres = ((torch.arange(2 * BITS) + 0.5) * (width / (2 * BITS))).long().to(frames.device)
    found = []
    for top in (rows, 0):
        lines = frames[:, :, top + rows // 4 : top + max(rows // 4 + 1, rows // 2)].index_select(-1, centres)
        values = lines.float().mean((1, 2)).cpu().numpy() * (255.0 if frames.is_floating_point() else 1.0)
        found.append(_numbers(values.reshape(-1, BITS, 2)))
    return np.stack(found, 1)


def _numbers(values: NDArray[np.floating[Any]]) -> NDArray[np.int64]:
    clear = (np.abs(values[..., 0] - values[..., 1]) >= CONTRAST).all(1)
    number = ((values[..., 0] > values[..., 1]) << np.arange(BITS, dtype=np.int64)).sum(1)
    shift = 1
    while shift < BITS:  # from Gray code
        number ^= number >> shift
        shift *= 2
    return np.where(clear, number, UNCLEAR)


def expected_numbers(file: int, frames: Sequence[int]) -> NDArray[np.int64]:
    """What `read_numbers` gives for frames of one file."""
    return np.stack([np.full(len(frames), file, np.int64), np.asarray(frames, np.int64)], 1)
