"""What a terminal shows while a run is under way: all files together, and those that are being worked on."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from framefeed._util.text import printable

__all__ = ["RunProgress"]

SHOWN_FILES = 4


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.1f} frames/s")


class RunProgress:
    """Bars on stderr, or nothing where it is no terminal.

    Args:
        names: The videos.
        totals: Frames to be looked at in each.
        show: Whether to show anything; None on a terminal.
    """

    def __init__(self, names: Sequence[str], totals: Sequence[int], show: bool | None) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
        self._bars = Progress(
            *columns,
            _Rate(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (console.is_terminal if show is None else show),
        )
        self._names = names
        self._totals = totals
        self._done = [0] * len(names)
        self._files: dict[int, TaskID] = {}
        self._all: TaskID | None = None

    def __enter__(self) -> RunProgress:
        self._bars.start()
        self._all = self._bars.add_task(
            f"{len(self._names)} videos", total=sum(self._totals), completed=sum(self._done)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def done_before(self, video: int, frames: int) -> None:
        """Counts frames that an earlier run has done."""
        self._done[video] += frames

    def advance(self, video: int, frames: int) -> None:
        """Counts frames of a video."""
        self._done[video] += frames
        if self._all is not None:
            self._bars.update(self._all, advance=frames)
        if self._bars.disable:
            return
        if video not in self._files:
            if len(self._files) >= SHOWN_FILES:
                self._bars.remove_task(self._files.pop(next(iter(self._files))))
            before = self._done[video] - frames
            name = printable(self._names[video])
            self._files[video] = self._bars.add_task(
                name if len(name) <= 40 else f"...{name[-37:]}", total=self._totals[video], completed=before
            )
        self._bars.update(self._files[video], completed=self._done[video])
        if self._done[video] >= self._totals[video]:
            self._bars.remove_task(self._files.pop(video))
