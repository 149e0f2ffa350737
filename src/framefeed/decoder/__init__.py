"""``VideoDecoder``, and the transforms that it takes."""

from __future__ import annotations

from framefeed.decoder.video_decoder import CenterCrop, RandomCrop, Resize, VideoDecoder

__all__ = ["CenterCrop", "RandomCrop", "Resize", "VideoDecoder"]
