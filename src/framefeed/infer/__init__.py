"""Batch inference: a detector over the frames of many videos, on one machine or on Ray.

``run`` is the entry point. Importing this package loads nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.infer.api import run
    from framefeed.infer.compare_results import Difference, diff
    from framefeed.infer.execution.execute import InferResult
    from framefeed.infer.ray import RayOptions

_HOME = {
    "Difference": "compare_results",
    "InferResult": "execution.execute",
    "RayOptions": "ray",
    "diff": "compare_results",
    "run": "api",
}

__all__ = ["Difference", "InferResult", "RayOptions", "diff", "run"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"framefeed.infer.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'framefeed.infer' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
