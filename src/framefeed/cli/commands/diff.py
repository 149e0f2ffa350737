"""``framefeed diff``: compares two files of detections."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from framefeed.cli.arguments import non_negative, number

__all__ = ["add_parser"]

SAME, DIFFERENT = 0, 1
_share = number("a number above 0, at most 1", 0, 1, above=True)


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "diff",
        help="compare two files of detections",
        description="Compares detections written by framefeed infer, or by another tool with the same columns. In each "
        "frame and class, boxes of A by falling score each match the unmatched box of B with the largest overlap.",
        epilog="exit codes: 0 equal within the tolerances, 1 different, 2 a file cannot be used",
        allow_abbrev=False,
    )
    parser.add_argument("a", metavar="A", help="a .csv or .parquet file")
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--iou", metavar="SHARE", type=_share, default=0.5, help="lowest overlap of matched boxes (0.5)"
    )
    parser.add_argument(
        "--tolerance", metavar="PIXELS", type=non_negative, default=1.0, help="allowed distance of box sides (1)"
    )
    parser.add_argument(
        "--score-tolerance",
        metavar="SCORE",
        type=non_negative,
        default=0.01,
        help="allowed score difference (0.01)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed.cli import console
    from framefeed.infer import diff

    found = diff(args.a, args.b, iou=args.iou, tolerance=args.tolerance, score_tolerance=args.score_tolerance)
    if args.json:
        console.print_json({"a": args.a, "b": args.b, "equal": found.equal, **asdict(found)})
        return SAME if found.equal else DIFFERENT
    columns = ("class", "rows A", "rows B", "matched", "only A", "only B", "mean IoU", "max box", "max score")
    rows = [
        (
            row.name,
            row.count_a,
            row.count_b,
            row.matched,
            row.only_a,
            row.only_b,
            row.mean_iou,
            row.max_box,
            row.max_score,
        )
        for row in (*found.classes, found.total)
    ]
    console.print_table(console.make_table(columns, rows))
    for side, examples in (("A", found.examples_a), ("B", found.examples_b)):
        if examples:
            wanted = ("video", "frame_index", "class", "score", "x1", "y1", "x2", "y2")
            lines = [tuple(example[name] for name in wanted) for example in examples]
            console.print_table(console.make_table(wanted, lines, title=f"only in {side}, by score"))
    if found.by_file_name:
        console.print_lines("no paths are equal: videos were matched by their file names")
    box, score = (f"{value:g}" for value in (found.tolerance, found.score_tolerance))
    verdict = "the same" if found.equal else "different"
    console.print_lines(f"{verdict} within {box} pixels and a score of {score}")
    return SAME if found.equal else DIFFERENT
