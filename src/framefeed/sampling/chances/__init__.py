"""Probabilities of frames and of pairs of frames, exact where possible, simulated otherwise."""
