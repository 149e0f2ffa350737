"""Samples on their way to being tensors: where each decoded frame has to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from framefeed.data.randomness import uniforms
from framefeed.data.videos import Bases, OpenVideo, Videos
from framefeed.errors import FrameSizeError
from framefeed.process.desc import BoundDesc, Changes, Draw
from framefeed.process.finish import Finisher

if TYPE_CHECKING:
    from torch import Tensor

    from framefeed.data.sequences import Sequences

__all__ = [
    "Assembly",
    "Place",
    "SampleRef",
    "Samples",
    "empty_bases",
    "locate_samples",
    "shape_conflict",
    "write_bases",
]

Place = tuple[int, int]
"""A row of the batch, and which frame of its sequence."""


class SampleRef(NamedTuple):
    """A sample before it is decoded.

    Attributes:
        number: Its number in the dataset.
        file: The number of its file.
        frames: The numbers of its frames.
        draw: Its random numbers.
    """

    number: int
    file: int
    frames: list[int]
    draw: Draw


_NOT_DRAWN = Draw(0.0, 0.0, 0.0)


class Samples(Sequence[SampleRef]):
    """Samples before they are decoded. They are made when they are asked for: of what lies ahead there is a lot.

    Args:
        numbers: Their numbers in the dataset.
        files: The numbers of their files.
        frames: The numbers of their frames, a row for each.
        draws: Their random numbers, a row for each; None where there is no use for any.
    """

    __slots__ = ("_draws", "_frames", "_numbers", "files")

    def __init__(
        self,
        numbers: NDArray[np.int64],
        files: list[int],
        frames: NDArray[np.int64],
        draws: NDArray[np.float64] | None,
    ) -> None:
        self._numbers = numbers
        self.files = files
        self._frames = frames
        self._draws = draws

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, row: int) -> SampleRef: ...
    @overload
    def __getitem__(self, row: slice) -> Samples: ...
    def __getitem__(self, row: int | slice) -> SampleRef | Samples:
        if isinstance(row, slice):
            return self.pick(range(*row.indices(len(self))))
        return SampleRef(int(self._numbers[row]), self.files[row], self._frames[row].tolist(), self.draw(row))

    def pick(self, rows: Sequence[int]) -> Samples:
        """Some of them."""
        chosen = np.asarray(rows, np.int64)
        draws = None if self._draws is None else self._draws[chosen]
        return Samples(self._numbers[chosen], [self.files[row] for row in rows], self._frames[chosen], draws)

    def draw(self, row: int) -> Draw:
        """The random numbers of one."""
        return _NOT_DRAWN if self._draws is None else Draw(*self._draws[row].tolist())

    def frames(self, shown: Sequence[int]) -> list[list[int]]:
        """The numbers of those of their frames, for each."""
        rows: list[list[int]] = self._frames[:, shown].tolist()
        return rows


def locate_samples(sequences: Sequences, samples: NDArray[np.int64], seed: int, epoch: int, *, draws: bool) -> Samples:
    """Finds the frames and draws the random numbers of samples, where they are needed."""
    files, firsts = sequences.locate(samples)
    drawn = np.stack([uniforms(seed, epoch, samples, which) for which in range(3)], 1) if draws else None
    return Samples(samples, files.tolist(), sequences.frames(files, firsts), drawn)


@lru_cache(maxsize=1 << 16)
def _only(row: int, k: int) -> tuple[Place, ...]:
    """A place, as all that a frame goes to: one for all batches, as most frames have only one."""
    return ((row, k),)


@lru_cache(maxsize=256)
def _finisher(bound: BoundDesc) -> Finisher:
    return Finisher(bound)


class Assembly:
    """Tensors of some samples, filled in frame by frame, from several threads at once.

    Args:
        videos: The dataset's files.
        samples: What to assemble.
        length: Frames of a sequence.
        stacked: Whether the samples become one batch and so need equal shapes.

    Attributes:
        rows: For each sample its tensors by name, in their final layout.
        batch: All samples' tensors by name where they are stacked.
        places: By name, where each frame of a sequence goes in the output; -1 where it is left out.
        targets: By file and frame, where the frame goes. Frames that no description shows are left out.
    """

    def __init__(self, videos: Videos, samples: Samples, length: int, *, stacked: bool) -> None:
        self.samples = samples
        known = {file: videos[file] for file in set(samples.files)}
        self._videos = [known[file] for file in samples.files]
        self.places = {
            name: bound.desc.places(length).tolist()
            for name, bound in (self._videos[0].bound.items() if samples else ())
        }
        self.batch: dict[str, Tensor] = {}
        self.rows: list[dict[str, Tensor]] = self._stacked(length) if stacked else self._separate(length)
        self.targets: dict[tuple[int, int], tuple[Place, ...]] = {}
        shown = [k for k in range(length) if any(places[k] >= 0 for places in self.places.values())]
        for row, (file, frames) in enumerate(zip(samples.files, samples.frames(shown), strict=True)):
            for k, frame in zip(shown, frames, strict=True):
                before = self.targets.get((file, frame))
                place = _only(row, k)
                self.targets[file, frame] = place if before is None else before + place

    def put(self, bases: Bases, places: Sequence[Place]) -> None:
        """Writes a decoded frame to its places."""
        for row, k in places:
            draw = self.samples.draw(row)
            for name, bound in self._videos[row].bound.items():
                place = self.places[name][k]
                if place >= 0:
                    _finisher(bound).finish(bases[bound.base], self.rows[row][name], place, draw)

    def changes(self, row: int) -> dict[str, Changes]:
        """By name, what was done to a sample."""
        draw = self.samples.draw(row)
        return {name: bound.changes(draw) for name, bound in self._videos[row].bound.items()}

    @property
    def num_bytes(self) -> int:
        """Size of the batch."""
        return sum(tensor.nbytes for tensor in self.batch.values())

    def video(self, row: int) -> OpenVideo:
        """The video of a sample."""
        return self._videos[row]

    def _empty(self, bound: BoundDesc, count: int, length: int) -> Tensor:
        return _finisher(bound).empty(count, bound.desc.num_frames(length))

    def _separate(self, length: int) -> list[dict[str, Tensor]]:
        return [
            {name: _finisher(bound).empty(1, bound.desc.num_frames(length))[0] for name, bound in video.bound.items()}
            for video in self._videos
        ]

    def _stacked(self, length: int) -> list[dict[str, Tensor]]:
        first = self._videos[0]
        for video in self._videos:
            conflict = shape_conflict(first, video)
            if conflict is not None:
                raise conflict
        for name, bound in first.bound.items():
            self.batch[name] = self._empty(bound, len(self.samples), length)
        return self._split(len(self.samples))

    def _split(self, count: int) -> list[dict[str, Tensor]]:
        """The parts of the batch that belong to each sample."""
        return [{name: tensor[row] for name, tensor in self.batch.items()} for row in range(count)]


def shape_conflict(first: OpenVideo, video: OpenVideo) -> FrameSizeError | None:
    """The error for two videos whose samples cannot share a batch; None where they can."""
    for name, bound in video.bound.items():
        other = first.bound[name]
        if bound is not other and bound.output_size != other.output_size:
            return FrameSizeError(
                video.index.path,
                f"{name!r} of it is {_size(bound)} and of {first.index.path} {_size(other)}: a batch needs one size; "
                "give scale_width and scale_height, or width and height",
            )
    return None


def _size(bound: BoundDesc) -> str:
    height, width = bound.output_size
    return f"{width}x{height}"


def write_bases(video: OpenVideo, picture: Any, out: Bases, frame: int) -> None:
    """Makes all bases of a decoded picture."""
    for kind, writer in video.writers.items():
        array = out[kind]
        found = writer.output_size(picture)
        if found != array.shape[1:]:
            height, width = array.shape[1:]
            raise FrameSizeError(
                video.index.path,
                f"frame {frame} is {found[1]}x{found[0]}, not {width}x{height} as the stream's header says: the size "
                "changes in mid-stream; give scale_width and scale_height",
            )
        writer.write(picture, array)


def empty_bases(shapes: Mapping[Any, tuple[int, int, int]]) -> dict[Any, NDArray[np.uint8]]:
    """Arrays for the bases of one frame."""
    return {kind: np.empty(shape, np.uint8) for kind, shape in shapes.items()}
