"""Outcomes of the GPU tests and of the memory checker, as results to keep."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.gpu.device import Gpu
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import of_other_code, stamped
from framefeed.device import resolve_device
from framefeed.errors import FramefeedError

__all__ = ["BAD", "left", "memcheck_errors", "read_lines", "summary"]

# What there should be none of.
BAD = ("failed", "not_run", "processes_that_ended_badly", "random_bad", "memcheck_errors")
_WORST = ("passed", "skipped", "failed")  # the last one counts of what is said of a test


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Reads the notes of a test run, one JSON object a line; a last line that was cut off does not count.

    Raises:
        OSError: The file cannot be read.
        ValueError: Some of it was run with other code.
    """
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    if any(line.get("source", source_digest()) != source_digest() for line in lines):
        raise ValueError(f"{path}: some of it was run with other code")
    return lines


def left(lines: Sequence[dict[str, Any]], tests: Sequence[str]) -> list[str]:
    """The tests of which nothing was noted."""
    run = {line.get("test") for line in lines}
    return [test for test in tests if test not in run]


def summary(lines: Sequence[dict[str, Any]], tests: Sequence[str] = ()) -> dict[str, Any]:
    """Counts of all tests, those that failed, and why others were skipped; and what random clips and loaders came to.

    Args:
        lines: What `read_lines` gives.
        tests: All that should have been run; without them nothing is said of tests.
    """
    found: dict[str, Any] = {}
    if tests:
        outcomes: dict[str, str] = {}
        reasons: dict[str, str] = {}
        for line in lines:
            if "test" in line:
                outcomes[line["test"]] = max(outcomes.get(line["test"], "passed"), line["outcome"], key=_WORST.index)
                reasons[line["test"]] = _reason(line["why"])
        counts = Counter(outcomes.values())
        found |= {name: counts[name] for name in ("passed", "failed", "skipped")}
        found["not_run"] = len(left(lines, tests))
        found["failed_tests"] = sorted(test for test, outcome in outcomes.items() if outcome == "failed")
        skipped = Counter(reasons[test] for test, outcome in outcomes.items() if outcome == "skipped")
        found["skipped_because"] = dict(skipped.most_common())
        found["processes_that_ended_badly"] = sum("ended" in line for line in lines)
    if drawn := [line for line in lines if "random" in line]:
        found["random"] = [{name: line[name] for name in ("random", "seed", "counts")} for line in drawn]
        found["random_bad"] = sum(line["counts"].get("bad", 0) for line in drawn)
    return found


def _reason(message: str) -> str:
    """Without what differs from one test to the next: numbers, names of clips, paths."""
    found = re.sub(r"\S*/\S+", "...", message)
    return re.sub(r"\d+x\d+|\d+", "N", found)


def memcheck_errors(log: str) -> int:
    """Returns the number of errors that compute-sanitizer counted.

    Raises:
        ValueError: It did not come to its end, or no test was run under it.
    """
    sums = re.findall(r"ERROR SUMMARY: (\d+) error", log)
    if not sums or not re.search(r"\b[1-9]\d* passed", log):
        raise ValueError("the memory checker did not come to its end, or no test was run")
    return sum(map(int, sums))


def _begin(output: Path, *, may_replace: bool) -> dict[str, Any]:
    """A document for what was run here, to which an earlier one is added.

    Args:
        output: Where an earlier one may be.
        may_replace: Leave it out where it cannot be added to.

    Raises:
        ValueError: It was made on another machine, with other versions or with other code.
    """
    resolve_device("cuda")
    begun = harness.begin("gpu.tests", [], commands=[], results={})
    document = stamped({**begun, "command": "", "machine": Gpu().describe()})
    if not output.exists():
        return document
    found: dict[str, Any] = json.loads(output.read_text())
    what = ""
    if any(found[name] != document[name] for name in ("machine", "versions")):
        what = "on another machine, or with other versions"
    elif of_other_code(found):
        what = "with other code"
    if what and not may_replace:
        raise ValueError(f"{output}: the tests were run {what}")
    return document if what else found


def main(argv: list[str] | None = None) -> int:
    """Writes the file; 0 when nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.tests", description=__doc__)
    parser.add_argument("--lines", type=Path, help="what was noted while tests were run (FRAMEFEED_TEST_LINES)")
    parser.add_argument("--tests", type=Path, help="names of all tests, a line each")
    parser.add_argument("--left", action="store_true", help="only print the names of those that were not run")
    parser.add_argument("--memcheck", type=Path, help="what compute-sanitizer printed")
    parser.add_argument("--command", default="", help="what was run, to be noted")
    parser.add_argument("--output", type=Path, help="JSON file; what it has is added to")
    arguments = parser.parse_args(argv)
    try:
        tests = arguments.tests.read_text(encoding="utf-8").split("\n") if arguments.tests else []
        tests = [test for test in tests if test]
        if arguments.left:
            lines = read_lines(arguments.lines) if arguments.lines.exists() else []
            print("\n".join(left(lines, tests)))
            return 0
        document = _begin(arguments.output, may_replace=bool(tests))
        results = document["results"]
        if arguments.lines:
            results |= summary(read_lines(arguments.lines), tests)
        if arguments.memcheck:
            results["memcheck_errors"] = memcheck_errors(arguments.memcheck.read_text(errors="replace"))
    except (FramefeedError, ValueError, OSError) as error:
        print(f"nothing was written: {error}", file=sys.stderr)
        return 2
    if arguments.command not in document["commands"]:
        document["commands"].append(arguments.command)
    document["command"] = "; ".join(document["commands"])
    harness.save(arguments.output, document)
    return 1 if any(results.get(name) for name in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
