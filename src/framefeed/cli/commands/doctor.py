"""``framefeed doctor``: checks the installation, and suggests remedies."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.doctor import Report

__all__ = ["add_parser"]

READY, NOT_READY = 0, 1
SHOWN = 240  # characters of a fact: errors may quote whole command lines; JSON has all of it
MARKS = {"ok": "ok", "problem": "PROBLEM", "not available": "not available"}


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "doctor",
        help="check the installation, with a real decode",
        description="Checks what framefeed needs: versions, decoders, drivers, system limits; decodes a small clip "
        "on the CPU, and on the GPU if there is one; suggests remedies for what is missing.",
        epilog="exit codes: 0 everything required by --device works, 1 something does not. With auto, a missing or "
        "unusable GPU is not an error: the last line reports it.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda", "auto"),
        default="auto",
        help="what must work: the CPU only (GPUs are not checked), also a GPU, or what is there (default: auto)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed.cli import console
    from framefeed.doctor import examine

    with console.progress("checks", show=not args.json) as progress:
        report = examine(args.device, progress=progress)
    if args.json:
        console.print_json(_as_json(report))
    else:
        _print(report)
    return READY if report.ready else NOT_READY


def _print(report: Report) -> None:
    from framefeed.cli import console

    rows = [(check.name, MARKS[check.state], _cut(check.fact)) for check in report.checks]
    console.print_table(console.make_table(("check", "state", "found"), rows))
    for name, codecs in _codecs_by_gpu(report).items():
        console.print_table(console.make_table(("codec", "formats", "sizes", "by framefeed"), codecs, title=name))
    remedies = [f"  {check.name}: {check.remedy}" for check in report.checks if check.remedy]
    if remedies:
        console.print_lines("what to do:", *remedies, "")
    console.print_lines(report.verdict)


def _cut(fact: str) -> str:
    return fact if len(fact) <= SHOWN else f"{fact[:SHOWN]} ..."


def _codecs_by_gpu(report: Report) -> dict[str, list[tuple[str, str, str, str]]]:
    """Returns the decodable formats, once for all GPUs of the same name."""
    return {f"{gpu['name']} decodes": _codec_rows(gpu["formats"]) for gpu in report.details("decoding units")}


def _codec_rows(formats: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    """Returns one row for all formats of a codec with equal sizes."""
    rows: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for found in formats:
        sizes = f"{found['min_width']}x{found['min_height']} to {found['max_width']}x{found['max_height']}"
        depths = rows.setdefault((found["codec"], sizes, "on the GPU" if found["used"] else "on the CPU"), {})
        depths.setdefault(":".join(found["chroma"]), []).append(str(found["bits"]))
    return [
        (codec, ", ".join(f"{chroma} {'/'.join(bits)} bit" for chroma, bits in depths.items()), sizes, where)
        for (codec, sizes, where), depths in rows.items()
    ]


def _as_json(report: Report) -> dict[str, Any]:
    return {
        "ready": report.ready,
        "verdict": report.verdict,
        "device": report.device,
        "gpu_ready": None if report.device == "cpu" else report.gpu_ready,
        "checks": [{**dataclasses.asdict(check), "remedy": check.remedy or None} for check in report.checks],
    }
