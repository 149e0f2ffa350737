"""Compare two versions of framefeed: ``python -m benchmarks.decoder`` of both, in turns.

    git worktree add ../before 4603eae
    python -m benchmarks.experiments.turns ../before/src src --turns 5 --output benchmarks/results/turns-2-cores.json

Each turn runs every case in a new process for each version; the version that begins changes with the turn. A case is
compared by the best time of each version, which noise of other processes disturbs least.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import harness

Times = dict[str, list[float]]
"""Seconds of each case, by case and reader."""


def run(source: Path, options: list[str], times: Times) -> dict[str, Any]:
    """Run the benchmark of the version at ``source`` and add its times."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        module = "framefeed.bench" if (source / "framefeed" / "bench").exists() else "benchmarks.decoder"
        command = [sys.executable, "-m", module, "--output", str(output), *options]
        environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
        subprocess.run(command, env=environment, cwd=source.resolve().parent, check=True, stderr=subprocess.DEVNULL)
        document: dict[str, Any] = json.loads(output.read_text())
    for result in document["results"]:
        for row in result["readers"]:
            if row["reader"].startswith("framefeed"):
                times.setdefault(f"{result['case']}, {result['on']}, {row['reader']}", []).extend(row["seconds"])
    return document


def digest(source: Path) -> str:
    """The source digest of the version at ``source``."""
    module = "framefeed._util.versions" if (source / "framefeed" / "_util").exists() else "framefeed.versions"
    code = f"from {module} import source_digest; print(source_digest())"
    environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
    said = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return said.stdout.strip()


def main() -> int:
    """Measure, print, write; 1 where a case has become slower than allowed."""
    parser = harness.make_parser("experiments.turns", __doc__)
    parser.add_argument("before", type=Path, help="src of one version")
    parser.add_argument("after", type=Path, help="src of the other")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--allowed", type=float, default=0.03, help="how much slower a case may be (default: 0.03)")
    parser.add_argument("--bench", default="", help="options of benchmarks.decoder, such as --bench='--cases random'")
    arguments = parser.parse_args()
    options = shlex.split(arguments.bench)
    before: Times = {}
    after: Times = {}
    document: dict[str, Any] = {}
    for turn in range(arguments.turns):
        both = [(arguments.before, before), (arguments.after, after)]
        for source, times in both if turn % 2 else reversed(both):
            document = run(source, options, times)
    cases: dict[str, dict[str, Any]] = {
        name: {
            "ratio": round(min(before[name]) / min(after[name]), 3),
            "before_seconds": before[name],
            "after_seconds": after[name],
        }
        for name in after.keys() & before.keys()
    }
    for name, case in sorted(cases.items(), key=lambda item: item[1]["ratio"]):
        print(f"{case['ratio']:.3f}  {name}")
    found = harness.begin("experiments.turns", None, results=dict(sorted(cases.items())))
    measured = {name: document[name] for name in ("machine", "versions")}
    digests = {"before_source": digest(arguments.before), "source": digest(arguments.after)}
    harness.save(arguments.output, {**found, **measured, **digests})
    return int(any(case["ratio"] < 1 - arguments.allowed for case in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
