"""A progress bar for packing videos and for checking a store."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["Progress"]

STEP_BYTES = 8 << 20  # the bar is told of progress in this many bytes


class Progress:
    """A bar on the error stream with bytes, files, bytes a second, bad files and the time left.

    Args:
        what: What is being done, in a word.
        num_bytes: In all.
        num_files: In all.
        show: Whether to show it; None shows it on a terminal.
    """

    def __init__(self, what: str, num_bytes: int, num_files: int, show: bool | None) -> None:
        self._waiting = 0
        self._done = self._num_bad = 0
        self._files = num_files
        self._bar = None
        if show is None:
            show = sys.stderr is not None and sys.stderr.isatty()
        if show and num_files:
            from rich import progress as bars
            from rich.console import Console

            self._bar = bars.Progress(
                bars.TextColumn(what),
                bars.BarColumn(),
                bars.DownloadColumn(binary_units=True),
                bars.TransferSpeedColumn(),
                bars.TextColumn("{task.fields[files]} files"),
                bars.TextColumn("{task.fields[bad]} bad"),
                bars.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(what, total=num_bytes, files=f"0/{num_files}", bad=0)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def advance(self, num_bytes: float) -> None:
        """This many bytes more are done."""
        self._waiting += int(num_bytes)
        if self._waiting >= STEP_BYTES:
            self._show()

    def end_file(self, *, bad: bool = False) -> None:
        """One more file is done."""
        self._done += 1
        self._num_bad += bad
        self._show()

    def _show(self) -> None:
        if self._bar is not None:
            files = f"{self._done}/{self._files}"
            self._bar.update(self._task, advance=self._waiting, files=files, bad=self._num_bad)
        self._waiting = 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
