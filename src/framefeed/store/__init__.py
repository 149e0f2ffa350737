"""Packet stores: the packets of many videos in a few large files."""
