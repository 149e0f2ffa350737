"""Versions of framefeed and of what it uses."""

from __future__ import annotations

import importlib.metadata

import framefeed
from framefeed._util.versions import installed_version, installed_versions


def test_version_of_a_package() -> None:
    assert installed_version("framefeed") == framefeed.__version__
    assert installed_version("av") == importlib.metadata.version("av")
    assert installed_version("no-such-package") is None


def test_only_installed_packages_have_versions() -> None:
    assert installed_versions(["framefeed", "no-such-package"]) == {"framefeed": framefeed.__version__}
