"""Gets a collection of videos ready for training: size, codec, distance of keyframes, scenes.

``run`` writes the videos, ``report`` says what the distance of keyframes costs and gains on some of them. Nothing heavy
is imported before they are called.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.prepare.api import PrepareResult, run
    from framefeed.prepare.gop.gop_report import GopReport, report

_HOME = {"GopReport": "gop.gop_report", "PrepareResult": "api", "report": "gop_report", "run": "api"}

__all__ = ["GopReport", "PrepareResult", "report", "run"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"framefeed.prepare.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'framefeed.prepare' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
