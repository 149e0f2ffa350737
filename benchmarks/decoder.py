"""``python -m benchmarks.decoder``: framefeed beside other readers, in one run, frames checked before timing."""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.cases import Case, Entry, make_cases
from benchmarks.peers import PEERS, installed
from framefeed._util.atomic_write import write
from framefeed.compare.provenance import machine, stamped, versions
from framefeed.testing.scenes import REFERENCE_CLIPS, write_reference_clip, write_short_files

GROUPS = ["scan", "random", "many files", "in order", "resized"]
NUM_SHORT_FILES = 200
SLOW_SECONDS = 4.0  # a reader that takes longer than this is timed once


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames of framefeed were right."""
    arguments = _parser().parse_args(argv)
    console = Console(stderr=True)
    if arguments.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cpus])
    missing = sorted({peer.package for peer in PEERS if not installed(peer)})
    if missing:
        console.print(f"not installed, so not compared: {', '.join(missing)}")
    clips, short_files, catalog = _material(arguments.folder, arguments.clips, console)
    results = []
    for case in make_cases(clips, short_files, catalog, arguments.cases):
        with console.status(f"{case.group}: {case.name}"):
            _time(case, arguments.repeat)
        results.append(stamped(_result(case)))
        console.print(_table(case))
        if arguments.output:
            _save(arguments, results)
    console.print(_summary(results))
    bad = sum(row["wrong"] for result in results for row in result["readers"] if row["reader"].startswith("framefeed"))
    return 1 if bad else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoder", description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=GROUPS, default=GROUPS, help="what to measure (default: all)")
    parser.add_argument("--clips", nargs="+", choices=REFERENCE_CLIPS, default=list(REFERENCE_CLIPS))
    parser.add_argument("--repeat", type=int, default=5, help="timings of each reader, interleaved (default: 5)")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs to use, 0 for all (default: 2)")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="where clips are kept (default: .bench)")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    return parser


def _material(folder: Path, names: list[str], console: Console) -> tuple[list[Path], list[Path], Any]:
    from framefeed import Catalog

    folder.mkdir(parents=True, exist_ok=True)
    with console.status("making the clips (once, about a minute)"):
        clips = [write_reference_clip(name, folder) for name in names]
        many = folder / "many"
        many.mkdir(exist_ok=True)
        short_files = write_short_files(many, NUM_SHORT_FILES)
        catalog = Catalog.build(short_files, folder / "many.arrow", progress=False)
    return clips, short_files, catalog


def _time(case: Case, repeat: int) -> None:
    """Times all readers in turn, again and again, so that a disturbance does not hit one alone."""
    slow: set[str] = set()
    for entry in case.entries:
        start = time.perf_counter()
        entry.count = entry.run()  # pages, caches and pools warm, for everybody
        if time.perf_counter() - start > SLOW_SECONDS:
            slow.add(entry.reader)
    for turn in range(repeat):
        for entry in case.entries:
            if turn and entry.reader in slow:
                continue
            start = time.perf_counter()
            entry.run()
            entry.seconds.append(time.perf_counter() - start)


def _result(case: Case) -> dict[str, Any]:
    readers = []
    for entry in case.entries:
        count = entry.count
        readers.append(
            {
                "reader": entry.reader,
                "wrong": entry.wrong,
                "best": count / min(entry.seconds),
                "median": count / statistics.median(entry.seconds),
                "seconds": [round(seconds, 5) for seconds in entry.seconds],
            }
        )
    return {"case": case.group, "on": case.name, "unit": f"{case.unit}/s", "readers": readers, **_ratios(case)}


def _median(entries: list[Entry]) -> float:
    """The time of the quickest of these, by its median."""
    return min((statistics.median(entry.seconds) for entry in entries), default=math.nan)


def _ratios(case: Case) -> dict[str, float]:
    ours = [entry for entry in case.entries if entry.reader.startswith("framefeed")]
    theirs = [e for e in case.entries if e not in ours and e.reader != "decode alone" and not e.wrong]
    torchcodec = [entry for entry in theirs if entry.reader.startswith("TorchCodec")]
    floor = [entry for entry in case.entries if entry.reader == "decode alone"]
    ratios = {"vs_fastest_peer": _median(theirs) / _median(ours), "vs_torchcodec": _median(torchcodec) / _median(ours)}
    if floor:
        ratios["over_decode_alone"] = _median(ours) / _median(floor)
    return {name: round(ratio, 3) for name, ratio in ratios.items() if not math.isnan(ratio)}


def _table(case: Case) -> Table:
    result = _result(case)
    notes = ", ".join(f"{name.replace('_', ' ')} {ratio:.2f}" for name, ratio in _ratios(case).items())
    table = Table(title=f"{case.group}: {case.name}  ({notes})", title_justify="left")
    for name in ("reader", f"median {case.unit}/s", "best", "wrong"):
        table.add_column(name, justify="left" if name == "reader" else "right")
    for row in sorted(result["readers"], key=lambda row: -row["median"]):
        wrong = f"[red]{row['wrong']}" if row["wrong"] else "0"
        table.add_row(row["reader"], f"{row['median']:,.1f}", f"{row['best']:,.1f}", wrong)
    return table


def _summary(results: list[dict[str, Any]]) -> Table:
    table = Table(title="framefeed beside the others (ratio of median times)", title_justify="left")
    for name in ("case", "vs TorchCodec (geometric mean)", "least", "vs fastest peer", "least", "over decode alone"):
        table.add_column(name)
    for group in dict.fromkeys(result["case"] for result in results):
        chosen = [result for result in results if result["case"] == group]
        cells = []
        for name in ("vs_torchcodec", "vs_fastest_peer"):
            ratios = [result[name] for result in chosen if name in result]
            cells += [f"{statistics.geometric_mean(ratios):.2f}", f"{min(ratios):.2f}"] if ratios else ["-", "-"]
        floors = [result["over_decode_alone"] for result in chosen if "over_decode_alone" in result]
        table.add_row(group, *cells, f"{max(floors):.2f}" if floors else "-")
    return table


def _save(arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    document = {
        "command": f"python -m benchmarks.decoder {' '.join(_command(sys.argv[1:]))}",
        "machine": machine(arguments.cpus),
        "versions": versions(),
        "results": results,
    }
    write(arguments.output, json.dumps(document, indent=1) + "\n", parents=True)


def _command(words: list[str]) -> list[str]:
    return [f"'{word}'" if " " in word else word for word in words]


if __name__ == "__main__":
    sys.exit(main())
