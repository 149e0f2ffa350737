"""Feeds training and batch inference with video frames: any frame, exactly, with as little decoding as possible.

Nothing heavy is imported until it is used: ``import framefeed`` loads neither torch nor PyAV.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from framefeed._util.versions import FRAMEFEED

if TYPE_CHECKING:
    from framefeed.catalog import Catalog
    from framefeed.convert.desc import ProcessDesc
    from framefeed.dataset import (
        Buffered,
        Chunked,
        MultiCameraDataset,
        Sequential,
        Shuffle,
        VideoClipSampler,
        VideoDataset,
        video_size_from_file,
    )
    from framefeed.decoder.video_decoder import CenterCrop, RandomCrop, Resize, VideoDecoder
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
        NotInCatalog,
        NoVideoStream,
        OutputError,
        SampleTimeout,
        SourceError,
        StateError,
        UnsupportedCodec,
        UnsupportedStream,
    )
    from framefeed.index import VideoIndex
    from framefeed.loader import LoaderStats, VideoLoader
    from framefeed.packets import PacketBatch, PacketDataset, PacketDecoder, PacketGroup
    from framefeed.types import Frame, FrameBatch

_HOME = {
    "Buffered": "dataset",
    "Catalog": "catalog",
    "CatalogError": "errors",
    "CenterCrop": "decoder",
    "Chunked": "dataset",
    "DecodeError": "errors",
    "FileChanged": "errors",
    "Frame": "types",
    "FrameBatch": "types",
    "FramefeedError": "errors",
    "FrameIndexError": "errors",
    "FrameSizeError": "errors",
    "FrameTimeError": "errors",
    "InvalidFile": "errors",
    "LoaderStats": "loader",
    "MissingBackend": "errors",
    "ModelError": "errors",
    "MultiCameraDataset": "dataset",
    "NotInCatalog": "errors",
    "NoVideoStream": "errors",
    "OutputError": "errors",
    "PacketBatch": "packets",
    "PacketDataset": "packets",
    "PacketDecoder": "packets",
    "PacketGroup": "packets",
    "ProcessDesc": "convert.desc",
    "RandomCrop": "decoder",
    "Resize": "decoder",
    "SampleTimeout": "errors",
    "Sequential": "dataset",
    "Shuffle": "dataset",
    "SourceError": "errors",
    "StateError": "errors",
    "UnsupportedCodec": "errors",
    "UnsupportedStream": "errors",
    "video_size_from_file": "dataset",
    "VideoClipSampler": "dataset",
    "VideoDataset": "dataset",
    "VideoDecoder": "decoder",
    "VideoIndex": "index",
    "VideoLoader": "loader",
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
    "NotInCatalog",
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
