"""Runs the exercise: checks frames of every strategy, times all in turns, and adds their statistics."""

from __future__ import annotations

import datetime
import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed._util.atomic_write import write
from framefeed._util.limits import available_cpus
from framefeed.catalog.catalog import Catalog
from framefeed.compare.exercise.exercise_clips import GOP, HEIGHT, WIDTH, write_files
from framefeed.compare.exercise.exercise_sources import (
    FRAME_BYTES,
    SIZE,
    BatchReader,
    FramefeedSource,
    Material,
    PyavSource,
)
from framefeed.compare.provenance import machine, stamped, versions
from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle
from framefeed.sampling import Entry, FrameValues, Model, OneFile, Population, SlidingWindow, memory_needed, study
from framefeed.testing.scenes import read_frame

__all__ = ["FORMAT", "OURS", "RUNS", "BatchStrategy", "Exercise", "find_ways", "measured_effect", "prepare"]

FORMAT = "framefeed exercise 1"
OURS = "framefeed"
RUNS = (4, 8, 16)
BUFFER = 1024
SHARES = (0.0, 0.01, 0.1, 0.25)
CHECKED_BATCHES = 2
LEAST_BATCHES = 4
MEASURED_BATCHES = 20_000  # determines the variance of their means to 1 %

Report = Callable[[int, int, str], None]


@dataclass
class BatchStrategy:
    """A strategy to draw and read batches.

    Attributes:
        name: Name in tables.
        reader: Name of the reading library.
        entry: Its sampling method and memory.
        make: Creates its batch reader.
    """

    name: str
    reader: str
    entry: Entry
    make: Callable[[], BatchReader]
    wrong: int | None = None
    rates: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    decoded: list[float] = field(default_factory=list)

    def result(self, batch_size: int) -> dict[str, Any]:
        """Returns the strategy's row of the document."""
        median = statistics.median(self.rates) if self.rates else None
        return {
            "name": self.name,
            "reader": self.reader,
            "wrong": self.wrong,
            "iterations_per_second": [round(rate, 4) for rate in self.rates],
            "median": None if median is None else round(median, 4),
            "frames_per_second": None if median is None else round(median * batch_size, 1),
            "batches": self.batches,
            "measured_decoded_per_delivered": round(statistics.median(self.decoded), 3) if self.decoded else None,
        }


def prepare(folder: Path, num_files: int, batch_size: int, workers: int, report: Report) -> Material:
    """Creates missing files and their catalog."""
    files = write_files(
        folder, num_files, workers=workers, done=lambda done, total: report(done, total, "making files")
    )
    catalog = Catalog.build(files, folder / f"{num_files}.arrow", progress=False)
    return Material(tuple(files), catalog, Population.of_catalog(catalog), batch_size, workers)


def find_ways(material: Material) -> list[BatchStrategy]:
    """Returns all strategies, in the order in which people usually try them."""
    count, workers = material.population.num_frames, material.workers

    def pyav(name: str, method: Any, entry: Entry, processes: int) -> BatchStrategy:
        return BatchStrategy(name, "PyAV", entry, lambda: PyavSource(material, method, workers=processes))

    def ours(order: Order, memory: int, name: str) -> BatchStrategy:
        return BatchStrategy(name, OURS, Entry(order, memory), lambda: FramefeedSource(material, order.name, memory))

    ways = [
        pyav("one file", OneFile(), Entry(OneFile()), 0),
        pyav("global index", "shuffle", Entry(Shuffle()), 0),
        pyav("global index, workers", "shuffle", Entry(Shuffle()), workers),
    ]
    for length in RUNS:
        if material.batch_size % length == 0:
            window = SlidingWindow(length)
            ways.append(pyav(f"runs of {length}, workers", window, Entry(window), workers))
    ways.append(pyav("in order, workers", "sequential", Entry(Sequential()), workers))
    ways.append(ours(Sequential(), 0, "sequential"))
    ways += [ours(Chunked(length), 0, f"chunked:{length}") for length in RUNS]
    buffered = Buffered(BUFFER)
    ways.append(ours(buffered, memory_needed(buffered, material.population), buffered.name))
    for share in SHARES:
        name = f"shuffle, {share:.0%}" if share else "shuffle"
        ways.append(ours(Shuffle(), round(share * count), name))
    return ways


class Exercise:
    """The exercise.

    Args:
        material: The files to read.
        ways: The strategies.
        output: The JSON file, rewritten after every step, always complete.
        seconds: Duration of a timing, unless it needs a whole epoch.
        repeat: Number of timings of each strategy.
        command: The command line, for the document.

    Attributes:
        document: The results so far.
    """

    def __init__(
        self,
        material: Material,
        ways: Sequence[BatchStrategy],
        output: Path,
        *,
        seconds: float,
        repeat: int,
        command: str = "",
    ) -> None:
        self._material = material
        self._ways = ways
        self._output = output
        self._seconds = seconds
        self._repeat = repeat
        self._rows: list[dict[str, Any]] = [{}] * len(ways)
        population = material.population
        cpus = available_cpus()
        self.document: dict[str, Any] = {
            "format": FORMAT,
            "complete": False,
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "command": command,
            "machine": {**machine(0), "cpus_used": cpus},
            "versions": versions(),
            "configuration": {
                "files": population.num_files,
                "frames": population.num_frames,
                "codec": "h264",
                "width": WIDTH,
                "height": HEIGHT,
                "gop": GOP,
                "size": SIZE,
                "batch_size": material.batch_size,
                "workers": material.workers,
                "seconds": seconds,
                "repeat": repeat,
            },
            "study": None,
            "results": [],
        }

    def run(self, report: Report) -> None:
        """Runs the exercise.

        Args:
            report: Called with the steps done, the total number of steps, and a description.
        """
        steps = 2 + len(self._ways) * (1 + self._repeat)
        try:
            report(0, steps, "mean luma of all frames")
            self._add_statistics()
            done = 2
            sources: list[BatchReader] = []
            try:
                for way in self._ways:
                    report(done, steps, f"checking {way.reader}, {way.name}")
                    sources.append(way.make())
                    way.wrong = count_wrong(sources[-1])
                    done += 1
                for _, (way, source) in itertools.product(range(self._repeat), zip(self._ways, sources, strict=True)):
                    report(done, steps, f"{way.reader}, {way.name}")
                    self._time(way, source)
                    self._save()
                    done += 1
            finally:
                for source in sources:
                    source.close()
            self.document["complete"] = True
        finally:
            self._save()

    def _add_statistics(self) -> None:
        """Adds the computed statistics of each strategy, and measured ones from the mean luma of all frames."""
        material = self._material
        luma = mean_luma(material)
        values = FrameValues.of(material.catalog, dict(enumerate(luma)))
        common: dict[str, Any] = {"batch_size": material.batch_size, "frame_bytes": FRAME_BYTES}
        correlation = values.correlation()
        self.document["study"] = study(material.catalog, correlation, **common).as_json()
        self._save()
        found = study(
            material.catalog, correlation, entries=[way.entry for way in self._ways], sample_frames=None, **common
        )
        numbers = np.concatenate(luma)
        rows = []
        for way, row in zip(self._ways, found.as_json()["rows"], strict=True):
            effect = measured_effect(way.entry.method, material.population, numbers, material.batch_size)
            if way.reader != OURS:  # others do not follow the plan
                row = {**row, **dict.fromkeys(("decoded_per_delivered", "memory_frames", "memory_bytes", "price"))}
            rows.append({**row, "measured_effect": effect})
        self._rows = rows

    def _time(self, way: BatchStrategy, source: BatchReader) -> None:
        """Times a whole epoch, or the requested duration from the first batch on."""
        begin = time.perf_counter()
        first = last = begin
        count = 0
        batches = source.batches()
        for _ in batches:
            last = time.perf_counter()
            if not count:
                first = last
            count += 1
            if not source.whole and last - first >= self._seconds and count > LEAST_BATCHES:
                break
        batches.close()  # type: ignore[attr-defined]  # a generator
        way.batches.append(count)
        way.rates.append(count / (last - begin) if source.whole else (count - 1) / (last - first))
        decoded = source.decoded_per_delivered()
        if decoded is not None:
            way.decoded.append(decoded)

    def _save(self) -> None:
        size = self._material.batch_size
        self.document["results"] = [
            stamped({**way.result(size), "statistics": row}) for way, row in zip(self._ways, self._rows, strict=True)
        ]
        write(self._output, json.dumps(self.document, indent=1, allow_nan=False) + "\n", parents=True)


def count_wrong(source: BatchReader) -> int:
    """Counts wrong frames in the first batches; this also warms up workers and caches."""
    wrong = 0
    batches = source.batches(named=True)
    for frames, which in itertools.islice(batches, CHECKED_BATCHES):
        assert which is not None
        pictures = frames.mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        wrong += sum(read_frame(picture) != tuple(pair) for picture, pair in zip(pictures, which.tolist(), strict=True))
    batches.close()  # type: ignore[attr-defined]  # a generator
    return wrong


def mean_luma(material: Material) -> list[NDArray[np.float64]]:
    """Returns the mean luma of every frame of every file."""
    import framefeed

    found = []
    for path in material.files:
        decoder = framefeed.VideoDecoder(path, index=material.catalog, transforms=[framefeed.Resize((36, 64))])
        pictures = decoder.get_all_frames().data.numpy()
        found.append(pictures.mean(axis=(2, 3), dtype=np.float64) @ np.array([0.299, 0.587, 0.114]))
    return found


def measured_effect(
    method: Order | Model, population: Population, values: NDArray[np.float64], batch_size: int, *, seed: int = 1
) -> float:
    """Returns the mean squared error of the means of many batches, relative to independent frames."""
    centred = values - values.mean()
    if isinstance(method, Model):
        parts = [method.draw(population, batch_size, 1000, seed + turn) for turn in range(MEASURED_BATCHES // 1000)]
        means = np.concatenate([centred[drawn].mean(1) for drawn in parts])
    else:
        full = population.num_frames // batch_size
        epochs = 1 if isinstance(method, Sequential) else -(-MEASURED_BATCHES // full)
        orders = (method.indices(population.layout, seed=seed, epoch=epoch) for epoch in range(epochs))
        means = np.concatenate([centred[drawn[: full * batch_size]].reshape(full, -1).mean(1) for drawn in orders])
    return float((means**2).mean() * batch_size / centred.var())
