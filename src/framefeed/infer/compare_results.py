"""Comparison of two detection files: boxes, scores and classes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from framefeed.infer.rows import read_rows

__all__ = ["ClassDifference", "Difference", "diff"]

EXAMPLES = 5
_BOX = ("x1", "y1", "x2", "y2")


@dataclass(frozen=True)
class ClassDifference:
    """Differences of two files in one class, or in all.

    Attributes:
        name: The class.
        count_a, count_b: Number of rows.
        matched: Number of matched boxes.
        only_a, only_b: Number of unmatched boxes.
        mean_iou, min_iou: Overlap of matched boxes; None without matches.
        mean_box, max_box: Distance of their sides, in pixels.
        mean_score, max_score: Difference of their scores.
    """

    name: str
    count_a: int
    count_b: int
    matched: int
    only_a: int
    only_b: int
    mean_iou: float | None
    min_iou: float | None
    mean_box: float | None
    max_box: float | None
    mean_score: float | None
    max_score: float | None


@dataclass(frozen=True)
class Difference:
    """Differences of two files.

    Attributes:
        total: Over all classes.
        classes: By class.
        examples_a, examples_b: Some unmatched rows, highest score first.
        frames_a, frames_b: Number of frames with boxes.
        tolerance: Allowed distance of sides, in pixels.
        score_tolerance: Allowed difference of scores.
        by_file_name: True if videos were matched by file name, because no paths are equal.
    """

    total: ClassDifference
    classes: list[ClassDifference]
    examples_a: list[dict[str, Any]] = field(repr=False)
    examples_b: list[dict[str, Any]] = field(repr=False)
    frames_a: int = 0
    frames_b: int = 0
    tolerance: float = 0.0
    score_tolerance: float = 0.0
    by_file_name: bool = False

    @property
    def equal(self) -> bool:
        """True if both have the same boxes, within the tolerances."""
        same = not (self.total.only_a or self.total.only_b)
        box, score = self.total.max_box or 0.0, self.total.max_score or 0.0
        return same and box <= self.tolerance and score <= self.score_tolerance


def diff(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    iou: float = 0.5,
    tolerance: float = 1.0,
    score_tolerance: float = 0.01,
) -> Difference:
    """Compares two detection files.

    In each frame and class, the boxes of ``a``, by falling score, each match the unmatched box of ``b`` with the
    largest overlap.

    Args:
        a, b: ``.csv`` or ``.parquet`` files.
        iou: Lowest intersection over union of matched boxes.
        tolerance: Allowed distance of their sides, in pixels.
        score_tolerance: Allowed difference of their scores.

    Raises:
        SourceError: A file cannot be read.
        InvalidFile: A file is not a table of detections.
    """
    if not 0.0 < iou <= 1.0:
        raise ValueError(f"iou must be above 0 and at most 1, got {iou}")
    tables = read_rows(a), read_rows(b)
    tables, by_name = _same_names(*tables)
    first, second = _ResultColumns(tables[0]), _ResultColumns(tables[1])
    groups = _common_groups(first, second)
    left, right, overlap = _match(first, second, groups, iou)
    missing_a, missing_b = _others(len(first), left), _others(len(second), right)
    names = {**second.class_names(), **first.class_names()}
    kinds = sorted(set(first.classes.tolist()) | set(second.classes.tolist()))
    by_class = [_compared(names.get(kind) or str(kind), first, second, left, right, overlap, kind) for kind in kinds]
    return Difference(
        _compared("all", first, second, left, right, overlap, None),
        by_class,
        _examples(tables[0], first, missing_a),
        _examples(tables[1], second, missing_b),
        first.num_frames(),
        second.num_frames(),
        tolerance,
        score_tolerance,
        by_name,
    )


class _ResultColumns:
    """Columns of a table, as arrays."""

    def __init__(self, table: pa.Table) -> None:
        self.videos = table["video"].to_numpy(zero_copy_only=False)
        self.frames = table["frame_index"].to_numpy()
        self.classes = table["class"].to_numpy()
        self.scores = table["score"].to_numpy().astype(np.float64)
        self.boxes = np.stack([table[name].to_numpy() for name in _BOX], 1).astype(np.float64)
        self._names = table["class_name"] if "class_name" in table.column_names else None

    def __len__(self) -> int:
        return len(self.scores)

    def class_names(self) -> dict[int, str]:
        if self._names is None:
            return {}
        kinds, places = np.unique(self.classes, return_index=True)
        return {int(kind): self._names[int(place)].as_py() for kind, place in zip(kinds, places, strict=True)}

    def num_frames(self) -> int:
        return len(set(zip(self.videos.tolist(), self.frames.tolist(), strict=True)))


def _same_names(a: pa.Table, b: pa.Table) -> tuple[tuple[pa.Table, pa.Table], bool]:
    """Renames videos to their file names if no paths are equal and file names are unique."""
    names = [set(pc.unique(table["video"]).to_pylist()) for table in (a, b)]
    short = [{PurePath(name).name for name in each} for each in names]
    unique = all(len(each) == len(less) for each, less in zip(names, short, strict=True))
    if not (names[0] and names[1]) or names[0] & names[1] or not unique:
        return (a, b), False
    renamed = []
    for table in (a, b):
        videos = pa.array([PurePath(name).name for name in table["video"].to_pylist()], pa.string())
        renamed.append(table.set_column(table.column_names.index("video"), "video", videos))
    return (renamed[0], renamed[1]), True


def _common_groups(a: _ResultColumns, b: _ResultColumns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns group numbers of all rows: equal for equal video, frame and class."""
    known: dict[tuple[Any, ...], int] = {}
    found = []
    for rows in (a, b):
        keys = zip(rows.videos.tolist(), rows.frames.tolist(), rows.classes.tolist(), strict=True)
        found.append(np.array([known.setdefault(key, len(known)) for key in keys], np.int64))
    return found[0], found[1]


def _match(
    a: _ResultColumns, b: _ResultColumns, groups: tuple[NDArray[np.int64], NDArray[np.int64]], iou: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Returns the matched rows of both tables, and their overlaps."""
    left: list[int] = []
    right: list[int] = []
    overlap: list[float] = []
    for rows_a, rows_b in _paired(*groups):
        found = _overlaps(a.boxes[rows_a], b.boxes[rows_b])
        for place in np.argsort(-a.scores[rows_a], kind="stable").tolist():
            best = int(found[place].argmax())
            if found[place, best] >= iou:
                left.append(int(rows_a[place]))
                right.append(int(rows_b[best]))
                overlap.append(float(found[place, best]))
                found[:, best] = -1.0
    return np.array(left, np.int64), np.array(right, np.int64), np.array(overlap)


def _paired(a: NDArray[np.int64], b: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yields the rows of each group that both tables have."""
    both = np.intersect1d(a, b)
    order_a, order_b = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    edges = [
        (np.searchsorted(rows[order], both, "left"), np.searchsorted(rows[order], both, "right"))
        for rows, order in ((a, order_a), (b, order_b))
    ]
    for place in range(len(both)):
        (low_a, high_a), (low_b, high_b) = ((side[0][place], side[1][place]) for side in edges)
        yield order_a[low_a:high_a], order_b[low_b:high_b]


def _overlaps(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the intersection over union of all pairs."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    common = np.prod(np.maximum(high - low, 0.0), 2)
    area_a, area_b = (np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0), 1) for boxes in (a, b))
    union = area_a[:, None] + area_b[None] - common
    found: NDArray[np.float64] = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return found


def _others(count: int, taken: NDArray[np.int64]) -> NDArray[np.int64]:
    left = np.ones(count, np.bool_)
    left[taken] = False
    return np.flatnonzero(left)


def _compared(
    name: str,
    a: _ResultColumns,
    b: _ResultColumns,
    left: NDArray[np.int64],
    right: NDArray[np.int64],
    overlap: NDArray[np.float64],
    kind: int | None,
) -> ClassDifference:
    in_a, in_b = (len(rows) if kind is None else int((rows.classes == kind).sum()) for rows in (a, b))
    if kind is not None:
        chosen = a.classes[left] == kind
        left, right, overlap = left[chosen], right[chosen], overlap[chosen]
    if not len(left):
        return ClassDifference(name, in_a, in_b, 0, in_a, in_b, None, None, None, None, None, None)
    sides = np.abs(a.boxes[left] - b.boxes[right])
    scores = np.abs(a.scores[left] - b.scores[right])
    return ClassDifference(
        name,
        in_a,
        in_b,
        len(left),
        in_a - len(left),
        in_b - len(left),
        float(overlap.mean()),
        float(overlap.min()),
        float(sides.mean()),
        float(sides.max()),
        float(scores.mean()),
        float(scores.max()),
    )


def _examples(table: pa.Table, rows: _ResultColumns, missing: NDArray[np.int64]) -> list[dict[str, Any]]:
    best = missing[np.argsort(-rows.scores[missing], kind="stable")][:EXAMPLES]
    found: list[dict[str, Any]] = table.take(pa.array(best, pa.int64())).to_pylist()
    return found
