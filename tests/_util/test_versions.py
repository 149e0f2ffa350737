"""The version that framefeed tells is the one that it is installed as."""

from __future__ import annotations

import importlib.metadata

import framefeed
from framefeed._util.versions import installed_version, installed_versions


def test_one_version() -> None:
    assert framefeed.__version__ == importlib.metadata.version("framefeed") == installed_version("framefeed")
    assert installed_version("av") == importlib.metadata.version("av")
    assert installed_version("no-such-package") is None


def test_only_what_is_installed() -> None:
    assert installed_versions(["framefeed", "no-such-package"]) == {"framefeed": framefeed.__version__}
