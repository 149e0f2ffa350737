"""Measures ``main.py`` with and without the packet cache, in order and at random, on one and on more GPUs.

    python -m benchmarks.camera_clips data
    python examples/separation_decode/tables.py --index_file data/index_frame.json --output tables.json

Beside it stand the figures that ACCV-Lab's documentation gives for its own example on A100 GPUs with the same kind of
files (ten clips of six cameras, HEVC 1600x900, groups of 30, no B-frames). With ``--loader`` the same is measured
without workers, whose work the loader's threads do then.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import framefeed
from framefeed.compare.provenance import machine, stamped

MAIN = Path(__file__).with_name("main.py")

# Frames a second by the number of A100 GPUs: in order with and without the cache, and at random.
PUBLISHED = {
    1: (3270.13, 1069.59, 311.2),
    2: (3699.34, 1881.1, 603.94),
    4: (4337.68, 2809.6, 1220.55),
    8: (4834.13, 3824.36, 2345.44),
}

CASES = {
    "stream, cache": ["--frame_read_type", "stream"],
    "stream, no cache": ["--frame_read_type", "stream", "--disable_cache"],
    "random": ["--frame_read_type", "random"],
}


def main(argv: list[str] | None = None) -> int:
    """Measures and prints."""
    args = _arguments(argv)
    if args.device.startswith("cuda"):
        ranks = [count for count in (1, 2, 4, 8) if count <= torch.cuda.device_count()]
    else:
        ranks = [1]
    ranks = args.ranks or ranks
    results: dict[str, dict[int, list[float]]] = {case: {count: [] for count in ranks} for case in CASES}
    details: list[dict[str, Any]] = []
    direct: dict[str, list[float]] = {}
    for _ in range(args.repeat):
        for count in ranks:
            for case, arguments in CASES.items():
                summary = _run(args, count, arguments)
                if summary is None:
                    return 1
                details.append(stamped({"case": case, **summary}))
                results[case][count].append(summary["frames_per_second"])
                _save(args, results, direct, details)
                print(f"{case}, {count}: {summary['frames_per_second']:,.0f} frames/s", file=sys.stderr)
        if args.loader:
            for read_type in ("stream", "random"):
                summary = _run(args, 1, ["--frame_read_type", read_type], num_workers=0)
                if summary is None:
                    return 1
                direct.setdefault(read_type, []).append(summary["frames_per_second"])
                _save(args, results, direct, details)
                print(f"without workers, {read_type}: {direct[read_type][-1]:,.0f} frames/s", file=sys.stderr)
    _print(_medians(results), {name: statistics.median(rates) for name, rates in direct.items()}, args.device)
    return 0


def _save(
    args: argparse.Namespace,
    results: dict[str, dict[int, list[float]]],
    direct: dict[str, list[float]],
    details: list[dict[str, Any]],
) -> None:
    """Writes the file after each run: one that is cut off keeps what it had."""
    if args.output is None:
        return
    document = {
        "command": " ".join(["python", "examples/separation_decode/tables.py", *sys.argv[1:]]),
        "machine": _machine(args.device),
        "versions": {
            "python": platform.python_version(),
            "framefeed": framefeed.__version__,
            "torch": torch.__version__,
        },
        "medians": _medians(results),
        "without_workers": direct,
        "published_a100": PUBLISHED,
        "runs": details,
    }
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(document, indent=1) + "\n")


def _medians(results: dict[str, dict[int, list[float]]]) -> dict[str, dict[int, float]]:
    """Of what was run."""
    return {
        case: {count: statistics.median(rates) for count, rates in ranks.items() if rates}
        for case, ranks in results.items()
        if any(ranks.values())
    }


def _run(
    args: argparse.Namespace, ranks: int, arguments: list[str], num_workers: int | None = None
) -> dict[str, Any] | None:
    """What ``main.py`` says of a run; None where it failed."""
    workers = args.num_workers if num_workers is None else num_workers
    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command = [*start, str(MAIN), "--json", "--index_file", args.index_file, "--device", args.device]
    command += ["--group_num", str(args.group_num), "--num_workers", str(workers), *arguments]
    command += ["--epochs", str(args.epochs), "--warm_up", str(args.warm_up)]
    if args.scale:
        command += ["--scale", args.scale]
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    if done.returncode:
        print(f"{' '.join(command)} ended with {done.returncode}", file=sys.stderr)
        return None
    summary: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return summary


def _machine(device: str) -> dict[str, Any]:
    found = dict(machine(0))
    if device.startswith("cuda"):
        found["gpu"] = torch.cuda.get_device_name(0)
        found["gpus"] = torch.cuda.device_count()
    return found


def _print(medians: dict[str, dict[int, float]], direct: dict[str, float], device: str) -> None:
    console = Console(width=110)
    unit = "GPU" if device.startswith("cuda") else "process"
    for title, (one, other) in {
        "in order, frames a second": ("stream, cache", "stream, no cache"),
        "with the packet cache, frames a second": ("stream, cache", "random"),
    }.items():
        table = Table(title=title, title_justify="left")
        table.add_column("")
        for case in (one, other):
            table.add_column(case, justify="right")
            table.add_column("A100, published", justify="right")
        places = {"stream, cache": 0, "stream, no cache": 1, "random": 2}
        for count in medians[one]:
            row = [f"{count} {unit}{'s' if count > 1 else ''}"]
            for case in (one, other):
                published = PUBLISHED.get(count)
                row += [f"{medians[case][count]:,.0f}", f"{published[places[case]]:,.0f}" if published else "-"]
            table.add_row(*row)
        console.print(table)
    for name, rate in direct.items():
        console.print(f"without workers, {name}: {rate:,.0f} frames/s")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index_file", default="data/index_frame.json", help="JSON: {video_dir: {clip: num_frames}}")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu or cuda")
    parser.add_argument("--ranks", type=int, nargs="+", help="processes (default: 1, 2, 4, 8 as there are GPUs)")
    parser.add_argument("--group_num", type=int, default=4)
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--warm_up", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scale", metavar="WxH")
    parser.add_argument("--loader", action="store_true", help="without workers, too")
    parser.add_argument("--output", type=Path, help="JSON file for the results")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
