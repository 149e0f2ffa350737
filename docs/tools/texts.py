"""``python docs/tools/texts.py``: writes tables from benchmarks/results into the pages that have a place for them.

A place is ``<!-- table: training-2-cores -->``, with ``<!-- /table -->`` behind it; ``exercise-2-cores:study`` is one
of several tables of a file. Each says whether it was measured with the code that is here, as does each line of the list
in ``benchmarks/README.md``. A test compares. Help of commands is not kept in pages: ``<!-- help: index -->`` is filled
in while the site is built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import inference
from benchmarks.tables import gpu_numbers, numbers, readers_numbers, training_numbers
from framefeed.cli import build_parser
from framefeed.compare.exercise.exercise_page import exercise_table, study_table
from framefeed.compare.provenance import age

__all__ = ["filled", "help_text", "load", "main", "pages", "table"]

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
RESULTS = ROOT / "benchmarks" / "results"
HELP_COLUMNS = "80"
NOT_MEASURED = "*Not measured yet.*"

Document = dict[str, Any]


def load(name: str) -> Document:
    """The numbers of a benchmark."""
    document: Document = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return document


def pages() -> list[Path]:
    """The pages that can have tables."""
    return [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted(DOCS.glob("*.md"))]


def table(name: str, folder: Path = DOCS) -> str:
    """A table for pages of a folder, where it comes from, how old it is; a sentence where there is none yet."""
    file = RESULTS / f"{name.partition(':')[0]}.json"
    if not file.exists():
        return NOT_MEASURED
    document = load(file.stem)
    made_by = document["command"].partition(" --")[0]
    link = Path(os.path.relpath(file, folder)).as_posix()
    return f"{TABLES[name](document)}\n\nFrom [{file.name}]({link}), made by `{made_by}`. {age(document)}"


def filled(text: str, folder: Path = DOCS) -> str:
    """A page of a folder with all its tables as they should be."""
    text = _PLACE.sub(lambda found: f"{found[1]}\n\n{table(found[2], folder)}\n\n{found[3]}", text)
    return _LISTED.sub(lambda found: f"{found[1]} {_age(found[2])} |", text)


def _age(name: str) -> str:
    return age(load(name)) if (RESULTS / f"{name}.json").exists() else NOT_MEASURED


_PLACE = re.compile(r"(?s)(<!-- table: (\S+) -->)\n.*?(<!-- /table -->)")
_LISTED = re.compile(r"(?m)^(\| `(\S+)\.json` \| .* \|) .* \|$")


def _machine(document: Document) -> str:
    return f"{document['machine']['cpus_used']} cores of an {document['machine']['cpu']}"


def _rows(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _budgets(document: Document) -> str:
    found = {result["on"]: {row["reader"]: row for row in result["readers"]} for result in document["results"]}
    shares = list(next(iter(found.values())))
    rows = []
    for name, readers in found.items():
        group = name.partition(",")[0].removeprefix("gop")
        rows.append([f"groups of {group}", *(f"{readers[share]['decoded_per_delivered']:.1f}" for share in shares)])
        rows.append(["frames/s", *(f"{readers[share]['median']:,.0f}" for share in shares)])
    head = ["memory for", *(share.partition(", ")[2].replace("%", " %") for share in shares)]
    about = f"Packets decoded for each frame of an exact shuffle, {_machine(document)}, 40 files without B-frames."
    return f"{about}\n\n{_rows(head, rows)}"


def _store(document: Document) -> str:
    ways = ("videos", "videos with a catalog", "store")
    rows = []
    for result in document["results"]:
        rates = [_rate(result["ways"][way]["frames_per_second"]) for way in ways]
        calls = ", ".join(_rate(result["ways"][way]["calls_per_frame"]) for way in ways)
        rows.append([_CONTAINERS[result["container"]], result["disk"], *rates, calls])
    setup = document["setup"]
    about = (
        f"Random frames of {setup['files']} clips ({setup['clips']}), opened anew for each frame, on "
        f"{_machine(document)}; each question, open and read takes {setup['latency_ms']:g} ms longer than it does. "
        '"Cached" is a disk that is not asked twice for the same during one request.'
    )
    head = ["frames/s", "disk", "videos", "with a catalog", "store", "reads and questions for a frame"]
    return f"{about}\n\n{_rows(head, rows)}"


_CONTAINERS = {"mp4": "MP4", "mkv": "Matroska", "ts": "MPEG-TS"}


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _catalog(document: Document) -> str:
    results = document["results"]
    build = results["build"]
    rows = [
        [f"indexing {build['files']:,} files, {name}", f"{statistics.median(times):.2f} s"]
        for name, times in build["seconds"].items()
    ]
    rows.append(["size for each video", f"{build['bytes_a_video'] / 1000:.1f} kB"])
    for name, times in results["open"].items():
        number = f"{int(name.split()[0]):,} videos"
        rows.append([f"opening a catalog of {number}", f"{1000 * statistics.median(times['open_seconds']):.1f} ms"])
        found = 1000 * statistics.median(times["look_up_by_path_seconds"])
        rows.append([f"looking one up by its path, of {number}", f"{found:.2f} ms"])
    return f"{_machine(document)}, medians.\n\n{_rows(['catalogs', 'takes'], rows)}"


def _separation(document: Document) -> str:
    workers = document["runs"][0]["num_workers"]
    rows = [[f"{workers} workers, {name}", f"{found['1']:,.0f}"] for name, found in document["medians"].items()]
    rows += [
        [f"no workers, {name}", f"{statistics.median(rates):,.0f}"]
        for name, rates in document.get("without_workers", {}).items()
    ]
    gpu = document["machine"].get("gpu")
    about = (
        f"Frames a second into a training loop, six cameras, four clips a batch, {f'{gpu}, ' if gpu else ''}"
        f"{_machine(document)}, medians. "
        '"Cache" keeps packets in the main process.'
    )
    return f"{about}\n\n{_rows(['loader', 'frames/s'], rows)}"


TABLES: dict[str, Callable[[Document], str]] = {
    "cpu-2-cores": numbers,
    "training-2-cores": training_numbers,
    "readers-2-cores": readers_numbers,
    "readers-h200": readers_numbers,
    "gpu-h200": gpu_numbers,
    "training-budgets": _budgets,
    "store-slow-disk": _store,
    "catalog": _catalog,
    "separation-2-cores": _separation,
    "separation-h200": _separation,
    "inference-2-cores": inference.numbers,
    "inference-h200": inference.numbers,
    "exercise-2-cores:study": study_table,
    "exercise-2-cores:exercise": exercise_table,
}


def help_text(command: str) -> str:
    """What ``framefeed COMMAND --help`` prints."""
    parser = build_parser()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            with mock.patch.dict(os.environ, COLUMNS=HELP_COLUMNS):
                return f"```text\n{action.choices[command].format_help()}```"
    raise KeyError(command)


def main() -> int:
    """Writes all tables."""
    for page in pages():
        text = page.read_text("utf-8")
        if (new := filled(text, page.parent)) != text:
            page.write_text(new, "utf-8")
            print(page.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
