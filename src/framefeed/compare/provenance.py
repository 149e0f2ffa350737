"""Machine, versions and source digest of a measurement."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from framefeed._util.limits import physical_memory
from framefeed._util.versions import installed_versions, source_digest

__all__ = ["age", "machine", "of_other_code", "sources", "stamped", "versions"]


def stamped(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of results with the digest of the code that produced it."""
    return {**row, "source": source_digest()}


def sources(document: Mapping[str, Any]) -> dict[str, str | None]:
    """Returns the source digest of each part of a results file by name; None if it was not recorded."""
    rows = document.get("results", document.get("runs"))
    found: dict[str, str | None] = {}
    if isinstance(rows, list):
        for place, row in enumerate(rows):
            named = [str(row[key]) for key in _NAMES if key in row]
            found[", ".join(named) or str(place)] = row.get("source")
    else:
        found["all"] = document.get("source")
    if "endurance" in document:
        found["endurance"] = document["endurance"].get("source")
    return found


# Keys that distinguish the rows of a results file.
_NAMES = ("reader", "name", "case", "on", "video", "batch_size", "device", "container", "disk")


def of_other_code(document: Mapping[str, Any]) -> list[str]:
    """Returns the parts of a results file that were measured with other code than the present."""
    return [name for name, digest in sources(document).items() if digest != source_digest()]


def age(document: Mapping[str, Any]) -> str:
    """Describes the code behind a table of results; in bold if it is not entirely the present code.

    The present code's digest is not named, so the text does not change with every further change.
    """
    digests = list(dict.fromkeys(sources(document).values()))
    named = ", ".join("not noted" if digest is None else f"`{digest}`" for digest in digests) or "not noted"
    if digests == [source_digest()]:
        return f"Measured with this code (source {named})."
    part = "in part " if source_digest() in digests else ""
    return f"**Measured {part}with earlier code** (source {named})."


def machine(cpus: int) -> dict[str, Any]:
    """Describes the machine; ``cpus`` of 0 stands for all."""
    model = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "cpu": model,
        "cpus_used": cpus or os.cpu_count(),
        "memory_gib": round(physical_memory() / 2**30, 1),
        "os": platform.platform(),
    }


def versions() -> dict[str, str]:
    """Returns the versions of everything measured."""
    packages = ("framefeed", "av", "torch", "numpy", "torchcodec", "decord2", "opencv-python-headless")
    return {"python": platform.python_version(), **installed_versions(packages)}
