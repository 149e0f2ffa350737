"""Versions of framefeed and of what it uses."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Iterable
from pathlib import Path

__all__ = ["FRAMEFEED", "installed_version", "installed_versions", "source_digest"]

FRAMEFEED = "0.1.0"  # pyproject.toml reads it here


def installed_version(package: str) -> str | None:
    """The version of a package; None where it is not installed.

    framefeed knows its own, even where it only lies on the path.
    """
    if package == "framefeed":
        return FRAMEFEED
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    found = {package: installed_version(package) for package in packages}
    return {package: version for package, version in found.items() if version is not None}


@functools.cache
def source_digest() -> str:
    """Twelve digits that change with the code of framefeed, except that of comparisons, charts and commands.

    Results that have them tell which code they were measured with, where there is no version control.
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        name = path.relative_to(root)
        if name.parts[0] not in ("charts", "cli", "compare"):
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
