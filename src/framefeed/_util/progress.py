"""Progress bars on a terminal, by rich, which is loaded when one is shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from framefeed._util.text import encodable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["ProgressBar", "TaskBars", "is_shown"]

SECONDS_BETWEEN_UPDATES = 0.1  # a step may be a packet
SHOWN_TASKS = 4
NAME_LENGTH = 40


def is_shown(show: bool | None) -> bool:
    """Returns whether to show progress: as asked, and for None on a terminal."""
    return sys.stderr is not None and sys.stderr.isatty() if show is None else show


def _make(unit: str, *, keep: bool = False, in_loop: bool = False) -> Progress:
    from rich import progress as rich
    from rich.console import Console

    numbers: tuple[rich.ProgressColumn, ...] = (rich.MofNCompleteColumn(), rich.TextColumn("{task.fields[rate]}"))
    if unit == "bytes":
        numbers = rich.DownloadColumn(binary_units=True), rich.TransferSpeedColumn()
    return rich.Progress(
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        *numbers,
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=not in_loop),
        transient=not keep,
        auto_refresh=not in_loop,
    )


def _rate(bars: Progress, task: TaskID, unit: str) -> str:
    found = next((each for each in bars.tasks if each.id == task), None)
    speed = None if found is None else found.finished_speed or found.speed
    return f"{speed:,.1f} {unit}/s" if unit and speed is not None else ""


class ProgressBar:
    """A bar on stderr with the steps done, their rate and the time left.

    Args:
        what: What is being done.
        total: All steps; None where that is not known.
        show: Whether to show it; None shows it on a terminal.
        unit: Of the steps, for the rate; ``"bytes"`` get a binary prefix.
        done: Steps done before.
        keep: Whether the bar stays when all is done.
        in_loop: Shows it on stdout, below what the caller's loop prints there, and without a thread: a loop may drop
            its iterator.
    """

    def __init__(
        self,
        what: str,
        total: int | None,
        *,
        show: bool | None = None,
        unit: str = "",
        done: int = 0,
        keep: bool = False,
        in_loop: bool = False,
    ) -> None:
        self._unit = unit
        self._in_loop = in_loop
        self._bars = _make(unit, keep=keep, in_loop=in_loop) if is_shown(show) else None
        if self._bars is not None:
            self._task = self._bars.add_task(encodable(what, sys.stderr), total=total, completed=done, rate="", note="")
        self._waiting = 0
        self._note = ""
        self._updated = 0.0

    def __enter__(self) -> ProgressBar:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Shows the bar."""
        if self._bars is not None:
            self._bars.start()

    @property
    def elapsed_seconds(self) -> float:
        """Since the start; 0 for a bar that is not shown."""
        return 0.0 if self._bars is None else self._bars.tasks[0].elapsed or 0.0

    def advance(self, steps: int, note: str | None = None) -> None:
        """Counts steps. A note is shown behind the bar until the next one."""
        self._waiting += steps
        self._note = self._note if note is None else encodable(note, sys.stderr)
        if self._bars is not None and time.monotonic() - self._updated > SECONDS_BETWEEN_UPDATES:
            self._update()

    def update(self, done: int, total: int, note: str = "") -> None:
        """Sets the steps done and all steps."""
        if self._bars is not None:
            rate = _rate(self._bars, self._task, self._unit)
            self._bars.update(self._task, completed=done, total=total, note=encodable(note, sys.stderr), rate=rate)

    def _update(self) -> None:
        assert self._bars is not None
        rate = _rate(self._bars, self._task, self._unit)
        self._bars.update(self._task, advance=self._waiting, note=self._note, rate=rate)
        self._waiting = 0
        self._updated = time.monotonic()
        if self._in_loop:
            self._bars.refresh()

    def close(self) -> None:
        """Ends the bar."""
        if self._bars is not None:
            if self._waiting or self._note:
                self._update()
            self._bars.stop()


class TaskBars:
    """Bars on stderr: one for all tasks together, and one for each that is being worked on.

    Args:
        names: Of the tasks.
        totals: Steps of each.
        show: Whether to show them; None shows them on a terminal.
        unit: Of the steps.
    """

    def __init__(self, names: Sequence[str], totals: Sequence[int], show: bool | None, unit: str = "frames") -> None:
        self._names = names
        self._totals = totals
        self._unit = unit
        self._done = [0] * len(names)
        self._bars = _make(unit) if is_shown(show) else None
        self._all: TaskID | None = None
        self._single: dict[int, TaskID] = {}

    def __enter__(self) -> TaskBars:
        if self._bars is not None:
            self._bars.start()
            self._all = self._add(f"{len(self._names)} videos", sum(self._totals), sum(self._done))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _add(self, name: str, total: int, done: int) -> TaskID:
        assert self._bars is not None
        return self._bars.add_task(encodable(name, sys.stderr), total=total, completed=done, rate="", note="")

    def done_before(self, task: int, steps: int) -> None:
        """Counts steps that an earlier run has done; call it before the bars are shown."""
        self._done[task] += steps

    def complete(self, task: int) -> None:
        """Counts the remaining steps of a task."""
        self.advance(task, self._totals[task] - self._done[task])

    def advance(self, task: int, steps: int) -> None:
        """Counts steps of a task; negative ones have to be repeated."""
        self._done[task] += steps
        if self._bars is None or self._all is None:
            return
        if task not in self._single:
            if len(self._single) >= SHOWN_TASKS:
                self._bars.remove_task(self._single.pop(next(iter(self._single))))
            name = self._names[task]
            short = name if len(name) <= NAME_LENGTH else f"...{name[3 - NAME_LENGTH :]}"
            self._single[task] = self._add(short, self._totals[task], self._done[task] - steps)
        for bar in (self._all, self._single[task]):
            self._bars.update(bar, advance=steps, rate=_rate(self._bars, bar, self._unit))
        if self._done[task] >= self._totals[task]:
            self._bars.remove_task(self._single.pop(task))
