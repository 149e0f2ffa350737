"""The site: built without a warning, complete, and nothing in it is fetched from elsewhere."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

import framefeed
from docs.pages import ROOT
from docs.shell import command_names

MODULES = ("readers", "transforms", "infer", "sampling", "prepare")
PUBLIC = [f"framefeed.{name}" for name in framefeed.__all__] + [
    f"framefeed.{module}.{name}"
    for module in MODULES
    for name in importlib.import_module(f"framefeed.{module}").__all__
]

# What a browser loads by itself; `a` leads somewhere, but is not followed.
LOADED = {"audio", "embed", "iframe", "img", "link", "object", "script", "source", "video"}


class _Page(HTMLParser):
    """What a page loads, where it leads, and what can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.pictures: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.anchors.add(str(found["id"]))
        target = found.get("src") or found.get("href") or found.get("data")
        if target and tag in LOADED:
            self.loads.append(target)
        elif target and tag == "a":
            self.leads.append(target)
        if tag == "img":
            self.pictures.append(found.get("alt"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as ``make docs`` does it."""
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, "\n".join(line for line in ran.stderr.splitlines() if "INFO" not in line)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """All pages by their path."""
    return {path.relative_to(site).as_posix(): _Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, _Page]) -> None:
    outside = [(name, target) for name, page in pages.items() for target in page.loads if urlparse(target).netloc]
    assert outside == []
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']*", styles) == []


def test_every_link_leads_somewhere(site: Path, pages: dict[str, _Page]) -> None:
    wrong = []
    for name, page in pages.items():
        for target in page.leads + page.loads:
            parts = urlparse(target)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            path = (site / name).parent / unquote(parts.path) if parts.path else site / name
            path = path.resolve()
            known = pages.get(path.relative_to(site.resolve()).as_posix())
            if not path.exists() or (parts.fragment and known and unquote(parts.fragment) not in known.anchors):
                wrong.append((name, target))
    assert wrong == []


def test_every_public_name_is_in_the_reference(pages: dict[str, _Page]) -> None:
    there = set().union(*(page.anchors for name, page in pages.items() if name.startswith("api/")))
    assert [name for name in PUBLIC if name not in there] == []


def test_every_command_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "commands.md").read_text("utf-8")
    assert set(re.findall(r"<!-- help: (.+) -->", text)) == command_names()


def test_help_is_filled_in(site: Path) -> None:
    text = (site / "commands.html").read_text("utf-8")
    assert "usage: framefeed index" in text and "<!-- help:" not in text


def test_every_page_is_in_the_navigation(pages: dict[str, _Page]) -> None:
    leads = {Path(target.partition("#")[0]).as_posix() for target in pages["index.html"].leads}
    written = {
        path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }
    shown = {name.replace("README.html", "index.html") for name in written}
    assert shown <= leads | {"index.html"}


def test_pictures_say_what_they_show(pages: dict[str, _Page]) -> None:
    assert [name for name, page in pages.items() if not all(page.pictures)] == []


def test_it_has_search(site: Path) -> None:
    assert "look-ahead" in (site / "search" / "search_index.json").read_text("utf-8")
