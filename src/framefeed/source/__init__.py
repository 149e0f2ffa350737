"""Packet numbers -> bytes."""

from __future__ import annotations

from framefeed.source.packets import CutOff, PacketSource, open_source

__all__ = ["CutOff", "PacketSource", "open_source"]
