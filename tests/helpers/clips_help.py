"""Small clips for the dataset and the loader, and what their samples have to be.

The truth is made the slow and plain way: a linear decode of the whole file, the frame scaled, and everything after that
(flip, crop, values, layout) in NumPy, one step after the other, in double precision.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

import clips
from framefeed import LoaderStats, ProcessDesc, VideoIndex, VideoLoader
from framefeed.convert.cpu.intermediate import IntermediateWriter
from framefeed.convert.desc import Changes, Draw, IntermediateSpec
from framefeed.plan.randomness import uniforms
from framefeed.testing import samples
from waiting import soon

T = TypeVar("T")

SIZE: dict[str, Any] = {"width": 64, "height": 48}


def _x264(**params: object) -> dict[str, str]:
    chosen = {"scenecut": 0, "b-adapt": 0, **{name.replace("_", "-"): value for name, value in params.items()}}
    return {"preset": "veryfast", "x264-params": ":".join(f"{name}={value}" for name, value in chosen.items())}


_VP9 = {"deadline": "realtime", "cpu-used": "8", "crf": "30", "b": "0"}

# Irregular, never twice the same step, in milliseconds; no time is near a multiple of what the tests ask for.
VFR_TIMES = tuple(37 * place + 11 * (place % 3) + place * place // 7 for place in range(60))

SPECS: dict[str, dict[str, Any]] = {
    "bframes.mp4": dict(SIZE, frames=60, gop=12, bframes=2, options=_x264()),
    "open_gop.mp4": dict(SIZE, frames=64, gop=16, bframes=3, options=_x264(open_gop=1), seed=1),
    "hevc.mp4": dict(SIZE, codec="libx265", frames=60, gop=24, seed=2),
    "vp9.webm": dict(SIZE, codec="libvpx-vp9", frames=40, gop=15, options=_VP9, seed=3),
    "vfr.mkv": dict(
        SIZE, frames=60, gop=20, bframes=2, pts=VFR_TIMES, time_base=Fraction(1, 1000), options=_x264(), seed=4
    ),
    "one_group.mp4": dict(SIZE, frames=70, gop=250, bframes=3, options=_x264(), seed=5),
    "one_frame.mp4": dict(SIZE, frames=1, seed=6),
    # Other sizes and other times.
    "wide.mp4": dict(SIZE, width=96, height=56, frames=40, gop=10, bframes=2, options=_x264(), seed=7),
    "rotated.mp4": dict(SIZE, frames=24, gop=8, rotation=90, options=_x264(), seed=8),
    "thirty.mp4": dict(SIZE, frames=90, gop=30, options=_x264(), seed=9),
    "thirty.mkv": dict(SIZE, frames=90, gop=30, options=_x264(), seed=9),
    "ntsc.mp4": dict(SIZE, frames=90, gop=30, fps=Fraction(30000, 1001), options=_x264(), seed=9),
    "ntsc.mkv": dict(SIZE, frames=90, gop=30, fps=Fraction(30000, 1001), options=_x264(), seed=9),
    "film.mkv": dict(SIZE, frames=90, gop=30, fps=Fraction(24000, 1001), options=_x264(), seed=9),
    "film.ts": dict(SIZE, frames=90, gop=30, fps=Fraction(24000, 1001), options=_x264(), seed=9),
    "sixty.mkv": dict(SIZE, frames=90, gop=30, fps=60, options=_x264(), seed=9),
    "slow_motion.mkv": dict(SIZE, frames=90, gop=30, fps=300, options=_x264(), seed=9),
    "hundred.mp4": dict(SIZE, frames=100, gop=25, bframes=2, options=_x264(), seed=10),
}

# One size, every sort of group: what the loader's batches are compared over.
MIXED = ("bframes.mp4", "open_gop.mp4", "hevc.mp4", "vp9.webm", "vfr.mkv", "one_group.mp4", "one_frame.mp4")


def clip(name: str, folder: Path) -> str:
    """Writes a clip, once for each folder, and returns its path."""
    path = folder / "training" / name
    if not path.exists():
        samples.write_clip(path, **SPECS[name])
    return str(path)


def clips_of(names: Sequence[str], folder: Path) -> list[str]:
    """Several of them."""
    return [clip(name, folder) for name in names]


# --- the truth ---


@cache
def _pictures(path: str) -> tuple[VideoIndex, list[Any]]:
    return VideoIndex.scan(path), clips.linear_decode(path)


def num_frames(path: str) -> int:
    """How many frames a linear decode shows."""
    return len(_pictures(path)[1])


def painted_number(frame: NDArray[Any]) -> int:
    """The number in a frame (3, height, width) with values 0..255."""
    return samples.read_number(frame.transpose(1, 2, 0).astype(np.uint8))


@cache
def scaled_frame(path: str, frame: int, color_space: str, height: int, width: int) -> NDArray[np.uint8]:
    """A whole frame in 8 bits (3, height, width), upright and scaled; 0 for the size that it has."""
    index, pictures = _pictures(path)
    upright_height, upright_width = index.stream.display_size
    if color_space == "YCbCr" and not (height or width) and not index.stream.orientation:
        return _repeated_planes(pictures[frame])
    resize = (height, width) if height or width else None
    writer = IntermediateWriter(index.stream, IntermediateSpec(color_space, resize, None))  # type: ignore[arg-type]
    found = np.empty((3, height or upright_height, width or upright_width), np.uint8)
    writer.write(pictures[frame], found)
    return found


def _repeated_planes(picture: Any) -> NDArray[np.uint8]:
    """Y, Cb and Cr of a 4:2:0 picture, each chroma sample four times."""
    assert picture.format.name == "yuv420p"
    luma, *chroma = (samples.plane_samples(plane, np.dtype(np.uint8)) for plane in picture.planes)
    wide = [plane.repeat(2, 0).repeat(2, 1)[: luma.shape[0], : luma.shape[1]] for plane in chroma]
    return np.stack([luma, *wide])


@cache
def _bfloat16_numbers() -> NDArray[np.float64]:
    """All finite numbers that a bfloat16 can be, rising, from zero on."""
    return np.arange(0x7F80, dtype=np.uint32).__lshift__(16).view(np.float32).astype(np.float64)


def to_bfloat16(values: NDArray[np.float64]) -> torch.Tensor:
    """The nearest bfloat16 of each value; of two that are equally near, the even one."""
    numbers = _bfloat16_numbers()
    size = np.abs(values)
    above = np.clip(np.searchsorted(numbers, size), 1, len(numbers) - 1)
    low, high = size - numbers[above - 1], numbers[above] - size
    bits = np.where((low < high) | ((low == high) & (above % 2 == 1)), above - 1, above).astype(np.uint16)
    bits = np.where(np.signbit(values), bits | np.uint16(0x8000), bits).astype(np.uint16)
    return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)


def draw_of(sample: int, seed: int, epoch: int) -> Draw:
    """The random numbers of a sample."""
    return Draw(*(float(uniforms(seed, epoch, np.array([sample]), which)[0]) for which in range(3)))


def _proportional(length: int, numerator: int, denominator: int) -> int:
    return max(1, int(Fraction(length * numerator, denominator) + Fraction(1, 2)))


def expected_frame(path: str, frame: int, desc: ProcessDesc, draw: Draw) -> NDArray[np.float64]:
    """One frame (3, height, width) as a description wants it, before it is rounded to its type."""
    whole_height, whole_width = _pictures(path)[0].stream.display_size
    height, width = desc.scale_height, desc.scale_width
    if height and not width:
        width = _proportional(whole_width, height, whole_height)
    if width and not height:
        height = _proportional(whole_height, width, whole_width)
    pixels = scaled_frame(path, frame, desc.color_space, height, width)
    if desc.random_flip and draw.flip < 0.5:
        pixels = pixels[:, :, ::-1]
    spare = [pixels.shape[1] - (desc.height or pixels.shape[1]), pixels.shape[2] - (desc.width or pixels.shape[2])]
    if desc.random_crop:
        top, left = (int(number * (room + 1)) for number, room in zip((draw.top, draw.left), spare, strict=True))
    elif desc.center_crop:
        top, left = (round(room / 2) for room in spare)
    else:
        top, left = 0, 0
    pixels = pixels[:, top : pixels.shape[1] - spare[0] + top, left : pixels.shape[2] - spare[1] + left]
    values = pixels.astype(np.float64)
    if desc.normalized:
        values = values / 255
    if desc.mean is not None:
        values = values - np.array(desc.mean).reshape(-1, 1, 1)
    if desc.std is not None:
        values = values / np.array(desc.std).reshape(-1, 1, 1)
    return values


def expected_tensor(path: str, frames: Sequence[int], desc: ProcessDesc, draw: Draw) -> torch.Tensor:
    """A sample's tensor, from the numbers of its frames."""
    index_map = list(range(len(frames))) if desc.index_map is None else list(desc.index_map)
    chosen = {place: frame for place, frame in zip(index_map, frames, strict=False) if place >= 0}
    values = np.stack([expected_frame(path, chosen[place], desc, draw) for place in sorted(chosen)])
    values = values.transpose(["fchw".index(letter) for letter in desc.dimension_order])
    if desc.type == "bfloat16":
        return to_bfloat16(values)
    word = {"float": np.float32, "half": np.float16, "byte": np.uint8}[desc.type]
    return torch.from_numpy(values.astype(word))


@dataclass(frozen=True)
class Truth:
    """Samples by NVVL's numbering, made without any part of the dataset."""

    paths: Sequence[str]
    length: int = 1
    stride: int = 1
    processing: Mapping[str, ProcessDesc] | None = None
    seed: int = 0
    _known: dict[tuple[int, int], dict[str, torch.Tensor]] = field(default_factory=dict)

    def starts(self) -> list[tuple[str, int]]:
        """The file and first frame of every sample."""
        span = (self.length - 1) * self.stride
        return [(path, first) for path in self.paths for first in range(num_frames(path) - span)]

    def __len__(self) -> int:
        return len(self.starts())

    def sample(self, number: int, epoch: int = 0) -> dict[str, torch.Tensor]:
        """All tensors of a sample."""
        known = self._known.get((number, epoch))
        if known is None:
            path, first = self.starts()[number]
            frames = [first + self.stride * place for place in range(self.length)]
            draw = draw_of(number, self.seed, epoch)
            descs = self.processing or {"default": ProcessDesc()}
            known = {name: expected_tensor(path, frames, desc, draw) for name, desc in descs.items()}
            self._known[number, epoch] = known
        return known


def same_bits(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether two tensors have equal types, shapes and bits."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    return torch.equal(found.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8))


def wrong_samples(
    batches: Iterable[Mapping[str, Any]], truth: Truth, numbers: Sequence[int], epoch: int = 0
) -> list[Any]:
    """The samples of some batches that differ from the truth.

    Args:
        batches: Whole batches, in order.
        truth: What samples have to be.
        numbers: The samples that the batches have to have, one after the other.
        epoch: Which epoch they belong to.
    """
    wrong: list[Any] = []
    place = 0
    for batch in batches:
        tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
        for row in range(len(next(iter(tensors.values())))):
            number = numbers[place]
            expected = truth.sample(number, epoch)
            wrong += [(place, number, name) for name in expected if not same_bits(tensors[name][row], expected[name])]
            place += 1
    if place != len(numbers):
        wrong.append(("number of samples", place, len(numbers)))
    return wrong


# --- loaders ---


def start_of(filename: str, frame: int, changes: Mapping[str, Changes]) -> tuple[str, int]:
    """A label that tells which sample it is."""
    return filename, frame


def changes_of(filename: str, frame: int, changes: Mapping[str, Changes]) -> tuple[tuple[str, int], Any]:
    """A label that tells which sample it is, and what was done to it."""
    return (filename, frame), tuple(sorted(changes.items()))


def labels_of(batches: Iterable[Mapping[str, Any]]) -> list[Any]:
    """The labels of some batches, one after the other."""
    return [label for batch in batches for label in batch["labels"]]


def numbers_of(batches: Iterable[Mapping[str, Any]], truth: Truth) -> list[int]:
    """The numbers of the samples of some batches, by their labels."""
    numbers = {start: number for number, start in enumerate(truth.starts())}
    return [numbers[label] for label in labels_of(batches)]


def within(seconds: float, work: Callable[[], T]) -> T:
    """Does something in a thread; a failure where it takes too long."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TimeoutError(f"not done within {seconds} s")
    if failed:
        raise failed.pop()  # nobody but the caller keeps it, and what its traceback leads to
    return done[0]


LOADER_THREAD = "framefeed-loader"


def loader_threads() -> int:
    """Threads of loaders that are alive; not of those that other tests have left to the collector."""
    if any(thread.name == LOADER_THREAD for thread in threading.enumerate()):
        gc.collect()
    return sum(thread.name == LOADER_THREAD for thread in threading.enumerate())


def settled_stats(loader: VideoLoader) -> LoaderStats:
    """What a loader has done, when its threads have ended."""
    assert soon(lambda: loader_threads() == 0)
    return loader.stats()


def noisy_copy(path: str, packet: int, target: Path) -> str:
    """A copy of a clip with noise in the place of most of a packet."""
    packets = VideoIndex.scan(path).packets
    data = bytearray(Path(path).read_bytes())
    begin, size = int(packets.pos[packet]), int(packets.size[packet])
    whole = min(8, size // 3)
    data[begin + whole : begin + size] = np.random.default_rng(1).integers(0, 256, size - whole, np.uint8).tobytes()
    target.write_bytes(data)
    return str(target)
