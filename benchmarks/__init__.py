"""Benchmarks of framefeed beside other libraries; not part of the package."""
