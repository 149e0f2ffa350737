"""Helpers without domain knowledge: files, locks, processes, limits."""
