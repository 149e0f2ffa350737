"""What is painted, beside what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from framefeed.testing.shape_detector import Painted, painted_boxes

WIDTH, HEIGHT = 128, 96
SIZE = (128, 128)  # of the detector's input: height and width


def turned(box: Painted) -> Painted:
    """A box of a clip of that size that is shown turned by 90 degrees counter-clockwise."""
    return Painted(box.y1, WIDTH - box.x2, box.y2, WIDTH - box.x1, box.class_id)


def expected(path: Path | str, frame: int) -> list[Painted]:
    name = Path(path).stem
    seed = 3 if name == "turned" else int(name)
    boxes = painted_boxes(frame, WIDTH, HEIGHT, seed=seed)
    return [turned(box) for box in boxes] if name == "turned" else boxes


def overlap(row: dict[str, Any], box: Painted) -> float:
    wide = min(row["x2"], box.x2) - max(row["x1"], box.x1)
    high = min(row["y2"], box.y2) - max(row["y1"], box.y1)
    common = max(0.0, wide) * max(0.0, high)
    area = (row["x2"] - row["x1"]) * (row["y2"] - row["y1"]) + (box.x2 - box.x1) * (box.y2 - box.y1)
    return float(common / (area - common))


def check_rows(rows: Sequence[dict[str, Any]], sampled: Mapping[str, Sequence[int]], least: float = 0.9) -> None:
    """Every painted rectangle of every sampled frame is there once, and nothing else."""
    by_frame: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        by_frame.setdefault((row["video"], row["frame_index"]), []).append(row)
    assert set(by_frame) == {(video, frame) for video, frames in sampled.items() for frame in frames}
    for (video, frame), found in by_frame.items():
        truth = {box.class_id: box for box in expected(video, frame)}
        assert sorted(row["class"] for row in found) == sorted(truth), (video, frame)
        for row in found:
            assert overlap(row, truth[row["class"]]) >= least, (video, frame, row, truth[row["class"]])
