"""Says on stderr what a long wait is for. The wait goes on: what was stopped may be continued."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from framefeed._util.text import printable

__all__ = ["Patience", "process_state"]

FIRST_SECONDS = 30.0  # before the first word; the distance doubles from one to the next
SHOWN = 4

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a disk or a network",
    "T": "stopped: kill -CONT lets it go on",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
}


class Patience:
    """One wait without a limit.

    Args:
        what: Tells what is being waited for, a line for each thing. Called when there is something to say.
    """

    def __init__(self, what: Callable[[], Sequence[str]]) -> None:
        self._what = what
        self.reset()

    def reset(self) -> None:
        """Begins again: something has come."""
        self._begun = time.monotonic()
        self._distance = FIRST_SECONDS
        self._next = self._begun + self._distance

    def seconds(self, limit: float | None = None) -> float:
        """Returns how long to wait until ``tell_if_due`` has to be called, at most ``limit``."""
        left = max(0.0, self._next - time.monotonic())
        return left if limit is None else min(left, limit)

    def tell_if_due(self) -> None:
        """Says what is being waited for, if it is time to."""
        now = time.monotonic()
        if now < self._next:
            return
        self._distance *= 2
        self._next = now + self._distance
        lines = list(self._what())
        more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        text = "; ".join([*lines[:SHOWN], *more]) or "nothing that is known"
        if sys.stderr is not None:
            print(f"framefeed: waiting for {now - self._begun:.0f} s: {printable(text)}", file=sys.stderr, flush=True)


def process_state(process: int | None) -> str:
    """A process and what it is doing, where /proc tells."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return f"process {process}"
    return f"process {process} ({_STATES.get(state, state)})"
