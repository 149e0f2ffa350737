"""A loader's work on a GPU: pictures are decoded, kept and put into batches without leaving it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from framefeed.batch.assembly import Assembly, Place, Samples, SampleShape, write_intermediates
from framefeed.batch.assembly_cuda import (
    DeviceAssembly,
    DeviceIntermediates,
    Frames,
    Pictures,
    finish_frames,
    finish_pictures,
)
from framefeed.batch.switching import Switching
from framefeed.batch.videos import OpenVideo, Videos
from framefeed.batch.work import Taken
from framefeed.batch.workshop import decode_on_cpu
from framefeed.convert.conversion import Conversion
from framefeed.convert.cuda.surfaces import StreamContext, context_of, surface_format
from framefeed.cuda.driver import DEFAULT_STREAM, new_stream, on_device
from framefeed.cuda.timelines import Moment, Timeline, default_timeline
from framefeed.decode.default import cuda_engine
from framefeed.decode.nvdec.capabilities import pixel_format
from framefeed.decode.session import Taker
from framefeed.decode.surface import Surface, SurfaceLayout
from framefeed.device import check_not_forked
from framefeed.errors import FrameSizeError
from framefeed.request import decode_runs
from framefeed.source import PacketSource

__all__ = ["CudaWorkshop"]

# Memory of each stream for bases that are made only to be put into batches: bytes and frames, at most.
MAX_SCRATCH = 64 << 20
MAX_SCRATCH_FRAMES = 128

# Short groups are decoded several at a time: each time, all threads wait for Python's lock.
FRAMES_TOGETHER = 128

# For each thread: what it decodes and a part of what comes next. Groups may be long.
FRAMES_AHEAD = 160
GROUPS_AHEAD = 2

# More batches are opened when there is room for so many frames: for whole groups of many files at a time.
FRAMES_AT_ONCE = 1024


class _Lanes:
    """Streams for work that belongs to no decoder, as many as are used at a time."""

    def __init__(self) -> None:
        self._idle: dict[int, list[StreamContext]] = {}

    @contextlib.contextmanager
    def borrow(self, device: int) -> Iterator[StreamContext]:
        """A stream that nobody else uses meanwhile."""
        idle = self._idle.setdefault(device, [])
        try:
            lane = idle.pop()
        except IndexError:
            lane = StreamContext(new_stream(device))
        try:
            yield lane
        finally:
            idle.append(lane)


_LANES = _Lanes()
_SWITCHING = Switching(0.0005)


class CudaWorkshop:
    """Everything in a GPU's memory.

    Args:
        device: The GPU.
        memory_budget: What frames that are kept may take there.
    """

    put_length = 64
    frames_at_once = FRAMES_AT_ONCE
    frames_together = FRAMES_TOGETHER

    def __init__(self, device: torch.device, memory_budget: int) -> None:
        check_not_forked(device)
        self._device = device
        self._number = device.index or 0
        self._max_bytes = memory_budget
        self._engine = cuda_engine(self._number)
        self.frames_ahead = FRAMES_AHEAD * self._engine.max_threads
        self.groups_ahead = self._engine.max_threads + GROUPS_AHEAD
        self._lock = threading.Lock()
        self._free: dict[Any, list[DeviceIntermediates]] = {}
        self.memory_held = 0
        self.memory_peak = 0

    @property
    def num_threads(self) -> int:
        """Number of threads that keep the device busy."""
        return self._engine.max_threads

    def begin(self) -> None:
        """Lets its threads get Python's lock sooner."""
        _SWITCHING.begin()

    def end(self) -> None:
        """Goes back to what it was."""
        _SWITCHING.end()

    def decode(
        self, video: OpenVideo, source: PacketSource, frames: Sequence[int], taker: Taker, *, read_on: bool
    ) -> None:
        """Decodes frames on the GPU, or on the CPU where the video falls back to it."""
        with on_device(self._number):
            if video.on_cpu:
                decode_on_cpu(video, source, frames, taker, read_on=read_on)
            else:
                decode_runs(self._engine, video.index, source, frames, taker, num_threads=1)

    def assemble(self, videos: Videos, samples: Samples, shape: SampleShape) -> DeviceAssembly:
        """Begins a batch."""
        with on_device(self._number):
            return DeviceAssembly(videos, samples, shape, self._device)

    # --- memory ---------------------------------------------------------------------------------------------------

    def allocate(self, video: OpenVideo) -> DeviceIntermediates:
        """Memory for a frame that will be kept."""
        shapes: Mapping[Any, tuple[int, ...]] = (
            video.intermediate_shapes if video.kept_size is None else {None: video.kept_size}
        )
        size = video.frame_bytes
        with self._lock:
            free = self._free.get(tuple(shapes.items()))
            if free:
                return free.pop()
            while self.memory_held + size > self._max_bytes and self._drop_one():
                pass
            self.memory_held += size
            self.memory_peak = max(self.memory_peak, self.memory_held)
        with torch.cuda.stream(torch.cuda.default_stream(self._device)):
            arrays = {
                kind: torch.empty(shape, dtype=torch.uint8, device=self._device) for kind, shape in shapes.items()
            }
        bases = DeviceIntermediates(arrays, tuple(array.data_ptr() for array in arrays.values()), _kept_layout(video))
        allocated = default_timeline(self._number).now()
        bases.in_use[allocated.timeline] = allocated
        return bases

    def give_back(self, bases: DeviceIntermediates) -> None:
        """Takes memory back; it is written to again after all that was queued for it."""
        key = tuple((kind, tuple(array.shape)) for kind, array in bases.arrays.items())
        with self._lock:
            self._free.setdefault(key, []).append(bases)

    def _drop_one(self) -> bool:
        for free in self._free.values():
            if free:
                self.memory_held -= sum(array.nbytes for array in free.pop().arrays.values())
                return True
        return False

    # --- pictures -------------------------------------------------------------------------------------------------

    def take(self, video: OpenVideo, pictures: Sequence[Taken]) -> None:
        """Writes pictures to their places in batches, and those that are to be kept to their memory."""
        if not pictures:
            return
        if not isinstance(pictures[0].picture, Surface):
            for taken in pictures:
                self._upload(video, taken)
            return
        self._take_on(context_of(pictures[0].picture.stream), video, pictures)

    def _take_on(self, lane: StreamContext, video: OpenVideo, pictures: Sequence[Taken]) -> None:
        """The same for pictures that can be read on a stream; all have one layout."""
        layout = pictures[0].picture.layout
        conversions = _way(video, layout).conversions
        if not conversions:
            for taken in pictures:
                taken.error = _other_size(video, layout, taken.number)
            return
        at_once = len(pictures)
        if any(_goes_through(taken, video) and not _goes_straight(taken, video) for taken in pictures):
            at_once = _scratch_frames(video)
        for low in range(0, len(pictures), at_once):
            self._convert(video, conversions, lane, pictures[low : low + at_once])

    def _convert(
        self, video: OpenVideo, conversions: Sequence[Conversion], lane: StreamContext, pictures: Sequence[Taken]
    ) -> None:
        """Launches all that has to be done for a few pictures."""
        batches: dict[DeviceAssembly, Frames] = {}
        for taken in pictures:
            for assembly, _ in taken.places:
                if assembly not in batches:
                    assert isinstance(assembly, DeviceAssembly)
                    batches[assembly] = []
        kept = [taken for taken in pictures if taken.bases is not None]
        lane.timeline.wait_for(itertools.chain(_allocated(batches), _in_use(taken.bases for taken in kept)))
        if video.kept_size is not None:
            to = [taken.bases.addresses[0] for taken in kept]
            lane.copy([taken.picture for taken in kept], to, video.kept_size)
        surfaces: list[Surface] = []
        targets: list[tuple[int, ...]] = []
        straight: Pictures = []
        for number, taken in enumerate(pictures):
            if not _goes_through(taken, video):
                if taken.bases is None or video.kept_size is not None:
                    continue  # nobody wants it now
                addresses = taken.bases.addresses
            elif _goes_straight(taken, video):
                assembly, (place,) = taken.places[0]
                straight.append((taken.picture, assembly, place))  # type: ignore[arg-type]
                continue
            else:
                begin = lane.scratch(_scratch_frames(video) * video.intermediate_bytes)
                addresses = _parts(video, begin + number * video.intermediate_bytes)
            surfaces.append(taken.picture)
            targets.append(addresses)
            for assembly, places in taken.places:
                batches[assembly].append((addresses, places))  # type: ignore[index]
        for which, conversion in enumerate(conversions if surfaces else ()):
            lane.convert(conversion, surfaces, [addresses[which] for addresses in targets])
        if straight:
            finish_pictures(video, dict(zip(video.intermediate_shapes, conversions, strict=True)), straight, lane)
        finish_frames(batches, lane)
        self._end(lane, pictures, batches)

    def reject(self, pictures: Sequence[Taken]) -> None:
        """Takes memory back. What is written again may be so on another stream: that waits for what was written."""
        for assembly in {assembly for taken in pictures for assembly, _ in taken.places}:
            assert isinstance(assembly, DeviceAssembly)
            assembly.reject()
        for taken in pictures:
            if taken.bases is not None:
                self.give_back(taken.bases)

    def _end(self, lane: StreamContext, pictures: Sequence[Taken], batches: Iterable[DeviceAssembly]) -> None:
        done = lane.timeline.now()
        for taken in pictures:
            if taken.bases is not None:
                taken.bases.ready = done
                taken.bases.in_use = {done.timeline: done}
        for assembly in batches:
            assembly.written.append(done)

    def _upload(self, video: OpenVideo, taken: Taken) -> None:
        """Converts a picture that was decoded on the CPU, and copies the result."""
        arrays = {kind: np.empty(shape, np.uint8) for kind, shape in video.intermediate_shapes.items()}
        try:
            write_intermediates(video, taken.picture, arrays, taken.number)
        except FrameSizeError as error:
            taken.error = error
            return
        with _LANES.borrow(self._number) as lane, torch.cuda.stream(lane.stream):
            # From pageable memory: done when it returns.
            there = {kind: torch.from_numpy(array).to(self._device) for kind, array in arrays.items()}
            addresses = tuple(array.data_ptr() for array in there.values())
            if taken.bases is not None:
                lane.timeline.wait_for(_in_use([taken.bases]))
                for kind, array in there.items():
                    taken.bases.arrays[kind].copy_(array)
            batches: dict[DeviceAssembly, Frames] = {}
            for assembly, places in taken.places:
                assert isinstance(assembly, DeviceAssembly)
                batches.setdefault(assembly, []).append((addresses, places))
            lane.timeline.wait_for(_allocated(batches))
            finish_frames(batches, lane)
            self._end(lane, [taken], batches)

    def put(self, assembly: Assembly, frames: Sequence[tuple[DeviceIntermediates, Sequence[Place]]]) -> None:
        """Writes kept frames to their places in a batch."""
        assert isinstance(assembly, DeviceAssembly)
        with on_device(self._number), _LANES.borrow(self._number) as lane:
            ready = [bases.ready for bases, _ in frames if bases.ready is not None]
            lane.timeline.wait_for([*assembly.allocated, *ready])
            whole: dict[_Way, tuple[OpenVideo, list[Taken]]] = {}
            for bases, places in frames:
                if bases.layout is not None:
                    video = assembly.video(*places[0])
                    picture = Surface(bases.addresses[0], bases.layout, lane.stream)
                    taken = Taken(0, picture, None, [(assembly, places)])
                    whole.setdefault(_way(video, bases.layout), (video, []))[1].append(taken)
            for video, pictures in whole.values():  # one of many that are treated alike
                self._take_on(lane, video, pictures)
            rest = [(bases.addresses, places) for bases, places in frames if bases.layout is None]
            finish_frames({assembly: rest}, lane)
            done = lane.timeline.now()
            with self._lock:  # as long as the lane is ours: a later moment of it must not be noted before
                for bases, _ in frames:
                    written = bases.ready
                    if written is not None and bases.in_use.get(written.timeline) is written:
                        del bases.in_use[written.timeline]  # whoever waits for the reading has waited for that, too
                    bases.in_use[done.timeline] = done
        assembly.written.append(done)

    def read(self, assembly: DeviceAssembly) -> None:
        """Decodes all frames of a batch, in this thread."""
        wanted: dict[int, list[int]] = {}
        place: dict[int, Place] = {}
        for (file, frame), places in assembly.targets.items():
            wanted.setdefault(file, []).append(frame)
            place[file] = places[0]
        for file, frames in wanted.items():
            video = assembly.video(*place[file])
            self.decode(video, video.source, frames, _Plain(self, assembly, file, video, frames), read_on=False)

    def hand_out(self, assembly: Assembly) -> None:
        """Makes the consumer's current stream wait for the batch; the consumer itself does not wait."""
        assert isinstance(assembly, DeviceAssembly)
        current = torch.cuda.current_stream(self._device)
        is_default = current.cuda_stream == DEFAULT_STREAM
        # Nothing is remembered of other streams: one may be gone when the next batch comes, and its handle another's.
        timeline = default_timeline(self._number) if is_default else Timeline(current.cuda_stream)
        with on_device(self._number):
            timeline.wait_for(assembly.written)
        assembly.written.clear()
        if not is_default:
            for tensor in assembly.batch.values():
                tensor.record_stream(current)


class _Plain:
    """Puts pictures of one file into a batch."""

    def __init__(
        self, workshop: CudaWorkshop, assembly: DeviceAssembly, file: int, video: OpenVideo, frames: Sequence[int]
    ) -> None:
        self._workshop = workshop
        self._assembly = assembly
        self._file = file
        self._video = video
        self._frames = frames

    def take(self, rows: list[int], pictures: list[Any]) -> None:
        taken = []
        for row, picture in zip(rows, pictures, strict=True):
            number = self._frames[row]
            places = [(self._assembly, self._assembly.targets[self._file, number])]
            taken.append(Taken(number, picture, None, list(places)))
        self._workshop.take(self._video, taken)
        for each in taken:
            if each.error is not None:
                raise each.error

    def confirm(self) -> None:
        pass

    def reject(self) -> None:
        self._assembly.reject()


def _allocated(batches: Iterable[DeviceAssembly]) -> Iterator[Moment]:
    """When the memory of batches may be written to."""
    return (moment for batch in batches for moment in batch.allocated)


def _in_use(kept: Iterable[DeviceIntermediates]) -> Iterator[Moment]:
    """When nobody uses memory any more that is to be written to."""
    return (moment for bases in kept for moment in bases.in_use.values())


def _goes_through(taken: Taken, video: OpenVideo) -> bool:
    """Returns whether intermediates of a picture are made only to be put into batches."""
    return bool(taken.places) and (taken.bases is None or video.kept_size is not None)


def _scratch_frames(video: OpenVideo) -> int:
    """Returns for how many frames intermediates are made at once; always as many, so that memory does not grow."""
    return max(1, min(MAX_SCRATCH_FRAMES, MAX_SCRATCH // max(1, video.intermediate_bytes)))


def _kept_layout(video: OpenVideo) -> SurfaceLayout | None:
    """Returns the layout of cached pictures."""
    if video.kept_size is None:
        return None
    lines, columns = video.kept_size
    stream = video.index.stream
    planes = (0, lines * 2 // 3 * columns, -1)
    return SurfaceLayout(stream.width, stream.height, columns, lines * columns, planes, "NV12")


def _goes_straight(taken: Taken, video: OpenVideo) -> bool:
    """Returns whether a picture skips its intermediates, because each would be used once."""
    return len(taken.places) == 1 and len(taken.places[0][1]) == 1 and video.shares_no_base


def _parts(video: OpenVideo, begin: int) -> tuple[int, ...]:
    """The addresses of a frame's bases that lie one behind the other."""
    addresses = []
    for channels, height, width in video.intermediate_shapes.values():
        addresses.append(begin)
        begin += channels * height * width
    return tuple(addresses)


@dataclass(frozen=True, eq=False)
class _Way:
    """Conversions of pictures; one object for all videos that are treated alike.

    Attributes:
        conversions: What makes each of the bases; none where pictures have another size than they should.
    """

    conversions: tuple[Conversion, ...]


def _way(video: OpenVideo, layout: SurfaceLayout) -> _Way:
    """That of a decoder's pictures."""
    found: _Way | None = video.conversions.get(layout)
    if found is None:
        bound = tuple(video.bound.items())
        found = video.conversions[layout] = _alike(_conversions(video, layout), layout, video.kept_size, bound)
    return found


@functools.lru_cache(maxsize=1024)
def _alike(conversions: tuple[Conversion, ...], *rest: Any) -> _Way:
    return _Way(conversions)


def _conversions(video: OpenVideo, layout: SurfaceLayout) -> tuple[Conversion, ...]:
    stream = video.index.stream
    if video.kept_size is not None and (layout.width, layout.height) != (stream.width, stream.height):
        return ()
    format_ = pixel_format(stream.pix_fmt)
    bits = format_.bits if format_ is not None else 8
    as_it_is = replace(stream, height=layout.height, width=layout.width)
    format_name = surface_format(layout.format)
    found = tuple(Conversion.of(as_it_is, kind, format_name, bits) for kind in video.intermediate_shapes)
    sizes = [shape[1:] for shape in video.intermediate_shapes.values()]
    return found if [conversion.output_size for conversion in found] == sizes else ()


def _other_size(video: OpenVideo, layout: SurfaceLayout, frame: int) -> FrameSizeError:
    stream = video.index.stream
    return FrameSizeError(
        video.index.path,
        f"frame {frame} is {layout.width}x{layout.height}, not {stream.width}x{stream.height} as the stream's "
        "header says: the size changes in mid-stream; give scale_width and scale_height",
    )
