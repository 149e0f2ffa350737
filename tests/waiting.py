"""Waiting for what other threads do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["soon"]


def soon(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether something comes true within a time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
