"""Tables and pictures of the documentation are what the committed numbers and the product itself say."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import test_layers
from docs.pages import ROOT
from framefeed._util.versions import source_digest

DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
PICTURES = sorted(path.name for path in (DOCS / "assets").glob("*.svg"))


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Loads a module of docs/tools."""
    monkeypatch.syspath_prepend(DOCS / "tools")
    yield importlib.import_module
    for name in ("drawing", "pictures", "texts"):
        sys.modules.pop(name, None)


def test_tables_are_those_of_the_committed_numbers(tools: Any) -> None:
    texts = tools("texts")
    read = {page: page.read_text("utf-8") for page in texts.pages()}
    stale = [page.name for page, text in read.items() if texts.filled(text, page.parent) != text]
    assert stale == [], "run: make figures"


def test_results_are_listed() -> None:
    listed = re.findall(r"(?m)^\| `(\S+\.json)` \|", (ROOT / "benchmarks" / "README.md").read_text("utf-8"))
    there = {path.name for path in (ROOT / "benchmarks" / "results").glob("*.json")}
    assert len(listed) == len(set(listed)) and there <= set(listed)


def test_tables_of_earlier_code_are_marked(tools: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = tools("texts")
    monkeypatch.setattr(texts, "RESULTS", tmp_path)
    digests = {"now": source_digest(), "then": "0123456789ab", "unknown": None}
    told = {
        ("now",): "Measured with this code (source `NOW`).",
        ("then",): "**Measured with earlier code** (source `0123456789ab`).",
        ("unknown",): "**Measured with earlier code** (source not noted).",
        ("now", "then"): "**Measured in part with earlier code** (source `NOW`, `0123456789ab`).",
    }
    for names, expected in told.items():
        for file in ("gpu-h200", "training-2-cores"):
            document = json.loads((RESULTS / f"{file}.json").read_text("utf-8"))
            for place, row in enumerate(document["results"]):
                row["source"] = digests[names[place % len(names)]]
            document.pop("endurance", None)
            (tmp_path / f"{file}.json").write_text(json.dumps(document), "utf-8")
            for page in (ROOT / "README.md", DOCS / "performance.md"):
                text = texts.filled(page.read_text("utf-8"), page.parent)
                table = text.partition(f"<!-- table: {file} -->")[2].partition("<!-- /table -->")[0]
                assert table.rstrip().endswith(expected.replace("NOW", source_digest()))


def test_a_stale_table_is_noticed(tools: Any) -> None:
    page = (DOCS / "performance.md").read_text("utf-8")
    rates = tools("texts").load("training-2-cores")["results"][0]["readers"][0]["median"]
    assert f"{rates:,.0f}" in page
    stale = page.replace(f"| {rates:,.0f} |", "| 1 |")
    assert stale != page and tools("texts").filled(stale) == page


def test_pictures_are_those_of_the_script(tools: Any) -> None:
    drawn = tools("pictures").PICTURES
    stale = [name for name, draw in drawn.items() if (DOCS / "assets" / f"{name}.svg").read_text("utf-8") != draw()]
    assert stale == [], "run: make figures"


def test_the_gain_is_that_of_the_readme(tools: Any) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for _, rates in tools("pictures")._gains():
        assert all(f"{rate:,.0f}" in readme or f"{rate:.1f}" in readme for rate in rates.values())


def test_layers_are_drawn_in_their_order(tools: Any) -> None:
    names = [name for row, _ in tools("pictures").LAYERS for name in row.split(", ")]
    places = [test_layers.ORDER.index(name) for name in names]
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


def test_figures_of_the_exercise_are_the_committed_ones(tools: Any) -> None:
    """``examples/frames200`` quotes them within its answers."""
    page = " ".join((ROOT / "examples" / "frames200" / "README.md").read_text("utf-8").split())
    medians, decoded = {}, {}
    for name in ("training-2-cores", "training-budgets"):
        for result in tools("texts").load(name)["results"]:
            for each in result["readers"]:
                medians[result["case"], result["on"], each["reader"]] = each["median"]
                decoded[result["case"], result["on"], each["reader"]] = each.get("decoded_per_delivered", 0.0)
    readers = ("framefeed", "TorchCodec", "decord2")
    for gop in (30, 250):
        cells = " | ".join(f"{medians['shuffle', f'gop{gop}', reader]:,.0f}" for reader in readers)
        assert f"| GOP {gop} | {cells} | {decoded['shuffle', f'gop{gop}', 'framefeed']:.1f} |" in page
    small = [("budgets", "gop250, no B-frames", f"framefeed, {share}%") for share in (0, 1, 10, 25)]
    packets = " | ".join(f"{decoded[key]:.{0 if decoded[key] > 10 else 1}f}" for key in small)
    assert f"| decoded per delivered frame | {packets} |" in page
    assert f"| images/s | {' | '.join(f'{medians[key]:,.0f}' for key in small)} |" in page
    one, other = ([f"{medians['shuffle', f'gop{gop}', reader]:.0f}" for reader in readers[1:]] for gop in (30, 250))
    assert f"reaches {one[0]} images/s with TorchCodec and {one[1]} with decord2 at GOP 30" in page
    assert f"and {other[0]} and {other[1]} at GOP 250" in page
    in_order = medians["sequential", "gop250", "framefeed"]
    assert f"This is the upper bound: {in_order:,.0f} images/s" in page
    share = medians["buffered", "gop250", "framefeed"] / medians["buffered", "gop250", "framefeed, sequential"]
    assert f"reach {share:.0%} of that speed".replace("%", " %") in page


def test_the_report_and_its_plot_are_of_one_run() -> None:
    page, plot = ((DOCS / name).read_text("utf-8") for name in ("preparing.md", "assets/gop_report.svg"))
    rows = re.findall(r"(?m)^\| (\d+) \| (\d+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", page)
    drawn = re.findall(r"([\d.]+) ms at GOP (\d+)", plot.partition("<title>a random frame:")[2].partition("<")[0])
    assert [(gop, float(ms)) for gop, _, ms in rows] == [(gop, round(float(ms), 1)) for ms, gop in drawn] != []
