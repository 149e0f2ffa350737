"""Requests for frames of one video -> arrays of RGB, with reading ahead where requests come in order."""

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
from framefeed.decoder.in_order import InOrder, Span, span_of
from framefeed.errors import DecodeError, FrameSizeError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, check_unchanged
from framefeed.media.native import NativeFrame
from framefeed.plan import Plan, is_worth_staying
from framefeed.plan.rounds import Round, rounds
from framefeed.plan.schedule import choose_window
from framefeed.request import ReadOn, decode_frames
from framefeed.source import open_source

__all__ = ["FrameReader"]

# Reading in order, this much is decoded ahead. Independent groups can then be decoded side by side, which uses several
# cores far better than the threads of one decoder do. Two groups of 30 full HD frames are 370 MB.
MAX_AHEAD_BYTES = max(64 << 20, min(480 << 20, usable_memory() // 50))

# The least that is read at once. Starting and ending a round costs a millisecond or two, whatever the size of frames.
MIN_WINDOW_FRAMES = 48
MIN_WINDOW_BYTES = 96 << 20


class FrameReader:
    """Reads frames of one video as 8-bit RGB arrays. May be used by several threads at once.

    Args:
        index: The video.
        media: Its bytes.
        layout: Order of a frame's dimensions.
        geometry: Resize and crop.
        num_threads: How many threads a request may use.
    """

    def __init__(self, index: VideoIndex, media: Media, layout: Layout, geometry: Geometry, num_threads: int) -> None:
        self._index = index
        self._media = media
        self._source = open_source(index, media)
        self._writer = RgbWriter(index.stream, layout, geometry)
        self._num_threads = num_threads
        height, width = geometry.output_size(*index.stream.display_size)
        self._layout = layout
        self._size = (height, width)
        self._order: InOrder[NDArray[np.uint8]] = InOrder()
        self.last_plan: Plan | None = None

    def read(self, wanted: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Frames by number, in any order, repeated or not, as one array."""
        span = span_of(wanted)
        ready, follows, ahead = self._order.ask(span, self._most_ahead)
        if ready is not None or not len(wanted):
            check_unchanged(self._media, self._index.fingerprint)
        if ready is not None:
            return ready
        if span is None or not ahead:
            # A single frame on its own: a random reader does not want the ones that follow it. But the next one may lie
            # ahead in the same group, and the decoder has already done most of the work to reach it.
            if span is None or follows or len(wanted) > 1:
                return self._read_now(wanted, read_on=span is not None)
            return self._read_one(wanted, read_on=self._stays_behind(span[0]))
        return self._read_ahead(span, ahead)

    def iterate(self) -> Iterator[NDArray[np.uint8]]:
        """All frames in order, one at a time; reads ahead from the first one on."""
        packets = self._index.packets
        frame_bytes = 3 * self._size[0] * self._size[1]
        plan = rounds(
            packets.start[packets.frames],
            budget=MAX_AHEAD_BYTES // frame_bytes,
            least=max(MIN_WINDOW_FRAMES, MIN_WINDOW_BYTES // frame_bytes),
            num_threads=self._num_threads,
        )
        ready: dict[int, NDArray[np.uint8]] = {}
        number = 0
        for step in plan:
            self._read_round(step, ready)
            for frame in range(number, number + step.deliver):
                check_unchanged(self._media, self._index.fingerprint)
                picture = ready.pop(frame, None)
                yield self._read_now(np.array([frame]), read_on=True)[0] if picture is None else picture
            number += step.deliver

    def _read_round(self, step: Round, ready: dict[int, NDArray[np.uint8]]) -> None:
        """Decodes the frames of a round; where one of them cannot be had, all are left to be read one by one."""
        frames = step.frames.tolist()
        if len(frames) < 2:
            return
        pictures = [allocate(self._shape(self._size)) for _ in frames]

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

    def _shape(self, size: Span) -> tuple[int, int, int]:
        return (3, *size) if self._layout == "CHW" else (*size, 3)

    def _read_now(self, wanted: NDArray[np.int64], *, read_on: bool) -> NDArray[np.uint8]:
        if len(wanted) == 1:
            return self._read_one(wanted, read_on=read_on)
        out = allocate((len(wanted), *self._shape(self._size)))
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
            out = allocate((1, *self._shape(self._writer.output_size(picture))))
            self._writer.write(picture, out[0])
            result.append(out)

        self._decode(wanted, sink, read_on=read_on)
        return result[0]

    def _write(self, picture: Any, out: NDArray[np.uint8], frame: int) -> None:
        found = self._writer.output_size(picture)
        if found != self._size:
            height, width = self._size
            raise FrameSizeError(
                self._index.path,
                f"frame {frame} is {found[1]}x{found[0]}, not {width}x{height} as the stream's header says: the size "
                "changes in mid-stream; ask for one frame at a time or give transforms=[Resize(...)]",
            )
        self._writer.write(picture, out)

    def _stays_behind(self, frame: int) -> Callable[[bool], bool]:
        """Returns the rule by which a decoder stays behind a single frame."""
        index = self._index
        return lambda undisturbed: is_worth_staying(
            index.packets, index.stream.reorder_depth, frame, undisturbed=undisturbed
        )

    # --- reading ahead --------------------------------------------------------------------------------------------

    def _most_ahead(self, span: Span) -> int:
        """How many requests like this one may be decoded ahead."""
        if self._num_threads < 2:
            return 0  # nothing to gain: a single thread decodes the same frames either way
        length = span[1] - span[0]
        left = -(-(self._index.num_frames - span[1]) // length)
        frame_bytes = 3 * self._size[0] * self._size[1]
        return max(0, min(MAX_AHEAD_BYTES // (length * frame_bytes) - 1, left))

    def _window_end(self, start: int, length: int, limit: int) -> int:
        """Where to stop reading ahead: after a whole number of requests, near the end of a group."""
        packets = self._index.packets
        groups = packets.start[packets.frames[start : limit + 1]]
        ends = np.flatnonzero(np.diff(groups)) + 1
        if limit == self._index.num_frames:
            ends = np.append(ends, limit - start)
        # Stopping in the middle of a group only where that group fills the whole window: a decoder that is left there
        # goes on with as many threads as it started with.
        least = max(MIN_WINDOW_FRAMES, MIN_WINDOW_BYTES // (3 * self._size[0] * self._size[1]))
        inside = [-(-least // length)] if not len(ends) or ends[0] > 2 * least else []
        steps = [*inside, *(-(-ends // length)).tolist()]
        stops = sorted({min(step * length, limit - start) for step in steps})
        stops = [stop for stop in stops if stop >= min(least, stops[-1])]
        return start + choose_window(groups[: limit - start], stops, self._num_threads)

    def _read_ahead(self, span: Span, ahead: int) -> NDArray[np.uint8]:
        """Reads the frames of a request and of those that will probably follow."""
        start, length = span[0], span[1] - span[0]
        stop = self._window_end(start, length, min(self._index.num_frames, span[1] + ahead * length))
        spans = [(first, min(first + length, stop)) for first in range(start, stop, length)]
        try:
            batches = self._read_window(start, stop, length)
        except (DecodeError, FrameSizeError):
            # Something ahead is damaged or of another size: that is for the request that asks for it.
            self._order.give_up()
            return self._read_now(np.arange(*span), read_on=True)
        self._order.keep(zip(spans[1:], batches[1:], strict=True))
        return batches[0]

    def _read_window(self, start: int, stop: int, length: int) -> list[NDArray[np.uint8]]:
        """The frames from ``start`` to ``stop`` in arrays of ``length`` frames."""
        firsts = range(start, stop, length)
        batches = [allocate((min(length, stop - first), *self._shape(self._size))) for first in firsts]

        def sink(row: int, picture: Any) -> None:
            self._write(picture, batches[row // length][row % length], start + row)

        self._decode(np.arange(start, stop), sink, read_on=True)
        return batches
