"""``framefeed prepare``: prepares videos for training; or reports on keyframe distances."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefeed.cli.arguments import comma_separated, count, whole

if TYPE_CHECKING:
    from framefeed.prepare import GopReport, PrepareResult

__all__ = ["add_parser"]

ALL_GOOD, SOME_BAD, INTERRUPTED = 0, 1, 130
SHOWN = 20  # bad videos and warnings printed; JSON has all

_counts = comma_separated(count)
CODECS = ("h264", "hevc", "vp9", "av1")
ONLY_WRITING = ("gop", "container", "audio", "min_scene_seconds", "catalog")
ONLY_REPORT = ("sample", "seconds", "gops", "seed", "output", "plot")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "prepare",
        help="make videos ready for training: size, codec, keyframes, scenes",
        description="Re-encodes videos with a keyframe exactly every N frames, in closed GOPs; frames and their "
        "times stay exact. Rerun the command to resume; finished videos are not encoded again. With --report no "
        "videos are written: parts of some videos are encoded with several keyframe distances, and sizes and read "
        "times are shown.",
        epilog="exit codes: 0 success, 1 some videos could not be prepared (they are listed), 2 nothing could be "
        "done, 130 interrupted",
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths",
        metavar="SOURCE",
        nargs="+",
        help="videos, folders, patterns, catalogs, packet stores; OUT comes last",
    )
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--size", metavar="WxH", help="size of all pictures, as 640x360")
    shape.add_argument("--short-side", metavar="N", type=count, help="shorter side in pixels, keeping the aspect ratio")
    parser.add_argument("--codec", choices=CODECS, default="h264", help="(default: h264)")
    parser.add_argument("--gop", metavar="N", type=count, help="distance of keyframes in frames (default: 30)")
    parser.add_argument("--b-frames", metavar="N", type=whole, default=0, help="most B-frames in a row (default: 0)")
    parser.add_argument("--crf", metavar="N", type=whole, help="quality, lower is better (default: the encoder's)")
    parser.add_argument("--preset", metavar="NAME", help="the encoder's speed, as veryfast; a number for vp9 and av1")
    parser.add_argument("--fps", metavar="RATE", help="constant frame rate, as 30000/1001 (default: original times)")
    parser.add_argument("--pixel-format", metavar="NAME", default="auto", help="auto (default), keep, or as yuv420p")
    parser.add_argument("--container", choices=("mp4", "mov", "mkv", "webm"), help="container (default: mp4)")
    parser.add_argument("--audio", choices=("drop", "copy"), help="drop or copy the audio (default: drop)")
    parser.add_argument("--scenes", action="store_true", help="split videos at cuts, one file per scene")
    parser.add_argument("--min-scene-seconds", metavar="S", type=float, help="shortest scene (default: 1)")
    parser.add_argument("--force", action="store_true", help="re-encode videos that already meet the options")
    parser.add_argument("--threads", metavar="N", type=count, default=1, help="threads per encoder (default: 1)")
    parser.add_argument("--workers", metavar="N", type=count, help="videos at the same time (default: as CPUs allow)")
    parser.add_argument("--catalog", metavar="FILE", type=Path, help="catalog to write (default: OUT/catalog.arrow)")
    parser.add_argument("--restart", action="store_true", help="discard an OUT made with other options")
    parser.add_argument("--report", action="store_true", help="show the cost of keyframe distances; takes no OUT")
    report = parser.add_argument_group("with --report")
    report.add_argument("--sample", metavar="N", type=count, help="videos to use (default: 8)")
    report.add_argument("--seconds", metavar="S", type=float, help="duration used of each (default: 10)")
    report.add_argument("--gops", metavar="N,N", type=_counts, help="keyframe distances (default: 1,8,30,60,250)")
    report.add_argument("--seed", metavar="S", type=whole, help="seed of videos and frames (default: 0)")
    report.add_argument("--output", metavar="FILE", type=Path, help="write the numbers, as report.json")
    report.add_argument("--plot", metavar="FILE", type=Path, help="write a plot, as report.svg")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="print only bad videos and warnings")
    parser.set_defaults(run=run, fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    _check(args)
    given = {
        "size": args.size,
        "short_side": args.short_side,
        "codec": args.codec,
        "b_frames": args.b_frames,
        "crf": args.crf,
        "preset": args.preset,
        "fps": args.fps,
        "pixel_format": args.pixel_format,
        "threads": args.threads,
        "workers": args.workers,
        "progress": False if args.json or args.quiet else None,  # None: on a terminal
    }
    names = ONLY_REPORT[:4] if args.report else ONLY_WRITING
    given |= {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    try:
        return _report(args, given) if args.report else _prepare(args, given)
    except KeyboardInterrupt:
        if not args.report:
            sys.stderr.write("framefeed: interrupted; rerun the same command to resume\n")
        return INTERRUPTED


def _check(args: argparse.Namespace) -> None:
    """Exits if options are invalid, or exclude each other."""
    from framefeed.prepare.options import PrepareOptions, parse_fps, parse_size

    wrong = ONLY_WRITING if args.report else ONLY_REPORT
    for name in wrong:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            args.fail(f"{option} cannot be combined with --report" if args.report else f"{option} needs --report")
    if args.report and (args.scenes or args.restart or args.force):
        args.fail("--scenes, --restart and --force cannot be combined with --report")
    if not args.report and len(args.paths) < 2:
        args.fail("SOURCE and OUT are required, or --report SOURCE")
    names = ("short_side", "codec", "gop", "b_frames", "crf", "preset", "pixel_format", "container", "audio", "threads")
    chosen = {name: getattr(args, name) for name in (*names, "min_scene_seconds") if getattr(args, name) is not None}
    try:
        PrepareOptions(size=parse_size(args.size), fps=parse_fps(args.fps), scenes=args.scenes, **chosen)
        if args.seconds is not None and not args.seconds > 0:
            raise ValueError(f"--seconds must be above 0, got {args.seconds}")
    except ValueError as error:
        args.fail(str(error))


def _prepare(args: argparse.Namespace, given: dict[str, Any]) -> int:
    from framefeed import prepare

    *sources, out = args.paths
    result = prepare.run(sources, out, scenes=args.scenes, force=args.force, restart=args.restart, **given)
    if args.json:
        _print_json(result)
    else:
        _print(args, result)
    return SOME_BAD if result.bad else ALL_GOOD


def _print(args: argparse.Namespace, result: PrepareResult) -> None:
    from framefeed.cli import console

    if not args.quiet:
        columns = ("output", "videos", "files", "bytes", "new", "kept as they were", "frames/s", "bad")
        kept = sum(video.how == "remuxed" for video in result.videos)
        rate = result.num_frames / result.seconds if result.num_frames else None
        counts = (len(result.videos), result.num_outputs, result.num_bytes, result.num_new, kept, rate, len(result.bad))
        console.print_table(console.make_table(columns, [(str(result.out), *counts)]))
    for title, rows in (
        ("warning", result.warnings),
        ("reason", [(bad.path, bad.reason) for bad in result.bad]),
    ):
        if rows:
            kind = "bad video" if title == "reason" else "video"
            console.print_table(console.make_table((kind, title), rows[:SHOWN]))
        if len(rows) > SHOWN:
            console.print_lines(f"and {len(rows) - SHOWN} more (--json lists them)")


def _print_json(result: PrepareResult) -> None:
    from framefeed.cli import console

    console.print_json(
        {
            "out": str(result.out),
            "catalog": str(result.catalog),
            "videos": len(result.videos),
            "new": result.num_new,
            "files": result.num_outputs,
            "bytes": result.num_bytes,
            "kept": sum(video.how == "remuxed" for video in result.videos),
            "frames": result.num_frames,
            "seconds": round(result.seconds, 3),
            "warnings": [{"file": path, "warning": text} for path, text in result.warnings],
            "bad": [{"file": bad.path, "reason": bad.reason} for bad in result.bad],
        }
    )


def _report(args: argparse.Namespace, given: dict[str, Any]) -> int:
    import json

    from framefeed import prepare
    from framefeed._util.atomic_write import write
    from framefeed.cli import console
    from framefeed.prepare.plot import report_plot

    found = prepare.report(args.paths, **given)
    if args.output is not None:
        write(args.output, json.dumps(found.as_json(), indent=1, allow_nan=False) + "\n", parents=True)
    if args.plot is not None:
        write(args.plot, report_plot(found), parents=True)
    if args.json:
        console.print_json(found.as_json())
    else:
        _print_report(args, found)
    return SOME_BAD if found.bad else ALL_GOOD


def _print_report(args: argparse.Namespace, found: GopReport) -> None:
    from framefeed.cli import console

    if not args.quiet:
        columns = ("GOP", "kB/s", "size", "packets/frame", "ms/frame", "packets/clip", "ms/clip", "frames/s in order")
        rows = [
            (
                "as it is" if row.gop is None else str(row.gop),
                row.bytes_per_second / 1000,
                row.relative_size,
                row.packets_per_frame,
                row.frame_ms,
                row.packets_per_clip,
                row.clip_ms,
                row.frames_per_second,
            )
            for row in (*found.rows, found.source)
        ]
        title = f"{len(found.files)} videos, {found.seconds:.0f} s of them as {found.options.codec}; clips of 16 frames"
        console.print_table(console.make_table(columns, rows, title=title))
        console.print_lines(found.recommendation())
    if found.bad:
        bad = [(each.path, each.reason) for each in found.bad[:SHOWN]]
        console.print_table(console.make_table(("bad video", "reason"), bad))
