"""``python -m benchmarks.gpu.targets``: what is asked of decoding on an H200, beside what was measured there."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks import harness
from benchmarks.clips import GPU_SETS
from benchmarks.gpu.cases import CASES
from benchmarks.gpu.tests import BAD
from benchmarks.harness import OURS
from framefeed.compare.provenance import of_other_code

__all__ = ["Finding", "compare"]

ON = "cameras"  # the set that is asked of

# What of a case, as its results call it, and the least frames a second; of several the best counts.
RATES: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("in order, frames/s", "in-order", (OURS,), 8000),
    ("exact shuffle, memory for 25 %, frames/s", "shuffle", (f"{OURS}, memory for 25%",), 2500),
    ("single random frames, frames/s", "singles", (f"{OURS}, 16 threads", f"{OURS}, 32 threads"), 500),
)
RATIOS: tuple[tuple[str, str, float], ...] = (
    ("in order, by bare decoders", "in_order/bare", 0.9),
    ("in order, by SimpleDecoder", "in_order/SimpleDecoder", 3),
    ("in order, by ThreadedDecoder", "in_order/ThreadedDecoder", 3),
    ("64 random frames, by SimpleDecoder", "random64/SimpleDecoder", 3),
    ("224x224 half, by full size", "half224/full", 1),
)
BATCHES = 10_000
GROWTH = 0.01  # of device memory over these; it comes in pieces of 2 MB


class Finding(NamedTuple):
    """One thing that is asked.

    Attributes:
        what: Its name.
        asked: What there should be.
        got: What there is; "-" where it was not measured.
        holds: Whether that is enough.
    """

    what: str
    asked: str
    got: str
    holds: bool


def compare(document: dict[str, Any], tests: dict[str, Any] | None = None) -> list[Finding]:
    """Compares results with all targets.

    Args:
        document: Results of ``benchmarks.gpu``.
        tests: Those of ``benchmarks.gpu.tests``.
    """
    return [*_rates(document), *_right(document), *_endurance(document.get("endurance")), *_tests(tests)]


def _rates(document: dict[str, Any]) -> Iterator[Finding]:
    medians: dict[tuple[str, str, str], float] = {
        (result["case"], result["on"], row["name"]): row["median"]
        for result in document["results"]
        for row in result["entries"]
        if row.get("median")
    }
    for what, case, names, least in RATES:
        yield _at_least(what, least, max(medians.get((case, ON, name), 0) for name in names))
    for what, name, least in RATIOS:
        yield _at_least(what, least, document["ratios"].get(ON, {}).get(name, 0))
    wanted = {(case, clips.name) for case in CASES for clips in GPU_SETS}
    there = {(case, on) for case, on, name in medians if name.startswith(OURS)}
    yield Finding("cases", str(len(wanted)), str(len(wanted & there)), wanted <= there)


def _right(document: dict[str, Any]) -> Iterator[Finding]:
    ours = [row for result in document["results"] for row in result["entries"] if row["name"].startswith(OURS)]
    yield _none("wrong frames", [row["wrong"] for row in ours])
    yield _none("errors", [int(row["error"] is not None) for row in ours])
    yield _none("decoders made after warming up", [r["decoders_created_after_warm_up"] for r in document["results"]])


def _endurance(found: dict[str, Any] | None) -> Iterator[Finding]:
    yield _at_least("batches one after the other", BATCHES, found["batches"] if found else 0)
    if found:
        growth = found["max_mb"] / found["first_mb"] - 1
        yield Finding("growth of memory meanwhile", f"{GROWTH:.1%}", f"{growth:.1%}", growth <= GROWTH)
        yield _none("decoders made meanwhile", [found["decoders_created_after_warm_up"]])
        yield _none("wrong frames after it", [found["wrong"]])


def _tests(found: dict[str, Any] | None) -> Iterator[Finding]:
    results = found["results"] if found else {}
    yield _at_least("GPU tests that passed", 1, results.get("passed", 0))
    for name in BAD:
        yield _none(f"GPU tests: {name.replace('_', ' ')}", [results[name]] if name in results else [])


def _at_least(what: str, least: float, got: float) -> Finding:
    return Finding(what, f"{least:,}", f"{got:,}" if got else "-", got >= least)


def _none(what: str, counts: Sequence[int]) -> Finding:
    return Finding(what, "0", f"{sum(counts):,}" if counts else "-", bool(counts) and not any(counts))


def main(argv: list[str] | None = None) -> int:
    """Prints both; 0 when all holds, 1 when something does not, 2 when it is not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.targets", description=__doc__)
    parser.add_argument("results", type=Path, help="by python -m benchmarks.gpu")
    parser.add_argument("tests", type=Path, nargs="?", help="by python -m benchmarks.gpu.tests")
    arguments = parser.parse_args(argv)
    try:
        document = json.loads(arguments.results.read_text())
        tests = json.loads(arguments.tests.read_text()) if arguments.tests else None
    except (OSError, ValueError) as error:
        print(f"there is nothing to compare: {error}", file=sys.stderr)
        return 2
    found = compare(document, tests)
    console = Console(soft_wrap=True, highlight=False)
    rows = [(one.what, one.asked, one.got, "yes" if one.holds else "no") for one in found]
    console.print(harness.table("", ["what"], ["asked", "got", "holds"], rows))
    other = of_other_code(document) + (["tests"] if tests and of_other_code(tests) else [])
    told = f"with other code than is here: {'; '.join(other)}" if other else "with the code that is here"
    console.print(f"measured {told}")
    return 0 if all(finding.holds for finding in found) else 1


if __name__ == "__main__":
    sys.exit(main())
