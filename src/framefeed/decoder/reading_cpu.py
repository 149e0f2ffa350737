"""Requests for frames of one video -> arrays of RGB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed._util.limits import usable_memory
from framefeed.convert.buffers import allocate
from framefeed.convert.cpu.rgb import Layout, RgbWriter
from framefeed.convert.transforms import Geometry
from framefeed.decode.default import cpu_engine
from framefeed.decode.run import Sink
from framefeed.decoder.in_order import Span, span_of
from framefeed.decoder.reading import FrameReader
from framefeed.errors import DecodeError, FrameSizeError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, check_unchanged
from framefeed.media.native import NativeFrame
from framefeed.plan import Plan, is_worth_staying
from framefeed.plan.rounds import Round, rounds
from framefeed.plan.schedule import choose_window
from framefeed.request import ReadOn, decode_frames

__all__ = ["CpuReader"]

# Reading in order, this much is decoded ahead. Independent groups can then be decoded side by side, which uses several
# cores far better than the threads of one decoder do. Two groups of 30 full HD frames are 370 MB.
MAX_AHEAD_BYTES = max(64 << 20, min(480 << 20, usable_memory() // 50))

# The least that is read at once. Starting and ending a round costs a millisecond or two, whatever the size of frames.
MIN_WINDOW_FRAMES = 48
MIN_WINDOW_BYTES = 96 << 20


class CpuReader(FrameReader[NDArray[np.uint8], NDArray[np.uint8]]):
    """Reads frames as arrays in this process's memory.

    Args:
        index: The video.
        media: Its bytes.
        layout: Order of a frame's dimensions.
        geometry: Resize and crop.
        num_threads: How many threads a request may use.
    """

    def __init__(self, index: VideoIndex, media: Media, layout: Layout, geometry: Geometry, num_threads: int) -> None:
        super().__init__(index, media, layout, geometry)
        self._writer = RgbWriter(index.stream, layout, geometry)
        self._num_threads = num_threads
        # The least that is worth reading at once.
        self._least = max(MIN_WINDOW_FRAMES, MIN_WINDOW_BYTES // self._frame_bytes)

    def _read_now(self, wanted: NDArray[np.int64], span: Span | None, follows: bool) -> NDArray[np.uint8]:
        # A single frame on its own: a random reader does not want the ones that follow it. But the next one may lie
        # ahead in the same group, and the decoder has already done most of the work to reach it.
        if span is None or follows or len(wanted) != 1:
            return self._read(wanted, read_on=span is not None)
        return self._read_one(wanted, read_on=self._stays_behind(span[0]))

    def iterate(self) -> Iterator[NDArray[np.uint8]]:
        """Yields all frames in order, one at a time; reads ahead from the first one on."""
        packets = self._index.packets
        plan = rounds(
            packets.start[packets.frames],
            budget=MAX_AHEAD_BYTES // self._frame_bytes,
            least=self._least,
            num_threads=self._num_threads,
        )
        ready: dict[int, NDArray[np.uint8]] = {}
        number = 0
        for step in plan:
            self._read_round(step, ready)
            for frame in range(number, number + step.deliver):
                check_unchanged(self._media, self._index.fingerprint)
                picture = ready.pop(frame, None)
                yield self._read(np.array([frame]), read_on=True)[0] if picture is None else picture
            number += step.deliver

    def _read_round(self, step: Round, ready: dict[int, NDArray[np.uint8]]) -> None:
        """Decodes the frames of a round; where one of them cannot be had, all are left to be read one by one."""
        frames = step.frames.tolist()
        if len(frames) < 2:
            return
        pictures = [allocate(self.shape(self.size)) for _ in frames]

        def sink(row: int, picture: Any) -> None:
            self._write(picture, pictures[row], frames[row])

        try:
            self._decode(step.frames, sink, read_on=True, long_groups=step.long_groups)
        except (DecodeError, FrameSizeError):
            return
        ready.update(zip(frames, pictures, strict=True))

    def read_native(self, wanted: NDArray[np.int64], sink: Any) -> Plan:
        """Decodes frames; ``sink(row, native)`` gets each different one, unconverted."""
        if not len(wanted):
            check_unchanged(self._media, self._index.fingerprint)
        return self._decode(
            wanted,
            lambda row, picture: sink(row, NativeFrame.copy_of(picture)),
            read_on=span_of(wanted) is not None,
        )

    def _decode(self, wanted: NDArray[np.int64], sink: Sink, *, read_on: ReadOn, long_groups: bool = False) -> Plan:
        plan = decode_frames(
            cpu_engine(),
            self._index,
            self._source,
            wanted,
            sink,
            num_threads=self._num_threads,
            read_on=read_on,
            long_groups=long_groups,
        )
        self.last_plan = plan
        return plan

    def _read(self, wanted: NDArray[np.int64], *, read_on: bool) -> NDArray[np.uint8]:
        if len(wanted) == 1:
            return self._read_one(wanted, read_on=read_on)
        out = allocate((len(wanted), *self.shape(self.size)))
        plan = self._decode(
            wanted, lambda row, picture: self._write(picture, out[row], int(wanted[row])), read_on=read_on
        )
        for source, target in plan.copies:
            out[target] = out[source]
        return out

    def _read_one(self, wanted: NDArray[np.int64], *, read_on: ReadOn) -> NDArray[np.uint8]:
        """One frame, of whatever size it has."""
        result: list[NDArray[np.uint8]] = []

        def sink(row: int, picture: Any) -> None:
            out = allocate((1, *self.shape(self._writer.output_size(picture))))
            self._writer.write(picture, out[0])
            result.append(out)

        self._decode(wanted, sink, read_on=read_on)
        return result[0]

    def _write(self, picture: Any, out: NDArray[np.uint8], frame: int) -> None:
        found = self._writer.output_size(picture)
        if found != self.size:
            raise self.other_size(frame, found)
        self._writer.write(picture, out)

    def _stays_behind(self, frame: int) -> Callable[[bool], bool]:
        """Returns the rule by which a decoder stays behind a single frame."""
        index = self._index
        return lambda undisturbed: is_worth_staying(
            index.packets, index.stream.reorder_depth, frame, undisturbed=undisturbed
        )

    # --- reading ahead --------------------------------------------------------------------------------------------

    @property
    def _max_window(self) -> int:
        if self._num_threads < 2:
            return 0  # nothing to gain: a single thread decodes the same frames either way
        return MAX_AHEAD_BYTES // self._frame_bytes

    def _window_end(self, start: int, length: int, reach: int) -> int:
        """Returns where to stop reading ahead: after a whole number of requests, near the end of a group."""
        packets = self._index.packets
        limit = min(self._index.num_frames, start + reach)
        groups = packets.start[packets.frames[start : limit + 1]]
        ends = np.flatnonzero(np.diff(groups)) + 1
        if limit == self._index.num_frames:
            ends = np.append(ends, limit - start)
        # Stopping in the middle of a group only where that group fills the whole window: a decoder that is left there
        # goes on with as many threads as it started with.
        least = self._least
        inside = [-(-least // length)] if not len(ends) or ends[0] > 2 * least else []
        steps = [*inside, *(-(-ends // length)).tolist()]
        stops = sorted({min(step * length, limit - start) for step in steps})
        stops = [stop for stop in stops if stop >= min(least, stops[-1])]
        return start + choose_window(groups[: limit - start], stops, self._num_threads)

    def _hand_out(self, ahead: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return ahead

    def _read_window(self, start: int, stop: int, length: int) -> list[NDArray[np.uint8]]:
        """The frames from ``start`` to ``stop`` in arrays of ``length`` frames."""
        firsts = range(start, stop, length)
        batches = [allocate((min(length, stop - first), *self.shape(self.size))) for first in firsts]

        def sink(row: int, picture: Any) -> None:
            self._write(picture, batches[row // length][row % length], start + row)

        self._decode(np.arange(start, stop), sink, read_on=True)
        return batches
