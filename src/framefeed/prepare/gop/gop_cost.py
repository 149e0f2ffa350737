"""Cost of reading frames: planned packets, and time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.decoder.video_decoder import VideoDecoder
from framefeed.index.video_index import VideoIndex
from framefeed.plan import plan_frames
from framefeed.plan.cost import random_frame_cost

__all__ = ["CLIP_LENGTH", "Cost", "VideoPart", "measure_costs"]

CLIP_LENGTH = 16

# Enough for a stable mean; with GOP 250 each takes about a second of decoding.
FRAMES_EACH, CLIPS_EACH, IN_ORDER = 10, 4, 160
ROUNDS = 2


@dataclass(frozen=True, eq=False)
class VideoPart:
    """Frames of one video to read.

    Attributes:
        index: The video.
        first, stop: Range of frames.
        num_bytes: Size of their packets.
        seconds: Duration.
    """

    index: VideoIndex
    first: int
    stop: int
    num_bytes: int
    seconds: float

    @property
    def clip_length(self) -> int:
        """Frames of a clip, fewer if the part is shorter."""
        return min(CLIP_LENGTH, self.stop - self.first)

    def places(self, count: int, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Returns random positions followed by enough frames: one in each of equal parts, in random order."""
        span = self.stop - length + 1 - self.first
        places = (np.arange(count) + rng.random(count)) * span / count
        return rng.permutation(self.first + places.astype(np.int64))


@dataclass(frozen=True)
class Cost:
    """Cost of reading.

    Attributes:
        bytes_per_second: Of all parts.
        packets_per_frame, frame_ms: For a single frame at a random position.
        packets_per_clip, clip_ms: For a clip of 16 frames at a random position.
        frames_per_second: Sequential speed.
    """

    bytes_per_second: float
    packets_per_frame: float
    frame_ms: float
    packets_per_clip: float
    clip_ms: float
    frames_per_second: float


def measure_costs(rows: Sequence[Sequence[VideoPart]], seed: int) -> list[Cost]:
    """Measures the cost of each row of parts. Rows are timed in turns; of several timings the shortest counts.

    Args:
        rows: Parts of several videos each.
        seed: Seed of the positions.
    """
    readers = [
        [VideoDecoder(piece.index.path, index=piece.index, num_ffmpeg_threads=1) for piece in row] for row in rows
    ]
    times = np.full((len(rows), 3), np.inf)
    for _ in range(ROUNDS):
        for number, (row, decoders) in enumerate(zip(rows, readers, strict=True)):
            timed = _times(row, decoders, np.random.default_rng(seed))
            times[number] = np.minimum(times[number], timed)
    return [_cost(row, *timed) for row, timed in zip(rows, times.tolist(), strict=True)]


def _times(
    row: Sequence[VideoPart], decoders: Sequence[VideoDecoder], rng: np.random.Generator
) -> tuple[float, float, float]:
    """Returns milliseconds of a random frame, of a clip, and of a frame in sequential order.

    Measures CPU time with one thread, which other processes hardly affect.
    """
    singles = [piece.places(FRAMES_EACH, 1, rng).tolist() for piece in row]
    clips = [piece.places(CLIPS_EACH, piece.clip_length, rng).tolist() for piece in row]
    for piece, decoder in zip(row, decoders, strict=True):
        decoder.get_frame_at(piece.first)
    began = time.process_time()
    for turn in range(FRAMES_EACH):  # a different video each time, as in a large collection
        for decoder, places in zip(decoders, singles, strict=True):
            decoder.get_frame_at(places[turn])
    single = (time.process_time() - began) / (FRAMES_EACH * len(row))
    began = time.process_time()
    for turn in range(CLIPS_EACH):
        for piece, decoder, places in zip(row, decoders, clips, strict=True):
            decoder.get_frames_in_range(places[turn], places[turn] + piece.clip_length)
    clip = (time.process_time() - began) / (CLIPS_EACH * len(row))
    began = time.process_time()
    count = 0
    for piece, decoder in zip(row, decoders, strict=True):
        for place in range(piece.first, min(piece.stop, piece.first + IN_ORDER), CLIP_LENGTH):
            count += len(decoder.get_frames_in_range(place, min(place + CLIP_LENGTH, piece.stop)))
    in_order = (time.process_time() - began) / count
    return single * 1000, clip * 1000, in_order * 1000


def _cost(row: Sequence[VideoPart], frame_ms: float, clip_ms: float, in_order_ms: float) -> Cost:
    singles = [random_frame_cost(piece.index.packets)[piece.first : piece.stop].mean() for piece in row]
    clips = [_packets_of_clips(piece) for piece in row]
    bytes_per_second = sum(piece.num_bytes for piece in row) / sum(piece.seconds for piece in row)
    return Cost(bytes_per_second, float(np.mean(singles)), frame_ms, float(np.mean(clips)), clip_ms, 1000 / in_order_ms)


def _packets_of_clips(piece: VideoPart) -> float:
    """Returns the packets of a clip, averaged over a part."""
    starts = np.unique(np.linspace(piece.first, piece.stop - piece.clip_length, 200).astype(np.int64))
    table, length = piece.index.packets, piece.clip_length
    return float(np.mean([plan_frames(table, np.arange(start, start + length)).num_packets for start in starts]))
