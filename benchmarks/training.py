"""``python -m benchmarks.training``: loaders that feed training from many files, frames checked before timing."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.training_clips import SETS, SMOKE_SETS, ClipSet, write_set
from benchmarks.training_peers import FRAME_BYTES, PREFETCH, READERS, SIZE, WORKERS, Source, Task, installed
from framefeed._util.atomic_write import write
from framefeed.compare.provenance import machine, stamped, versions
from framefeed.testing.scenes import read_frame

CASES = ("shuffle", "sequential", "buffered", "clips", "budgets")
OURS = "framefeed"
OURS_IN_ORDER = "framefeed, sequential"
BUDGETS = (0.0, 0.01, 0.1, 0.25)
CHECKED_BATCHES = 2 * WORKERS

# What framefeed should reach: times the fastest other loader; for buffered, of its own rate in order.
AT_LEAST = {
    ("shuffle", 250): 8.0,
    ("shuffle", 30): 3.0,
    ("sequential", 250): 1.3,
    ("sequential", 30): 1.3,
    ("clips", 250): 3.0,
    ("clips", 30): 3.0,
    ("buffered", 250): 0.85,
    ("buffered", 30): 0.85,
}

# Packets decoded for each frame of an exact shuffle in a simulation, by distance of keyframes and share in memory. It
# delivers frame by frame: with next to no memory, a batch whose frames share groups needs less. And it decodes every
# packet up to a frame, so that clips with B-frames that nobody refers to need about half of it.
SIMULATED = {
    (30, 0.0): 15.5,
    (30, 0.01): 11.1,
    (30, 0.1): 4.7,
    (30, 0.25): 2.8,
    (250, 0.0): 125.0,
    (250, 0.01): 41.0,
    (250, 0.1): 8.7,
    (250, 0.25): 3.9,
}


@dataclass
class Run:
    """One timing."""

    frames: int
    seconds: float
    decoded_per_delivered: float | None

    @property
    def rate(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds


@dataclass
class Entry:
    """One loader in one case."""

    reader: str
    task: Task
    source: Source
    wrong: int = 0
    runs: list[Run] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Frames a second."""
        return statistics.median(run.rate for run in self.runs)

    @property
    def decoded(self) -> float | None:
        """Packets decoded for each frame, where the loader knows."""
        known = [run.decoded_per_delivered for run in self.runs if run.decoded_per_delivered is not None]
        return statistics.median(known) if known else None


@dataclass
class Case:
    """Loaders that do the same work on the same files."""

    name: str
    clips: ClipSet
    entries: list[Entry]


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames of framefeed were right."""
    arguments = _parser().parse_args(argv)
    if arguments.smoke:
        arguments.seconds, arguments.repeat = min(arguments.seconds, 0.2), 1
    console = Console(stderr=True)
    if arguments.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cpus])
    missing = sorted(reader.package for reader in READERS if not installed(reader))
    if missing:
        console.print(f"not installed, so not compared: {', '.join(missing)}")
    material = _material(arguments.clips, _choose_sets(arguments), console)
    results: list[dict[str, Any]] = []
    for case in _make_cases(material, arguments.only, arguments.readers):
        with console.status(f"{case.name}: {case.clips.name}") as status:
            repeat = 1 if case.name == "budgets" else arguments.repeat
            _run(case, repeat, arguments.seconds, status.update)
        results.append(stamped(_result(case)))
        console.print(_table(case))
        if arguments.output:
            _save(arguments, material, results)
    console.print(_summary(results))
    return 1 if any(row["wrong"] for result in results for row in result["readers"] if _is_ours(row["reader"])) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="what to measure (default: all)")
    parser.add_argument("--gop", nargs="+", type=int, help="on which sets, by distance of keyframes (default: all)")
    names = [reader.name for reader in READERS]
    parser.add_argument("--readers", nargs="+", choices=names, default=names, help="which loaders (default: all)")
    parser.add_argument("--seconds", type=float, default=10, help="for one timing of a loader (default: 10)")
    parser.add_argument("--repeat", type=int, default=3, help="timings of each loader, interleaved (default: 3)")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs to use, 0 for all (default: 2)")
    clips = Path(".bench") / "training"
    parser.add_argument("--clips", type=Path, default=clips, help="where clips are kept (default: .bench/training)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    parser.add_argument("--smoke", action="store_true", help="tiny clips, everything once: does it all run?")
    return parser


# --- what is read -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Material:
    """A set of clips that has been written.

    Attributes:
        clips: What it is.
        task: All its files in random order; cases change what they need otherwise.
    """

    clips: ClipSet
    task: Task


def _choose_sets(arguments: argparse.Namespace) -> list[ClipSet]:
    sets = SMOKE_SETS if arguments.smoke else SETS
    needed = [clips for clips in sets if any(_is_for(name, clips) for name in arguments.only)]
    return [clips for clips in needed if arguments.gop is None or clips.gop in arguments.gop]


def _is_for(name: str, clips: ClipSet) -> bool:
    """Whether a case is measured on a set: all but those that count only have B-frames."""
    return clips.b_frames == (name != "budgets")


def _material(folder: Path, sets: list[ClipSet], console: Console) -> list[Material]:
    from framefeed import Catalog

    found = []
    with Progress(console=console, transient=True) as progress:
        for clips in sets:
            bar = progress.add_task(f"clips, {clips.name}", total=clips.files)
            files = write_set(clips, folder, workers=WORKERS, done=partial(progress.advance, bar))
            catalog = Catalog.build(files, folder / f"{clips.folder}.arrow", progress=False)
            found.append(Material(clips, Task("shuffle", tuple(files), clips.frames, catalog=catalog)))
    return found


def _tasks(name: str, task: Task) -> list[tuple[str, Task]]:
    """What framefeed does in a case, under which names; others do the first of these."""
    if name == "clips":
        clips = replace(task, length=16, stride=4, batch_size=8)
        return [(OURS, clips), (f"{OURS}, 25%", replace(clips, pool=0.25))]
    if name == "budgets":
        return [(f"{OURS}, {share:.0%}", replace(task, pool=share, whole=True)) for share in BUDGETS]
    if name == "buffered":
        in_order = replace(task, order="sequential")
        return [(OURS, replace(task, order="buffered")), (OURS_IN_ORDER, in_order)]
    return [(OURS, replace(task, order=name))]


def _make_cases(material: list[Material], names: list[str], readers: list[str]) -> Iterator[Case]:
    """The chosen cases, each made when it is its turn."""
    for name, one in itertools.product(names, material):
        if not _is_for(name, one.clips):
            continue
        tasks = _tasks(name, one.task)
        entries = []
        for reader in READERS:
            if reader.name not in readers or not installed(reader):
                continue
            if reader.name == OURS:
                entries += [Entry(label, task, reader.make(task)) for label, task in tasks]
            elif name != "budgets":
                entries.append(Entry(reader.name, tasks[0][1], reader.make(tasks[0][1])))
        if entries:
            yield Case(name, one.clips, entries)


# --- measuring ----------------------------------------------------------------------------------------------------


def _run(case: Case, repeat: int, seconds: float, say: Any) -> None:
    """Checks all loaders, then times them in turn, again and again, so that a disturbance does not hit one alone."""
    try:
        for entry in case.entries:
            say(f"{case.name}: {case.clips.name}: checking {entry.reader}")
            entry.wrong = count_wrong(entry.source)
        for turn, entry in itertools.product(range(repeat), case.entries):
            say(f"{case.name}: {case.clips.name}: {entry.reader}, {turn + 1} of {repeat}")
            entry.runs.append(_time(entry.source, seconds))
    finally:
        for entry in case.entries:
            entry.source.close()


def count_wrong(source: Source) -> int:
    """How many frames of its first batches are not those that they should be; this also warms workers and caches."""
    asked = itertools.count(1)
    wrong = 0
    batches = source.batches(lambda: next(asked) <= CHECKED_BATCHES, named=True)
    for frames, which in itertools.islice(batches, CHECKED_BATCHES):
        assert which is not None
        pictures = frames.flatten(0, 1).mul(255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        expected = which.reshape(-1, 2).tolist()
        wrong += sum(read_frame(picture) != tuple(pair) for picture, pair in zip(pictures, expected, strict=True))
    return wrong


def _time(source: Source, seconds: float) -> Run:
    """All batches from a start to its end, so that nothing has been worked on that is not counted."""
    count = 0
    start = time.perf_counter()
    for frames, _ in source.batches(lambda: time.perf_counter() - start < seconds):
        count += frames.shape[0] * frames.shape[1]
    return Run(count, time.perf_counter() - start, source.decoded_per_delivered())


# --- reporting ----------------------------------------------------------------------------------------------------


def _is_ours(reader: str) -> bool:
    return reader.startswith(OURS)


def _ratios(case: Case) -> dict[str, float]:
    ours = [entry for entry in case.entries if entry.reader == OURS]
    in_order = [entry for entry in case.entries if entry.reader == OURS_IN_ORDER]
    theirs = [entry for entry in case.entries if not _is_ours(entry.reader) and not entry.wrong]
    ratios = {}
    if ours and theirs:
        ratios["vs_fastest_peer"] = ours[0].median / max(entry.median for entry in theirs)
    if ours and in_order:
        ratios["vs_own_sequential"] = ours[0].median / in_order[0].median
    return {name: round(ratio, 3) for name, ratio in ratios.items()}


def _result(case: Case) -> dict[str, Any]:
    readers = []
    for entry in case.entries:
        row: dict[str, Any] = {
            "reader": entry.reader,
            "wrong": entry.wrong,
            "median": entry.median,
            "best": max(run.rate for run in entry.runs),
            "frames": [run.frames for run in entry.runs],
            "seconds": [round(run.seconds, 3) for run in entry.runs],
        }
        if entry.decoded is not None:
            row["decoded_per_delivered"] = round(entry.decoded, 3)
            if case.name == "budgets" and (case.clips.gop, entry.task.pool) in SIMULATED:
                row["simulated"] = SIMULATED[case.clips.gop, entry.task.pool]
        readers.append(row)
    result = {"case": case.name, "on": case.clips.name, "unit": "frames/s", "readers": readers, **_ratios(case)}
    at_least = AT_LEAST.get((case.name, case.clips.gop))
    return result if at_least is None else {**result, "at_least": at_least}


def _table(case: Case) -> Table:
    notes = ", ".join(f"{name.replace('_', ' ')} {ratio:.2f}" for name, ratio in _ratios(case).items())
    title = f"{case.name}: {case.clips.name}" + (f"  ({notes})" if notes else "")
    table = Table(title=title, title_justify="left")
    for name in ("loader", "median frames/s", "best", "decoded each", "simulated", "wrong"):
        table.add_column(name, justify="left" if name == "loader" else "right")
    for row in sorted(_result(case)["readers"], key=lambda row: -row["median"]):
        wrong = f"[red]{row['wrong']}" if row["wrong"] else "0"
        decoded, simulated = (_figure(row.get(name)) for name in ("decoded_per_delivered", "simulated"))
        table.add_row(row["reader"], f"{row['median']:,.1f}", f"{row['best']:,.1f}", decoded, simulated, wrong)
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _summary(results: list[dict[str, Any]]) -> Table:
    table = Table(title="framefeed beside the others (ratio of median rates)", title_justify="left")
    for name in ("case", "on", "vs fastest peer", "vs own sequential", "at least"):
        table.add_column(name, justify="left" if name in ("case", "on") else "right")
    for result in results:
        peer, own = result.get("vs_fastest_peer"), result.get("vs_own_sequential")
        if peer is None and own is None:
            continue
        at_least = result.get("at_least")
        cell = _figure(at_least)
        reached = own if result["case"] == "buffered" else peer
        if at_least is not None and reached is not None:
            cell = f"[green]{cell}" if reached >= at_least else f"[red]{cell}"
        table.add_row(result["case"], result["on"], _figure(peer), _figure(own), cell)
    return table


def _save(arguments: argparse.Namespace, material: list[Material], results: list[dict[str, Any]]) -> None:
    document = {
        "command": " ".join(["python -m benchmarks.training", *sys.argv[1:]]),
        "machine": machine(arguments.cpus),
        "versions": versions(),
        "configuration": _configuration(arguments, material),
        "results": results,
    }
    write(arguments.output, json.dumps(document, indent=1) + "\n", parents=True)


def _configuration(arguments: argparse.Namespace, material: list[Material]) -> dict[str, Any]:
    return {
        "seconds": arguments.seconds,
        "repeat": arguments.repeat,
        "size": list(SIZE),
        "framefeed": {"num_threads": WORKERS, "frame_bytes": FRAME_BYTES},
        "torch_data_loader": {"num_workers": WORKERS, "prefetch_factor": PREFETCH, "threads_of_a_decoder": 1},
        "tasks": {
            name: [
                {
                    "reader": label,
                    "order": task.order,
                    "batch_size": task.batch_size,
                    "sequence_length": task.length,
                    "frame_stride": task.stride,
                    "share_in_memory": task.pool,
                    **({"buffer": task.buffer} if task.order == "buffered" else {}),
                }
                for label, task in _tasks(name, material[0].task)
            ]
            for name in arguments.only
        },
        "sets": [
            {
                "name": one.clips.name,
                "files": one.clips.files,
                "frames_of_a_file": one.clips.frames,
                "codec": "h264",
                "width": one.clips.width,
                "height": one.clips.height,
                "gop": one.clips.gop,
                "b_frames": one.clips.b_frames,
                "bytes": sum(path.stat().st_size for path in one.task.files),
                "memory_budget": one.task.pool_frames * FRAME_BYTES,
            }
            for one in material
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
