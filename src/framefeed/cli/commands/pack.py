"""``framefeed pack``: copies the packets of a catalog's videos into a packet store."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefeed.cli.arguments import positive_size

if TYPE_CHECKING:
    from framefeed.catalog.catalog import BadFile

__all__ = ["add_parser"]

ALL_GOOD, SOME_BAD = 0, 1
SHOWN = 20  # bad videos printed; JSON has all


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "pack",
        help="copy the packets of videos into a packet store",
        description="Copies the packets of all videos of a catalog into a packet store, a folder that can be used in "
        "place of the videos, wherever a catalog is accepted. Rerun the command to resume; videos that the store "
        "already has are not copied again.",
        epilog="exit codes: 0 success, 1 some videos were left out or are damaged (they are listed), 2 nothing "
        "could be done",
        allow_abbrev=False,
    )
    parser.add_argument("catalog", metavar="CATALOG", nargs="?", help="made by framefeed index")
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, help="the store's folder")
    parser.add_argument("--verify", metavar="OUT", type=Path, help="check all packets of a store instead")
    parser.add_argument(
        "--shard-size", metavar="SIZE", type=positive_size, default=None, help="largest size of a file (default: 4GiB)"
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="stop at the first video that cannot be read (default), or leave such videos out and list them",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="print only bad videos")
    parser.set_defaults(run=run, fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.verify is not None:
        if args.catalog is not None:
            args.fail("--verify OUT cannot be combined with CATALOG and OUT")
        return _verify(args)
    if args.out is None:
        args.fail("CATALOG and OUT are required, or --verify OUT")
    return _pack(args)


def _pack(args: argparse.Namespace) -> int:
    from framefeed.cli import console
    from framefeed.store.store import SHARD_SIZE, pack

    packed = pack(
        args.catalog,
        args.out,
        shard_size=args.shard_size or SHARD_SIZE,
        on_error=args.on_error,
        progress=False if args.json or args.quiet else None,  # None: on a terminal
    )
    share = packed.store_bytes / packed.video_bytes if packed.video_bytes else None
    if args.json:
        facts = {
            "store": str(args.out),
            "videos": len(packed.catalog),
            "new": packed.num_new,
            "shards": packed.num_shards,
            "video_bytes": packed.video_bytes,
            "store_bytes": packed.store_bytes,
            "share": share,
            "bad": _as_json(packed.bad),
        }
        console.print_json(facts)
    else:
        if not args.quiet:
            columns = ("store", "videos", "new", "shards", "video bytes", "store bytes", "share", "bad")
            sizes = (packed.video_bytes, packed.store_bytes, None if share is None else f"{share:.1%}")
            row = (str(args.out), len(packed.catalog), packed.num_new, packed.num_shards, *sizes, len(packed.bad))
            console.print_table(console.make_table(columns, [row]))
        _print_bad(packed.bad)
    return SOME_BAD if packed.bad else ALL_GOOD


def _verify(args: argparse.Namespace) -> int:
    from framefeed.cli import console
    from framefeed.store.store import verify

    found = verify(args.verify, progress=False if args.json or args.quiet else None)
    if args.json:
        facts = {"videos": found.num_videos, "shards": found.num_shards, "good_bytes": found.num_bytes}
        console.print_json({"store": str(args.verify), **facts, "bad": _as_json(found.bad)})
    else:
        if not args.quiet:
            row = (str(args.verify), found.num_videos, found.num_shards, found.num_bytes, len(found.bad))
            console.print_table(console.make_table(("store", "videos", "shards", "good bytes", "bad"), [row]))
        _print_bad(found.bad)
    return SOME_BAD if found.bad else ALL_GOOD


def _print_bad(bad: list[BadFile]) -> None:
    from framefeed.cli import console

    if bad:
        rows = [(each.path, each.reason) for each in bad[:SHOWN]]
        console.print_table(console.make_table(("bad video", "reason"), rows))
    if len(bad) > SHOWN:
        console.print_lines(f"and {len(bad) - SHOWN} more (--json lists them)")


def _as_json(bad: list[BadFile]) -> list[dict[str, str]]:
    return [{"file": each.path, "reason": each.reason} for each in bad]
