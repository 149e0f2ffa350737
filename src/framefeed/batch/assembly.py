"""Samples on their way to being tensors: where each decoded frame has to go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from framefeed.batch.videos import Intermediates, OpenVideo, Videos
from framefeed.convert.desc import BoundDesc, Changes, Draw, ProcessDesc
from framefeed.convert.finish import Finisher
from framefeed.errors import FrameSizeError
from framefeed.plan.randomness import uniforms

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "MASK",
    "MISSING",
    "Assembly",
    "FrameLayout",
    "Place",
    "SampleRef",
    "SampleShape",
    "Samples",
    "draw_all",
    "empty_intermediates",
    "locate_samples",
    "shape_conflict",
    "with_cameras",
    "write_intermediates",
]

Place = tuple[int, int]
"""A row of the batch, and which slot of its sample."""

MISSING = -1
"""Stands for the file and the frame of a slot that stays empty."""

MASK = "mask"
"""The name under which a batch says which cameras are there."""


class SampleShape(NamedTuple):
    """Composition of samples: a slot for each frame of each camera, all frames of the first camera first.

    Attributes:
        length: Frames of a sequence.
        cameras: Sequences that are shown side by side.
    """

    length: int
    cameras: int = 1

    def places(self, desc: ProcessDesc) -> tuple[int, ...]:
        """For each slot its place in the output, -1 for those that are left out."""
        return _places(self, desc)

    def num_frames(self, desc: ProcessDesc) -> int:
        """Number of frames in the output."""
        return sum(place >= 0 for place in _places(self, desc))

    def shown(self, descs: Iterable[ProcessDesc]) -> list[int]:
        """Slots that any description shows."""
        return list(_shown(self, tuple(descs)))

    def mask(self, frames: NDArray[np.int64], shown: Sequence[int]) -> NDArray[np.bool_]:
        """For samples whose slots have these frames, which cameras are there with all frames that are shown."""
        there: NDArray[np.bool_] = (frames[:, shown] != MISSING).reshape(len(frames), self.cameras, -1).all(2)
        return there


@lru_cache(maxsize=256)
def _places(shape: SampleShape, desc: ProcessDesc) -> tuple[int, ...]:
    own = desc.places(shape.length).tolist()
    step = desc.num_frames(shape.length)
    return tuple(place + camera * step if place >= 0 else -1 for camera in range(shape.cameras) for place in own)


@lru_cache(maxsize=256)
def _shown(shape: SampleShape, descs: tuple[ProcessDesc, ...]) -> tuple[int, ...]:
    of_slots = zip(*(_places(shape, desc) for desc in descs), strict=True)
    return tuple(slot for slot, places in enumerate(of_slots) if max(places) >= 0)


@lru_cache(maxsize=64)
def _all_places(count: int, slots: tuple[int, ...]) -> tuple[tuple[Place, ...], ...]:
    """The places of all slots of so many samples, each as all that a frame goes to: most have only one."""
    return tuple(((row, k),) for row in range(count) for k in slots)


class SampleRef(NamedTuple):
    """A sample before it is decoded.

    Attributes:
        number: Its number in the dataset.
        files: For each slot, the number of its file.
        frames: For each slot, the number of its frame.
        draw: Its random numbers.
    """

    number: int
    files: list[int]
    frames: list[int]
    draw: Draw


_NOT_DRAWN = Draw(0.0, 0.0, 0.0)


class Samples(Sequence[SampleRef]):
    """Samples before they are decoded. They are made when they are asked for: of what lies ahead there is a lot.

    Args:
        numbers: Their numbers in the dataset.
        files: The numbers of their files, a row for each sample and a column for each slot.
        frames: The numbers of their frames.
        draws: Their random numbers, a row for each; None where there is no use for any.
    """

    __slots__ = ("draws", "files", "frames", "numbers")

    def __init__(
        self,
        numbers: NDArray[np.int64],
        files: NDArray[np.int64],
        frames: NDArray[np.int64],
        draws: NDArray[np.float64] | None,
    ) -> None:
        self.numbers = numbers
        self.files = files
        self.frames = frames
        self.draws = draws

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, row: int) -> SampleRef: ...
    @overload
    def __getitem__(self, row: slice) -> Samples: ...
    def __getitem__(self, row: int | slice) -> SampleRef | Samples:
        if isinstance(row, slice):
            return self.pick(range(*row.indices(len(self))))
        files, frames = self.files[row].tolist(), self.frames[row].tolist()
        return SampleRef(int(self.numbers[row]), files, frames, self.draw(row))

    def pick(self, rows: Sequence[int]) -> Samples:
        """Some of them."""
        chosen = np.asarray(rows, np.int64)
        draws = None if self.draws is None else self.draws[chosen]
        return Samples(self.numbers[chosen], self.files[chosen], self.frames[chosen], draws)

    def draw(self, row: int) -> Draw:
        """The random numbers of one."""
        return _NOT_DRAWN if self.draws is None else Draw(*self.draws[row].tolist())


class FrameLayout(Protocol):
    """Frames of files that each sample is made of."""

    def frame_refs(self, samples: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The files and the frames that samples are made of, a row for each sample."""


def locate_samples(
    frame_layout: FrameLayout, samples: NDArray[np.int64], seed: int, epoch: int, *, draws: bool
) -> Samples:
    """Finds the frames and draws the random numbers of samples, where they are needed."""
    return Samples(samples, *frame_layout.frame_refs(samples), draw_all(samples, seed, epoch) if draws else None)


def draw_all(samples: NDArray[np.int64], seed: int, epoch: int) -> NDArray[np.float64]:
    """The random numbers of samples, a row for each."""
    return np.stack([uniforms(seed, epoch, samples, which) for which in range(3)], 1)


@lru_cache(maxsize=256)
def _finisher(bound: BoundDesc) -> Finisher:
    return Finisher(bound)


class Assembly:
    """Tensors of some samples, filled in frame by frame, from several threads at once.

    Args:
        videos: The dataset's files.
        samples: What to assemble.
        shape: What each of them consists of.
        stacked: Whether the samples become one batch and so need equal shapes.

    Attributes:
        rows: For each sample its tensors by name, in their final layout.
        batch: All samples' tensors by name where they are stacked.
        places: By name, where each slot goes in the output; -1 where it is left out.
        targets: By file and frame, where the frame goes. Frames that no description shows are left out.
    """

    def __init__(self, videos: Videos, samples: Samples, shape: SampleShape, *, stacked: bool) -> None:
        self.samples = samples
        self._shape = shape
        files = samples.files.ravel().tolist()
        self._known = {file: videos[file] for file in dict.fromkeys(files) if file != MISSING}
        self._files = files
        first = next(iter(self._known.values()), None)
        self.places = {name: shape.places(bound.desc) for name, bound in (first.bound.items() if first else ())}
        self.batch: dict[str, Tensor] = {}
        self.rows: list[dict[str, Tensor]] = self._stacked() if stacked else self._separate()
        descs = tuple(bound.desc for bound in first.bound.values()) if first else ()
        self.targets = self._find_targets(_shown(shape, descs))

    def _find_targets(self, slots: tuple[int, ...]) -> dict[tuple[int, int], tuple[Place, ...]]:
        samples = self.samples
        files, frames = samples.files, samples.frames
        if len(slots) < files.shape[1]:
            files, frames = files[:, slots], frames[:, slots]
        numbers = frames.ravel().tolist()
        keys = list(zip(files.ravel().tolist(), numbers, strict=True))
        places = _all_places(len(samples), slots)
        found = dict(zip(keys, places, strict=True))
        if len(found) == len(keys) and MISSING not in numbers:
            return found
        found = {}
        for key, place in zip(keys, places, strict=True):
            if key[1] == MISSING:
                self._clear(*place[0])
            else:
                found[key] = found.get(key, ()) + place
        return found

    def put(self, bases: Intermediates, places: Sequence[Place]) -> None:
        """Writes a decoded frame to its places."""
        for row, k in places:
            draw = self.samples.draw(row)
            for name, bound in self.video(row, k).bound.items():
                place = self.places[name][k]
                if place >= 0:
                    _finisher(bound).finish(bases[bound.intermediate], self.rows[row][name], place, draw)

    def changes(self, row: int) -> dict[str, Changes]:
        """By name, what was done to a sample."""
        draw = self.samples.draw(row)
        return {name: bound.changes(draw) for name, bound in self._any_video(row).bound.items()}

    @property
    def num_bytes(self) -> int:
        """Size of the batch."""
        return sum(tensor.nbytes for tensor in self.batch.values())

    def video(self, row: int, k: int) -> OpenVideo:
        """The video of a slot of a sample."""
        return self._known[self._files[row * self.samples.files.shape[1] + k]]

    def _any_video(self, row: int) -> OpenVideo:
        width = self.samples.files.shape[1]
        return next(self._known[file] for file in self._files[row * width : (row + 1) * width] if file != MISSING)

    def _empty(self, bound: BoundDesc, count: int) -> Tensor:
        return _finisher(bound).empty(count, self._shape.num_frames(bound.desc))

    def _clear(self, row: int, k: int) -> None:
        """Makes an empty slot black."""
        for name, tensor in self.rows[row].items():
            if self.places[name][k] >= 0:
                order = self._any_video(row).bound[name].desc.dimension_order
                tensor.select(order.index("f"), self.places[name][k]).zero_()

    def _separate(self) -> list[dict[str, Tensor]]:
        return [
            {name: self._empty(bound, 1)[0] for name, bound in self._any_video(row).bound.items()}
            for row in range(len(self.samples))
        ]

    def _stacked(self) -> list[dict[str, Tensor]]:
        first = next(iter(self._known.values()))
        for video in self._known.values():
            conflict = shape_conflict(first, video)
            if conflict is not None:
                raise conflict
        for name, bound in first.bound.items():
            self.batch[name] = self._empty(bound, len(self.samples))
        return self._split(len(self.samples))

    def _split(self, count: int) -> list[dict[str, Tensor]]:
        """The parts of the batch that belong to each sample."""
        return [{name: tensor[row] for name, tensor in self.batch.items()} for row in range(count)]


def with_cameras(batch: Mapping[str, Tensor], processing: Mapping[str, ProcessDesc], cameras: int) -> dict[str, Tensor]:
    """A batch whose tensors have a dimension for cameras behind that for samples, instead of all frames in one."""
    found = {}
    for name, tensor in batch.items():
        place = 1 + processing[name].dimension_order.index("f")
        parts: Tensor = tensor.unflatten(place, (cameras, -1))  # type: ignore[no-untyped-call]
        found[name] = parts.movedim(place, 1)
    return found


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


def write_intermediates(video: OpenVideo, picture: Any, out: Intermediates, frame: int) -> None:
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


def empty_intermediates(shapes: Mapping[Any, tuple[int, int, int]]) -> dict[Any, NDArray[np.uint8]]:
    """Arrays for the bases of one frame."""
    return {kind: np.empty(shape, np.uint8) for kind, shape in shapes.items()}
