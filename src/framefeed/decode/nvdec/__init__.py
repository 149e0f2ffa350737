"""Decoding on NVIDIA GPUs by PyNvVideoCodec."""
