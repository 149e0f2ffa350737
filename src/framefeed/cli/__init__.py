"""The ``framefeed`` command: converts arguments to calls of the public API. One module per command.

Commands import lazily: help works at once, without torch, PyAV, pyarrow or numpy.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import framefeed
from framefeed._util.text import printable
from framefeed.cli.commands import demo, diff, doctor, frames, index, infer, info, pack, prepare, sampling
from framefeed.cli.commands.compare import bench, readers, verify
from framefeed.errors import FramefeedError

__all__ = ["build_parser", "main"]

UNUSABLE = 2  # bad arguments or an unusable file; argparse uses the same code
INTERRUPTED = 130  # 128 + the number of the signal, as shells report it
BROKEN_PIPE = 141

# Values of these may start with a minus sign, which argparse would take for an option.
_SIGNED = ("--at", "--range", "--time")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Reports bad arguments, which may be file names, without their control characters."""
        super().error(printable(" ".join(message.splitlines())))


def build_parser() -> argparse.ArgumentParser:
    """Builds the parser of all commands."""
    parser = _Parser(
        prog="framefeed", description="Exact video frames: index files, inspect them, read frames, verify results."
    )
    parser.add_argument("--version", action="version", version=f"framefeed {framefeed.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for command in (index, prepare, pack, info, sampling, frames, verify, infer, diff, demo, doctor, readers, bench):
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: The arguments without the program's name; None uses the process's.

    Returns:
        The exit code: 0 success, 1 problems found, 2 unusable arguments or files.
    """
    args = build_parser().parse_args(_join_signed(sys.argv[1:] if argv is None else argv))
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has exited, as `head` does. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except (FramefeedError, OSError) as error:
        from framefeed.cli import console

        console.print_error(error)
        return UNUSABLE
    return code


def _join_signed(argv: Sequence[str]) -> list[str]:
    """Converts ``--at -1,5`` to ``--at=-1,5``."""
    joined: list[str] = []
    for word in argv:
        if joined and joined[-1] in _SIGNED and word[:1] == "-" and word[1:2] in tuple("0123456789.:"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
