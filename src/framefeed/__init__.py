"""Feeds training and batch inference with video frames: any frame, exactly, with as little decoding as possible.

Nothing heavy is imported until it is used: ``import framefeed`` loads neither torch nor PyAV.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from framefeed.versions import FRAMEFEED

if TYPE_CHECKING:
    from framefeed.data import (
        Buffered,
        Chunked,
        LoaderStats,
        MultiCameraDataset,
        PacketBatch,
        PacketDataset,
        PacketDecoder,
        PacketGroup,
        Sequential,
        Shuffle,
        VideoClipSampler,
        VideoDataset,
        VideoLoader,
        video_size_from_file,
    )
    from framefeed.decoder import CenterCrop, RandomCrop, Resize, VideoDecoder
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
        ModelError,
        NoVideoStream,
        OutputError,
        SampleTimeout,
        SourceError,
        StateError,
        UnsupportedCodec,
        UnsupportedStream,
    )
    from framefeed.index import Catalog, VideoIndex
    from framefeed.process.desc import ProcessDesc
    from framefeed.types import Frame, FrameBatch

_HOME = {
    "Buffered": "data",
    "Catalog": "index",
    "CatalogError": "errors",
    "CenterCrop": "decoder",
    "Chunked": "data",
    "DecodeError": "errors",
    "FileChanged": "errors",
    "Frame": "types",
    "FrameBatch": "types",
    "FramefeedError": "errors",
    "FrameIndexError": "errors",
    "FrameSizeError": "errors",
    "FrameTimeError": "errors",
    "InvalidFile": "errors",
    "LoaderStats": "data",
    "MissingBackend": "errors",
    "ModelError": "errors",
    "MultiCameraDataset": "data",
    "NoVideoStream": "errors",
    "OutputError": "errors",
    "PacketBatch": "data",
    "PacketDataset": "data",
    "PacketDecoder": "data",
    "PacketGroup": "data",
    "ProcessDesc": "process.desc",
    "RandomCrop": "decoder",
    "Resize": "decoder",
    "SampleTimeout": "errors",
    "Sequential": "data",
    "Shuffle": "data",
    "SourceError": "errors",
    "StateError": "errors",
    "UnsupportedCodec": "errors",
    "UnsupportedStream": "errors",
    "video_size_from_file": "data",
    "VideoClipSampler": "data",
    "VideoDataset": "data",
    "VideoDecoder": "decoder",
    "VideoIndex": "index",
    "VideoLoader": "data",
}

__all__ = [
    "Buffered",
    "Catalog",
    "CatalogError",
    "CenterCrop",
    "Chunked",
    "DecodeError",
    "FileChanged",
    "Frame",
    "FrameBatch",
    "FrameIndexError",
    "FrameSizeError",
    "FrameTimeError",
    "FramefeedError",
    "InvalidFile",
    "LoaderStats",
    "MissingBackend",
    "ModelError",
    "MultiCameraDataset",
    "NoVideoStream",
    "OutputError",
    "PacketBatch",
    "PacketDataset",
    "PacketDecoder",
    "PacketGroup",
    "ProcessDesc",
    "RandomCrop",
    "Resize",
    "SampleTimeout",
    "Sequential",
    "Shuffle",
    "SourceError",
    "StateError",
    "UnsupportedCodec",
    "UnsupportedStream",
    "VideoClipSampler",
    "VideoDataset",
    "VideoDecoder",
    "VideoIndex",
    "VideoLoader",
    "video_size_from_file",
]

__version__ = FRAMEFEED


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"framefeed.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'framefeed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
