"""Packet numbers -> bytes."""

from __future__ import annotations

from framefeed.source.packets import PacketSource, open_source

__all__ = ["PacketSource", "open_source"]
