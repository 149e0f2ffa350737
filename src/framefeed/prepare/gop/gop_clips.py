"""Encodes parts of videos with several keyframe distances, for the GOP report."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from contextlib import closing

import numpy as np

from framefeed._util.limits import available_cpus
from framefeed._util.progress import TaskBars
from framefeed.catalog.catalog import BadFile
from framefeed.errors import OutputError
from framefeed.index import VideoIndex
from framefeed.prepare.encoding.task import Task
from framefeed.prepare.gop.gop_cost import VideoPart
from framefeed.prepare.options import PrepareOptions
from framefeed.prepare.sources import SourceVideo, catalog_of, index_of
from framefeed.prepare.workers import prepare_all

__all__ = ["Encoding", "piece_of"]


def piece_of(video: SourceVideo, seconds: float, seed: tuple[int, int]) -> VideoPart:
    """Returns a part of a video at a random position."""
    index = index_of(video)
    count = max(1, min(index.num_frames, round(seconds * (index.average_fps or 30.0))))
    first = int(np.random.default_rng(seed).integers(0, index.num_frames - count + 1))
    packets = index.packets
    num_bytes = int(packets.size[packets.frames[first : first + count]].sum())
    ticks = packets.frame_duration[first : first + count].sum()
    return VideoPart(index, first, first + count, num_bytes, float(ticks * index.stream.time_base))


class Encoding:
    """Parts of videos, encoded with several keyframe distances."""

    def __init__(
        self,
        videos: Sequence[SourceVideo],
        pieces: Sequence[VideoPart],
        gops: Sequence[int],
        options: PrepareOptions,
        prefix: str,
    ) -> None:
        self._videos = videos
        self._pieces = pieces
        self._gops = gops
        self._options = options
        self._prefix = prefix
        self._files: dict[tuple[int, int], str] = {}

    def run(self, workers: int | None, progress: bool | None) -> list[BadFile]:
        """Encodes all parts; returns failed videos."""
        options = self._options
        count = workers or max(1, available_cpus() // options.threads)
        places = [(number, gop) for gop in self._gops for number in range(len(self._videos))]
        tasks = [
            Task(
                task,
                catalog_of(self._videos[number]).path,
                self._videos[number].number,
                self._videos[number].stem,
                self._prefix,
                dataclasses.replace(options, gop=gop),
                options.threads,
                (self._pieces[number].first, self._pieces[number].stop),
            )
            for task, (number, gop) in enumerate(places)
        ]
        totals = [self._pieces[number].stop - self._pieces[number].first for number, _ in places]
        names = [f"GOP {gop}: {self._videos[number].path}" for number, gop in places]
        failed: dict[int, str] = {}
        with (
            TaskBars(names, totals, progress) as bars,
            closing(prepare_all(tasks, count, bars.advance)) as outcomes,
        ):
            for outcome in outcomes:
                if outcome.stops:
                    raise OutputError(self._prefix, f"cannot be written ({outcome.error})")
                number, gop = places[outcome.number]
                if outcome.error:
                    failed[number] = outcome.error
                else:
                    self._files[number, gop] = outcome.files[0]
                bars.complete(outcome.number)
        return [BadFile(self._videos[number].path, reason) for number, reason in failed.items()]

    def _whole(self) -> list[int]:
        return [
            number for number in range(len(self._videos)) if all((number, gop) in self._files for gop in self._gops)
        ]

    def good(self) -> list[SourceVideo]:
        """Videos that were encoded."""
        return [self._videos[number] for number in self._whole()]

    def rows(self) -> list[list[VideoPart]]:
        """Returns the source parts and the encoded ones of each distance, as whole GOPs where possible."""
        rows = [[self._pieces[number] for number in self._whole()]]
        for gop in self._gops:
            rows.append([_encoded(self._files[number, gop], gop) for number in self._whole()])
        return rows


def _encoded(file: str, gop: int) -> VideoPart:
    index = VideoIndex.scan(file)
    count = index.num_frames // gop * gop or index.num_frames
    return VideoPart(index, 0, count, os.path.getsize(file), index.duration_seconds)
