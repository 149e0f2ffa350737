"""Bytes -> pictures: one protocol, a decoder on PyAV, a fake that needs no codec, and the engine that runs plans."""
