"""What it gains that a decoder stays where it is after a single frame (decision 0026).

    PYTHONPATH=src python benchmarks/staying.py .bench/clips/* --output benchmarks/results/staying-2-cores.json

The videos are those that ``framefeed bench`` makes. Each is asked for random single frames by one decoder, then all of
them in turn, one frame each, where nothing is to be gained. With the rule and without it in turn, the same frames.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from framefeed import VideoDecoder
from framefeed.compare.provenance import machine, stamped, versions
from framefeed.decoder import reading_cpu
from framefeed.index.table import PacketTable
from framefeed.plan import is_worth_staying

WITH = is_worth_staying


def without(table: PacketTable, reorder_depth: int, frame: int, *, undisturbed: bool) -> bool:
    """The rule without chances: deep in long groups alone."""
    return WITH(table, reorder_depth, frame, undisturbed=False)


def rate(paths: list[str], seed: int, requests: int) -> float:
    """Frames a second, of the videos in turn."""
    decoders = [VideoDecoder(path) for path in paths]
    rng = random.Random(seed)
    chosen = [decoders[number % len(decoders)] for number in range(requests)]
    wanted = [(decoder, rng.randrange(len(decoder))) for decoder in chosen]
    begin = time.perf_counter()
    for decoder, number in wanted:
        decoder[number]
    return requests / (time.perf_counter() - begin)


def compare(paths: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """Both ways in turn; each begins every other time."""
    rates: dict[str, list[float]] = {"without": [], "with": []}
    rules = [("without", without), ("with", WITH)]
    for seed in range(arguments.repeat):
        for name, rule in rules[:: 1 - 2 * (seed % 2)]:
            vars(reading_cpu)["is_worth_staying"] = rule
            rates[name].append(round(rate(paths, seed, arguments.requests), 2))
    ratios = [one / other for one, other in zip(rates["with"], rates["without"], strict=True)]
    return {
        **{name: round(statistics.median(values), 1) for name, values in rates.items()},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
        "rates": rates,
    }


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    sets = {Path(path).name: [path] for path in arguments.videos}
    sets["all of them in turn"] = arguments.videos
    document = stamped(
        {
            "command": shlex.join(["python", *sys.argv]),
            "machine": machine(0),
            "versions": versions(),
            "results": {},
        }
    )
    for name, paths in sets.items():
        document["results"][name] = found = compare(paths, arguments)
        print(
            f"{name}: {found['without']} -> {found['with']} frames/s, {found['ratio']} ({found['ratios']})", flush=True
        )
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
