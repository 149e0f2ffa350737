"""Threads and processes: forks, ends, long waits, workers."""
