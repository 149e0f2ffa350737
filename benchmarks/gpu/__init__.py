"""Framefeed on a GPU beside bare decoders and the readers of PyNvVideoCodec."""
