"""Indexing: a file becomes a table of its packets. Demuxes, never decodes."""

from __future__ import annotations

from framefeed.index.video_index import VideoIndex

__all__ = ["VideoIndex"]
