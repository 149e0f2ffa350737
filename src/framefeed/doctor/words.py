"""Formats figures for the report."""

from __future__ import annotations

__all__ = ["build_text", "milliseconds", "size_text"]


def build_text(cuda: str | None) -> str:
    """Returns the CUDA version that torch is built for."""
    return f"built for CUDA {cuda}" if cuda is not None else "built without CUDA"


def size_text(num_bytes: int) -> str:
    """Returns a memory size in GiB or MiB."""
    gib = num_bytes / (1 << 30)
    return f"{gib:,.1f} GiB" if gib >= 1 else f"{num_bytes / (1 << 20):,.0f} MiB"


def milliseconds(seconds: float) -> str:
    """Returns a duration in milliseconds."""
    return f"{seconds * 1000:,.0f} ms"
