"""Copies audio packets beside the pictures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from framefeed.errors import UnsupportedCodec
from framefeed.index.containers.container import open_container
from framefeed.media.media import PathMedia

__all__ = ["AudioCopy", "Span", "open_audio"]

Span = tuple[float, float]


class AudioCopy:
    """The best audio stream of a video, being copied to another file.

    Args:
        path: The video.
        stream: The stream.
        packets: Its packets, in order.
        shift: Seconds added to all times.
        span: Start and end of the packets to copy, in seconds of the source.
    """

    def __init__(self, path: str, stream: Any, packets: Iterator[Any], shift: Fraction, span: Span) -> None:
        self._path = path
        self._stream = stream
        self._packets = packets
        self._shift = shift
        self._span = span
        self._next: Any = None
        self._target: Any = None

    def add_to(self, container: Any) -> None:
        """Adds the stream to an output.

        Raises:
            UnsupportedCodec: The container does not support it.
        """
        codec = self._stream.codec_context.codec.canonical_name
        try:
            self._target = container.add_stream_from_template(self._stream, opaque=True)
        except ValueError as error:
            raise UnsupportedCodec(
                self._path,
                f"its audio codec ({codec}) is not supported by this container; use --audio drop or --container mkv",
            ) from error
        self._advance()

    def until(self, seconds: Fraction | None) -> Iterator[Any]:
        """Yields packets up to a time of the output, ready to write; None yields all that are left."""
        while self._next is not None and (seconds is None or self._next.dts * self._next.time_base <= seconds):
            packet = self._next
            self._advance()
            packet.stream = self._target
            yield packet

    def _advance(self) -> None:
        for packet in self._packets:
            if not packet.size or packet.dts is None or packet.pts is None:
                continue
            when = packet.pts * packet.time_base
            if not self._span[0] <= when < self._span[1]:
                continue
            shift = round(self._shift / packet.time_base)
            packet.pts += shift
            packet.dts += shift
            self._next = packet
            return
        self._next = None


@contextmanager
def open_audio(path: str, *, shift: Fraction, span: Span) -> Iterator[AudioCopy | None]:
    """Opens the audio of a video; yields None if it has none."""
    with open_container(PathMedia(path)) as container:
        stream = container.streams.best("audio")
        if stream is None:
            yield None
        else:
            yield AudioCopy(path, stream, container.demux(stream), shift, span)
