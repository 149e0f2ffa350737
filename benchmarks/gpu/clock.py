"""Times of calls that keep Python's lock, by name."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from framefeed.cuda import driver

__all__ = ["Clock"]


class Clock:
    """Counts calls and adds up their times.

    Attributes:
        seconds: By name.
        calls: By name.
    """

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the same call, timed."""

        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                took = time.perf_counter() - begin
                with self._lock:
                    self.seconds[name] += took
                    self.calls[name] += 1

        return timed

    @contextmanager
    def around_driver(self) -> Iterator[None]:
        """Times the driver's functions."""
        original = driver._function

        @functools.cache
        def timed(name: str, *types: Any, **more: Any) -> Any:
            return self.around(name, original(name, *types, **more))

        driver._function = timed
        try:
            yield
        finally:
            driver._function = original
