"""Packet bytes by packet number: from the file, from a demuxer, or from a packet store."""

from __future__ import annotations

from framefeed.source.packets import CutOff, PacketSource, media_of, open_source

__all__ = ["CutOff", "PacketSource", "media_of", "open_source"]
