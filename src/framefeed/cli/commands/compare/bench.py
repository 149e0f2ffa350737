"""``framefeed bench``: compares video readers on the same videos, and checks their frames before timing."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefeed.cli.arguments import comma_separated, count, search_here, seconds, whole
from framefeed.cli.commands.compare import exercise

if TYPE_CHECKING:
    from framefeed.compare.compared_videos import ComparedVideo
    from framefeed.compare.config import Config

__all__ = ["add_parser"]

RIGHT, WRONG, UNUSABLE = 0, 1, 2
_counts = comma_separated(count)
INTERRUPTED = 130


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "bench",
        help="compare video libraries on your files and machine",
        description="Reads the same frames with several libraries: checks the frames, then times the libraries in "
        "turns. Writes JSON and a page with plots. Without files, generates its own clips.",
        epilog="exit codes: 0 all frames were right, 1 a reader returned wrong frames or failed, 2 nothing was "
        "measured. `framefeed bench exercise --help` describes another comparison: sampling strategies.",
        allow_abbrev=False,
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="a video; none for generated clips")
    parser.add_argument(
        "--readers",
        metavar="NAMES",
        default="all",
        help="names from `framefeed readers`, or module:Class (default: all)",
    )
    parser.add_argument(
        "--cases", metavar="NAMES", default="all", help="random, single, in-order, clips, every (default: all)"
    )
    parser.add_argument(
        "--batch-sizes", metavar="N,N", type=_counts, default="32", help="frames in a request (default: 32)"
    )
    parser.add_argument("--devices", metavar="NAMES", default="cpu", help="cpu, cuda (default: cpu)")
    parser.add_argument(
        "--mode", choices=("best", "seek", "stream"), default="best", help="how readers find frames (default: best)"
    )
    parser.add_argument("--frame-skip", metavar="N", type=count, default=25, help="for the case every (default: 25)")
    parser.add_argument("--clip-length", metavar="N", type=count, default=16, help="for the case clips (default: 16)")
    parser.add_argument(
        "--max-batches",
        metavar="N",
        type=count,
        default=4,
        help="requests in a timing, 4N in order and for single frames (default: 4)",
    )
    parser.add_argument("--repeat", metavar="N", type=count, default=11, help="number of timings (default: 11)")
    parser.add_argument("--threads", metavar="N", type=whole, default=0, help="of decoders (default: each library's)")
    parser.add_argument("--seed", metavar="S", type=whole, default=0, help="seed of random frames (default: 0)")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=120.0, help="of a timing (default: 120 s)")
    parser.add_argument(
        "--clips",
        metavar="DIR",
        type=Path,
        default=Path(".bench/clips"),
        help="folder of generated clips (default: .bench/clips)",
    )
    parser.add_argument(
        "--least-seconds", type=float, default=0.5, metavar="S", help="shortest timing (default: 0.5 s)"
    )
    parser.add_argument("--quick", action="store_true", help="two small clips, two timings")
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, default=Path("bench.json"), help="results (default: bench.json)"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="the page (default: beside the results)")
    parser.add_argument("--against", metavar="FILE", type=Path, help="results of another run to compare with")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)
    _add_exercise(parser)


def _add_exercise(parser: argparse.ArgumentParser) -> None:
    """Adds the subcommand ``bench exercise``; a file of that name must be given as ``./exercise``.

    argparse supports either files or subcommands after the options, not both.
    """
    parse_files = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        if args and args[0] == "exercise":
            return exercise.make_parser().parse_known_args(args[1:], namespace)
        return parse_files(args, namespace)

    parser.parse_known_args = parse  # type: ignore[method-assign]


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed._util.atomic_write import write
    from framefeed.cli import console
    from framefeed.compare.agree import agreement
    from framefeed.compare.config import CASES, Config
    from framefeed.compare.reader_process import reader_class
    from framefeed.compare.report_page import page
    from framefeed.compare.suite import Bench, find_readers
    from framefeed.readers import READERS

    search = search_here()
    try:
        readers = _names(args.readers, list(READERS))
        for name in readers:
            reader_class(name)
        config = Config(
            readers=readers,
            cases=_names(args.cases, list(CASES)),
            batch_sizes=tuple(args.batch_sizes),
            devices=_names(args.devices, ["cpu"]),
            mode=args.mode,
            repeat=2 if args.quick else args.repeat,
            max_batches=min(2, args.max_batches) if args.quick else args.max_batches,
            least_seconds=0 if args.quick else args.least_seconds,
            frame_skip=args.frame_skip,
            clip_length=args.clip_length,
            seed=args.seed,
            timeout=args.timeout,
        )
        other = _other(args.against)
    except ValueError as error:
        console.print_error(ValueError(f"bench: {error}"))
        return UNUSABLE
    with console.progress(show=not args.json) as report:
        videos = _videos(args, config, report)
    known = find_readers()  # loads every library: only after the arguments have been checked
    missing = {info["name"]: info["why"] for info in known if not info["usable"]}
    if not args.json:
        for name in readers:
            if name in missing:
                console.print_lines(f"not compared: {name}: {missing[name]}")
    if args.readers == "all":
        config = replace(config, readers=tuple(name for name in readers if name not in missing))
    interrupted = False
    about = {"command": _command(), "search": search, "num_threads": args.threads, "known": known}
    bench = Bench(config, videos, args.output, **about)
    with console.progress(show=not args.json) as report:
        try:
            bench.run(report)
        except KeyboardInterrupt:
            interrupted = True
    document = bench.document
    compared = agreement(document, other) if other is not None else None
    if compared is not None:
        document["against"] = compared.as_json()
        bench.save()
    html = args.html or args.output.with_suffix(".html")
    write(html, page(document), parents=True)
    if args.json:
        console.print_json(document)
    else:
        _print(document)
        console.print_lines(*(compared.sentences() if compared is not None else ()), f"{args.output}", f"{html}")
    if interrupted:
        return INTERRUPTED
    if not document["results"]:
        return UNUSABLE
    return RIGHT if all(not row["wrong"] and not row["error"] for row in document["results"]) else WRONG


def _other(path: Path | None) -> dict[str, Any] | None:
    """Reads the results of another run."""
    if path is None:
        return None
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or "results" not in found:
            raise ValueError("the file has no results of `framefeed bench`")
    except (OSError, ValueError) as error:
        raise ValueError(f"--against {path}: {error}") from error
    return found


def _videos(args: argparse.Namespace, config: Config, report: Callable[[int, int, str], None]) -> list[ComparedVideo]:
    from framefeed.compare.compared_videos import REFERENCES, TINY, generate, open_video
    from framefeed.compare.config import requests

    if not args.files:
        names, changes = (TINY, {"frames": 120, "width": 320, "height": 180}) if args.quick else (tuple(REFERENCES), {})
        return generate(
            args.clips,
            names,
            lambda done, total: report(done, total, "making clips"),
            **changes,
        )

    def last_frame(num_frames: int) -> int:
        return max(
            (frame for case in config.cases for size in config.sizes(case)
             for request in requests(case, num_frames, size, config) for frame in request),
            default=0,
        )  # fmt: skip

    videos = []
    for number, file in enumerate(args.files):
        report(number, len(args.files), f"looking at {file}")
        same = sum(Path(other).name == Path(file).name for other in args.files)
        videos.append(open_video(Path(file), file if same > 1 else Path(file).name, last_frame))
    return videos


def _print(document: dict[str, Any]) -> None:
    """Prints one table: a row for each case and video, a column for each reader."""
    from framefeed.cli import console

    readers = document["configuration"]["readers"]
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in document["results"]:
        key = (row["video"], row["case"], row["batch_size"], row["device"])
        lines.setdefault(key, {})[row["reader"]] = _cell(row)
    table = [(*key, *(cells.get(name, "–") for name in readers)) for key, cells in lines.items()]
    if table:
        title = "frames/s, medians"
        console.print_table(console.make_table(("video", "case", "batch", "on", *readers), table, title=title))
    for row in document["results"]:
        if row["error"]:
            console.print_lines(f"{row['reader']}: {row['video']}, {row['case']}: {row['error']}")


def _cell(row: dict[str, Any]) -> str:
    if row["error"]:
        return "failed"
    if row["wrong"]:
        return f"WRONG {row['wrong']}/{row['checked']}"
    if not row["tested"]:
        return "untested"
    return f"{row['median']:,.0f}" if row["median"] >= 100 else f"{row['median']:.3g}"


def _names(text: str, everything: list[str]) -> tuple[str, ...]:
    names = everything if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(names))


def _command() -> str:
    return shlex.join(["framefeed", *sys.argv[1:]])
