"""Framefeed's loader beside torch's DataLoader over other readers, many files; frames are checked before timing."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks import harness
from benchmarks.clips import SMOKE_SETS, TRAINING_SETS, ClipSet, write_sets
from benchmarks.harness import OURS, Entry, figure
from benchmarks.peers.loaders import FRAME_BYTES, PREFETCH, READERS, SIZE, WORKERS, Source, Task, installed

CASES = ("shuffle", "sequential", "buffered", "clips", "budgets")
OURS_IN_ORDER = "framefeed, sequential"
BUDGETS = (0.0, 0.01, 0.1, 0.25)

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
# packet up to a frame, so that clips with non-reference B-frames need about half of it.
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
class Case:
    """Loaders that do the same work on the same files."""

    name: str
    clips: ClipSet
    entries: list[Entry]

    def ratios(self) -> dict[str, float]:
        """Compares framefeed with the fastest other loader, and with its own rate in order."""
        ours = [entry for entry in self.entries if entry.name == OURS]
        theirs = [entry for entry in self.entries if not entry.is_ours]
        in_order = [entry for entry in self.entries if entry.name == OURS_IN_ORDER]
        own = ours[0].median / in_order[0].median if ours and in_order else None
        return harness.rounded({"vs_fastest_peer": harness.versus([*ours, *theirs]), "vs_own_sequential": own})

    def result(self) -> dict[str, Any]:
        """Returns its part of the results."""
        rows = []
        for entry in self.entries:
            assert isinstance(entry.contender, Source)
            row, simulated = entry.row(), SIMULATED.get((self.clips.gop, entry.contender.task.pool))
            if self.name == "budgets" and simulated is not None:
                row["simulated"] = simulated
            rows.append(row)
        result = {"case": self.name, "on": self.clips.name, "unit": "frames/s", "readers": rows, **self.ratios()}
        at_least = AT_LEAST.get((self.name, self.clips.gop))
        return result if at_least is None else {**result, "at_least": at_least}


@dataclass(frozen=True)
class Material:
    """A set of clips that has been written.

    Attributes:
        clips: The set.
        task: All its files in random order; cases change the rest.
    """

    clips: ClipSet
    task: Task


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames of framefeed were right."""
    arguments = _parse(argv)
    console = harness.make_console()
    harness.use_cpus(arguments.cpus)
    missing = sorted(reader.package for reader in READERS if not installed(reader))
    if missing:
        console.print(f"not installed, so not compared: {', '.join(missing)}")
    sets = [
        clips
        for clips in (SMOKE_SETS if arguments.smoke else TRAINING_SETS)
        if any(_is_for(name, clips) for name in arguments.only)
        if arguments.gop is None or clips.gop in arguments.gop
    ]
    material = _material(arguments.clips, sets, console)
    settings = _configuration(arguments.seconds, arguments.repeat, arguments.only, material)
    document = harness.begin("training", argv, cpus=arguments.cpus, configuration=settings)
    for case in _make_cases(material, arguments.only, arguments.readers):
        with console.status(f"{case.name}: {case.clips.name}") as status:
            repeat = 1 if case.name == "budgets" else arguments.repeat
            try:
                for entry in case.entries:
                    status.update(f"{case.name}: {case.clips.name}: checking {entry.name}")
                    entry.check()
                for _ in harness.in_turns(case.entries, repeat, arguments.seconds, say=status.update):
                    pass
            finally:
                for entry in case.entries:
                    entry.contender.close()
        document["results"].append(harness.stamped(case.result()))
        console.print(_table(case))
        harness.save(arguments.output, document)
    console.print(_summary(document["results"]))
    rows = [row for result in document["results"] for row in result["readers"]]
    return 1 if any(row["wrong"] for row in rows if row["reader"].startswith(OURS)) else 0


def _parse(argv: list[str] | None) -> Any:
    parser = harness.make_parser("training", __doc__, repeat=3)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="what to measure (default: all)")
    parser.add_argument("--gop", nargs="+", type=int, help="on which sets, by distance of keyframes (default: all)")
    names = [reader.name for reader in READERS]
    parser.add_argument("--readers", nargs="+", choices=names, default=names, help="which loaders (default: all)")
    parser.add_argument("--seconds", type=float, default=10, help="for one timing of a loader (default: 10)")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs to use, 0 for all (default: 2)")
    clips = Path(".bench") / "training"
    parser.add_argument("--clips", type=Path, default=clips, help="where clips are kept (default: .bench/training)")
    parser.add_argument("--smoke", action="store_true", help="tiny clips, everything once: does it all run?")
    arguments = parser.parse_args(argv)
    if arguments.smoke:
        arguments.seconds, arguments.repeat = min(arguments.seconds, 0.2), 1
    return arguments


def _is_for(name: str, clips: ClipSet) -> bool:
    """True where a case is measured on a set: all but those that count only have B-frames."""
    return bool(clips.b_frames) == (name != "budgets")


def _material(folder: Path, sets: list[ClipSet], console: Console) -> list[Material]:
    from framefeed import Catalog

    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("clips", total=sum(clips.files for clips in sets))
        files = write_sets(sets, folder, workers=WORKERS, done=partial(progress.advance, bar))
    found = []
    for clips in sets:
        paths = files[clips.name]
        catalog = Catalog.build(paths, folder / f"{clips.folder}.arrow", progress=False)
        found.append(Material(clips, Task("shuffle", tuple(paths), clips.frames, catalog=catalog)))
    return found


def _tasks(name: str, task: Task) -> list[tuple[str, Task]]:
    """Returns framefeed's tasks in a case by their names; others do the first of these."""
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
                entries += [Entry(label, reader.make(task)) for label, task in tasks]
            elif name != "budgets":
                entries.append(Entry(reader.name, reader.make(tasks[0][1])))
        if entries:
            yield Case(name, one.clips, entries)


# --- reporting ----------------------------------------------------------------------------------------------------


def _table(case: Case) -> Table:
    notes = ", ".join(f"{name.replace('_', ' ')} {ratio:.2f}" for name, ratio in case.ratios().items())
    title = f"{case.name}: {case.clips.name}" + (f"  ({notes})" if notes else "")
    rows = [
        (
            row["reader"],
            figure(row["median"]),
            figure(row["best"]),
            figure(row.get("decoded_per_delivered"), 2),
            figure(row.get("simulated"), 2),
            f"{'[red]' * bool(row['wrong'])}{row['wrong']}",
        )
        for row in sorted(case.result()["readers"], key=lambda row: -row["median"])
    ]
    figures = ["median frames/s", "best", "decoded each", "simulated", "wrong"]
    return harness.table(title, ["loader"], figures, rows)


def _summary(results: list[dict[str, Any]]) -> Table:
    rows = []
    for result in results:
        peer, own = result.get("vs_fastest_peer"), result.get("vs_own_sequential")
        if peer is None and own is None:
            continue
        at_least = result.get("at_least")
        cell = figure(at_least, 2)
        reached = own if result["case"] == "buffered" else peer
        if at_least is not None and reached is not None:
            cell = f"[green]{cell}" if reached >= at_least else f"[red]{cell}"
        rows.append((result["case"], result["on"], figure(peer, 2), figure(own, 2), cell))
    figures = ["vs fastest peer", "vs own sequential", "at least"]
    return harness.table("framefeed beside the others (ratio of median rates)", ["case", "on"], figures, rows)


def _configuration(seconds: float, repeat: int, names: list[str], material: list[Material]) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "repeat": repeat,
        "size": list(SIZE),
        "framefeed": {"num_threads": WORKERS, "frame_bytes": FRAME_BYTES},
        "torch_data_loader": {"num_workers": WORKERS, "prefetch_factor": PREFETCH, "threads_of_a_decoder": 1},
        "tasks": {
            name: [{"reader": label, **task.described()} for label, task in _tasks(name, material[0].task)]
            for name in names
        },
        "sets": [
            {
                **one.clips.described(),
                "bytes": sum(path.stat().st_size for path in one.task.files),
                "memory_budget": one.task.pool_frames * FRAME_BYTES,
            }
            for one in material
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
