"""Scans a file for its stream facts and raw packets. Decodes one picture at most, if the container needs it."""

from __future__ import annotations

from contextlib import suppress

from framefeed.errors import InvalidFile
from framefeed.index.containers.container import (
    NoPictureSize,
    Scan,
    choose_stream,
    is_mp4,
    open_container,
)
from framefeed.index.containers.scan_demuxed import scan_by_demuxer
from framefeed.index.containers.scan_mp4 import scan_mp4
from framefeed.index.containers.scan_plain import scan_plain
from framefeed.media.media import Media

# FFmpeg decodes a picture or two of an H.264 stream on opening, for facts that we read from its headers. This limits
# what it reads for them.
_WITHOUT_DECODING = {"skip_frame": "all", "threads": "1", "probesize": "2048"}

# For files whose first video packet comes late, such as a recording that begins with sound: bytes, and microseconds.
_LOOKING_FAR = {"probesize": str(256 << 20), "analyzeduration": str(600 * 10**6)}


def scan(media: Media, stream_index: int | None = None) -> Scan:
    """Reads the packet list of a video stream.

    Args:
        media: The video.
        stream_index: Index among all streams of the file; None for FFmpeg's best video stream.
    """
    plain = scan_plain(media, stream_index)
    if plain is not None:
        return plain
    if _looks_like_mp4(media):
        with suppress(NoPictureSize), open_container(media, _WITHOUT_DECODING) as container:
            if stream_index is None and len(container.streams.video) > 1:
                stream_index = _best_stream(media)
            stream = choose_stream(container, media, stream_index)
            found = scan_mp4(container, stream, media) if is_mp4(container) else None
            if found is not None and found.stream.pix_fmt is not None:
                return found
    with suppress(NoPictureSize):
        return _scan_opened(media, stream_index, None)
    try:
        return _scan_opened(media, _best_stream(media) if stream_index is None else stream_index, _LOOKING_FAR)
    except NoPictureSize as error:
        raise InvalidFile(error.path, error.reason) from None


def _best_stream(media: Media) -> int | None:
    """Returns FFmpeg's best stream after its default probing of all streams."""
    with open_container(media) as container:
        best = container.streams.best("video")
        return None if best is None else best.index


def _scan_opened(media: Media, stream_index: int | None, options: dict[str, str] | None) -> Scan:
    with open_container(media, options) as container:
        stream = choose_stream(container, media, stream_index)
        found = scan_mp4(container, stream, media) if is_mp4(container) else None
        return found or scan_by_demuxer(container, stream, media)


def _looks_like_mp4(media: Media) -> bool:
    return media.read(4, 4) in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")
