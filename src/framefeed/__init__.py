"""Feeds training and batch inference with video frames: any frame, exactly, with as little decoding as possible.

Nothing heavy is imported until it is used: ``import framefeed`` loads neither torch nor PyAV.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from framefeed.decoder import CenterCrop, Resize, VideoDecoder
    from framefeed.errors import (
        CatalogError,
        DecodeError,
        FileChanged,
        FramefeedError,
        FrameIndexError,
        FrameSizeError,
        FrameTimeError,
        InvalidFile,
        MissingBackend,
        NoVideoStream,
        SourceError,
        UnsupportedCodec,
        UnsupportedStream,
    )
    from framefeed.index import Catalog, VideoIndex
    from framefeed.types import Frame, FrameBatch

_HOME = {
    "Catalog": "index",
    "CatalogError": "errors",
    "CenterCrop": "decoder",
    "DecodeError": "errors",
    "FileChanged": "errors",
    "Frame": "types",
    "FrameBatch": "types",
    "FrameIndexError": "errors",
    "FrameSizeError": "errors",
    "FrameTimeError": "errors",
    "FramefeedError": "errors",
    "InvalidFile": "errors",
    "MissingBackend": "errors",
    "NoVideoStream": "errors",
    "Resize": "decoder",
    "SourceError": "errors",
    "UnsupportedCodec": "errors",
    "UnsupportedStream": "errors",
    "VideoDecoder": "decoder",
    "VideoIndex": "index",
}

__all__ = [
    "Catalog",
    "CatalogError",
    "CenterCrop",
    "DecodeError",
    "FileChanged",
    "Frame",
    "FrameBatch",
    "FrameIndexError",
    "FrameSizeError",
    "FrameTimeError",
    "FramefeedError",
    "InvalidFile",
    "MissingBackend",
    "NoVideoStream",
    "Resize",
    "SourceError",
    "UnsupportedCodec",
    "UnsupportedStream",
    "VideoDecoder",
    "VideoIndex",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"framefeed.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'framefeed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
