"""Packet tables of one file, by container."""
