"""Terminal output of all commands: tables and JSON on stdout, progress and errors on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from framefeed._util.progress import ProgressBar
from framefeed._util.text import encodable

__all__ = ["Report", "make_table", "print_error", "print_json", "print_lines", "print_table", "progress"]

# If stdout is a file or a pipe there is no width limit; rich would assume 80 and wrap paths.
PIPE_WIDTH = 200

KEPT_WHOLE = 20  # characters


class Report(Protocol):
    """``report(done, total)``, or with a word on the present step."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Shows progress."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leaves the exception to ``main``; rich would exit with another code."""
        raise BrokenPipeError


def _stdout() -> Console:
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Console(highlight=False, markup=False, emoji=False, soft_wrap=not is_terminal, width=width)


def make_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    """Creates a table with right-aligned numbers. Cells are plain text: markup is not interpreted."""
    table = Table(
        title=None if title is None else printable(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        # As narrow as possible, so that the demo's table fits into 80 columns.
        pad_edge=False,
        collapse_padding=True,
    )
    lines = [list(row) for row in rows]
    for place, name in enumerate(columns):
        cells = [line[place] for line in lines]
        numeric = bool(cells) and all(isinstance(cell, int | float) for cell in cells)
        # In a narrow terminal only columns of long cells wrap: paths, not numbers.
        short = max((len(printable(cell)) for cell in cells), default=0) <= KEPT_WHOLE
        table.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=short)
    for line in lines:
        table.add_row(*(printable(cell) for cell in line))
    return table


def printable(cell: object) -> Text:
    """Formats a cell: short floats, a dash for None, and escapes for what stdout cannot show, such as names that are
    not valid Unicode.
    """
    if cell is None:
        return Text("–" if encodable("–", sys.stdout) == "–" else "-")
    if isinstance(cell, bool):
        return Text("yes", style="green") if cell else Text("NO", style="bold red")
    if isinstance(cell, int):
        return Text(f"{cell:,}")
    if isinstance(cell, float):
        return Text(f"{cell:,.1f}" if abs(cell) >= 10 else f"{cell:.3g}")
    return Text(encodable(str(cell), sys.stdout))


def print_table(table: Table) -> None:
    """Prints a table on stdout."""
    _stdout().print(table)


def print_lines(*lines: str) -> None:
    """Prints lines on stdout, unwrapped; line ends within a line are escaped."""
    sys.stdout.write("".join(f"{encodable(line, sys.stdout)}\n" for line in lines))


def print_json(value: Any) -> None:
    """Prints JSON on stdout. Rejects numbers that JSON lacks (NaN)."""
    text = json.dumps(value, indent=2, allow_nan=False)
    sys.stdout.write(text.replace("\x7f", "\\u007f") + "\n")  # the one control character that JSON leaves


def print_error(error: Exception) -> None:
    """Prints one line on stderr that names the file."""
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:  # raised by the operating system
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    sys.stderr.write(f"framefeed: {encodable(' '.join(text.splitlines()), sys.stderr)}\n")


@contextmanager
def progress(description: str = "", *, show: bool = True) -> Iterator[Report]:
    """Shows a bar on stderr while the block runs, if stderr is a terminal.

    Yields:
        A function of the steps done, the total number of steps, and a word on the present one.
    """
    with ProgressBar(description, None, show=None if show else False) as bar:
        yield bar.update
