"""The public names of framefeed: each can be imported, every error is among them, and importing is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import framefeed
from framefeed import errors

ROOT = Path(framefeed.__file__).parent
API_PAGE = ROOT.parents[1] / "docs" / "api" / "errors.md"

# Told apart inside their packages only; users catch the CatalogError and the InvalidFile that they derive from.
INTERNAL = {"ForeignFile", "NoPictureSize"}


def _subclasses_of_framefeed_error() -> dict[str, str]:
    """Classes derived from FramefeedError, in any package, and the files that define them."""
    classes = [
        (node.name, path.relative_to(ROOT).as_posix(), {ast.unparse(base).rpartition(".")[2] for base in node.bases})
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    found = {"FramefeedError": "errors.py"}
    while True:
        more = {name: file for name, file, bases in classes if name not in found and bases & found.keys()}
        if not more:
            return found
        found |= more


def test_names_are_sorted_and_unique() -> None:
    assert list(framefeed.__all__) == sorted(set(framefeed.__all__))


@pytest.mark.parametrize("name", framefeed.__all__)
def test_name_can_be_imported(name: str) -> None:
    value = getattr(framefeed, name)
    assert value.__name__ == name
    assert value.__doc__
    assert name in dir(framefeed)


def test_every_error_is_public() -> None:
    assert set(errors.__all__) <= set(framefeed.__all__)


def test_every_error_of_every_package_is_in_errors() -> None:
    found = _subclasses_of_framefeed_error()
    assert found.keys() - INTERNAL == set(errors.__all__)
    assert {name for name, file in found.items() if file != "errors.py"} == INTERNAL


@pytest.mark.parametrize("name", errors.__all__)
def test_error_is_documented(name: str) -> None:
    drawn = [line.split()[-1] for line in (errors.__doc__ or "").splitlines() if line.strip() == name]
    drawn += [line.split("── ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "── " in line]
    assert name in drawn
    assert f"::: framefeed.{name}\n" in API_PAGE.read_text("utf-8")


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'VideoEncoder'"):
        _ = framefeed.VideoEncoder


def test_import_is_light() -> None:
    code = "import sys, framefeed; print(*(name for name in ('torch', 'av', 'pyarrow') if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
