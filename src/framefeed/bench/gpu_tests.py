"""``python -m framefeed.bench.gpu_tests``: what the GPU tests and the memory checker said, as results to keep."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from framefeed.bench.gpu import versions
from framefeed.bench.gpu_device import Gpu
from framefeed.bench.stamps import of_other_code, stamped
from framefeed.devices import resolve_device
from framefeed.errors import FramefeedError

__all__ = ["BAD", "memcheck_errors", "read_reports"]

BAD = ("failed", "processes_that_ended_badly", "memcheck_errors")  # what there should be none of


def read_reports(paths: Iterable[Path], expected: int) -> dict[str, Any]:
    """Counts of all tests in some of pytest's reports (``--junitxml``), those that failed, and why others were skipped.

    Raises:
        OSError: One of them is missing: its process did not come to its end.
        ValueError: There are fewer or more tests in them than expected.
    """
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    failed: list[str] = []
    for path in paths:
        for case in ElementTree.parse(path).iter("testcase"):
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                counts["failed"] += 1
                failed.append(f"{case.get('classname', '')}::{case.get('name', '')}")
            elif "skipped" in kinds:
                counts["skipped"] += 1
                why = case.find("skipped")
                skipped[_reason(why.get("message", "") if why is not None else "")] += 1
            else:
                counts["passed"] += 1
    if counts.total() != expected or not expected:
        raise ValueError(f"{counts.total()} tests were run, not {expected}")
    named = {name: counts[name] for name in ("passed", "failed", "skipped")}
    return {**named, "failed_tests": sorted(failed), "skipped_because": dict(skipped.most_common())}


def _reason(message: str) -> str:
    """Without what differs from one test to the next: numbers, names of clips, paths."""
    found = re.sub(r"\S*/\S+", "...", message)
    return re.sub(r"\d+x\d+|\d+", "N", found)


def memcheck_errors(log: str) -> int:
    """How many compute-sanitizer counted.

    Raises:
        ValueError: It did not come to its end, or no test was run under it.
    """
    sums = re.findall(r"ERROR SUMMARY: (\d+) error", log)
    if not sums or not re.search(r"\b[1-9]\d* passed", log):
        raise ValueError("the memory checker did not come to its end, or no test was run")
    return sum(map(int, sums))


def _begin(earlier: Path | None) -> dict[str, Any]:
    """A document for what was run here, to which an earlier one is added.

    Raises:
        ValueError: That was made on another machine, with other versions or with other code.
    """
    resolve_device("cuda")
    document = stamped({"machine": Gpu().describe(), "versions": versions(), "results": {}})
    if earlier is None or not earlier.exists():
        return document
    found: dict[str, Any] = json.loads(earlier.read_text())
    if any(found[name] != document[name] for name in ("machine", "versions")):
        raise ValueError(f"{earlier}: the tests were run on another machine, or with other versions")
    if of_other_code(found):
        raise ValueError(f"{earlier}: the tests were run with other code")
    return found


def main(argv: list[str] | None = None) -> int:
    """Writes the file; 0 when nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m framefeed.bench.gpu_tests", description=__doc__)
    parser.add_argument("--reports", type=Path, nargs="+", default=[], help="pytest's, by --junitxml: begins anew")
    parser.add_argument("--expected", type=int, default=0, help="tests that should be in them")
    parser.add_argument("--ended", type=int, default=0, help="processes that did not end well, apart from failures")
    parser.add_argument("--memcheck", type=Path, help="what compute-sanitizer printed: goes on")
    parser.add_argument("--command", required=True, help="what was run, to be noted")
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    arguments = parser.parse_args(argv)
    try:
        document = _begin(None if arguments.reports else arguments.output)
        results = document["results"]
        if arguments.reports:
            document["command"] = arguments.command
            results |= read_reports(arguments.reports, arguments.expected)
            results["processes_that_ended_badly"] = arguments.ended
        if arguments.memcheck:
            document["memcheck_command"] = arguments.command
            results["memcheck_errors"] = memcheck_errors(arguments.memcheck.read_text(errors="replace"))
    except (FramefeedError, ValueError, OSError, ElementTree.ParseError) as error:
        print(f"nothing was written: {error}", file=sys.stderr)
        return 2
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if any(results.get(name) for name in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
