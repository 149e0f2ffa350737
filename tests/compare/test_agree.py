"""Two runs of one comparison."""

from __future__ import annotations

from typing import Any

import pytest

from framefeed.compare.agree import agreement


def _document(**rates: list[float]) -> dict[str, Any]:
    """Rates of readers in one comparison; a name that ends in _wrong gave wrong frames."""
    rows = [
        {
            "reader": name.removesuffix("_wrong"),
            "case": "random",
            "video": "a.mp4",
            "batch_size": 8,
            "device": "cpu",
            "rates": found,
            "median": sorted(found)[len(found) // 2],
            "checked": 8,
            "wrong": 3 * name.endswith("_wrong"),
            "error": None,
        }
        for name, found in rates.items()
    ]
    return {"results": rows, "readers": []}


def test_runs_that_agree() -> None:
    found = agreement(
        _document(one=[100, 102, 98], two=[50, 51, 49], three=[49, 50, 49]),
        _document(one=[80, 82, 78], two=[41, 42, 40], three=[42, 43, 41]),
    )
    assert (found.pairs, found.ranked, found.turned) == (3, 2, ())  # two and three are equally fast
    assert found.largest_change < 0.08
    (words,) = found.sentences()
    assert "3 pairs of readers, 2 of them more than 5% apart, all ranked alike" in words


def test_runs_that_do_not() -> None:
    found = agreement(_document(one=[100], two=[50]), _document(one=[50], two=[100]))
    assert found.turned == ("one and two in random on a.mp4",) and found.largest_change == pytest.approx(3)
    assert "ranked the other way: one and two" in found.sentences()[0] and "within 300%" in found.sentences()[0]
    assert found.as_json()["turned"] == ("one and two in random on a.mp4",)


def test_only_right_frames_in_both_runs_count() -> None:
    found = agreement(_document(one=[100], two=[50]), _document(one=[100], two_wrong=[500]))
    assert found.pairs == 0 and "nothing in common" in found.sentences()[0]
    assert agreement(_document(one=[1], two=[2]), {"results": []}).pairs == 0
