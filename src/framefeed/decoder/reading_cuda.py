"""Requests for frames of one video -> tensors on a GPU."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed._util.nvtx import PROCESS
from framefeed.convert.conversion import Conversion, Layout
from framefeed.convert.cuda.surfaces import context_of, download, surface_format
from framefeed.convert.desc import IntermediateSpec
from framefeed.convert.transforms import Geometry
from framefeed.cuda.driver import Event, on_device
from framefeed.decode.default import cuda_engine
from framefeed.decode.nvdec.capabilities import pixel_format
from framefeed.decode.session import Taker
from framefeed.decode.surface import Surface
from framefeed.decoder.in_order import Span
from framefeed.decoder.reading import FrameReader
from framefeed.device import check_not_forked
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, check_unchanged
from framefeed.media.native import NativeFrame
from framefeed.plan import Plan
from framefeed.plan.windows import group_ends, window_end
from framefeed.request import decode_runs

__all__ = ["CudaReader", "window_bytes"]

# Reading in order, this much is decoded at once, so that all decoding units have groups to work on: a part of the
# device's memory within bounds. 250 full HD frames are 1.5 GiB.
WINDOW_SHARE = 16
WINDOW_BYTES = (256 << 20, 2 << 30)
GROUPS_PER_DECODER = 2


def window_bytes(total: int) -> int:
    """Returns how much is decoded at once on a GPU with that much memory."""
    return min(max(total // WINDOW_SHARE, WINDOW_BYTES[0]), WINDOW_BYTES[1])


class _Ahead(NamedTuple):
    """Frames that were read ahead.

    Attributes:
        frames: The tensor.
        stream: The stream that it is ready on.
        ready: For other streams.
    """

    frames: torch.Tensor
    stream: int
    ready: Event


class CudaReader(FrameReader[torch.Tensor, _Ahead]):
    """Reads frames as tensors on a GPU.

    A decoder on a GPU is emptied after each run, so none waits in mid-group for the request that follows. Where
    requests come in order, whole groups are decoded ahead instead, on all decoders.

    Args:
        index: The video.
        media: Its bytes.
        layout: Order of a frame's dimensions.
        geometry: Resize and crop.
        device: The GPU.
    """

    # There may be no memory for what is read ahead.
    GIVES_UP = (*FrameReader.GIVES_UP, torch.cuda.OutOfMemoryError)

    def __init__(
        self, index: VideoIndex, media: Media, layout: Layout, geometry: Geometry, device: torch.device
    ) -> None:
        super().__init__(index, media, layout, geometry)
        self._kind = IntermediateSpec("RGB", geometry.resize, geometry.crop)
        self._device = device
        self._engine = cuda_engine(device.index or 0)
        self._conversions: dict[Any, Conversion] = {}

    def read(self, wanted: NDArray[np.int64]) -> torch.Tensor:
        """Reads frames by number into a tensor that is ready on the current stream."""
        check_not_forked(self._device)
        with on_device(self._device.index or 0):
            return super().read(wanted)

    def _read_now(self, wanted: NDArray[np.int64], span: Span | None, follows: bool) -> torch.Tensor:
        out = torch.empty((len(wanted), *self.shape(self.size)), dtype=torch.uint8, device=self._device)
        request = _Request(self, wanted, [out], len(wanted))
        plan = self._decode_for(request, wanted)
        for source, target in plan.copies:
            out[target] = out[source]
        return request.single[None] if request.single is not None else out

    def _decode_for(self, request: _Request, wanted: NDArray[np.int64]) -> Plan:
        try:
            return self._decode(wanted, request)
        finally:
            request.finish()

    # --- reading ahead --------------------------------------------------------------------------------------------

    @functools.cached_property
    def _max_window(self) -> int:
        total = torch.cuda.get_device_properties(self._device).total_memory
        return max(1, window_bytes(total) // self._frame_bytes)

    @functools.cached_property
    def _ends(self) -> list[int]:
        return group_ends(self._index.packets)

    @property
    def _max_groups(self) -> int:
        return GROUPS_PER_DECODER * self._engine.max_threads

    def _window_end(self, start: int, length: int, reach: int) -> int:
        return window_end(self._ends, start, length, reach, self._max_groups)

    def _read_window(self, start: int, stop: int, length: int) -> list[_Ahead]:
        """Reads frames into tensors of their own, so that each can be freed."""
        shape, firsts = self.shape(self.size), range(start, stop, length)
        batches = [
            torch.empty((min(length, stop - first), *shape), dtype=torch.uint8, device=self._device) for first in firsts
        ]
        wanted = np.arange(start, stop)
        request = _Request(self, wanted, batches, length)
        self._decode_for(request, wanted)
        if request.single is not None:
            batches = [request.single[None]]
        caller = torch.cuda.current_stream(self._device).cuda_stream
        ready = Event(caller)
        return [_Ahead(frames, caller, ready) for frames in batches]

    def _hand_out(self, ahead: _Ahead) -> torch.Tensor:
        """Frames that were read ahead, ready on the current stream."""
        current = torch.cuda.current_stream(self._device)
        if current.cuda_stream != ahead.stream:
            ahead.ready.wait(current.cuda_stream)
            ahead.frames.record_stream(current)
        return ahead.frames

    def iterate(self) -> Iterator[torch.Tensor]:
        """Yields all frames in order, one at a time, each in memory of its own."""
        for start, stop in self._windows():
            try:
                check_not_forked(self._device)
                with on_device(self._device.index or 0):
                    frames = deque(self._read_window(start, stop, 1))
            except self.GIVES_UP:
                for number in range(start, stop):
                    yield self.read(np.array([number]))[0]
                continue
            while frames:
                check_unchanged(self._media, self._index.fingerprint)
                with on_device(self._device.index or 0):
                    frame = self._hand_out(frames.popleft())[0]
                yield frame
                del frame  # it is the caller's alone

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Runs of frames that keep all decoders busy, ending where groups end."""
        start = 0
        while start < self._index.num_frames:
            stop = self._window_end(start, 1, self._max_window)
            yield start, stop
            start = stop

    def read_native(self, wanted: NDArray[np.int64], sink: Any) -> Plan:
        """Decodes frames; ``sink(row, native)`` gets each different one, unconverted, copied to the CPU's memory."""
        if not len(wanted):
            check_unchanged(self._media, self._index.fingerprint)
        pix_fmt = self._index.stream.pix_fmt or ""
        check_not_forked(self._device)
        with on_device(self._device.index or 0):
            return self._decode(wanted, _Downloads(sink, pix_fmt))

    def _decode(self, wanted: NDArray[np.int64], taker: Taker) -> Plan:
        engine = self._engine
        plan = decode_runs(engine, self._index, self._source, wanted, taker, num_threads=engine.max_threads)
        self.last_plan = plan
        return plan

    def conversion(self, surface: Surface) -> Conversion:
        """Returns the conversion of a decoder's surfaces to frames."""
        key = surface.layout
        found = self._conversions.get(key)
        if found is None:
            stream = dataclasses.replace(self._index.stream, height=surface.height, width=surface.width)
            format_ = pixel_format(stream.pix_fmt)
            bits = format_.bits if format_ is not None else 8
            found = Conversion.of(stream, self._kind, surface_format(surface.layout.format), bits, self._layout)
            self._conversions[key] = found
        return found


class _Request:
    """Puts pictures into their rows: decoders' streams begin after that memory is there, the caller's waits for them.

    Args:
        reader: Whose request it is.
        wanted: The frames.
        batches: Tensors for them, one after the other.
        length: How many frames each of them has; the last may have fewer.

    Attributes:
        single: The one frame that was asked for, where it has another size than the video's header says.
    """

    def __init__(self, reader: CudaReader, wanted: NDArray[np.int64], batches: list[torch.Tensor], length: int) -> None:
        self._reader = reader
        self._wanted = wanted
        self._begins, self._length = [batch.data_ptr() for batch in batches], length
        self._step = batches[0][:1].nbytes
        self._caller = torch.cuda.current_stream(batches[0].device)
        self._allocated = Event(self._caller.cuda_stream)
        self._done: list[Event] = []
        self._rejected: list[Event] = []
        self._thread = threading.local()
        self.single: torch.Tensor | None = None

    def take(self, rows: list[int], surfaces: list[Surface]) -> None:
        """Launches their conversion."""
        stream = surfaces[0].stream
        if getattr(self._thread, "stream", None) is not stream:
            self._thread.stream = stream
            for event in (self._allocated, *self._rejected):
                event.wait(stream.cuda_stream)
        conversion = self._reader.conversion(surfaces[0])
        targets = [self._begins[row // self._length] + row % self._length * self._step for row in rows]
        if conversion.output_size != self._reader.size:
            if len(self._wanted) > 1:
                raise self._reader.other_size(int(self._wanted[rows[0]]), conversion.output_size)
            shape = self._reader.shape(conversion.output_size)
            with torch.cuda.stream(self._caller):
                self.single = torch.empty(shape, dtype=torch.uint8, device=stream.device)
            stream.wait_stream(self._caller)
            targets = [self.single.data_ptr()]
        with PROCESS:
            context_of(stream).convert(conversion, surfaces, targets)

    def confirm(self) -> None:
        """Notes where the decoder's stream stands."""
        stream = getattr(self._thread, "stream", None)
        if stream is not None:
            self._thread.stream = None
            self._done.append(Event(stream.cuda_stream))

    def reject(self) -> None:
        """Drops what was written: it is written again, perhaps on another stream, or the request fails."""
        stream = getattr(self._thread, "stream", None)
        if stream is not None:
            self._rejected.append(Event(stream.cuda_stream))
        self.confirm()

    def finish(self) -> None:
        """Makes the caller's stream wait for all of it."""
        for event in self._done:
            event.wait(self._caller.cuda_stream)


class _Downloads:
    """Copies unconverted pictures to the CPU's memory."""

    def __init__(self, sink: Any, pix_fmt: str) -> None:
        self._sink = sink
        self._pix_fmt = pix_fmt

    def take(self, rows: list[int], surfaces: list[Surface]) -> None:
        """Copies them."""
        for row, surface in zip(rows, surfaces, strict=True):
            self._sink(row, native_frame(surface, self._pix_fmt))

    def confirm(self) -> None:
        """Nothing to do."""

    def reject(self) -> None:
        """They will come again, or the request fails."""


def native_frame(surface: Surface, pix_fmt: str) -> NativeFrame:
    """A surface copied to the CPU's memory, in planes as FFmpeg's decoders have them."""
    raw = download(surface)
    format_ = pixel_format(pix_fmt)
    wide = surface_format(surface.layout.format).wide
    samples: NDArray[Any] = raw.view(np.uint16) if wide else raw
    lines = samples.reshape(-1, surface.layout.pitch // samples.itemsize)
    height, width = surface.height, surface.width
    if surface.layout.planes[2] > 0:
        rows = len(lines) // 3
        planes = [lines[rows * plane : rows * plane + height, :width] for plane in range(3)]
    else:
        rows = surface.layout.planes[1] // surface.layout.pitch
        chroma = lines[rows : rows + (height + 1) // 2, : width + (width & 1)]
        planes = [lines[:height, :width], chroma[:, 0::2], chroma[:, 1::2]]
    if wide and format_ is not None:
        planes = [plane >> (16 - format_.bits) for plane in planes]
    if format_ is not None and format_.chroma == "400":
        planes = planes[:1]
    return NativeFrame(pix_fmt, width, height, tuple(np.ascontiguousarray(plane).view(np.uint8) for plane in planes))
