"""Files -> packet tables. Demuxes, never decodes pictures for their own sake."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.index.catalog import Catalog
    from framefeed.index.video_index import VideoIndex

__all__ = ["Catalog", "VideoIndex"]

_HOME = {"Catalog": "catalog", "VideoIndex": "video_index"}


def __getattr__(name: str) -> Any:
    if name in _HOME:  # loaded on demand: pyarrow takes a tenth of a second to import
        return getattr(importlib.import_module(f"framefeed.index.{_HOME[name]}"), name)
    raise AttributeError(f"module 'framefeed.index' has no attribute {name!r}")
