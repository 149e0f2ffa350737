"""Benchmarks: cases, readers, report. Uses the public interface alone."""
