"""Something to do for each of a few things, by whoever has time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

__all__ = ["SharedWork"]

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class SharedWork(Generic[_Given, _Made]):
    """Things to be made, each by one of several threads.

    One thread finishes: it makes what nobody else has begun, and waits for what others have. So it does not matter
    whether any of them come, or when.

    Args:
        make: Makes one.
        given: What they are made of.
    """

    def __init__(self, make: Callable[[_Given], _Made], given: Sequence[_Given]) -> None:
        self._make = make
        self._left = deque(enumerate(given))
        self._made: dict[int, _Made] = {}
        self._count = len(given)
        self._error: BaseException | None = None
        self._changed = threading.Condition()

    def help(self) -> None:
        """Makes some of them, until none is left that nobody has begun."""
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
        """All of them, in order.

        Raises:
            BaseException: What went wrong with one of them.
        """
        self.help()
        with self._changed:
            self._changed.wait_for(lambda: len(self._made) == self._count or self._error is not None)
        if self._error is not None:
            raise self._error
        return [self._made[place] for place in range(self._count)]
