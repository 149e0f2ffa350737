"""Parallel creation of a few values by idle threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["SharedWork"]

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class SharedWork(Generic[_Given, _Made]):
    """Values to create, each by one of several threads.

    One thread finishes: it creates what no other has started and waits for the rest. So it does not matter when, or
    whether, other threads help.

    Args:
        make: Creates one value.
        given: Inputs of the values.
    """

    def __init__(self, make: Callable[[_Given], _Made], given: Sequence[_Given]) -> None:
        self._make = make
        self._left = deque(enumerate(given))
        self._made: dict[int, _Made] = {}
        self._count = len(given)
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def help(self) -> None:
        """Creates values until all have been started."""
        while self._error is None:
            try:
                place, given = self._left.popleft()
            except IndexError:
                return
            try:
                made = self._make(given)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                self._made[place] = made
                if len(self._made) == self._count:
                    self._changed.notify_all()

    def finish(self) -> list[_Made]:
        """Returns all values, in order.

        Raises:
            BaseException: The error of a failed value.
        """
        self.help()
        with self._changed:
            self._changed.wait_for(lambda: len(self._made) == self._count or self._error is not None)
        if self._error is not None:
            raise self._error
        return [self._made[place] for place in range(self._count)]
