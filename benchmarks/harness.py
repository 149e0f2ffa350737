"""Benchmark harness: timings in turns, results with their provenance, tables."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from framefeed._util.atomic_write import write
from framefeed._util.versions import installed_versions
from framefeed.compare.provenance import machine, stamped

__all__ = [
    "Contender",
    "Entry",
    "Run",
    "Work",
    "begin",
    "figure",
    "in_turns",
    "make_console",
    "make_parser",
    "rounded",
    "save",
    "stamped",
    "table",
    "use_cpus",
    "versus",
]

OURS = "framefeed"
SLOW_SECONDS = 4.0  # a contender that takes longer than this to warm up is timed less often
PACKAGES = (
    *("framefeed", "av", "torch", "triton", "numpy", "PyNvVideoCodec", "torchcodec", "decord2"),
    *("opencv-python-headless", "onnxruntime", "torchvision"),
)

Say = Callable[[str], object]


# --- timing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One timing.

    Attributes:
        frames: Delivered frames, or whatever else is counted.
        seconds: Elapsed time.
        rate: Frames a second; not the quotient where several threads took their own time.
        decoded_per_delivered: Packets decoded for each frame, where that is known.
        first_seconds: Time until the first batch, where that is not in the rate.
        cpu_seconds: Time of all CPUs, where that was taken.
    """

    frames: int
    seconds: float
    rate: float
    decoded_per_delivered: float | None = None
    first_seconds: float | None = None
    cpu_seconds: float | None = None


class Contender:
    """A source of frames."""

    def check(self) -> int:
        """Counts wrong frames among as many as is reasonable."""
        return 0

    def run(self, seconds: float) -> Run:
        """Takes a timing of at least that long."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases everything."""


@dataclass
class Work(Contender):
    """A contender whose timing is one call.

    Attributes:
        call: Does the work once; returns the number of frames.
        wrong: Counts wrong frames.
    """

    call: Callable[[], int]
    wrong: Callable[[], int] = int

    def check(self) -> int:
        """Counts wrong frames."""
        return self.wrong()

    def run(self, seconds: float = 0) -> Run:
        """Times one call."""
        start, used = time.perf_counter(), time.process_time()
        count = self.call()
        took, used = time.perf_counter() - start, time.process_time() - used
        return Run(count, took, count / took, cpu_seconds=used)


@dataclass
class Entry:
    """One contender in one case.

    Attributes:
        name: Its name in tables.
        contender: The source of frames.
        wrong: Wrong frames that its checks found.
        runs: Its timings.
        warm_up_seconds: Elapsed time of its first run.
    """

    name: str
    contender: Contender
    wrong: int = 0
    runs: list[Run] = field(default_factory=list)
    warm_up_seconds: float = 0.0

    @property
    def is_ours(self) -> bool:
        """True for framefeed."""
        return self.name.startswith(OURS)

    @property
    def rates(self) -> list[float]:
        """Frames a second of each timing."""
        return [run.rate for run in self.runs]

    @property
    def median(self) -> float:
        """Frames a second."""
        return statistics.median(self.rates)

    @property
    def decoded(self) -> float | None:
        """Packets decoded for each frame, where the contender knows."""
        known = [run.decoded_per_delivered for run in self.runs if run.decoded_per_delivered is not None]
        return round(statistics.median(known), 3) if known else None

    def check(self) -> None:
        """Counts wrong frames."""
        self.wrong += self.contender.check()

    def warm_up(self) -> None:
        """Fills pages, caches and pools."""
        self.warm_up_seconds = self.contender.run(0).seconds

    def time(self, seconds: float) -> None:
        """Takes a timing."""
        self.runs.append(self.contender.run(seconds))

    def row(self, digits: int = 3) -> dict[str, Any]:
        """Its results; timings have so many digits."""
        row: dict[str, Any] = {
            "reader": self.name,
            "wrong": self.wrong,
            "median": self.median,
            "best": max(self.rates),
            "frames": [run.frames for run in self.runs],
            "seconds": [round(run.seconds, digits) for run in self.runs],
        }
        return row if self.decoded is None else {**row, "decoded_per_delivered": self.decoded}


def in_turns(
    entries: Sequence[Entry],
    repeat: int,
    seconds: float = 0,
    *,
    slow_every: int = 2,
    alternate: bool = False,
    say: Say = lambda text: None,
) -> Iterator[int]:
    """Times all entries in turn, again and again, so that a disturbance does not hit one alone.

    Args:
        entries: The contenders.
        repeat: Timings of each.
        seconds: Length of a timing.
        slow_every: An entry that was slow to warm up is timed in every so many turns.
        alternate: Reverse the order in every other turn.
        say: Takes a line before each timing.

    Yields:
        The number of each turn after it.
    """
    for turn in range(repeat):
        for entry in reversed(entries) if alternate and turn % 2 else entries:
            if entry.warm_up_seconds < SLOW_SECONDS or turn % slow_every == 0:
                say(f"{entry.name}, {turn + 1} of {repeat}")
                entry.time(seconds)
        yield turn


def versus(entries: Sequence[Entry], name: str = "") -> float | None:
    """Returns framefeed's best median over that of others whose name begins with ``name``; None where one is missing.

    Wrong contenders do not count.
    """
    ours = [entry.median for entry in entries if entry.is_ours]
    theirs = [
        entry.median for entry in entries if not entry.is_ours and not entry.wrong and entry.name.startswith(name)
    ]
    return max(ours) / max(theirs) if ours and theirs else None


# --- results ------------------------------------------------------------------------------------------------------


def begin(module: str, argv: list[str] | None, *, cpus: int = 0, **more: Any) -> dict[str, Any]:
    """Returns a document of results: command, machine, versions, and what is given besides.

    Args:
        module: The benchmark.
        argv: Its arguments; None are those of the process.
        cpus: Number of CPUs in use; 0 are all.
        more: Further parts, in front of the results.
    """
    words = sys.argv[1:] if argv is None else argv
    packages = installed_versions(PACKAGES)
    document = {
        "command": shlex.join(["python", "-m", f"benchmarks.{module}", *words]),
        "machine": machine(cpus),
        "versions": {"python": platform.python_version(), **packages},
        **more,
    }
    return {**document, "results": []} if "results" not in more else document


def save(output: Path | None, document: dict[str, Any]) -> None:
    """Writes results, if there is a file for them: after each case, so that a run that is cut off keeps what it had."""
    if output is not None:
        write(output, json.dumps(document, indent=1) + "\n", parents=True)


def rounded(ratios: dict[str, float | None]) -> dict[str, float]:
    """Returns ratios with three digits, without those that are missing."""
    return {name: round(ratio, 3) for name, ratio in ratios.items() if ratio is not None}


# --- command line -------------------------------------------------------------------------------------------------


def make_parser(module: str, about: str | None, *, repeat: int | None = None) -> argparse.ArgumentParser:
    """Returns a parser with ``--output``, and ``--repeat`` where there is a default for it."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if repeat is not None:
        told = f"timings of each contender, interleaved (default: {repeat})"
        parser.add_argument("--repeat", type=int, default=repeat, help=told)
    parser.add_argument("--output", type=Path, help="JSON file for the results, written after each case")
    return parser


def use_cpus(count: int) -> None:
    """Restricts the process to so many CPUs, where the system can; 0 are all."""
    if count and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def make_console() -> Console:
    """Returns a console on standard error, wide enough for tables where that is a file."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else 140)


def table(title: str, text: Sequence[str], figures: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table: columns of text, then columns of figures."""
    found = Table(title=title, title_justify="left")
    for name in text:
        found.add_column(name)
    for name in figures:
        found.add_column(name, justify="right")
    for row in rows:
        found.add_row(*row)
    return found


def figure(value: float | None, digits: int = 1) -> str:
    """Returns a number for a table; "-" where there is none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def gpu_name(device: torch.device) -> dict[str, str]:
    """Returns the GPU's name as a part of the machine; nothing for the CPU."""
    return {"gpu": torch.cuda.get_device_name(device)} if device.type == "cuda" else {}
