"""The public door: what it names is there, and opening it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

import framefeed
from framefeed import errors


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


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'VideoEncoder'"):
        _ = framefeed.VideoEncoder


def test_import_is_light() -> None:
    code = "import sys, framefeed; print(*(name for name in ('torch', 'av', 'pyarrow') if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
