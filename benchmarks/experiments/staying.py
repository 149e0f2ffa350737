"""Gain of decoders that stay in place after a single frame (decision 0026).

    PYTHONPATH=src python -m benchmarks.experiments.staying .bench/clips/* --output staying.json

The videos are those that ``framefeed bench`` makes. Each is asked for random single frames by one decoder, then all of
them in turn, one frame each, where nothing is to be gained. With the rule and without it in turn, the same frames.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.harness import Contender, Entry, Run
from framefeed import VideoDecoder
from framefeed.decoder import reading_cpu
from framefeed.index.table import PacketTable
from framefeed.plan import is_worth_staying


def without(table: PacketTable, reorder_depth: int, frame: int, *, undisturbed: bool) -> bool:
    """The rule without chances: deep in long groups alone."""
    return is_worth_staying(table, reorder_depth, frame, undisturbed=False)


RULES: dict[str, Callable[..., bool]] = {"without": without, "with": is_worth_staying}


@dataclass
class Singles(Contender):
    """A contender: single frames of the videos in turn, by one of the rules; other frames in each timing."""

    paths: list[str]
    rule: str
    requests: int
    seeds: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, seconds: float) -> Run:
        """Times all requests."""
        vars(reading_cpu)["is_worth_staying"] = RULES[self.rule]
        decoders = [VideoDecoder(path) for path in self.paths]
        rng = random.Random(next(self.seeds))
        chosen = [decoders[number % len(decoders)] for number in range(self.requests)]
        wanted = [(decoder, rng.randrange(len(decoder))) for decoder in chosen]
        begin = time.perf_counter()
        for decoder, number in wanted:
            decoder[number]
        took = time.perf_counter() - begin
        return Run(self.requests, took, self.requests / took)


def compare(paths: list[str], repeat: int, requests: int) -> dict[str, Any]:
    """Measures both ways in turn; each begins every other time."""
    entries = [Entry(rule, Singles(paths, rule, requests)) for rule in RULES]
    for _ in harness.in_turns(entries, repeat, alternate=True):
        pass
    ratios = sorted(new / old for old, new in zip(*(entry.rates for entry in entries), strict=True))
    return {
        **{entry.name: round(entry.median, 1) for entry in entries},
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "rates": {entry.name: [round(rate, 2) for rate in entry.rates] for entry in entries},
    }


def main(argv: list[str] | None = None) -> int:
    """Measures, prints, writes."""
    parser = harness.make_parser("experiments.staying", __doc__, repeat=9)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--requests", type=int, default=64)
    arguments = parser.parse_args(argv)
    sets = {Path(path).name: [path] for path in arguments.videos}
    sets["all of them in turn"] = arguments.videos
    document = harness.stamped(harness.begin("experiments.staying", argv, results={}))
    for name, paths in sets.items():
        document["results"][name] = found = compare(paths, arguments.repeat, arguments.requests)
        rates = f"{found['without']} -> {found['with']} frames/s"
        print(f"{name}: {rates}, {found['ratio']} ({found['ratios']})", flush=True)
        harness.save(arguments.output, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
