"""A file -> its stream facts and raw packets. Demuxes; decodes nothing but, where a container hides it, one picture."""

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

# FFmpeg decodes a picture or two of an H.264 stream when it opens a file, for facts that we read from its headers.
# It reads no further than this for them.
_WITHOUT_DECODING = {"skip_frame": "all", "threads": "1", "probesize": "2048"}

# Where the first video packet comes late, as in a recording that begins with sound: bytes, and microseconds.
_LOOKING_FAR = {"probesize": str(256 << 20), "analyzeduration": str(600 * 10**6)}


def scan(media: Media, stream_index: int | None = None) -> Scan:
    """Reads the packet list of a video stream.

    Args:
        media: The video.
        stream_index: Place among all streams of the file; None takes the one FFmpeg calls the best.
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
    """The stream that FFmpeg calls the best after its default look into all of them."""
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
