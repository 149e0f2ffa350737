"""Packet numbers -> bytes."""

from __future__ import annotations

from framefeed.source.packets import CutOff, PacketSource, media_of, open_source

__all__ = ["CutOff", "PacketSource", "media_of", "open_source"]
