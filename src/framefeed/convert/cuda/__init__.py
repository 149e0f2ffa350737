"""Conversion on the GPU by Triton."""
