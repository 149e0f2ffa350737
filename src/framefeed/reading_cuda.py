"""Requests for frames of one video -> tensors on a GPU."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed.decode.default import cuda_engine
from framefeed.decode.nvdec import Surface, pixel_format
from framefeed.decode.session import Taker
from framefeed.devices import check_not_forked
from framefeed.driver import Event, on_device
from framefeed.errors import DecodeError, FrameSizeError
from framefeed.index.video_index import VideoIndex
from framefeed.marks import PROCESS
from framefeed.media import Media, check_unchanged
from framefeed.native import NativeFrame
from framefeed.plan import Plan
from framefeed.process.cuda import Conversion, Layout
from framefeed.process.desc import BaseKind
from framefeed.process.surfaces import download, lane_of, surface_format
from framefeed.process.transforms import Geometry
from framefeed.source import open_source

__all__ = ["CudaReader"]

# Reading in order, this much is decoded at once, so that all decoding units have groups to work on.
WINDOW_BYTES = 1 << 30
GROUPS_PER_DECODER = 2


class CudaReader:
    """Reads frames of one video as 8-bit RGB tensors on a GPU. May be used by several threads at once.

    Args:
        index: The video.
        media: Its bytes.
        layout: Order of a frame's dimensions.
        geometry: Resize and crop.
        device: The GPU.
    """

    def __init__(
        self, index: VideoIndex, media: Media, layout: Layout, geometry: Geometry, device: torch.device
    ) -> None:
        self._index = index
        self._media = media
        self._source = open_source(index, media)
        self._layout: Layout = layout
        self._kind = BaseKind("RGB", geometry.resize, geometry.crop)
        self._size = geometry.output_size(*index.stream.display_size)
        self._device = device
        self._engine = cuda_engine(device.index or 0)
        self._conversions: dict[Any, Conversion] = {}
        self.last_plan: Plan | None = None

    def read(self, wanted: NDArray[np.int64]) -> torch.Tensor:
        """Frames by number, in any order, repeated or not, as one tensor that is ready on the current stream."""
        check_not_forked(self._device)
        with on_device(self._device.index or 0):
            return self._read(wanted)

    def _read(self, wanted: NDArray[np.int64]) -> torch.Tensor:
        if not len(wanted):
            check_unchanged(self._media, self._index.fingerprint)
        out = torch.empty((len(wanted), *self.shape(self._size)), dtype=torch.uint8, device=self._device)
        request = _Request(self, wanted, out)
        try:
            plan = self._decode(wanted, request)
        finally:
            request.finish()
        for source, target in plan.copies:
            out[target] = out[source]
        return request.single[None] if request.single is not None else out

    def iterate(self) -> Iterator[torch.Tensor]:
        """All frames in order, one at a time."""
        for start, stop in self._windows():
            try:
                frames = self.read(np.arange(start, stop))
            except (DecodeError, FrameSizeError):  # for whoever comes to that frame
                for number in range(start, stop):
                    yield self.read(np.array([number]))[0]
                continue
            for frame in frames:
                check_unchanged(self._media, self._index.fingerprint)
                yield frame

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Runs of frames that keep all decoders busy, ending where groups end."""
        packets = self._index.packets
        groups = packets.start[packets.frames]
        ends = [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(groups)]
        most = max(1, WINDOW_BYTES // (3 * self._size[0] * self._size[1]))
        start = taken = 0
        for number, end in enumerate(ends):
            taken += 1
            last = number + 1 == len(ends)
            if taken >= GROUPS_PER_DECODER * self._engine.max_threads or last or ends[number + 1] - start > most:
                for low in range(start, end, most):
                    yield low, min(low + most, end)
                start, taken = end, 0

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
        plan = engine.decode_runs(self._index, self._source, wanted, taker, num_threads=engine.max_threads)
        self.last_plan = plan
        return plan

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the frames."""
        return self._size

    def shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Shape of a frame of that size."""
        return (3, *size) if self._layout == "CHW" else (*size, 3)

    def conversion(self, surface: Surface) -> Conversion:
        """What makes frames of a decoder's surfaces."""
        key = surface.layout
        found = self._conversions.get(key)
        if found is None:
            stream = dataclasses.replace(self._index.stream, height=surface.height, width=surface.width)
            format_ = pixel_format(stream.pix_fmt)
            bits = format_.bits if format_ is not None else 8
            found = Conversion.of(stream, self._kind, surface_format(surface.layout.format), bits, self._layout)
            self._conversions[key] = found
        return found

    def other_size(self, frame: int, found: tuple[int, int]) -> FrameSizeError:
        """The error for a frame that does not fit to the others."""
        height, width = self._size
        return FrameSizeError(
            self._index.path,
            f"frame {frame} is {found[1]}x{found[0]}, not {width}x{height} as the stream's header says: the size "
            "changes in mid-stream; ask for one frame at a time or give transforms=[Resize(...)]",
        )


class _Request:
    """Puts pictures into their rows: decoders' streams begin after that memory is there, the caller's waits for them.

    Attributes:
        single: The one frame that was asked for, where it has another size than the video's header says.
    """

    def __init__(self, reader: CudaReader, wanted: NDArray[np.int64], out: torch.Tensor) -> None:
        self._reader = reader
        self._wanted = wanted
        self._begin, self._step = out.data_ptr(), out[:1].nbytes
        self._caller = torch.cuda.current_stream(out.device)
        self._allocated = Event(self._caller.cuda_stream)
        self._done: list[Event] = []
        self._thread = threading.local()
        self.single: torch.Tensor | None = None

    def take(self, rows: list[int], surfaces: list[Surface]) -> None:
        """Launches their conversion."""
        stream = surfaces[0].stream
        if getattr(self._thread, "stream", None) is not stream:
            self._thread.stream = stream
            self._allocated.wait(stream.cuda_stream)
        conversion = self._reader.conversion(surfaces[0])
        targets = [self._begin + row * self._step for row in rows]
        if conversion.output_size != self._reader.size:
            if len(self._wanted) > 1:
                raise self._reader.other_size(int(self._wanted[rows[0]]), conversion.output_size)
            shape = self._reader.shape(conversion.output_size)
            with torch.cuda.stream(self._caller):
                self.single = torch.empty(shape, dtype=torch.uint8, device=stream.device)
            stream.wait_stream(self._caller)
            targets = [self.single.data_ptr()]
        with PROCESS:
            lane_of(stream).convert(conversion, surfaces, targets)

    def confirm(self) -> None:
        """Notes where the decoder's stream stands."""
        stream = getattr(self._thread, "stream", None)
        if stream is not None:
            self._thread.stream = None
            self._done.append(Event(stream.cuda_stream))

    def reject(self) -> None:
        """What was written will be written again, or the request fails."""
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
        rows = len(lines) * 2 // 3
        chroma = lines[rows : rows + (height + 1) // 2, : width + (width & 1)]
        planes = [lines[:height, :width], chroma[:, 0::2], chroma[:, 1::2]]
    if wide and format_ is not None:
        planes = [plane >> (16 - format_.bits) for plane in planes]
    if format_ is not None and format_.chroma == "400":
        planes = planes[:1]
    return NativeFrame(pix_fmt, width, height, tuple(np.ascontiguousarray(plane).view(np.uint8) for plane in planes))
