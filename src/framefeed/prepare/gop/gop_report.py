"""``framefeed.prepare.report``: bytes and read times for several keyframe distances."""

from __future__ import annotations

import dataclasses
import math
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from framefeed.catalog.catalog import BadFile
from framefeed.errors import InvalidFile
from framefeed.prepare.codecs import CodecName
from framefeed.prepare.encoding.picture_format import check_pixel_format
from framefeed.prepare.gop.gop_clips import Encoding, piece_of
from framefeed.prepare.gop.gop_cost import CLIP_LENGTH, Cost, measure_costs
from framefeed.prepare.options import PrepareOptions, Size, parse_fps, parse_size
from framefeed.prepare.sources import Paths, find_sources, with_indexes

__all__ = ["GopReport", "GopRow", "report"]

GOPS = (1, 8, 30, 60, 250)


@dataclass(frozen=True)
class GopRow:
    """Results of one keyframe distance.

    Attributes:
        gop: The distance in frames; None for the source videos.
        bytes_per_second: Bytes per second of video.
        relative_size: Size relative to the largest distance.
        packets_per_frame: Packets decoded for a single frame at a random position, as planned.
        frame_ms: Time of that, in milliseconds.
        packets_per_clip: Packets decoded for a clip of 16 frames at a random position.
        clip_ms: Time of that, in milliseconds.
        frames_per_second: Sequential speed.
    """

    gop: int | None
    bytes_per_second: float
    relative_size: float
    packets_per_frame: float
    frame_ms: float
    packets_per_clip: float
    clip_ms: float
    frames_per_second: float


@dataclass(frozen=True)
class GopReport:
    """Comparison of several keyframe distances.

    Attributes:
        rows: By rising distance.
        source: The source videos.
        files: Paths of the sampled videos, as given.
        seconds: Total duration of the encoded parts.
        options: Encoding options, except for the distance.
        bad: Videos that could not be used, with reasons.
    """

    rows: tuple[GopRow, ...]
    source: GopRow
    files: tuple[str, ...]
    seconds: float
    options: PrepareOptions
    bad: tuple[BadFile, ...] = ()

    def recommendation(self) -> str:
        """Recommended distances, in words.

        For frames and for clips, minimises bytes times milliseconds: half the time is worth twice the bytes.
        """
        largest = self.rows[-1]
        frames = min(self.rows, key=lambda row: row.relative_size * row.frame_ms)
        clips = min(self.rows, key=lambda row: row.relative_size * row.clip_ms)
        fastest = max(row.frames_per_second for row in self.rows)
        return (
            f"Single random frames: GOP {frames.gop} ({_beside(frames, largest)}; a frame takes {frames.frame_ms:.1f} "
            f"ms, with GOP {largest.gop} {largest.frame_ms:.1f} ms). Clips of {CLIP_LENGTH} frames: GOP {clips.gop} "
            f"({_beside(clips, largest)}; a clip takes {clips.clip_ms:.1f} ms, with GOP {largest.gop} "
            f"{largest.clip_ms:.1f} ms). "
            f"In order: GOP {largest.gop} ({largest.frames_per_second / fastest:.0%} of the highest speed)."
        )

    def as_json(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        options = self.options.identity()
        del options["gop"]
        return {
            "files": list(self.files),
            "seconds": self.seconds,
            "options": options,
            "rows": [dataclasses.asdict(row) for row in self.rows],
            "source": dataclasses.asdict(self.source),
            "recommendation": self.recommendation(),
            "bad": [{"file": bad.path, "reason": bad.reason} for bad in self.bad],
        }


def _beside(row: GopRow, largest: GopRow) -> str:
    if row is largest:
        return "the smallest files"
    return f"{row.relative_size:.2f} times the bytes of GOP {largest.gop}"


def report(
    sources: Paths,
    *,
    sample: int = 8,
    seconds: float = 10.0,
    gops: Sequence[int] = GOPS,
    seed: int = 0,
    size: Size | None = None,
    short_side: int | None = None,
    codec: CodecName = "h264",
    b_frames: int = 0,
    crf: int | None = None,
    preset: str | int | None = None,
    fps: str | float | Fraction | None = None,
    pixel_format: str = "auto",
    threads: int = 1,
    workers: int | None = None,
    progress: bool | None = None,
) -> GopReport:
    """Encodes parts of some videos with several keyframe distances, and reads frames from the results.

    Times are CPU times of ``VideoDecoder`` for 8-bit RGB frames, with one thread.

    Args:
        sources: Files, folders, patterns, catalogs and packet stores.
        sample: Number of videos to use.
        seconds: Duration of the part of each video.
        gops: Keyframe distances.
        seed: Seed of the choice of videos, positions and frames.
        size, short_side, codec, b_frames, crf, preset, fps, pixel_format, threads: As for ``run``.
        workers: Number of encoders at the same time; None is as many as there are CPUs for these threads.
        progress: Shows progress; None does on a terminal.

    Raises:
        ValueError: Options are invalid.
        InvalidFile: None of the videos can be used.
    """
    chosen = sorted(set(gops))
    if not chosen or chosen[0] < 1:
        raise ValueError(f"gops must be integers of at least 1, got {list(gops)}")
    if sample < 1 or not seconds > 0 or not math.isfinite(seconds):
        raise ValueError(f"sample and seconds must be above 0, got {sample} and {seconds}")
    options = PrepareOptions(
        size=parse_size(size),
        short_side=short_side,
        codec=codec,
        gop=chosen[-1],
        b_frames=b_frames,
        crf=crf,
        preset=None if preset is None else str(preset),
        fps=parse_fps(fps),
        pixel_format=pixel_format,
        force=True,
        threads=threads,
    )
    check_pixel_format(options)
    found = find_sources(sources, None)
    order = np.random.default_rng(seed).permutation(len(found.good))[:sample]
    with tempfile.TemporaryDirectory(prefix="framefeed-prepare-") as folder:
        chosen_videos = [found.good[number] for number in sorted(order.tolist())]
        indexed = with_indexes(chosen_videos, Path(folder), progress)
        videos, bad = indexed.good, [*found.bad, *indexed.bad]
        pieces = [piece_of(video, seconds, (seed, number)) for number, video in enumerate(videos)]
        encoding = Encoding(videos, pieces, chosen, options, os.path.join(folder, "clip-"))
        bad += encoding.run(workers, progress)
        rows = encoding.rows()
        if not rows[0]:
            first = bad[0] if bad else BadFile("sources", "the catalog has no videos")
            raise InvalidFile(first.path, first.reason)
        source, *encoded = measure_costs(rows, seed)
    base = encoded[-1].bytes_per_second
    return GopReport(
        tuple(_row(gop, cost, base) for gop, cost in zip(chosen, encoded, strict=True)),
        _row(None, source, base),
        tuple(video.path for video in encoding.good()),
        sum(piece.seconds for piece in rows[-1]),
        options,
        tuple(bad),
    )


def _row(gop: int | None, cost: Cost, base: float) -> GopRow:
    return GopRow(
        gop,
        cost.bytes_per_second,
        cost.bytes_per_second / base,
        cost.packets_per_frame,
        cost.frame_ms,
        cost.packets_per_clip,
        cost.clip_ms,
        cost.frames_per_second,
    )
