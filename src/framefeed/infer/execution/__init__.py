"""Execution of a run: segments, workers, batches in flight."""
