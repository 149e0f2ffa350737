"""Datasets: samples, orders, clips of several cameras."""

from __future__ import annotations

from framefeed.dataset.cameras import MultiCameraDataset
from framefeed.dataset.clip_sampler import VideoClipSampler
from framefeed.dataset.dataset import VideoDataset, VideoSize, video_size_from_file
from framefeed.dataset.orders import Buffered, Chunked, Layout, Order, Sequential, Shuffle

__all__ = [
    "Buffered",
    "Chunked",
    "Layout",
    "MultiCameraDataset",
    "Order",
    "Sequential",
    "Shuffle",
    "VideoClipSampler",
    "VideoDataset",
    "VideoSize",
    "video_size_from_file",
]
