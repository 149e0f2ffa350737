"""Tables and pictures of the documentation are what the committed numbers and the product itself say."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import test_layers
from docs.pages import ROOT

DOCS = ROOT / "docs"
PICTURES = sorted(path.name for path in (DOCS / "assets").glob("*.svg"))


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads a module of docs/tools."""
    monkeypatch.syspath_prepend(DOCS / "tools")
    yield importlib.import_module
    for name in ("drawing", "pictures", "texts"):
        sys.modules.pop(name, None)


def test_tables_are_those_of_the_committed_numbers(tools: Any) -> None:
    filled = tools("texts").filled
    stale = [page.name for page in DOCS.glob("*.md") if filled(page.read_text("utf-8")) != page.read_text("utf-8")]
    assert stale == [], "run: python docs/tools/texts.py"


def test_a_stale_table_is_noticed(tools: Any) -> None:
    page = (DOCS / "performance.md").read_text("utf-8")
    rates = tools("texts").load("training-2-cores")["results"][0]["readers"][0]["median"]
    assert f"{rates:,.0f}" in page
    stale = page.replace(f"| {rates:,.0f} |", "| 1 |")
    assert stale != page and tools("texts").filled(stale) == page


def test_pictures_are_those_of_the_script(tools: Any) -> None:
    drawn = tools("pictures").PICTURES
    stale = [
        name for name, draw in drawn.items() if (DOCS / "assets" / f"{name}.svg").read_text("utf-8") != draw().svg()
    ]
    assert stale == [], "run: python docs/tools/pictures.py"


def test_the_gain_is_that_of_the_readme(tools: Any) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for _, rates in tools("pictures")._gains():
        assert all(f"{rate:,.0f}" in readme or f"{rate:.1f}" in readme for rate in rates.values())


def test_layers_are_drawn_in_their_order(tools: Any) -> None:
    names = [name for row, _ in tools("pictures").LAYERS for name in row.split(", ")]
    places = [test_layers.LAYERS.index(name) for name in names]
    assert places == sorted(places)


@pytest.mark.parametrize("name", PICTURES)
def test_picture_can_be_seen_in_light_and_dark(name: str) -> None:
    text = (DOCS / "assets" / name).read_text("utf-8")
    ElementTree.fromstring(text)
    assert "prefers-color-scheme: dark" in text and "<title>" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_gain_is_shown(page: str) -> None:
    assert Path(page).name and "assets/gain.svg" in (ROOT / page).read_text("utf-8")
