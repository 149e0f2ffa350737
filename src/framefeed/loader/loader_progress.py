"""A line on the terminal that says how far an epoch is."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from framefeed.loader.stats import LoaderStats

__all__ = ["ProgressLine"]

SECONDS_BETWEEN_REFRESHES = 0.2


class ProgressLine:
    """Shows an epoch's progress, without a thread of its own: that would live on when the iterator is dropped.

    Args:
        epoch: The epoch.
        total: Its batches; None where that is not known.
        done: Batches that are done with already.
    """

    def __init__(self, epoch: int, total: int | None, done: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, TextColumn("{task.fields[what]}"), transient=True, auto_refresh=False)
        self._task = self._bar.add_task(f"epoch {epoch}", total=total, completed=done, what="")
        self._frames = 0
        self._shown = 0.0
        self._bar.start()

    def advance(self, frames: int, stats: LoaderStats) -> None:
        """Counts a batch of that many frames."""
        self._frames += frames
        elapsed = self._bar.tasks[0].elapsed or 0.0
        rate = f"{self._frames / elapsed if elapsed else 0.0:,.0f} frames/s"
        what = f"{rate}, {stats.decoded_per_delivered:.1f} decoded each, waited {stats.wait_seconds:.1f} s"
        self._bar.update(self._task, advance=1, what=what)
        if time.monotonic() - self._shown > SECONDS_BETWEEN_REFRESHES:
            self._shown = time.monotonic()
            self._bar.refresh()

    def close(self) -> None:
        """Takes the line away."""
        self._bar.stop()
