"""Two files of detections are the same, or what is different is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from framefeed import InvalidFile, SourceError
from framefeed.infer import diff

Row = tuple[str, int, int, float, tuple[float, float, float, float]]


def write(path: Path, rows: list[Row], **names: str) -> Path:
    columns: dict[str, Any] = {
        "video": [row[0] for row in rows],
        "frame_index": pa.array([row[1] for row in rows], pa.int64()),
        "class": pa.array([row[2] for row in rows], pa.int32()),
        "score": pa.array([row[3] for row in rows], pa.float32()),
    }
    for place, name in enumerate(("x1", "y1", "x2", "y2")):
        columns[name] = pa.array([row[4][place] for row in rows], pa.float32())
    if names:
        columns["class_name"] = [names[f"c{row[2]}"] for row in rows]
    table = pa.table(columns)
    csv.write_csv(table, path) if path.suffix == ".csv" else parquet.write_table(table, path)
    return path


ROWS: list[Row] = [
    ("a.mp4", 0, 0, 0.9, (0, 0, 10, 10)),
    ("a.mp4", 0, 0, 0.8, (20, 20, 40, 40)),
    ("a.mp4", 25, 1, 0.7, (5, 5, 15, 15)),
    ("b.mp4", 0, 0, 0.6, (0, 0, 10, 10)),
]


def test_the_same(tmp_path: Path) -> None:
    found = diff(write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.parquet", ROWS[::-1]))
    assert found.equal
    assert (found.total.matched, found.total.only_a, found.total.only_b) == (4, 0, 0)
    assert (found.total.mean_iou, found.total.max_box, found.total.max_score) == (1.0, 0.0, 0.0)
    assert [row.name for row in found.classes] == ["0", "1"]
    assert (found.frames_a, found.frames_b) == (3, 3)


def test_what_is_different_is_counted(tmp_path: Path) -> None:
    other: list[Row] = [
        ("a.mp4", 0, 0, 0.85, (0, 0, 10, 12)),  # moved
        ("a.mp4", 0, 1, 0.8, (20, 20, 40, 40)),  # another class
        ("a.mp4", 26, 1, 0.7, (5, 5, 15, 15)),  # another frame
        ("b.mp4", 0, 0, 0.6, (0, 0, 10, 10)),
        ("b.mp4", 0, 0, 0.5, (1, 0, 10, 10)),  # one too many
    ]
    names = {"c0": "cat", "c1": "dog"}
    found = diff(write(tmp_path / "a.csv", ROWS, **names), write(tmp_path / "b.csv", other), tolerance=5)
    assert not found.equal
    assert (found.total.count_a, found.total.count_b) == (4, 5)
    assert (found.total.matched, found.total.only_a, found.total.only_b) == (2, 2, 3)
    assert found.total.max_box == 2.0 and found.total.mean_box == pytest.approx(2 / 8)
    assert found.total.max_score == pytest.approx(0.05)
    assert found.total.min_iou == pytest.approx(100 / 120)
    cat, dog = found.classes
    assert (cat.name, cat.matched, cat.only_a, cat.only_b) == ("cat", 2, 1, 1)
    assert (dog.name, dog.matched, dog.only_a, dog.only_b, dog.mean_iou) == ("dog", 0, 1, 2, None)
    assert [row["score"] for row in found.examples_a] == pytest.approx([0.8, 0.7])


def test_tolerances(tmp_path: Path) -> None:
    moved = [(*row[:3], row[3] + 0.02, tuple(side + 0.4 for side in row[4])) for row in ROWS]
    a, b = write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.csv", moved)  # type: ignore[arg-type]
    assert not diff(a, b).equal
    assert not diff(a, b, tolerance=0.3, score_tolerance=0.03).equal
    assert diff(a, b, tolerance=0.5, score_tolerance=0.03).equal
    assert diff(a, b, iou=0.99).total.matched == 0
    with pytest.raises(ValueError, match="iou"):
        diff(a, b, iou=0.0)


def test_the_best_box_goes_to_the_best_score(tmp_path: Path) -> None:
    a = write(tmp_path / "a.csv", [("v", 0, 0, 0.5, (0, 0, 10, 10)), ("v", 0, 0, 0.9, (2, 0, 12, 10))])
    b = write(tmp_path / "b.csv", [("v", 0, 0, 0.9, (2, 0, 12, 10)), ("v", 0, 0, 0.5, (0, 0, 10, 10))])
    found = diff(a, b)
    assert (found.total.matched, found.total.min_iou) == (2, 1.0)
    # With one box fewer, the lower score gets none, though it overlaps.
    c = write(tmp_path / "c.csv", [("v", 0, 0, 0.9, (1, 0, 11, 10))])
    assert [row["score"] for row in diff(a, c).examples_a] == [0.5]


def test_paths_may_be_spelt_differently(tmp_path: Path) -> None:
    elsewhere: list[Row] = [(f"/data/{row[0]}", *row[1:]) for row in ROWS]
    found = diff(write(tmp_path / "a.csv", ROWS), write(tmp_path / "b.csv", elsewhere))
    assert found.equal and found.by_file_name
    same_name: list[Row] = [(f"/data/{number}/a.mp4", *row[1:]) for number, row in enumerate(ROWS)]
    found = diff(tmp_path / "a.csv", write(tmp_path / "c.csv", same_name))  # which is which?
    assert not found.by_file_name and found.total.matched == 0


def test_nothing_in_them(tmp_path: Path) -> None:
    empty = write(tmp_path / "empty.csv", [])
    assert diff(empty, empty).equal
    found = diff(write(tmp_path / "a.csv", ROWS), empty)
    assert (found.equal, found.total.only_a, found.total.matched) == (False, 4, 0)


def test_files_that_are_none(tmp_path: Path) -> None:
    good = write(tmp_path / "a.csv", ROWS)
    with pytest.raises(SourceError, match=r"missing\.csv"):
        diff(good, tmp_path / "missing.csv")
    for name, content, reason in (
        ("columns.csv", "video,score\na,1\n", "lacks the columns frame_index"),
        ("broken.parquet", "PAR1 nothing", "cannot read rows"),
        ("words.csv", good.read_text().replace("0.9", "high"), "invalid values"),
        ("rows.json", "{}", r"\.csv or \.parquet"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(InvalidFile, match=f"{name}: .*{reason}"):
            diff(good, tmp_path / name)
