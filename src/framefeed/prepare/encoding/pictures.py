"""Exact decoding of a video's frames in order, as PyAV frames, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.decode.default import cpu_engine
from framefeed.index.video_index import VideoIndex
from framefeed.request import decode_frames
from framefeed.source import media_of, open_source

__all__ = ["pictures"]

# Frames in memory: few enough for any picture size, enough to decode several groups in parallel.
WINDOW_BYTES = 96 << 20
MIN_WINDOW, MAX_WINDOW = 4, 64


def pictures(index: VideoIndex, frames: NDArray[np.int64], *, num_threads: int = 1) -> Iterator[tuple[int, Any]]:
    """Decodes frames.

    Args:
        index: The video.
        frames: Frame numbers, strictly rising.
        num_threads: Number of decoding threads.

    Yields:
        Frame number and picture.

    Raises:
        DecodeError: A frame cannot be decoded exactly.
        FileChanged: The video has changed since it was indexed.
    """
    source = open_source(index, media_of(index))
    engine = cpu_engine()
    size = max(1, index.stream.width * index.stream.height * 3)  # 4:2:0 with 16 bits, or 4:4:4 with 8
    window = max(MIN_WINDOW, min(MAX_WINDOW, WINDOW_BYTES // size))
    for first in range(0, len(frames), window):
        wanted = frames[first : first + window]
        found: dict[int, Any] = {}
        decode_frames(engine, index, source, wanted, found.__setitem__, num_threads=num_threads, read_on=True)
        for row, number in enumerate(wanted.tolist()):
            yield number, found.pop(row)
