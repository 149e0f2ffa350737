"""``framefeed readers``: lists readers and their availability."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

__all__ = ["add_parser"]


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "readers",
        help="list the libraries that can read frames here",
        description="Lists the libraries supported by framefeed.readers: version, devices, and what is missing for "
        "those that are not usable. Loads all installed libraries.",
        allow_abbrev=False,
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="device for decoding (default: any)")
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
    console.print_table(console.make_table(("reader", "version", "devices", "usable", "reason or remarks"), rows))
    return 0
