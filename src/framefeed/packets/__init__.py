"""Packet reading in worker processes, separate from decoding."""

from __future__ import annotations

from framefeed.packets.packet_dataset import PacketBatch, PacketDataset
from framefeed.packets.packet_decoder import PacketDecoder, PacketStats
from framefeed.packets.packet_group import PacketGroup

__all__ = ["PacketBatch", "PacketDataset", "PacketDecoder", "PacketGroup", "PacketStats"]
