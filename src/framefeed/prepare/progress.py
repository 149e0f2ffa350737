"""What a terminal shows while videos are prepared: all together, and those that are being worked on."""

from __future__ import annotations

from collections.abc import Sequence

from framefeed.infer.progress import RunProgress

__all__ = ["ProgressBars"]


class ProgressBars:
    """Bars for tasks that may end earlier than was thought, or have to be begun again.

    Args:
        names: Of the videos.
        totals: Steps of each.
        show: Whether to show anything; None on a terminal.
    """

    def __init__(self, names: Sequence[str], totals: Sequence[int], show: bool | None) -> None:
        self._bars = RunProgress(names, totals, show)
        self._totals = totals
        self._done = [0] * len(names)

    def __enter__(self) -> ProgressBars:
        self._bars.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.__exit__()

    def advance(self, task: int, steps: int) -> None:
        """Counts steps of a task; they may be taken back."""
        self._done[task] += steps
        self._bars.advance(task, steps)

    def complete(self, task: int) -> None:
        """Counts the steps of a task that are left."""
        self.advance(task, self._totals[task] - self._done[task])
