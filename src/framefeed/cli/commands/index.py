"""``framefeed index``: indexes many videos into one catalog file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from framefeed.cli.arguments import count

__all__ = ["add_parser"]

ALL_GOOD, SOME_BAD = 0, 1


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "index",
        help="build or update a catalog of videos",
        description="Reads the packets of videos into one catalog, without decoding. Unchanged files that are "
        "already in the catalog are not read again.",
        epilog="exit codes: 0 all files are good, 1 some are not (they are listed), 2 nothing could be done",
        allow_abbrev=False,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="videos, folders of them, or patterns")
    parser.add_argument("-o", "--output", metavar="CATALOG", type=Path, required=True, help="as catalog.arrow")
    parser.add_argument(
        "--on-error", choices=("report", "raise"), default="report", help="list bad files, or stop at the first one"
    )
    parser.add_argument(
        "--workers", metavar="N", type=count, default=None, help="files read at the same time (default: one per CPU)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="print only bad files")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed import Catalog
    from framefeed.cli import console

    catalog = Catalog.build(
        args.paths,
        args.output,
        on_error=args.on_error,
        num_workers=args.workers,
        progress=False if args.json or args.quiet else None,  # None: on a terminal
    )
    bad = [{"file": str(item.path), "reason": item.reason} for item in catalog.report]
    if args.json:
        console.print_json(
            {"catalog": str(args.output), "videos": len(catalog), "frames": catalog.total_frames, "bad": bad}
        )
        return SOME_BAD if bad else ALL_GOOD
    if not args.quiet:
        row = (str(args.output), len(catalog), catalog.total_frames, len(bad))
        console.print_table(console.make_table(("catalog", "videos", "frames", "bad files"), [row]))
    if bad:
        rows = [(item["file"], item["reason"]) for item in bad]
        console.print_table(console.make_table(("bad file", "reason"), rows))
    return SOME_BAD if bad else ALL_GOOD
