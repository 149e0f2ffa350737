"""Comparison of readers on the same files, and of frames with a linear decode."""
