"""Datasets, orders and the loader."""

from __future__ import annotations

from framefeed.data.cameras import MultiCameraDataset
from framefeed.data.clip_sampler import VideoClipSampler
from framefeed.data.dataset import VideoDataset, VideoSize, video_size_from_file
from framefeed.data.loader import SkippedSample, VideoLoader
from framefeed.data.memory import parse_bytes
from framefeed.data.orders import Buffered, Chunked, Layout, Order, Sequential, Shuffle
from framefeed.data.packet_decoder import PacketDecoder, PacketStats
from framefeed.data.packet_group import PacketGroup
from framefeed.data.packets import PacketBatch, PacketDataset
from framefeed.data.stats import LoaderStats

__all__ = [
    "Buffered",
    "Chunked",
    "Layout",
    "LoaderStats",
    "MultiCameraDataset",
    "Order",
    "PacketBatch",
    "PacketDataset",
    "PacketDecoder",
    "PacketGroup",
    "PacketStats",
    "Sequential",
    "Shuffle",
    "SkippedSample",
    "VideoClipSampler",
    "VideoDataset",
    "VideoLoader",
    "VideoSize",
    "parse_bytes",
    "video_size_from_file",
]
