"""``python -m benchmarks.gpu``: framefeed on a GPU beside bare decoders and PyNvVideoCodec's own readers."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gpu_cases import CASES, COPIES, OURS, SHARES, Bench, Pace, endure, measure, ratios
from benchmarks.gpu_clips import SETS, TINY_SETS, ClipSet, write_sets
from benchmarks.gpu_device import Cpu, Device, Gpu
from benchmarks.gpu_peers import BATCH, BUFFER, InProcess, PeerProcess
from framefeed._util.atomic_write import write
from framefeed._util.limits import available_cpus
from framefeed._util.versions import installed_versions
from framefeed.compare.provenance import machine, of_other_code, stamped
from framefeed.device import resolve_device
from framefeed.errors import FramefeedError

# --- the whole ----------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames of framefeed were right and no decoder was made after warming up."""
    start = time.perf_counter()
    arguments = _parser().parse_args(argv)
    if arguments.quick or arguments.dry_run:
        arguments.seconds, arguments.repeat = min(arguments.seconds, 0.3), min(arguments.repeat, 2)
    console = Console(stderr=True)
    if not console.is_terminal:
        console = Console(stderr=True, width=140)
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    device: Device
    try:
        device = Cpu() if arguments.dry_run else _gpu()
    except FramefeedError as error:
        say(f"this needs a GPU: {error}")
        return 2
    sets = [clips for clips in (TINY_SETS if arguments.dry_run else SETS) if _is_chosen(clips.name, SETS, arguments)]
    files = _write_clips(sets, arguments.clips, say)
    if arguments.only_clips:
        return 0
    bench = Bench(device, InProcess(device) if arguments.dry_run else PeerProcess(), files, not arguments.no_peers)
    cases = [(case, clips) for case in CASES if _is_chosen(case, CASES, arguments) for clips in sets]
    document: dict[str, Any] = {
        "command": " ".join(["python -m benchmarks.gpu", *(sys.argv[1:] if argv is None else argv)]),
        "machine": {**device.describe(), **machine(0), "cpus_used": available_cpus()},
        "versions": versions(),
        "configuration": _configuration(arguments, bench, sets),
        "complete": False,
        "results": [],
        "ratios": {},
    }
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
            _save(arguments.output, document)
        if arguments.endurance > document.get("endurance", {}).get("batches", 0):
            clips = sets[-1]
            document["endurance"] = stamped(endure(device, clips, bench.files[clips.name], arguments.endurance, say))
    finally:
        bench.peers.close()
    document["complete"] = True
    document["took_seconds"] = round(time.perf_counter() - start, 1)
    _save(arguments.output, document)
    for table in _tables(document):
        console.print(table)
    say(f"{document['took_seconds']:.0f} s in all; left out: {', '.join(document.get('left_out', [])) or 'nothing'}")
    return 1 if _is_bad(document) else 0


def _gpu() -> Device:
    resolve_device("cuda")
    return Gpu()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    names = [*(clips.name for clips in SETS), *CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=[], help="sets and cases (default: all)")
    parser.add_argument("--no-peers", action="store_true", help="leave SimpleDecoder and ThreadedDecoder out")
    parser.add_argument("--seconds", type=float, default=2, help="for a timing, less if time is short (default: 2)")
    parser.add_argument("--repeat", type=int, default=5, help="timings of each contender, interleaved (default: 5)")
    parser.add_argument("--minutes", type=float, default=5.5, help="for all of it, 0 for no limit (default: 5.5)")
    parser.add_argument("--endurance", type=int, default=0, metavar="N", help="then N batches of 16 (default: 0)")
    clips = Path(".bench") / "gpu"
    parser.add_argument("--clips", type=Path, default=clips, help="where clips are kept (default: .bench/gpu)")
    parser.add_argument("--output", type=Path, help="JSON file for the results, written after each case")
    parser.add_argument("--go-on", action="store_true", help="measure what is not in the JSON file yet")
    parser.add_argument("--only-clips", action="store_true", help="write the clips, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="two short timings of each contender")
    parser.add_argument("--dry-run", action="store_true", help="tiny clips, on the CPU: does it all run?")
    return parser


def _is_chosen(name: str, among: Any, arguments: argparse.Namespace) -> bool:
    """Whether it is named, or none of its kind is."""
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


def versions() -> dict[str, str]:
    """Versions of everything that decoding on a GPU depends on."""
    packages = ("framefeed", "av", "torch", "triton", "numpy", "PyNvVideoCodec")
    return {"python": platform.python_version(), **installed_versions(packages)}


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
                "name": clips.name,
                "title": clips.title,
                "files": clips.files,
                "frames_of_a_file": clips.frames,
                "codec": clips.codec,
                "width": clips.width,
                "height": clips.height,
                "gop": clips.gop,
                "b_frames": clips.b_frames,
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
            return f"{output}: was measured with another {name.removesuffix('s')}; without --go-on all is measured anew"
    if other := of_other_code(earlier):
        return f"{output}: was measured with other code ({'; '.join(other)}); without --go-on all is measured anew"
    document["earlier"] = [*earlier.get("earlier", []), earlier["command"]]
    document["results"], document["ratios"] = earlier["results"], earlier["ratios"]
    sets = {each["name"]: each for each in [*earlier["configuration"]["sets"], *document["configuration"]["sets"]]}
    document["configuration"]["sets"] = list(sets.values())
    if "endurance" in earlier:
        document["endurance"] = earlier["endurance"]
    return ""


def _save(output: Path | None, document: dict[str, Any]) -> None:
    if output is not None:
        write(output, json.dumps(document, indent=1) + "\n", parents=True)


def _is_bad(document: dict[str, Any]) -> bool:
    ours = [row for result in document["results"] for row in result["entries"] if row["name"].startswith(OURS)]
    counted = [*document["results"], document.get("endurance", {})]
    made = any(one.get("decoders_created_after_warm_up", 0) for one in counted)
    wrong_at_last = document.get("endurance", {}).get("wrong", 0)
    return made or bool(wrong_at_last) or any(row["wrong"] or row["error"] for row in ours)


def _tables(document: dict[str, Any]) -> list[Table]:
    rates = Table(title="frames a second", title_justify="left")
    for name in ("case", "on", "contender", "median", "min", "max", "decoded each", "wrong", "notes"):
        rates.add_column(name, justify="right" if name in ("median", "min", "max", "decoded each", "wrong") else "left")
    for result in document["results"]:
        for row in result["entries"]:
            figures = [f"{row[name]:,.0f}" if name in row else "-" for name in ("median", "min", "max")]
            decoded = f"{row['decoded_per_delivered']:.2f}" if "decoded_per_delivered" in row else ""
            notes = row["error"] or "; ".join(filter(None, (row["setting"], row.get("note"))))
            rates.add_row(result["case"], result["on"], row["name"], *figures, decoded, str(row["wrong"]), notes)
    compared = Table(title="ratios", title_justify="left")
    names = list(dict.fromkeys(name for found in document["ratios"].values() for name in found))
    for name in ("ratio", *document["ratios"]):
        compared.add_column(name, justify="left" if name == "ratio" else "right")
    for name in names:
        cells = [f"{found[name]:.2f}" if name in found else "-" for found in document["ratios"].values()]
        compared.add_row(name, *cells)
    kept = Table(title="decoders made after warming up, and device memory in MB", title_justify="left")
    for name in ("case", "on", "made", "before", "warm", "after", "closed"):
        kept.add_column(name, justify="left" if name in ("case", "on") else "right")
    for result in document["results"]:
        memory = [f"{used:,}" for used in result["device_memory_mb"].values()]
        kept.add_row(result["case"], result["on"], str(result["decoders_created_after_warm_up"]), *memory)
    tables = [rates, compared, kept]
    if "endurance" in document:
        found = document["endurance"]
        last = Table(title=f"{found['batches']:,} batches of {found['batch_size']} at random", title_justify="left")
        for name in ("frames_per_second", "first_mb", "max_mb", "last_mb", "decoders_created_after_warm_up", "wrong"):
            last.add_column(name.replace("_", " "), justify="right")
        last.add_row(*(f"{found[str(column.header).replace(' ', '_')]:,}" for column in last.columns))
        tables.append(last)
    return tables


if __name__ == "__main__":
    sys.exit(main())
