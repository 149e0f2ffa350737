"""The benchmark's clips: scenes that are as easy and as hard to code as filmed ones.

A textured background that pans, opaque objects that move over it on curves, and sensor noise. A thin strip at the top
shows the frame's number as blocks in Gray code, so that little of the picture changes between neighbours, each bit
followed by its complement so that misreads are detected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from framefeed._util.atomic_write import write
from framefeed.testing.samples import plane_samples, write_clip

__all__ = [
    "REFERENCE_CLIPS",
    "UNCLEAR",
    "numbered_painter",
    "read_frame",
    "read_strip",
    "scene_painter",
    "write_reference_clip",
    "write_short_files",
]

BITS = 12
STRIP_ROWS = 16  # the strip is one sixteenth of the picture's height
BLACK, WHITE = 16, 235
MARGIN = 320
UNCLEAR = (-1, -1)  # result for a picture without clear numbers
NOISE_FRAMES = 8


def _smooth(rng: np.random.Generator, height: int, width: int, cell: int) -> NDArray[np.float32]:
    """Returns random values, one every ``cell`` pixels, interpolated in between."""
    grid = rng.random((height // cell + 2, width // cell + 2), dtype=np.float32)
    rows = np.arange(height, dtype=np.float32) / cell
    columns = np.arange(width, dtype=np.float32) / cell
    top, left = rows.astype(int), columns.astype(int)
    down, right = (rows - top)[:, None], (columns - left)[None, :]
    lines = grid[top] * (1 - down) + grid[top + 1] * down
    return np.asarray(lines[:, left] * (1 - right) + lines[:, left + 1] * right, np.float32)


@lru_cache(maxsize=16)
def _texture(height: int, width: int, seed: int, low: int, span: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng((seed, height, width))
    layers = ((64, 0.5), (16, 0.3), (4, 0.15), (2, 0.05))
    total = np.zeros((height, width), np.float32)
    for cell, share in layers:
        total += _smooth(rng, height, width, cell) * share
    return np.asarray(low + span * total, np.uint8)


@lru_cache(maxsize=4)
def _noise(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 8, (NOISE_FRAMES, height, width), np.uint8)


def _place(number: int, speed: float, span: int, phase: float) -> int:
    """Returns a smooth path back and forth in 0..span."""
    return round((0.5 - 0.5 * math.cos(number * speed + phase)) * span)


def _paint(plane: NDArray[np.uint8], number: int, seed: int, scale: int, low: int, span: int) -> None:
    height, width = plane.shape
    margin = MARGIN // scale
    background = _texture(height + margin, width + margin, seed, low, span)
    top, left = _place(number, 0.006, margin, 0), _place(number, 0.009, margin, 1)
    plane[:] = background[top : top + height, left : left + width]
    for thing in range(4):
        high, wide = height // (4 + thing), width // (5 + thing)
        surface = _texture(high, wide, seed + 10 + thing, low + 20, span - 20)
        y = _place(number, 0.02 + 0.006 * thing, height - high, thing)
        x = _place(number, 0.03 - 0.004 * thing, width - wide, 2 * thing)
        plane[y : y + high, x : x + wide] = surface


def _strip_bits(number: int) -> NDArray[np.bool_]:
    gray = number ^ (number >> 1)
    bits = np.array([(gray >> bit) & 1 for bit in range(BITS)], np.bool_)
    return np.stack([bits, ~bits], 1).reshape(-1)


def scene_painter(width: int, height: int, seed: int = 0) -> Callable[[int], av.VideoFrame]:
    """Returns a function that paints frame n of a scene."""

    def paint(number: int) -> av.VideoFrame:
        frame = av.VideoFrame(width, height, "yuv420p")
        y, u, v = (plane_samples(plane, np.dtype(np.uint8)) for plane in frame.planes)
        _paint(y, number, seed, 1, 30, 180)
        _paint(u, number, seed + 100, 2, 80, 96)
        _paint(v, number, seed + 200, 2, 80, 96)
        y += _noise(height, width, seed)[number % NOISE_FRAMES]
        rows = height // STRIP_ROWS
        edges = np.linspace(0, width, 2 * BITS + 1).astype(int)
        for left, right, bit in zip(edges, edges[1:], _strip_bits(number), strict=False):
            y[:rows, left:right] = WHITE if bit else BLACK
        u[: rows // 2], v[: rows // 2] = 128, 128
        return frame

    return paint


def read_strip(rgb: NDArray[np.uint8]) -> int:
    """Reads the number from an (H, W, 3) picture.

    Raises:
        ValueError: The picture has no clear number.
    """
    height, width = rgb.shape[:2]
    rows = slice(max(0, height // STRIP_ROWS // 4), max(1, height // STRIP_ROWS // 2))
    centres = ((np.arange(2 * BITS) + 0.5) * width / (2 * BITS)).astype(int)
    values = rgb[rows][:, centres].astype(float).mean(axis=(0, 2)).reshape(BITS, 2)
    if (np.abs(values[:, 0] - values[:, 1]) < 80).any():
        raise ValueError("no clear number in this picture")
    gray = int(sum(1 << bit for bit in range(BITS) if values[bit, 0] > values[bit, 1]))
    number = 0
    while gray:
        number ^= gray
        gray >>= 1
    return number


def numbered_painter(width: int, height: int, file: int) -> Callable[[int], av.VideoFrame]:
    """Returns a painter of a file's frames, with its own textures and its own part of the objects' paths.

    Two strips at the top show the frame's number and the file's.
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
    """Reads file and number from an (H, W, 3) picture; returns `UNCLEAR` if they cannot be read."""
    try:
        return read_strip(rgb[rgb.shape[0] // STRIP_ROWS :]), read_strip(rgb)
    except ValueError:
        return UNCLEAR


# x264 and x265 at their defaults unless the name says otherwise.
_REFERENCES: dict[str, dict[str, Any]] = {
    "hevc_900p_gop30.mp4": {
        "codec": "libx265",
        "frames": 300,
        "width": 1600,
        "height": 900,
        "gop": 30,
        "bframes": 0,
        "tag": "hvc1",
        "options": {"preset": "fast", "x265-params": "open-gop=0:min-keyint=30:scenecut=0"},
    },
    "h264_360p_gop30.mp4": {"frames": 600, "width": 640, "height": 360, "gop": 30, "bframes": 3},
    "h264_720p_gop250.mp4": {"frames": 750, "width": 1280, "height": 720, "gop": 250, "bframes": 3},
    "hevc_720p_x265.mp4": {
        "codec": "libx265",
        "frames": 500,
        "width": 1280,
        "height": 720,
        "gop": None,
        "tag": "hvc1",
    },
    "vp9_360p.webm": {
        "codec": "libvpx-vp9",
        "frames": 400,
        "width": 640,
        "height": 360,
        "gop": 128,
        "options": {"cpu-used": "4", "crf": "33", "b": "0", "row-mt": "0"},
    },
}
REFERENCE_CLIPS: tuple[str, ...] = tuple(_REFERENCES)


def write_reference_clip(name: str, folder: Path) -> Path:
    """Writes one of the reference clips, unless it exists."""
    spec = _REFERENCES[name]
    path = folder / name
    if not path.exists():
        write_clip(path, threads=2, painter=scene_painter(spec["width"], spec["height"]), **spec)
    return path


def write_short_files(folder: Path, count: int) -> list[Path]:
    """Writes short H.264 files of one format, like a collection of clips: a few contents, each under many names."""
    originals = []
    for seed in range(min(8, count)):
        path = folder / f"content_{seed}.mp4"
        if not path.exists():
            painter = scene_painter(640, 360, seed=seed + 1)
            write_clip(path, frames=90, width=640, height=360, gop=30, bframes=3, threads=2, painter=painter)
        originals.append(path)
    paths = []
    for number in range(count):
        path = folder / f"clip_{number:04d}.mp4"
        if not path.exists():
            write(path, originals[number % len(originals)].read_bytes())
        paths.append(path)
    return paths
