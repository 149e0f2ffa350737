"""``framefeed bench exercise``: speed and statistics of common sampling strategies on 200 files."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from framefeed.cli.arguments import count, seconds

__all__ = ["make_parser"]

RIGHT, WRONG, UNUSABLE = 0, 1, 2
INTERRUPTED = 130


def make_parser() -> argparse.ArgumentParser:
    """Builds the parser of ``framefeed bench exercise``."""
    parser = argparse.ArgumentParser(
        prog="framefeed bench exercise",
        description="Reads batches of frames from many small files with common strategies: one file frame by frame, a "
        "global index, workers, runs of frames, in order, a buffer, and an exact shuffle with look-ahead. Checks "
        "frames, times the strategies in turns, and shows the statistics of each.",
        epilog="exit codes: 0 all frames were right, 1 some were wrong, 2 nothing was measured",
        allow_abbrev=False,
    )
    parser.add_argument("--files", metavar="N", type=count, default=200, help="generated files (default: 200)")
    parser.add_argument("--batch-size", metavar="N", type=count, default=128, help="frames in a batch (default: 128)")
    parser.add_argument("--seconds", metavar="S", type=seconds, default=5.0, help="duration of a timing (default: 5)")
    parser.add_argument("--repeat", metavar="N", type=count, default=3, help="timings per strategy (default: 3)")
    parser.add_argument(
        "--ways", metavar="TEXT", help="only strategies whose reader or name contains this, as PyAV or shuffle"
    )
    parser.add_argument("--workers", metavar="N", type=count, help="processes or threads (default: one per CPU)")
    parser.add_argument(
        "--clips", metavar="DIR", type=Path, default=Path(".bench/exercise"), help="files (default: .bench/exercise)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("exercise.json"), help="(default: exercise.json)"
    )
    parser.add_argument("--plot", metavar="FILE", type=Path, help="the plot (default: beside the results, .svg)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run, fail=parser.error)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed._util.atomic_write import write
    from framefeed._util.limits import available_cpus
    from framefeed.cli import console
    from framefeed.compare.exercise.exercise import Exercise, find_ways, prepare
    from framefeed.compare.exercise.exercise_page import exercise_plot

    interrupted = False
    with console.progress(show=not args.json) as report:
        material = prepare(args.clips, args.files, args.batch_size, args.workers or available_cpus(), report)
        if args.batch_size > material.population.num_frames:
            args.fail(f"--batch-size: {args.files} files have {material.population.num_frames} frames")
        ways = find_ways(material)
        if args.ways is not None:
            ways = [way for way in ways if args.ways.lower() in f"{way.reader} {way.name}".lower()]
            if not ways:
                known = ", ".join(way.name for way in find_ways(material))
                args.fail(f"--ways: none contains {args.ways!r}; available are PyAV and framefeed, {known}")
        command = shlex.join(["framefeed", *sys.argv[1:]])
        exercise = Exercise(material, ways, args.output, seconds=args.seconds, repeat=args.repeat, command=command)
        try:
            exercise.run(report)
        except KeyboardInterrupt:
            interrupted = True
    document = exercise.document
    plot = args.plot or args.output.with_suffix(".svg")
    measured = [row for row in document["results"] if row["median"] is not None]
    if measured:
        write(plot, exercise_plot(document), parents=True)
    if args.json:
        console.print_json(document)
    else:
        _print(document, measured)
        console.print_lines(f"{args.output}", *([f"{plot}"] if measured else []))
    if interrupted:
        return INTERRUPTED
    if not measured:
        return UNUSABLE
    return WRONG if any(row["wrong"] for row in document["results"]) else RIGHT


def _print(document: dict[str, Any], measured: list[dict[str, Any]]) -> None:
    from framefeed.cli import console
    from framefeed.compare.exercise.exercise_page import independent_rate

    size = document["configuration"]["batch_size"]
    rows = []
    for row in measured:
        found = row["statistics"]
        rate = f"WRONG {row['wrong']}" if row["wrong"] else f"{row['median']:.2f}"
        rows.append(
            (
                row["name"],
                row["reader"],
                rate,
                found["unbiased"],
                f"{found['least'] / found['most']:.2g}",
                f"{found['same_group']:.2%}",
                f"{found['design_effect']:.3g}",
                f"{found['measured_effect']:.3g}",
                f"{independent_rate(row, size):,.0f}",
                row["measured_decoded_per_delivered"],
            )
        )
    columns = ("way", "by", "it/s", "unbiased", "min/max", "group", "effect", "seen", "worth/s", "decoded")
    console.print_table(console.make_table(columns, rows))
    console.print_lines(
        f"it/s      batches of {size} per second",
        "unbiased  expected mean of a batch is that of all frames: at all steps, at inner ones, over epochs, never",
        "min/max   probability of the least likely frame relative to the most likely one",
        "group     probability that two frames of a batch share a group",
        "effect    variance of a batch's mean luma relative to independent frames; seen: as measured",
        "worth/s   equivalent independent frames per second",
        "decoded   packets decoded per frame",
    )
