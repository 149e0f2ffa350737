"""Framefeed on a GPU beside bare decoders and PyNvVideoCodec's own readers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks import harness
from benchmarks.clips import GPU_SETS, TINY_SETS, ClipSet, write_sets
from benchmarks.gpu.cases import CASES, COPIES, SHARES, Bench, Pace, endure, measure, ratios
from benchmarks.gpu.device import Device, Gpu
from benchmarks.gpu.peers import BATCH, BUFFER, InProcess, PeerProcess
from benchmarks.harness import OURS, figure, stamped
from framefeed._util.limits import available_cpus
from framefeed.compare.provenance import of_other_code
from framefeed.device import resolve_device
from framefeed.errors import FramefeedError

# --- the whole ----------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames of framefeed were right and no decoder was made after warming up."""
    start = time.perf_counter()
    arguments = _parser().parse_args(argv)
    if arguments.quick or arguments.dry_run:
        arguments.seconds, arguments.repeat = min(arguments.seconds, 0.3), min(arguments.repeat, 2)
    console = harness.make_console()
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    try:
        device = Device() if arguments.dry_run else _gpu()
    except FramefeedError as error:
        say(f"this needs a GPU: {error}")
        return 2
    sets = [
        clips for clips in (TINY_SETS if arguments.dry_run else GPU_SETS) if _is_chosen(clips.name, GPU_SETS, arguments)
    ]
    files = _write_clips(sets, arguments.clips, say)
    if arguments.only_clips:
        return 0
    bench = Bench(device, InProcess(device) if arguments.dry_run else PeerProcess(), files, not arguments.no_peers)
    cases = [(case, clips) for case in CASES if _is_chosen(case, CASES, arguments) for clips in sets]
    document = harness.begin("gpu", argv, configuration=_configuration(arguments, bench, sets), complete=False)
    document["machine"] = {**device.describe(), **document["machine"], "cpus_used": available_cpus()}
    document["ratios"] = {}
    if arguments.go_on:
        problem = _take_over(document, arguments.output)
        if problem:
            say(problem)
            return 2
        there = {(result["case"], result["on"]) for result in document["results"]}
        cases = [(case, clips) for case, clips in cases if (case, clips.name) not in there]
    planned = [len(bench.entries(case, clips)) for case, clips in cases]
    limit = arguments.minutes * 60 or float("inf")
    pace = Pace(arguments.seconds, arguments.repeat, planned, start + limit)
    try:
        for case, clips in cases:
            entries = bench.entries(case, clips)
            seconds = pace.next_case(len(entries))
            if seconds is None:
                document.setdefault("left_out", []).append(f"{case}, {clips.name}: it was too late")
                continue
            result = measure(case, clips, entries, device, seconds, arguments.repeat, say)
            document["results"].append(stamped(result))
            document["ratios"] = ratios(document["results"])
            harness.save(arguments.output, document)
        if arguments.endurance > document.get("endurance", {}).get("batches", 0):
            clips = sets[-1]
            document["endurance"] = stamped(endure(device, clips, bench.files[clips.name], arguments.endurance, say))
    finally:
        bench.peers.close()
    document["complete"] = True
    document["took_seconds"] = round(time.perf_counter() - start, 1)
    harness.save(arguments.output, document)
    for table in _tables(document):
        console.print(table)
    say(f"{document['took_seconds']:.0f} s in all; left out: {', '.join(document.get('left_out', [])) or 'nothing'}")
    return 1 if _is_bad(document) else 0


def _gpu() -> Device:
    resolve_device("cuda")
    return Gpu()


def _parser() -> argparse.ArgumentParser:
    parser = harness.make_parser("gpu", __doc__, repeat=5)
    names = [*(clips.name for clips in GPU_SETS), *CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="sets and cases (default: all)")
    parser.add_argument("--no-peers", action="store_true", help="leave SimpleDecoder and ThreadedDecoder out")
    parser.add_argument("--seconds", type=float, default=2, help="for a timing, less if time is short (default: 2)")
    parser.add_argument("--minutes", type=float, default=5.5, help="for all of it, 0 for no limit (default: 5.5)")
    parser.add_argument("--endurance", type=int, default=0, metavar="N", help="then N batches of 16 (default: 0)")
    clips = Path(".bench") / "gpu"
    parser.add_argument("--clips", type=Path, default=clips, help="where clips are kept (default: .bench/gpu)")
    parser.add_argument("--go-on", action="store_true", help="measure what is not in the JSON file yet")
    parser.add_argument("--only-clips", action="store_true", help="write the clips, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="two short timings of each contender")
    parser.add_argument("--dry-run", action="store_true", help="tiny clips, on the CPU: does it all run?")
    return parser


def _is_chosen(name: str, among: Any, arguments: argparse.Namespace) -> bool:
    """True where it is named, or none of its kind is."""
    kind = {getattr(one, "name", one) for one in among}
    return name in arguments.only or not kind & set(arguments.only)


def _write_clips(sets: list[ClipSet], folder: Path, say: Any) -> dict[str, list[Path]]:
    start, ready = time.perf_counter(), 0
    total = sum(clips.files for clips in sets)

    def done(files: int) -> None:
        nonlocal ready
        ready += files
        say(f"clips: {ready} of {total}, {time.perf_counter() - start:.0f} s")

    return write_sets(sets, folder, workers=available_cpus(), done=done)


def _configuration(arguments: argparse.Namespace, bench: Bench, sets: list[ClipSet]) -> dict[str, Any]:
    return {
        "seconds": arguments.seconds,
        "repeat": arguments.repeat,
        "minutes": arguments.minutes,
        "framefeed": {"batch_size": BATCH, "buffer_length": 8, "type": "byte", "copies_in_a_long_epoch": COPIES},
        "half224": {"type": "half", "scale": [224, 224], "normalized": True},
        "peers": {"output_color_type": "RGBP", "batch": BATCH, "buffer_size": BUFFER, "stacked": False},
        "sets": [
            {
                **clips.described(),
                "title": clips.title,
                "bytes": sum(path.stat().st_size for path in bench.files[clips.name]),
                "memory_budgets": {
                    f"{s:.0%}": int(clips.total * s) * bench.device.kept_bytes(clips.frame_bytes) for s in SHARES
                },
            }
            for clips in sets
        ],
    }


def _take_over(document: dict[str, Any], output: Path | None) -> str:
    """Takes over what an earlier run has measured; returns why that is not possible."""
    if output is None or not output.exists():
        return "there is nothing to go on with: --output names no file that is there"
    earlier = json.loads(output.read_text())
    for name in ("machine", "versions"):
        if earlier[name] != document[name]:
            return f"{output}: was measured with another {name.removesuffix('s')}; omit --go-on to measure all"
    if other := of_other_code(earlier):
        return f"{output}: was measured with other code ({'; '.join(other)}); omit --go-on to measure all"
    document["earlier"] = [*earlier.get("earlier", []), earlier["command"]]
    document["results"], document["ratios"] = earlier["results"], earlier["ratios"]
    sets = {each["name"]: each for each in [*earlier["configuration"]["sets"], *document["configuration"]["sets"]]}
    document["configuration"]["sets"] = list(sets.values())
    if "endurance" in earlier:
        document["endurance"] = earlier["endurance"]
    return ""


def _is_bad(document: dict[str, Any]) -> bool:
    ours = [row for result in document["results"] for row in result["entries"] if row["name"].startswith(OURS)]
    counted = [*document["results"], document.get("endurance", {})]
    made = any(one.get("decoders_created_after_warm_up", 0) for one in counted)
    wrong_at_last = document.get("endurance", {}).get("wrong", 0)
    return made or bool(wrong_at_last) or any(row["wrong"] or row["error"] for row in ours)


def _tables(document: dict[str, Any]) -> list[Table]:
    rates, kept = [], []
    for result in document["results"]:
        where = (result["case"], result["on"])
        for row in result["entries"]:
            figures = [figure(row.get(name), 0) for name in ("median", "min", "max")]
            figures.append(figure(row.get("decoded_per_delivered"), 2))
            notes = row["error"] or "; ".join(filter(None, (row["setting"], row.get("note"))))
            rates.append((*where, row["name"], notes, *figures, str(row["wrong"])))
        memory = [f"{used:,}" for used in result["device_memory_mb"].values()]
        kept.append((*where, str(result["decoders_created_after_warm_up"]), *memory))
    compared = [
        (name, *(figure(found.get(name), 2) for found in document["ratios"].values()))
        for name in dict.fromkeys(name for found in document["ratios"].values() for name in found)
    ]
    figures = ["median", "min", "max", "decoded each", "wrong"]
    memory = ["made", "before", "warm", "after", "closed"]
    tables = [
        harness.table("frames a second", ["case", "on", "contender", "notes"], figures, rates),
        harness.table("ratios", ["ratio"], list(document["ratios"]), compared),
        harness.table("decoders made after warming up, and device memory in MB", ["case", "on"], memory, kept),
    ]
    if "endurance" in document:
        found = document["endurance"]
        names = ("frames_per_second", "first_mb", "max_mb", "last_mb", "decoders_created_after_warm_up", "wrong")
        title = f"{found['batches']:,} batches of {found['batch_size']} at random"
        row = [f"{found[name]:,}" for name in names]
        tables.append(harness.table(title, [], [name.replace("_", " ") for name in names], [row]))
    return tables


if __name__ == "__main__":
    sys.exit(main())
