"""The page of results: well formed, self-contained, honest, and its numbers are the JSON's."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from framefeed.charts.plots import Line, Point, lines
from framefeed.charts.svg import number
from framefeed.compare.report_page import headline, page

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "</script><script>alert('x')</script> & \"quotes\" <!-- http://example.com/a.js -->"
MEDIANS = {"framefeed": 412.345678, "torchcodec": 207.7, "decord": 9999.25, "opencv": 12.34}


class Parsed(HTMLParser):
    """Tags that have to be balanced, attributes, and the text of each element by tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.inside: dict[str, list[list[str]]] = {"svg": []}
        self.data: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "svg":
            self.inside["svg"].append([])
        elif "svg" in self.open:
            self.inside["svg"][-1].append(tag)
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> closes itself in SVG alone"
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    @property
    def results(self) -> Any:
        """The embedded JSON."""
        (text,) = self.texts["script"]
        return json.loads(text)

    @property
    def values(self) -> set[float]:
        """The numbers of the tables, with all their digits."""
        return {float(value) for tag, name, value in self.attributes if (tag, name) == ("data", "value")}


def row(reader: str, video: str, case: str, **changes: Any) -> dict[str, Any]:
    median = MEDIANS[reader]
    return {
        "reader": reader,
        "video": video,
        "case": case,
        "batch_size": {"single": 1, "clips": 16}.get(case, 32),
        "device": "cpu",
        "mode": "stream",
        "requests": 4,
        "frames": 128,
        "rates": [median, median * 0.9, median * 1.1],
        "median": median,
        "min": median * 0.9,
        "max": median * 1.1,
        "seconds": [1.0, 1.1, 0.9],
        "wrong": 0,
        "checked": 128,
        "wrong_examples": [],
        "decoded_per_delivered": 2.75,
        "peak_memory_mb": 345.6,
        "error": None,
    } | changes


def measured(reader: str, video: str, case: str) -> dict[str, Any]:
    """decord is fast and wrong, opencv fails on the second video, framefeed is slower in order."""
    if reader == "decord":
        return row(reader, video, case, wrong=7, wrong_examples=[{"index": 17, "got": 18}, {"index": 9, "got": None}])
    if reader == "opencv" and video == "b":
        nothing: dict[str, Any] = {
            "median": None,
            "min": None,
            "max": None,
            "rates": [],
            "seconds": [],
            "wrong": None,
            "checked": 0,
        }
        return row(reader, video, case, error="cannot open <b>", **nothing)
    if reader == "framefeed" and case == "in-order":
        return row(reader, video, case, median=150.5, min=150.25, max=151.0, rates=[150.25, 150.5, 151.0])
    return row(reader, video, case)


@pytest.fixture
def document() -> dict[str, Any]:
    cases, videos = ("random", "single", "in-order"), {"a": 12, "b": 250}
    reader = {"version": "1.0", "usable": True, "why": "", "exact": True, "remarks": ""}
    video = {"codec": "h264", "width": 640, "height": 360, "frames": 1500, "b_frames": True, "seconds": 16.5}
    return {
        "format": "framefeed bench 1",
        "complete": True,
        "started": "2026-11-15T10:00:00+00:00",
        "took_seconds": 75.0,
        "command": "framefeed bench",
        "machine": {"cpu": "A CPU", "cpus_used": 2, "memory_gb": 15.6, "os": "Linux", "python": "3.11", "gpu": None},
        "versions": {"framefeed": "0.1.0", "torchcodec": "0.13.0"},
        "configuration": {"cases": list(cases), "batch_sizes": [32], "devices": ["cpu"], "repeat": 3, "mode": "stream"},
        "videos": [video | {"name": name, "gop": gop, "generated": True} for name, gop in videos.items()],
        "readers": [
            *(reader | {"name": name} for name in MEDIANS),
            reader | {"name": "vali", "version": None, "usable": False, "why": "pip install python-vali"},
        ],
        "results": [measured(reader, video, case) for case in cases for video in videos for reader in MEDIANS],
    }


def test_page_is_well_formed_and_has_its_parts(document: dict[str, Any]) -> None:
    parsed = Parsed(page(document))
    assert ("html", "lang", "en") in parsed.attributes
    assert ("meta", "name", "viewport") in parsed.attributes
    assert len(parsed.texts["h1"]) == 1
    assert parsed.texts["h2"] == [
        *("What was measured", "At a glance", "Throughput", "Cost against group size", "Wrong frames", "All numbers"),
        *("Readers", "Videos", "Configuration"),
    ]
    text = page(document)
    assert "pip install python-vali" in text
    assert "cannot open &lt;b&gt;" in text and "cannot open <b>" not in text
    assert "Incomplete" not in text


def test_nothing_is_loaded(document: dict[str, Any]) -> None:
    document["command"] = HOSTILE
    text = page(document)
    parsed = Parsed(text)
    assert not [found for found in parsed.attributes if found[1] in ("src", "href", "srcset", "xlink:href", "action")]
    assert "link" not in parsed.texts and not re.search(r"<(link|img|iframe|object|embed|base)\b", text)
    assert not re.search(r"url\(|@import|@font-face", text)
    assert [value for tag, name, value in parsed.attributes if (tag, name) == ("script", "type")] == [
        "application/json"
    ]
    assert not [found for found in parsed.attributes if found[1].startswith("on") or "http" in found[2]]


def test_both_colour_schemes_are_there(document: dict[str, Any]) -> None:
    style = Parsed(page(document)).texts["style"][0]
    light, _, dark = style.partition("prefers-color-scheme: dark")
    for name in ("--page", "--text", "--bad", *(f"--i{ink}" for ink in range(10))):
        assert f"{name}:" in light and f"{name}:" in dark
    assert style.count("{") == style.count("}") and "@media print" in style


def test_every_plot_has_a_title(document: dict[str, Any]) -> None:
    parsed = Parsed(page(document))
    # Two videos in each of three cases, and two lines' plots.
    assert len(parsed.inside["svg"]) == 8
    assert all(tags[0] == "title" for tags in parsed.inside["svg"])
    assert parsed.attributes.count(("svg", "role", "img")) == 8
    assert len([value for tag, name, value in parsed.attributes if (tag, name) == ("svg", "aria-label") and value]) == 8


def test_numbers_equal_those_of_the_json(document: dict[str, Any]) -> None:
    text = page(document)
    parsed = Parsed(text)
    assert parsed.results == document
    for result in document["results"]:
        for key in ("median", "min", "max", "decoded_per_delivered", "peak_memory_mb", "requests", "frames"):
            if result["error"] is None:
                assert result[key] in parsed.values
                assert f'<data value="{result[key]!r}">{number(result[key])}</data>' in text
        assert set(result["rates"]) <= parsed.values


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((None, "–"), (0, "0"), (1234, "1,234"), (1234.5678, "1,235"), (99.96, "100"), (12.34, "12.3")),
        *((9.996, "10.0"), (1.234, "1.23"), (5, "5")),
    ],
)
def test_numbers_are_short(value: float | None, shown: str) -> None:
    assert number(value) == shown


def test_hostile_texts_stay_text(document: dict[str, Any]) -> None:
    hostile = HOSTILE + "\x00\x1b[31m\udcff\u2028"
    document["command"] = document["machine"]["cpu"] = document["readers"][-1]["why"] = hostile
    document["configuration"]["readers"] = [hostile]
    document["versions"][hostile] = hostile
    for each in (*document["videos"], *document["results"]):
        if each.get("name", each.get("video")) == "a":
            each["name" if "name" in each else "video"] = hostile
        if each.get("error"):
            each["error"] = hostile
    text = page(document)
    assert Parsed(text).results == document
    assert text.count("<script") == text.count("</script") == 1
    assert "<!--" not in text and "\x1b" not in text
    text.encode()


def test_wrong_readers_are_shown_as_wrong_and_never_as_fastest(document: dict[str, Any]) -> None:
    first, *more = headline(document)
    assert "decord" not in first
    assert "Wrong frames, never counted as fast: decord in 6 measurements." in more
    assert not [sentence for sentence in more if "decord is" in sentence]
    text = page(document)
    assert text.count('class="hatch"') == 6
    assert "wrong: 7 of 128" in text and "wrong: 21 of 384" in text
    assert "asked 17, got 18; asked 9, got no known frame" in text
    # Bold numbers at bars are those of the fastest.
    bold = re.findall(r'class="value strong"[^>]*>([^<]*)<', text)
    assert bold == ["412", "412", "412", "412", "208", "208"]


def test_headline_is_computed_from_right_frames(document: dict[str, Any]) -> None:
    first, *more = headline(document)
    mean = ((412.345678 / 207.7) ** 4 * (150.5 / 207.7) ** 2) ** (1 / 6)
    assert first == (
        f"On the CPU, framefeed is {mean:.2f}x as fast as the fastest other reader "
        "(geometric mean over 6 comparisons), and the fastest in 4 of them."
    )
    times = f"(torchcodec is {207.7 / 150.5:.2f}x as fast)"
    assert more[0] == f"framefeed is not the fastest here: in-order on a {times}; in-order on b {times}."
    assert "Failed: opencv in 3 measurements." in more


def test_who_is_beaten_because_another_one_was_wrong(document: dict[str, Any]) -> None:
    """decord is faster than all others, and right for the second video alone."""
    assert not any(
        "was faster than the one that counts" in sentence for sentence in headline(document)
    )  # in all of them
    for result in document["results"]:
        if result["reader"] == "decord" and result["video"] == "b":
            result.update(wrong=0, wrong_examples=[], median=100.0, rates=[100.0, 90.0, 110.0], min=90.0, max=110.0)
    rest = ((412.345678 / 207.7) ** 2 * (150.5 / 207.7)) ** (1 / 3)
    assert (
        "In 3 comparisons on the CPU a reader with wrong frames was faster than the one that counts; in the rest "
        f"framefeed is {rest:.2f}x as fast." in headline(document)
    )


def test_framefeed_with_wrong_frames_wins_nothing(document: dict[str, Any]) -> None:
    for result in document["results"]:
        if result["reader"] == "framefeed" and result["case"] != "single":
            result["wrong"] = 1
    first, *more = headline(document)
    assert "2 comparisons" in first
    assert "framefeed in 4 measurements" in " ".join(more)
    assert any(sentence.startswith("Left out") and "4 comparisons" in sentence for sentence in more)


def test_unchecked_frames_count_for_exact_readers_only(document: dict[str, Any]) -> None:
    for result in document["results"]:
        result.update(wrong=None, checked=0)
    document["readers"][2]["exact"] = False
    assert "decord" not in " ".join(headline(document))
    assert "not checked" in page(document)
    document["readers"][2]["exact"] = True
    assert "decord is" in " ".join(headline(document))


def test_devices_and_modes_are_told_apart(document: dict[str, Any]) -> None:
    document["results"] += [dict(result, device="cuda") for result in document["results"]]
    document["results"] += [
        dict(result, mode="seek") for result in document["results"] if result["reader"] != "framefeed"
    ]
    first = headline(document)[0]
    assert "On the CPU, framefeed is" in first and "On the GPU, framefeed is" in first
    text = page(document)
    Parsed(text)
    assert ">torchcodec, seek<" in text and ">torchcodec, stream<" in text and ">framefeed<" in text


def test_incomplete_results_say_so(document: dict[str, Any]) -> None:
    document["complete"] = False
    text = page(document)
    assert text.index("Incomplete.") < text.index("as fast as")


@pytest.mark.parametrize("what", ["nothing", "no results", "one reader", "one video", "only failures", "without us"])
def test_what_is_missing_leaves_a_sensible_page(document: dict[str, Any], what: str) -> None:
    results = document["results"]
    if what == "nothing":
        document = {}
    elif what == "no results":
        document["results"] = []
    elif what == "one reader":
        document["results"] = [result for result in results if result["reader"] == "framefeed"]
    elif what == "one video":
        document["results"] = [result for result in results if result["video"] == "a"]
    elif what == "only failures":
        document["results"] = [result for result in results if result["error"]]
    else:
        document["results"] = [result for result in results if result["reader"] != "framefeed"]
    expected = {
        "nothing": "Nothing was measured.",
        "no results": "Nothing was measured.",
        "one reader": "framefeed delivered between 150 and 412 frames/s in 6 measurements; there was no other reader",
        "one video": "geometric mean over 3 comparisons",
        "only failures": "No reader returned the right frames",
        "without us": "2 readers delivered between 12.3 and 208 frames/s",
    }
    text = page(document)
    parsed = Parsed(text)
    assert expected[what] in parsed.texts["p"][1 if what == "nothing" else 0]
    assert parsed.results == document
    assert ("Cost against group size" in text) == (what in ("one reader", "without us"))
    assert not re.search(r"\bNone\b|\bnan\b", re.sub(r"<script.*", "", text, flags=re.DOTALL))


def test_group_sizes_of_unlike_videos_come_with_a_warning(document: dict[str, Any]) -> None:
    assert "differ in codec" not in page(document)
    document["videos"][0]["codec"] = "hevc"
    assert "differ in codec" in page(document)
    document["videos"][0]["gop"] = document["videos"][1]["gop"]
    assert "Cost against group size" not in page(document)


def test_a_logarithmic_axis_is_used_when_needed_and_labelled() -> None:
    def plot(*values: float) -> str:
        points = tuple(Point(10.0 ** (place + 1), value, value, value) for place, value in enumerate(values))
        return lines([Line("one", 0, points)], "a plot", x_name="x", y_name="y")

    assert ">y</text>" in plot(1.0, 5.0) and ">x, log scale</text>" in plot(1.0, 5.0)
    assert ">y, log scale</text>" in plot(1.0, 50.0)
