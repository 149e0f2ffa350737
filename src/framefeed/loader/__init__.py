"""``VideoLoader``: batches of a dataset in a given order, decoded ahead."""

from __future__ import annotations

from framefeed.loader.loader import SkippedSample, VideoLoader
from framefeed.loader.stats import LoaderStats

__all__ = ["LoaderStats", "SkippedSample", "VideoLoader"]
