"""``framefeed verify``: compares random and sequential access with a linear decode, bit for bit."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from framefeed.cli.arguments import expected, whole

if TYPE_CHECKING:
    from framefeed.compare.verify import VerifyResult
    from framefeed.errors import FramefeedError

__all__ = ["add_parser"]

EQUAL, DIFFERENT, UNREADABLE = 0, 1, 2
SHOWN = 20  # differences printed for one file; JSON has all


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "verify",
        help="prove random access equal to a linear decode",
        description="Reads frames at random and then all in order, and compares each with a single-threaded linear "
        "decode, bit for bit, in the video's own pixel format.",
        epilog="exit codes: 0 all frames equal, 1 some frames differ, 2 a file or one of its frames cannot be read",
        allow_abbrev=False,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a video")
    parser.add_argument(
        "--sample", metavar="N", type=_count, default=256, help="frames read at random, or 'all' (default: 256)"
    )
    parser.add_argument("--seed", metavar="S", type=whole, default=0, help="seed of the frames (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed.cli import console
    from framefeed.compare.verify import verify_file
    from framefeed.errors import FramefeedError

    results: list[VerifyResult] = []
    errors: list[FramefeedError] = []
    for file in args.files:
        with console.progress(file, show=not args.json) as report:
            try:
                results.append(verify_file(file, sample=args.sample, seed=args.seed, progress=report))
            except FramefeedError as error:  # continue with the other files
                errors.append(error)
    if args.json:
        console.print_json([*(_as_json(result) for result in results), *map(_error_as_json, errors)])
    elif results:
        _print(results)
    for failed in errors:
        console.print_error(failed)
    if errors or any(result.damaged for result in results):
        return UNREADABLE
    return EQUAL if all(result.equal for result in results) else DIFFERENT


def _count(text: str) -> int | None:
    try:
        return None if text == "all" else whole(text)
    except argparse.ArgumentTypeError:
        raise expected("a non-negative integer or 'all'", text) from None


def _print(results: list[VerifyResult]) -> None:
    from framefeed.cli import console

    rows = [
        (result.path, result.num_frames, len(result.random_frames), result.sequential_frames, result.equal)
        for result in results
    ]
    console.print_table(console.make_table(("file", "frames", "at random", "in order", "all equal"), rows))
    for result in results:
        if result.num_frames != result.linear_frames:
            console.print_lines(
                f"{result.path}: {result.num_frames} frames by the index, {result.linear_frames} by the linear decode"
            )
        for found in (result.damaged, result.differences):
            console.print_lines(*(f"{result.path}: {entry}" for entry in found[:SHOWN]))
            if len(found) > SHOWN:
                console.print_lines(f"{result.path}: and {len(found) - SHOWN} more (--json lists them)")


def _as_json(result: VerifyResult) -> dict[str, Any]:
    return {
        "file": result.path,
        "equal": result.equal,
        "frames": result.num_frames,
        "linear_frames": result.linear_frames,
        "random_frames": len(result.random_frames),
        "sequential_frames": result.sequential_frames,
        "differences": [dataclasses.asdict(difference) for difference in result.differences],
        "damaged": [dataclasses.asdict(frame) for frame in result.damaged],
    }


def _error_as_json(error: FramefeedError) -> dict[str, Any]:
    return {"file": error.path, "equal": None, "error": error.reason, "error_type": type(error).__name__}
