"""Clips with frame numbers painted into every frame, for the demo, the benchmark and the tests.

The number is painted into the luma as large black and white blocks (a 24-bit code with a checksum in the top three
eighths of the picture), so it survives lossy coding, chroma subsampling and resizing, and the pixels alone reveal a
wrong frame. The rest is moving texture, which gives codecs real motion and real residuals.

Everything is a function of (seed, number): the same arguments paint the same picture on every machine.
"""

import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import av
import numpy as np
import numpy.typing as npt

from framefeed._util.atomic_write import atomic_path
from framefeed._util.encoders import exact_x264, usual_priority

Plane = npt.NDArray[np.uint8]
Pts = Callable[[int], int] | Sequence[int]

# The code lies on an 8x8 grid over the picture: 3 rows of 8 blocks hold 16 bits of number and 8 bits of checksum.
GRID = 8
CODE_ROWS = 3
MAX_NUMBER = 0xFFFF
BLACK, WHITE = 16, 235  # legal in limited range, and still far apart if read as full range
UNCLEAR = (90, 165)  # a block whose mean lies between these is neither: two blended pictures, or garbage

# Textures are this much larger than the picture, which is a window that moves about in them.
MARGIN = 64


class Picture(NamedTuple):
    """Planar 8-bit YUV: ``y`` is full size, ``u`` and ``v`` have the size that the subsampling gives."""

    y: Plane
    u: Plane
    v: Plane


@dataclass(frozen=True)
class Color:
    """Colour tags of the samples, which are not converted: matrix with its usual primaries, and the range."""

    space: Literal["bt601", "bt709", "bt2020nc"] = "bt709"
    full_range: bool = False

    @property
    def codes(self) -> tuple[int, int, int]:
        """ISO 23091-2 code points: matrix, primaries, transfer."""
        return {"bt601": (6, 6, 6), "bt709": (1, 1, 1), "bt2020nc": (9, 9, 14)}[self.space]


# --- painting -------------------------------------------------------------------------------------------------------


def _smooth_noise(rng: np.random.Generator, height: int, width: int, cell: int) -> npt.NDArray[np.float32]:
    """Returns a random grid in 0..1, one value every ``cell`` pixels, interpolated linearly."""
    grid = rng.random((height // cell + 2, width // cell + 2), dtype=np.float32)
    rows, row_part = np.divmod(np.arange(height, dtype=np.float32) / cell, 1)
    cols, col_part = np.divmod(np.arange(width, dtype=np.float32) / cell, 1)
    above, left = rows.astype(np.intp), cols.astype(np.intp)
    lines = grid[above] * (1 - row_part)[:, None] + grid[above + 1] * row_part[:, None]
    return cast(npt.NDArray[np.float32], lines[:, left] * (1 - col_part) + lines[:, left + 1] * col_part)


@lru_cache(maxsize=24)
def _textures(height: int, width: int, seed: int, low: int) -> tuple[Plane, Plane, Plane]:
    """Returns coarse, middle and fine texture. Their sum lies in ``low``..``low + 216``."""
    rng = np.random.default_rng((seed, height, width))
    shape = (height + MARGIN, width + MARGIN)
    coarse = _smooth_noise(rng, *shape, cell=24) * 124 + low
    middle = _smooth_noise(rng, *shape, cell=5) * 86
    fine = rng.integers(0, 6, shape)
    return coarse.astype(np.uint8), middle.astype(np.uint8), fine.astype(np.uint8)


def _wander(number: int, velocity: int) -> int:
    """Returns a window's offset: back and forth in 0..MARGIN, because a jump would look like a scene cut."""
    return MARGIN - abs(number * velocity % (2 * MARGIN) - MARGIN)


def _paint_texture(plane: Plane, number: int, seed: int, low: int) -> None:
    height, width = plane.shape
    # The fine one jumps: noise that no motion vector predicts, like that of a camera's sensor.
    velocities = ((2, 1), (3, 5), (37, 53))
    coarse, middle, fine = (
        texture[(top := _wander(number, down)) : top + height, (left := _wander(number, right)) : left + width]
        for texture, (right, down) in zip(_textures(height, width, seed, low), velocities, strict=True)
    )
    np.add(coarse, middle, out=plane)
    plane += fine


def _code_bits(number: int) -> npt.NDArray[np.bool_]:
    data = number.to_bytes(2, "big")
    bits = np.unpackbits(np.frombuffer(data + bytes([zlib.crc32(data) & 0xFF]), np.uint8))
    return bits.reshape(CODE_ROWS, GRID).astype(np.bool_)


def _edges(length: int) -> list[int]:
    return [length * step // GRID for step in range(GRID + 1)]


def _paint_into(picture: Picture, number: int, seed: int) -> None:
    """Paints in place, because allocating every frame costs as much as painting it."""
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"cannot paint number {number}; numbers are 0..{MAX_NUMBER}")
    luma = picture.y
    _paint_texture(luma, number, seed, low=BLACK)
    rows, cols = _edges(luma.shape[0]), _edges(luma.shape[1])
    for (row, col), bit in np.ndenumerate(_code_bits(number)):
        luma[rows[row] : rows[row + 1], cols[col] : cols[col + 1]] = WHITE if bit else BLACK
    for place, chroma in enumerate((picture.u, picture.v), start=1):
        _paint_texture(chroma, number, seed + place, low=20)
        # Grey below the code, so that it reads the same in RGB.
        chroma[: -(-rows[CODE_ROWS] * chroma.shape[0] // luma.shape[0])] = 128


def paint(number: int, width: int, height: int, *, seed: int = 0, subsampling: tuple[int, int] = (2, 2)) -> Picture:
    """Paints frame ``number``.

    Args:
        number: 0..65535; `read_number` gives it back.
        width: Pixels; the number survives lossy coding from about 48 on.
        height: Pixels; from about 36 on.
        seed: Chooses the textures.
        subsampling: How many luma columns and rows share a chroma sample: (2, 2) is 4:2:0, (1, 1) is 4:4:4.

    Returns:
        Luma in 16..235, chroma in 20..236.
    """
    chroma_shape = (-(-height // subsampling[1]), -(-width // subsampling[0]))
    planes = (np.empty(shape, np.uint8) for shape in ((height, width), chroma_shape, chroma_shape))
    picture = Picture(*planes)
    _paint_into(picture, number, seed)
    return picture


def _as_gray_8bit(picture: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Returns the code's part of a picture, with black near 16 (or 0) and white near 235 (or 255)."""
    band = picture[: -(-picture.shape[0] * CODE_ROWS // GRID)].astype(np.float64)
    if band.ndim == 3:
        band = band.mean(axis=2)
    if picture.dtype.kind == "f":
        return band * 255.0
    if picture.dtype.itemsize == 1:
        return band
    # Samples of 10 and 12 bits come in 16-bit words. Every code has white blocks, so the largest value gives the depth.
    bits = max(8, int(band.max()).bit_length())
    bits += bits % 2 if bits < 13 else 16 - bits
    return band / float(2 ** (bits - 8))


def read_number(picture: npt.NDArray[Any]) -> int:
    """Reads the painted number back.

    Args:
        picture: Luma (H, W) or RGB (H, W, 3); 8-bit, 10 to 16 bits in 16-bit words, or floats in 0..1.

    Raises:
        ValueError: No code is there, a block is neither black nor white, or the checksum does not match.
    """
    if picture.ndim not in (2, 3) or min(picture.shape[:2]) < GRID:
        raise ValueError(f"cannot read a number from an array of shape {picture.shape}; expected (H, W) or (H, W, 3)")
    height, width = picture.shape[:2]
    band = _as_gray_8bit(picture)
    code = np.empty((CODE_ROWS, GRID))
    for row, col in np.ndindex(CODE_ROWS, GRID):
        code[row, col] = band[_middle(height, row), _middle(width, col)].mean()
    if bool(((code > UNCLEAR[0]) & (code < UNCLEAR[1])).any()):
        raise ValueError("no clear number in this picture: some blocks are neither black nor white")
    data = np.packbits(code > 128).tobytes()
    if zlib.crc32(data[:2]) & 0xFF != data[2]:
        raise ValueError(f"no valid number in this picture: the checksum of {data.hex()} does not match")
    return int.from_bytes(data[:2], "big")


def wrong_number(pictures: Iterable[npt.NDArray[Any]], frames: Iterable[int]) -> str:
    """Returns the first mismatch between frames and their painted numbers; empty if there is none."""
    for frame, picture in zip(frames, pictures, strict=True):
        try:
            number = read_number(picture)
        except ValueError as error:
            return f"frame {frame}: {error}"
        if number != frame:
            return f"frame {frame} shows the number {number}"
    return ""


def _middle(length: int, block: int) -> slice:
    """Returns the inner pixels of a block: coding and resizing blur its rim."""
    start = round((block + 0.3) * length / GRID)
    return slice(start, max(start + 1, round((block + 0.7) * length / GRID)))


# --- encoding -------------------------------------------------------------------------------------------------------


def painted_frame(number: int, width: int, height: int, *, pix_fmt: str = "yuv420p", seed: int = 0) -> av.VideoFrame:
    """Paints frame ``number`` as a PyAV frame of any pixel format (planar YUV without conversion)."""
    frame = av.VideoFrame(width, height, pix_fmt)
    parts = frame.format.components
    if frame.format.is_rgb or len(frame.planes) != 3 or len(parts) != 3:
        return painted_frame(number, width, height, seed=seed).reformat(format=pix_fmt)
    if parts[0].bits == 8:
        _paint_into(Picture(*(plane_samples(plane, np.dtype(np.uint8)) for plane in frame.planes)), number, seed)
        return frame
    subsampling = (round(width / parts[1].width), round(height / parts[1].height))
    picture = paint(number, width, height, seed=seed, subsampling=subsampling)
    for narrow, plane in zip(picture, frame.planes, strict=True):
        # Low bits differ from zero, so that a path that drops them is noticed.
        wide = narrow.astype(np.uint16)
        plane_samples(plane, np.dtype(np.uint16))[:] = wide << (parts[0].bits - 8) | wide & 3
    return frame


def plane_samples(plane: "av.video.plane.VideoPlane", word: np.dtype[Any]) -> npt.NDArray[Any]:
    """Returns a writable view of a frame's plane without the padding of its lines."""
    lines = np.frombuffer(memoryview(plane), word).reshape(plane.height, -1)
    return lines[:, : plane.width]


def encoder_options(codec: str, options: Mapping[str, str], *, threads: int = 1) -> dict[str, str]:
    """Adds options that silence the encoder and make its output the same on every machine."""
    chosen = {"threads": str(threads), **options}
    if codec == "libx264" and exact_x264():
        chosen["x264-params"] = ":".join(filter(None, (exact_x264(), options.get("x264-params", ""))))
    if codec == "libx265":
        # x265 ignores FFmpeg's thread count and logs past FFmpeg.
        quiet = f"log-level=error:pools={threads}:frame-threads=1"
        chosen["x265-params"] = ":".join(filter(None, (quiet, options.get("x265-params", ""))))
    if codec == "libsvtav1":
        os.environ.setdefault("SVT_LOG", "1")  # SVT-AV1's only switch for its banner
        chosen["svtav1-params"] = ":".join(filter(None, (f"lp={threads}", options.get("svtav1-params", ""))))
    return chosen


def write_clip(
    path: Path | str,
    *,
    codec: str = "libx264",
    frames: int = 60,
    width: int = 160,
    height: int = 96,
    fps: Fraction | int = 30,
    gop: int | None = 12,
    bframes: int | None = None,
    pix_fmt: str = "yuv420p",
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    format: str | None = None,
    pts: Pts | None = None,
    time_base: Fraction | None = None,
    color: Color | None = None,
    sample_aspect_ratio: Fraction | None = None,
    rotation: int | None = None,
    hflip: bool = False,
    interlaced: bool = False,
    tag: str | None = None,
    first_number: int = 0,
    seed: int = 0,
    threads: int = 1,
    painter: Callable[[int], av.VideoFrame] | None = None,
) -> Path:
    """Writes a clip that shows the numbers ``first_number``, ``first_number + 1`` and so on.

    Args:
        path: File to write; it appears when it is complete.
        codec: Name of an FFmpeg encoder.
        frames: How many frames to encode.
        width: Pixels.
        height: Pixels.
        fps: Frames a second, exactly.
        gop: Longest distance between keyframes; None is the encoder's default.
        bframes: Most B-frames in a row; None is the encoder's default.
        pix_fmt: FFmpeg's pixel format, painted without conversion where it is planar YUV.
        options: The encoder's private options, such as ``{"crf": "23"}``.
        container_options: The muxer's options, such as ``{"movflags": "faststart"}``.
        format: The muxer; None goes by the file name.
        pts: Presentation time of the n-th frame in units of ``time_base``; None counts 0, 1, 2.
        time_base: Unit of ``pts`` in seconds; None is one frame, 1 / fps.
        color: How the samples are tagged; None leaves them untagged.
        sample_aspect_ratio: Width by height of a pixel.
        rotation: Counter-clockwise degrees for the container's display matrix.
        hflip: Mirror left and right in the display matrix.
        interlaced: Code as interlaced, top field first (the encoder must know how).
        tag: Four characters that name the codec in the container, such as "hev1".
        first_number: Number painted into the first frame.
        seed: Chooses the textures.
        threads: Threads of the encoder; the bytes may depend on it.
        painter: Paints frame n in another way than `painted_frame` does.

    Returns:
        ``path``.
    """
    path = Path(path)
    with atomic_path(path) as part, av.open(part, "w", format, options=dict(container_options or {})) as container:
        # PyAV's overloads name only a few encoders; any video encoder gives a video stream.
        stream = cast("av.VideoStream", container.add_stream(codec, rate=fps))
        context = stream.codec_context
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        context.options = encoder_options(codec, options or {}, threads=threads)
        context.time_base = stream.time_base = time_base or 1 / Fraction(fps)
        if gop is not None:
            context.gop_size = gop
        if bframes is not None:
            context.max_b_frames = bframes
        if sample_aspect_ratio is not None:
            context.sample_aspect_ratio = sample_aspect_ratio
        if tag is not None:
            context.codec_tag = tag
        if interlaced:
            context.flags |= av.codec.context.Flags.interlaced_dct | av.codec.context.Flags.interlaced_me
            context.options = {**context.options, "field_order": "tt"}  # PyAV 17 has no attribute for it
        if rotation is not None or hflip:
            stream.set_display_rotation(rotation or 0, hflip=hflip)
        if color is not None:
            context.colorspace, context.color_primaries, context.color_trc = color.codes
            context.color_range = 2 if color.full_range else 1
        with usual_priority():
            context.open(strict=False)
        for place in range(frames):
            number = first_number + place
            frame = painter(number) if painter else painted_frame(number, width, height, pix_fmt=pix_fmt, seed=seed)
            frame.pts = place if pts is None else pts(place) if callable(pts) else pts[place]
            frame.time_base = context.time_base
            if color is not None:
                frame.colorspace, frame.color_range = context.colorspace, context.color_range
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


# --- clips for the demo ---------------------------------------------------------------------------

_DEMO: dict[str, Any] = {"width": 320, "height": 180, "threads": 2}

# Different codecs and GOP sizes, quick to make.
SAMPLES: dict[str, dict[str, Any]] = {
    "h264_gop30.mp4": dict(_DEMO, frames=300, gop=30, bframes=3, options={"preset": "veryfast"}),
    "h264_gop250.mp4": dict(_DEMO, frames=300, gop=250, options={"preset": "veryfast", "bf": "3"}, seed=1),
    "hevc_open_gop.mp4": dict(
        _DEMO,
        codec="libx265",
        frames=150,
        gop=None,
        tag="hvc1",
        # x265's open GOPs, several in this short clip.
        options={"preset": "ultrafast", "x265-params": "keyint=48:min-keyint=24:open-gop=1:bframes=3"},
        seed=2,
    ),
    "vp9.webm": dict(
        _DEMO,
        codec="libvpx-vp9",
        frames=120,
        gop=60,
        options={"deadline": "realtime", "cpu-used": "7", "crf": "36", "b": "0"},
        seed=3,
    ),
    # SVT-AV1's faster presets (10 and 12 were tried) omit whole blocks, which makes numbers unreadable.
    "av1.mp4": dict(_DEMO, codec="libsvtav1", frames=120, gop=60, options={"preset": "8", "crf": "35"}, seed=4),
    "mpeg4.avi": dict(
        _DEMO,
        codec="mpeg4",
        frames=200,
        gop=15,
        bframes=2,
        options={"b": "800k", "qmin": "5"},
        seed=5,
    ),
}


def write_samples(folder: Path | str) -> list[Path]:
    """Writes the demo's clips into ``folder``, except those already there."""
    return [_write_once(Path(folder) / name, spec) for name, spec in SAMPLES.items()]


def _write_once(path: Path, spec: Mapping[str, Any]) -> Path:
    return path if path.exists() else write_clip(path, **spec)
