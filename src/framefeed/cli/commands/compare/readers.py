"""``framefeed readers``: which libraries can read frames here, and why others cannot."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "readers",
        help="which libraries can read frames here, and why others cannot",
        description="Lists the libraries that framefeed.readers knows: their versions, where they decode, and what is "
        "missing where one cannot be used. All that are installed are loaded.",
        allow_abbrev=False,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where frames should be decoded (default: anywhere)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed.cli import console
    from framefeed.readers import usable

    found = usable(args.device)
    if args.json:
        console.print_json({"readers": [asdict(info) for info in found]})
        return 0
    rows = [(info.name, info.version, ", ".join(info.devices), info.usable, info.why or info.remarks) for info in found]
    console.print_table(
        console.make_table(("reader", "version", "devices", "usable", "why not, or what to know"), rows)
    )
    return 0
