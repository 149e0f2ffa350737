"""Packet tables of many files in one memory-mapped Arrow file."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.catalog.catalog import Catalog

__all__ = ["Catalog"]


def __getattr__(name: str) -> Any:
    if name == "Catalog":  # loaded on demand: pyarrow takes a tenth of a second to import
        return importlib.import_module("framefeed.catalog.catalog").Catalog
    raise AttributeError(f"module 'framefeed.catalog' has no attribute {name!r}")
