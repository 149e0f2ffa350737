"""Decoding on the CPU by PyAV."""
