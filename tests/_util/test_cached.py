"""Properties that are computed once."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from framefeed._util.lazy_property import cached_property


@dataclass(frozen=True)
class _Number:
    value: int
    begun: threading.Event
    go_on: threading.Event

    @cached_property
    def waited(self) -> int:
        """Takes long."""
        self.begun.set()
        self.go_on.wait(10)
        return self.value

    @cached_property
    def fresh(self) -> object:
        return object()


def _number(value: int, *, waits: bool = False) -> _Number:
    number = _Number(value, threading.Event(), threading.Event())
    if not waits:
        number.go_on.set()
    return number


def test_a_value_is_computed_once() -> None:
    number = _number(3)
    assert number.fresh is number.fresh
    assert number.fresh is not _number(3).fresh
    assert isinstance(_Number.waited, cached_property)
    assert _Number.waited.__doc__ == "Takes long."


def test_one_object_does_not_wait_for_another() -> None:
    slow, quick = _number(1, waits=True), _number(2)
    thread = threading.Thread(target=lambda: slow.waited, daemon=True)
    thread.start()
    assert slow.begun.wait(10)
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(quick.waited), daemon=True)
    other.start()
    other.join(5)
    slow.go_on.set()
    thread.join(10)
    assert found == [2]
