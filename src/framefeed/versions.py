"""Versions of framefeed and of what it uses."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

__all__ = ["FRAMEFEED", "installed_version", "installed_versions"]

FRAMEFEED = "0.1.0"


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
