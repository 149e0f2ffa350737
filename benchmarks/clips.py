"""Sets of files for benchmarks, with the numbers of the file and of the frame painted into each frame.

Both numbers are read back from decoded frames, of the clips' size or resized, so that frames of many files in one batch
can be checked. All groups are closed.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.testing.samples import write_clip
from framefeed.testing.scenes import BITS, STRIP_ROWS, numbered_painter

__all__ = [
    "EPOCHS",
    "GPU_SETS",
    "SMOKE_SETS",
    "TINY_SETS",
    "TRAINING_SETS",
    "ClipSet",
    "count_wrong",
    "expected_numbers",
    "read_numbers",
    "write_files",
    "write_sets",
]

UNCLEAR = -1  # the number of a strip that cannot be read
CONTRAST = 80  # a bit and its opposite are at least this far apart


@dataclass(frozen=True)
class ClipSet:
    """Files that differ in content alone.

    Attributes:
        name: Its name in tables.
        codec: ``"h264"`` or ``"hevc"``.
        width: Pixels.
        height: Pixels.
        gop: Distance of keyframes, exactly.
        frames: Of each file.
        b_frames: Most in a row; with any, some are referred to.
        kilobits: A second, at 30 frames: how fast hardware decodes depends on it. 0 leaves it to the content.
        files: How many.
    """

    name: str
    codec: str
    width: int
    height: int
    gop: int
    frames: int
    b_frames: int
    kilobits: int = 0
    files: int = 6

    @property
    def title(self) -> str:
        """A short description."""
        codec = {"h264": "H.264", "hevc": "HEVC"}[self.codec]
        return f"{codec} {self.width}x{self.height}, groups of {self.gop}"

    @property
    def folder(self) -> str:
        """A folder for each recipe, so that files found there can be used."""
        size = f"{self.width}x{self.height}"
        name = self.name.replace(", ", "-").replace(" ", "-")
        return f"{name}-{self.codec}-{size}-gop{self.gop}-b{self.b_frames}-{self.frames}-{self.kilobits}k"

    @property
    def total(self) -> int:
        """Frames of all files."""
        return self.files * self.frames

    @property
    def frame_bytes(self) -> int:
        """Bytes of a frame in full size, as RGB."""
        return self.width * self.height * 3

    def described(self) -> dict[str, Any]:
        """Returns what results say of it."""
        return {
            "name": self.name,
            "files": self.files,
            "frames_of_a_file": self.frames,
            "codec": self.codec,
            "width": self.width,
            "height": self.height,
            "gop": self.gop,
            "b_frames": self.b_frames,
        }


GPU_SETS: tuple[ClipSet, ...] = (
    ClipSet("cameras", "hevc", 1600, 900, gop=30, frames=300, b_frames=0, kilobits=6000),
    ClipSet("long", "h264", 1920, 1080, gop=250, frames=500, b_frames=3, kilobits=8000),
    ClipSet("small", "h264", 640, 360, gop=30, frames=600, b_frames=3, kilobits=1200),
)

# For trying the GPU benchmark itself.
TINY_SETS: tuple[ClipSet, ...] = (
    ClipSet("cameras", "hevc", 256, 144, gop=10, frames=40, b_frames=0, kilobits=600),
    ClipSet("long", "h264", 256, 144, gop=40, frames=80, b_frames=3, kilobits=600),
    ClipSet("small", "h264", 192, 128, gop=10, frames=40, b_frames=3, kilobits=400),
)


def _training_sets(gops: tuple[int, int], files: int, frames: int, width: int, height: int) -> tuple[ClipSet, ...]:
    """Two for timing; and two for counting, small, because the size of pictures does not count there."""
    timed = [ClipSet(f"gop{gop}", "h264", width, height, gop, frames, b_frames=3, files=files) for gop in gops]
    small = [replace(one, name=f"{one.name}, no B-frames", width=192, height=128, b_frames=0) for one in timed]
    return *timed, *small


TRAINING_SETS = _training_sets((250, 30), 40, 500, 640, 360)
SMOKE_SETS = _training_sets((40, 10), 6, 80, 192, 128)
EPOCHS = ClipSet("scenes", "h264", 640, 360, gop=30, frames=300, b_frames=2, files=8)

Job = tuple[ClipSet, Path, int]
"""A file to be written: its set, its path, its number."""


def write_sets(
    sets: Sequence[ClipSet], folder: Path, *, workers: int = 1, done: Callable[[int], object] = lambda files: None
) -> dict[str, list[Path]]:
    """Writes those files that are not there yet; returns the files of each set by its name.

    Args:
        sets: The sets.
        folder: Folder of the sets' own folders.
        workers: Processes; one means this one.
        done: Called with the number of files that have become ready since its last call.
    """
    paths = {clips.name: [folder / clips.folder / f"{file:03d}.mp4" for file in range(clips.files)] for clips in sets}
    jobs = [(clips, path, file) for clips in sets for file, path in enumerate(paths[clips.name])]
    write_files(jobs, workers=workers, done=done)
    return paths


def write_files(jobs: Sequence[Job], *, workers: int, done: Callable[[int], object]) -> None:
    """Writes those files that are not there yet; arguments are those of ``write_sets``."""
    missing = [job for job in jobs if not job[1].exists()]
    missing.sort(key=lambda job: _effort(job[0]), reverse=True)  # none of the slow ones is begun last
    done(len(jobs) - len(missing))
    if workers == 1 or not missing:
        for job in missing:
            _write_file(*job)
            done(1)
        return
    with ProcessPoolExecutor(min(workers, len(missing)), multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(_write_file, *job) for job in missing]):
            future.result()
            done(1)


def _effort(clips: ClipSet) -> int:
    return clips.frames * clips.width * clips.height * (3 if clips.codec == "hevc" else 1)


def _write_file(clips: ClipSet, path: Path, file: int) -> None:
    groups = f"keyint={clips.gop}:min-keyint={clips.gop}:scenecut=0:bframes={clips.b_frames}:open-gop=0"
    if clips.codec == "hevc":
        options = {"preset": "ultrafast", "x265-params": groups}
    else:
        options = {
            "preset": "superfast" if clips.kilobits else "veryfast",
            "x264-params": f"{groups}:b-pyramid=normal",
        }
    if clips.kilobits:
        options["b"] = f"{clips.kilobits}k"
    write_clip(
        path,
        codec="libx265" if clips.codec == "hevc" else "libx264",
        frames=clips.frames,
        width=clips.width,
        height=clips.height,
        gop=clips.gop,
        bframes=clips.b_frames,
        tag="hvc1" if clips.codec == "hevc" else None,
        options=options,
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
    """Returns what `read_numbers` gives for frames of one file."""
    return np.stack([np.full(len(frames), file, np.int64), np.asarray(frames, np.int64)], 1)


def count_wrong(frames: torch.Tensor, expected: NDArray[np.int64]) -> int:
    """Counts frames that do not show the file and number, (n, 2), that they should."""
    return int((read_numbers(frames) != expected).any(1).sum())
