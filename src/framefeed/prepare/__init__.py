"""Prepares a collection of videos for training: size, codec, keyframe distance, scenes.

``run`` writes the videos; ``report`` measures on some of them what the keyframe distance costs and gains. Importing
this package loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.prepare.api import PrepareResult, run
    from framefeed.prepare.gop.gop_report import GopReport, report

_HOME = {"GopReport": "gop.gop_report", "PrepareResult": "api", "report": "gop.gop_report", "run": "api"}

__all__ = ["GopReport", "PrepareResult", "report", "run"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"framefeed.prepare.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'framefeed.prepare' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
