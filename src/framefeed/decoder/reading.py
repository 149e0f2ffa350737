"""Requests for frames of one video, with reading ahead where they come in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from framefeed.convert.transforms import Geometry
from framefeed.decoder.in_order import InOrder, Span, span_of
from framefeed.errors import DecodeError, FrameSizeError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, check_unchanged
from framefeed.plan import Plan
from framefeed.source import open_source

__all__ = ["FrameReader"]

Frames = TypeVar("Frames")
Ahead = TypeVar("Ahead")


class FrameReader(ABC, Generic[Frames, Ahead]):
    """Reads frames of one video as 8-bit RGB. May be used by several threads at once.

    Args:
        index: The video.
        media: Its bytes.
        layout: Order of a frame's dimensions.
        geometry: Resize and crop.

    Attributes:
        size: Height and width of the frames.
        last_plan: The plan of the last request.
    """

    GIVES_UP: tuple[type[Exception], ...] = (DecodeError, FrameSizeError)
    """Errors of frames that were read ahead: left to the request for that frame."""

    def __init__(self, index: VideoIndex, media: Media, layout: Literal["CHW", "HWC"], geometry: Geometry) -> None:
        self._index = index
        self._media = media
        self._source = open_source(index, media)
        self._layout: Literal["CHW", "HWC"] = layout
        self.size = geometry.output_size(*index.stream.display_size)
        self._frame_bytes = 3 * self.size[0] * self.size[1]
        self._order: InOrder[Ahead] = InOrder()
        self.last_plan: Plan | None = None

    def read(self, wanted: NDArray[np.int64]) -> Frames:
        """Reads frames by number, in any order, repeated or not."""
        span = span_of(wanted)
        ready, follows, ahead = self._order.ask(span, self._most_ahead)
        if ready is not None or not len(wanted):
            check_unchanged(self._media, self._index.fingerprint)
        if ready is not None:
            return self._hand_out(ready)
        if span is None or not ahead:
            return self._read_now(wanted, span, follows)
        return self._read_ahead(span, ahead)

    def _most_ahead(self, span: Span) -> int:
        """Returns how many requests like this one may be decoded ahead."""
        length = span[1] - span[0]
        left = -(-(self._index.num_frames - span[1]) // length)
        return max(0, min(self._max_window // length - 1, left))

    def _read_ahead(self, span: Span, ahead: int) -> Frames:
        """Reads the frames of a request and of those that will probably follow."""
        start, length = span[0], span[1] - span[0]
        stop = self._window_end(start, length, length * (1 + ahead))
        spans = [(first, min(first + length, stop)) for first in range(start, stop, length)]
        try:
            batches = self._read_window(start, stop, length)
        except self.GIVES_UP:
            self._order.give_up()
            return self._read_now(np.arange(*span), span, True)
        self._order.keep(zip(spans[1:], batches[1:], strict=True))
        return self._hand_out(batches[0])

    def shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """Returns the shape of a frame of that height and width."""
        return (3, *size) if self._layout == "CHW" else (*size, 3)

    def other_size(self, frame: int, found: tuple[int, int]) -> FrameSizeError:
        """Returns the error for a frame whose size differs from the stream's."""
        height, width = self.size
        return FrameSizeError(
            self._index.path,
            f"frame {frame} is {found[1]}x{found[0]}, not {width}x{height} as the stream's header says: the size "
            "changes in mid-stream; ask for one frame at a time or give transforms=[Resize(...)]",
        )

    @property
    @abstractmethod
    def _max_window(self) -> int:
        """The most frames that are read ahead at once."""

    @abstractmethod
    def _window_end(self, start: int, length: int, reach: int) -> int:
        """Returns the frame to stop at when reading ahead from ``start``, at most ``reach`` frames."""

    @abstractmethod
    def _read_now(self, wanted: NDArray[np.int64], span: Span | None, follows: bool) -> Frames:
        """Reads the frames of a request alone.

        Args:
            wanted: The frames.
            span: Start and stop of frames in order without a gap; None for others.
            follows: Whether the request goes on where the one before ended.
        """

    @abstractmethod
    def _read_window(self, start: int, stop: int, length: int) -> Sequence[Ahead]:
        """Reads the frames from ``start`` to ``stop`` as requests of ``length`` frames."""

    @abstractmethod
    def _hand_out(self, ahead: Ahead) -> Frames:
        """Makes frames that were read ahead ready for the caller."""

    @abstractmethod
    def iterate(self) -> Iterator[Frames]:
        """Yields all frames in order, one at a time; reads ahead from the first one on."""

    @abstractmethod
    def read_native(self, wanted: NDArray[np.int64], sink: Any) -> Plan:
        """Decodes frames; ``sink(row, native)`` gets each different one, unconverted, in the CPU's memory."""
