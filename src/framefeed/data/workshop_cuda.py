"""A loader's work on a GPU: pictures are decoded, kept and put into batches without leaving it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from framefeed.data.assembly import Assembly, Place, SampleRef, write_bases
from framefeed.data.videos import OpenVideo, Videos
from framefeed.decode.default import cpu_engine, cuda_engine
from framefeed.decode.engine import Engine
from framefeed.decode.nvdec import Surface, SurfaceLayout, new_stream, pixel_format
from framefeed.errors import FrameSizeError
from framefeed.process.cuda import Conversion, finish, placement
from framefeed.process.desc import BaseKind, BoundDesc
from framefeed.process.finish import DTYPES
from framefeed.process.surfaces import CHUNK, SurfaceQueue, queue_of, surface_format
from framefeed.process.tables import TableSender

__all__ = ["CudaWorkshop"]


@dataclass(eq=False)
class DeviceBases:
    """What is kept of one frame, in device memory.

    Attributes:
        arrays: One array for each kind.
        addresses: Where these begin.
        used: After this event the memory is free to be written; None where it is already.
        ready: After this event it can be read.
        stream: The stream on which it was written.
    """

    arrays: dict[BaseKind, torch.Tensor]
    addresses: tuple[int, ...]
    used: torch.cuda.Event | None = None
    ready: torch.cuda.Event | None = None
    stream: torch.cuda.Stream | None = None


class _Thread(threading.local):
    """A thread's own things."""

    def __init__(self) -> None:
        self.stream: torch.cuda.Stream | None = None
        self.job_stream: torch.cuda.Stream | None = None
        self.queue: SurfaceQueue | None = None
        self.written: list[DeviceBases] = []
        self.scratch: tuple[Any, dict[int, DeviceBases]] = (None, {})
        self.sender: TableSender | None = None
        self.uploads: dict[BaseKind, np.ndarray[Any, Any]] = {}


class _Streams:
    """Streams for threads, which come and go; a few more than there are threads at a time."""

    def __init__(self, device: int, count: int) -> None:
        self._device = device
        self._count = count
        self._made: list[torch.cuda.Stream] = []
        self._next = 0
        self._lock = threading.Lock()

    def take(self) -> torch.cuda.Stream:
        """A stream; after ``count`` of them the first ones again, which is slower at worst."""
        with self._lock:
            if len(self._made) < self._count:
                self._made.append(new_stream(self._device))
            stream = self._made[self._next % len(self._made)]
            self._next += 1
            return stream


class DeviceAssembly(Assembly):
    """A batch on a GPU.

    Attributes:
        allocated: After this event its memory may be written.
        events: After all of these it is complete.
    """

    def __init__(self, videos: Videos, samples: Sequence[SampleRef], length: int, device: torch.device) -> None:
        self._device = device
        self.events: list[torch.cuda.Event] = []
        self._events_lock = threading.Lock()
        super().__init__(videos, samples, length, stacked=True)
        self.allocated = _event(torch.cuda.current_stream(device))

    def _empty(self, bound: BoundDesc, count: int, length: int) -> torch.Tensor:
        shape = (count, *bound.shape(bound.desc.num_frames(length)))
        return torch.empty(shape, dtype=DTYPES[bound.desc.type][0], device=self._device)

    def add_event(self, event: torch.cuda.Event) -> None:
        """Adds to what the consumer has to wait for."""
        with self._events_lock:
            self.events.append(event)


class CudaWorkshop:
    """Everything in a GPU's memory.

    Args:
        device: The GPU.
        memory_budget: What frames that are kept may take there.
    """

    chunk = CHUNK

    def __init__(self, device: torch.device, memory_budget: int) -> None:
        self._device = device
        self._max_bytes = memory_budget
        self._engine = cuda_engine(device.index or 0)
        self._thread = _Thread()
        self._streams = _Streams(device.index or 0, 2 * self._engine.max_threads)
        self._lock = threading.Lock()
        self._free: dict[Any, list[DeviceBases]] = {}
        self.memory_held = 0
        self.memory_peak = 0

    @property
    def num_threads(self) -> int:
        """How many threads keep the device busy."""
        return self._engine.max_threads

    def engine_for(self, video: OpenVideo) -> Engine:
        """The GPU's, or the CPU's for a video that falls back to it."""
        return cpu_engine() if video.on_cpu else self._engine

    def assemble(self, videos: Videos, samples: Sequence[SampleRef], length: int) -> DeviceAssembly:
        """Begins a batch."""
        torch.cuda.set_device(self._device)
        return DeviceAssembly(videos, samples, length, self._device)

    # --- memory ---------------------------------------------------------------------------------------------------

    def allocate(self, video: OpenVideo) -> DeviceBases:
        """Memory for a frame that will be kept."""
        shapes = video.base_shapes
        key, size = tuple(shapes.items()), video.frame_bytes
        with self._lock:
            free = self._free.get(key)
            if free:
                return free.pop()
            while self.memory_held + size > self._max_bytes and self._drop_one():
                pass
            self.memory_held += size
            self.memory_peak = max(self.memory_peak, self.memory_held)
        return self._new(shapes)

    def scratch(self, video: OpenVideo, number: int) -> DeviceBases:
        """This thread's own memory for a frame that will not be kept, one for each of a chunk."""
        shapes, all_of_them = self._thread.scratch
        if shapes is not video.base_shapes:
            if shapes != video.base_shapes:
                all_of_them = {}
            self._thread.scratch = (video.base_shapes, all_of_them)
        found = all_of_them.get(number)
        if found is None:
            found = all_of_them[number] = self._new(video.base_shapes)
        return found

    def give_back(self, bases: DeviceBases) -> None:
        """Takes memory back; it is written to again after all that was queued for it."""
        key = tuple((kind, tuple(array.shape)) for kind, array in bases.arrays.items())
        with self._lock:
            self._free.setdefault(key, []).append(bases)

    def _new(self, shapes: dict[BaseKind, tuple[int, int, int]]) -> DeviceBases:
        torch.cuda.set_device(self._device)
        arrays = {kind: torch.empty(shape, dtype=torch.uint8, device=self._device) for kind, shape in shapes.items()}
        addresses = tuple(array.data_ptr() for array in arrays.values())
        return DeviceBases(arrays, addresses, used=_event(torch.cuda.current_stream(self._device)))

    def _drop_one(self) -> bool:
        for free in self._free.values():
            if free:
                dropped = free.pop()
                if dropped.used is not None:
                    dropped.used.synchronize()
                self.memory_held -= sum(array.nbytes for array in dropped.arrays.values())
                return True
        return False

    # --- pictures -------------------------------------------------------------------------------------------------

    def write(self, video: OpenVideo, picture: Any, bases: DeviceBases, frame: int) -> None:
        """Takes a picture, which is gone afterwards."""
        if not isinstance(picture, Surface):
            self._upload(video, picture, bases, frame)
            return
        thread = self._thread
        if thread.job_stream is not picture.stream:
            thread.job_stream = picture.stream
            thread.queue = queue_of(picture.stream)
        assert thread.queue is not None
        conversions = video.conversions.get(picture.layout)
        if conversions is None:
            conversions = video.conversions[picture.layout] = _conversions(video, picture.layout, frame)
        if bases.used is not None and bases.stream is not picture.stream:
            picture.stream.wait_event(bases.used)
        thread.queue.add(picture, list(zip(conversions, bases.addresses, strict=True)))
        thread.written.append(bases)

    def _upload(self, video: OpenVideo, picture: Any, bases: DeviceBases, frame: int) -> None:
        """Converts a picture that was decoded on the CPU, and copies the result."""
        stream = self._own_stream()
        self._thread.job_stream = stream
        arrays = {kind: np.empty(shape, np.uint8) for kind, shape in video.base_shapes.items()}
        write_bases(video, picture, arrays, frame)
        if bases.used is not None:
            stream.wait_event(bases.used)
        with torch.cuda.stream(stream):
            for kind, array in arrays.items():
                bases.arrays[kind].copy_(torch.from_numpy(array))  # from pageable memory: done when it returns
        self._thread.written.append(bases)

    def complete(self) -> None:
        """Ends a chunk: launches its conversions."""
        thread = self._thread
        if not thread.written:
            return
        stream = thread.job_stream
        assert stream is not None
        if thread.queue is not None:
            thread.queue.flush()
        done = _event(stream)
        for bases in thread.written:
            bases.ready = bases.used = done
            bases.stream = stream
        thread.written = []

    def put(self, assembly: Assembly, frames: Sequence[tuple[DeviceBases, Sequence[Place]]]) -> None:
        """Writes frames to their places in a batch."""
        assert isinstance(assembly, DeviceAssembly)
        thread = self._thread
        torch.cuda.set_device(self._device)
        stream = frames[0][0].stream
        if stream is None or stream is not thread.job_stream:
            stream = self._own_stream()
        stream.wait_event(assembly.allocated)
        for bases, _ in frames:
            if bases.stream is not stream and bases.ready is not None:
                stream.wait_event(bases.ready)
        if thread.sender is None:
            thread.sender = TableSender(self._device)
        for name, bound in assembly.video(frames[0][1][0][0]).bound.items():
            self._put_one(assembly, name, bound, frames, stream, thread.sender)
        done = _event(stream)
        for bases, _ in frames:
            bases.used = done
            bases.stream = stream if bases.stream is stream else None
        assembly.add_event(done)

    def _put_one(
        self,
        assembly: DeviceAssembly,
        name: str,
        bound: BoundDesc,
        frames: Sequence[tuple[DeviceBases, Sequence[Place]]],
        stream: torch.cuda.Stream,
        sender: TableSender,
    ) -> None:
        work: dict[int, tuple[BoundDesc, list[int], list[int], list[int], list[tuple[int, int, int]]]] = {}
        order = assembly.places[name]
        for bases, places in frames:
            for row, k in places:
                if order[k] < 0:
                    continue
                own = assembly.video(row).bound[name]
                found = work.get(id(own))
                if found is None:
                    found = work[id(own)] = (own, [], [], [], [])
                _, addresses, rows, slots, placements = found
                several = len(bases.addresses) > 1
                addresses.append(bases.arrays[own.base].data_ptr() if several else bases.addresses[0])
                rows.append(row)
                slots.append(order[k])
                moves = own.desc.random_flip or own.base_size != own.output_size
                placements.append(placement(own, assembly.samples[row].draw) if moves else (0, 0, 0))
        for own, addresses, rows, slots, placements in work.values():
            from_, to, at, how = sender.send(addresses, rows, slots, placements, stream=stream)
            finish(own, from_, assembly.batch[name], to, at, how, stream)

    def read(self, assembly: DeviceAssembly) -> None:
        """Decodes all frames of a batch, in this thread."""
        wanted: dict[int, list[int]] = {}
        rows: dict[int, int] = {}
        for (file, frame), places in assembly.targets.items():
            wanted.setdefault(file, []).append(frame)
            rows[file] = places[0][0]
        for file, frames in wanted.items():
            self._read_file(assembly, file, assembly.video(rows[file]), frames)

    def _read_file(self, assembly: DeviceAssembly, file: int, video: OpenVideo, frames: list[int]) -> None:
        chunk: list[tuple[DeviceBases, Sequence[Place]]] = []

        def end() -> None:
            self.complete()
            if chunk:
                self.put(assembly, chunk)
            chunk.clear()

        def sink(row: int, picture: Any) -> None:
            bases = self.scratch(video, len(chunk))
            self.write(video, picture, bases, frames[row])
            chunk.append((bases, assembly.targets[file, frames[row]]))
            if len(chunk) == self.chunk:
                end()

        self.engine_for(video).decode(video.index, video.source, frames, sink, num_threads=1, after_job=end)

    def copy(self, bases: DeviceBases, to: DeviceBases) -> None:
        """Copies a frame."""
        stream = self._own_stream()
        for event in (bases.ready, to.used):
            if event is not None:
                stream.wait_event(event)
        with torch.cuda.stream(stream):
            for kind, array in bases.arrays.items():
                to.arrays[kind].copy_(array)
        to.ready = to.used = bases.used = _event(stream)
        to.stream = stream

    def hand_out(self, assembly: Assembly) -> None:
        """Makes the consumer's current stream wait for the batch; the consumer itself does not wait."""
        assert isinstance(assembly, DeviceAssembly)
        current = torch.cuda.current_stream(self._device)
        for event in assembly.events:
            current.wait_event(event)
        for tensor in assembly.batch.values():
            tensor.record_stream(current)

    def _own_stream(self) -> torch.cuda.Stream:
        if self._thread.stream is None:
            torch.cuda.set_device(self._device)
            self._thread.stream = self._streams.take()
        return self._thread.stream


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


def _conversions(video: OpenVideo, layout: SurfaceLayout, frame: int) -> list[Conversion]:
    stream = video.index.stream
    format_ = pixel_format(stream.pix_fmt)
    bits = format_.bits if format_ is not None else 8
    found = []
    for kind, shape in video.base_shapes.items():
        as_it_is = replace(stream, height=layout.height, width=layout.width)
        conversion = Conversion.of(as_it_is, kind, surface_format(layout.format), bits)
        if conversion.output_size != shape[1:]:
            raise FrameSizeError(
                video.index.path,
                f"frame {frame} is {layout.width}x{layout.height}, not {stream.width}x{stream.height} as the stream's "
                "header says: the size changes in mid-stream; give scale_width and scale_height",
            )
        found.append(conversion)
    return found
