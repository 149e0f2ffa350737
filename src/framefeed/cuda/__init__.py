"""NVIDIA's driver, streams and events."""
