"""A progress bar for builds."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["Progress", "shows_progress"]

MIN_FILES = 8  # fewer are done before a bar could be read


def shows_progress(asked: bool | None, num_files: int) -> bool:
    """Whether to show a bar: as asked, and otherwise on a terminal where there is something to wait for."""
    if asked is None:
        return num_files > MIN_FILES and sys.stderr is not None and sys.stderr.isatty()
    return asked and num_files > 0


class Progress:
    """A bar on the error stream with files a second, bad files and the time left."""

    def __init__(self, num_files: int) -> None:
        from rich import progress as bars
        from rich.console import Console

        self._bar = bars.Progress(
            bars.TextColumn("indexing"),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]} files/s"),
            bars.TextColumn("{task.fields[bad]} bad"),
            bars.TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("indexing", total=num_files, rate="-", bad=0)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def advance(self, num_bad: int) -> None:
        """One more file is done."""
        speed = self._bar.tasks[0].speed
        self._bar.update(self._task, advance=1, bad=num_bad, rate="-" if speed is None else f"{speed:.0f}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
