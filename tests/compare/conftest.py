"""Processes are started as those of the benchmarks' tests are."""

from bench.conftest import quick_processes as quick_processes
