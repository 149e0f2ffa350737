"""Help answers at once and loads nothing heavy; arguments that make no sense are answered with what is possible."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

import framefeed
from cli.conftest import Run
from framefeed.cli import build_parser

COMMANDS = ("index", "pack", "info", "frames", "verify", "infer", "diff", "demo", "doctor", "readers", "bench")
HEAVY = ("torch", "av", "pyarrow", "numpy")

_PROBE = """
import sys
from framefeed.cli import main
try:
    main(sys.argv[1:])
except SystemExit as stopped:
    assert stopped.code == 0, stopped.code
print("LOADED", *(name for name in {heavy!r} if name in sys.modules))
"""


def _probe(*argv: str) -> str:
    command = [sys.executable, "-c", _PROBE.format(heavy=HEAVY), *argv]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("argv", [("--help",), ("--version",), *((command, "--help") for command in COMMANDS)])
def test_help_loads_nothing_heavy(argv: tuple[str, ...]) -> None:
    printed = _probe(*argv)
    assert printed.splitlines()[-1].split() == ["LOADED"]
    assert framefeed.__version__ in printed if argv == ("--version",) else "usage: framefeed" in printed


def test_help_is_quick() -> None:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-m", "framefeed", "--help"], capture_output=True, check=True)
        seconds.append(time.perf_counter() - began)
    print(f"framefeed --help took {min(seconds):.3f} s")
    assert min(seconds) < 1.0


def test_help_names_every_command() -> None:
    assert all(f"  {command} " in build_parser().format_help() for command in COMMANDS)


@pytest.mark.parametrize(
    ("argv", "possible"),
    [
        ((), "COMMAND"),
        (("play", "x.mp4"), "choose from"),
        (("index", "x.mp4"), "--output"),
        (("index", "x.mp4", "-o", "c.arrow", "--on-error", "ignore"), "report"),
        (("index", "x.mp4", "-o", "c.arrow", "--workers", "0"), "1, 2, 3"),
        (("index", "x.mp4", "-o", "c.arrow", "--workers", "many"), "1, 2, 3"),
        (("pack",), "CATALOG and OUT are required, or --verify OUT"),
        (("pack", "c.arrow"), "CATALOG and OUT are required, or --verify OUT"),
        (("pack", "c.arrow", "out", "--verify", "out"), "--verify OUT cannot be combined"),
        (("pack", "c.arrow", "out", "--shard-size", "some"), "4GiB"),
        (("pack", "c.arrow", "out", "--on-error", "report"), "skip"),
        (("info",), "FILE"),
        (("frames", "x.mp4"), "--at --range --time"),
        (("frames", "x.mp4", "--at", "1,two"), "0,17,-1"),
        (("frames", "x.mp4", "--range", "5"), "0:100:10"),
        (("frames", "x.mp4", "--range", "0:9:0"), "0:100:10"),
        (("frames", "x.mp4", "--time", "soon"), "1.5,2.0"),
        (("frames", "x.mp4", "--at", "1", "--time", "1"), "not allowed with"),
        (("verify",), "FILE"),
        (("verify", "x.mp4", "--sample", "some"), "all"),
        (("verify", "x.mp4", "--seed", "x"), "0, 1, 2"),
    ],
)
def test_bad_arguments_say_what_is_possible(run: Run, argv: tuple[str, ...], possible: str) -> None:
    ran = run(*argv)
    assert ran.code == 2
    assert ran.out == ""
    assert possible in ran.err
