"""The whole: right boxes for every format, in order, with no more decoding than the plan has; and what goes wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

import damaged
from framefeed import Catalog, InvalidFile, ModelError, OutputError, VideoIndex, infer
from framefeed.infer.execution.segments import sampled_frames
from framefeed.infer.rows import FOUND, read_rows, sorted_found
from framefeed.plan import plan_frames
from framefeed.store.store import pack
from framefeed.testing.shape_detector import CLASSES, ShapeDetector, write_shape_clip
from infer.truth import HEIGHT, SIZE, WIDTH, check_rows

SKIP = 7


def sampled(clips: list[Path], skip: int = SKIP) -> dict[str, list[int]]:
    return {str(path): sampled_frames(VideoIndex.scan(path).num_frames, skip).tolist() for path in clips}


def run(clips: Any, model: Any, **more: Any) -> infer.InferResult:
    given = [clips] if isinstance(clips, str | Path) else clips
    return infer.run(given, model, **{"frame_skip": SKIP, "batch_size": 4, "device": "cpu", **more})


def rows(result: infer.InferResult) -> list[dict[str, Any]]:
    assert result.rows is not None
    found: list[dict[str, Any]] = result.rows.to_pylist()
    return found


# --- right boxes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["onnx", "pt2", "ts", "fixed", "boxes", "half", "callable"])
def test_every_format_finds_what_is_painted(clips: list[Path], models: Mapping[str, Path], kind: str) -> None:
    model = ShapeDetector(*SIZE) if kind == "callable" else models[kind]
    result = run(clips, model, image_size=SIZE)
    check_rows(rows(result), sampled(clips))
    assert (result.num_frames, result.num_rows) == (7 * 3 + 5, 3 * (7 * 3 + 5))
    assert not result.errors
    assert result.stats["batches"] == 6 + 2  # the last, short ones are kept


def test_stretched(clips: list[Path], models: Mapping[str, Path]) -> None:
    check_rows(rows(run(clips, models["onnx"], resize="stretch")), sampled(clips))


def test_other_sizes_of_frames_and_models(tmp_path: Path) -> None:
    path = write_shape_clip(tmp_path / "0.mp4", frames=9, width=WIDTH, height=HEIGHT, seed=0)
    for size in ((96, 160), (160, 96), (72, 72)):
        check_rows(rows(run(path, ShapeDetector(*size), image_size=size, frame_skip=4)), {str(path): [0, 4, 8]}, 0.88)


def test_rows(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    reverse = clips[::-1]
    names = tmp_path / "names.txt"
    names.write_text("\n".join(CLASSES) + "\n\n")
    table = run(reverse, models["onnx"], classes=names).rows
    assert table is not None
    assert table.column_names == [
        *("video", "frame_index", "pts_seconds", "x1", "y1", "x2", "y2", "score", "class", "class_name")
    ]
    found = table.to_pylist()
    order = {str(path): number for number, path in enumerate(reverse)}
    keys = [(order[row["video"]], row["frame_index"], -row["score"], row["class"]) for row in found]
    assert keys == sorted(keys)
    assert all(row["class_name"] == CLASSES[row["class"]] for row in found)
    assert all(row["pts_seconds"] == pytest.approx(row["frame_index"] / 30) for row in found)
    written = {}
    for suffix in (".csv", ".parquet"):
        result = run(reverse, models["onnx"], classes=CLASSES, output=tmp_path / f"found{suffix}")
        assert (result.rows, result.output) == (None, tmp_path / f"found{suffix}")
        written[suffix] = read_rows(tmp_path / f"found{suffix}")
    assert written[".parquet"].equals(table)
    assert csv.read_csv(tmp_path / "found.csv").num_rows == parquet.read_table(tmp_path / "found.parquet").num_rows
    assert written[".csv"].equals(table)  # shortest texts that stand for the same numbers
    assert sorted(path.name for path in tmp_path.glob("found*")) == [
        *("found.csv", "found.csv.run.json", "found.parquet", "found.parquet.run.json")
    ]


def test_order_of_rows() -> None:
    columns: dict[str, list[float]] = {name: [0.0] * 5 for name in ("x1", "y1", "x2", "y2")}
    columns["x1"] = [0.0, 0.0, 3.0, 2.0, 0.0]
    table = pa.table(
        {
            "video": pa.array([1, 0, 0, 0, 0], pa.int32()),
            "frame_index": pa.array([0, 5, 0, 0, 0], pa.int64()),
            **{name: pa.array(values, pa.float32()) for name, values in columns.items()},
            "score": pa.array([0.9, 0.9, 0.5, 0.5, 0.8], pa.float32()),
            "class": pa.array([0, 0, 1, 1, 0], pa.int32()),
        },
        FOUND,
    )
    found = sorted_found(table).to_pylist()
    assert [(row["video"], row["frame_index"], round(row["score"], 1), row["x1"]) for row in found] == [
        *((0, 0, 0.8, 0.0), (0, 0, 0.5, 2.0), (0, 0, 0.5, 3.0), (0, 5, 0.9, 0.0), (1, 0, 0.9, 0.0))
    ]


def test_frames_without_anything_leave_no_row(tmp_path: Path, clips: list[Path]) -> None:
    def nothing(batch: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(batch), 7, 84)

    result = run(clips, nothing, image_size=64, output=tmp_path / "none.csv")
    assert (result.num_rows, result.num_frames) == (0, 26)
    assert (tmp_path / "none.csv").read_text().count("\n") == 1
    assert read_rows(tmp_path / "none.csv").num_rows == 0


def test_confidence_and_number_of_detections(clips: list[Path], models: Mapping[str, Path]) -> None:
    assert run(clips, models["onnx"], max_detections=1).num_rows == 26
    assert run(clips, models["onnx"], iou=1.0).num_rows > 5 * 26
    less = run(clips, models["onnx"], confidence=0.999, iou=1.0).num_rows
    assert 3 * 26 <= less < run(clips, models["onnx"], confidence=0.01, iou=1.0).num_rows


# --- decoding -----------------------------------------------------------------------------------------------------


def test_only_what_the_plan_has_is_decoded(tmp_path: Path, models: Mapping[str, Path]) -> None:
    path = write_shape_clip(tmp_path / "0.mp4", frames=600, width=64, height=48, gop=250, bframes=3, seed=0, count=2)
    index = VideoIndex.scan(path)
    assert len(np.unique(index.packets.start)) == 3 and index.nonreference_share() > 0.3
    for skip, batch in ((25, 8), (25, 3), (1, 8), (3, 16)):
        result = run(path, models["onnx"], frame_skip=skip, batch_size=batch, segment_frames=16)
        wanted = plan_frames(index.packets, sampled_frames(600, skip)).num_packets
        assert result.stats["packets_decoded"] <= wanted, (skip, batch)
        assert result.num_frames == -(-600 // skip)
        if skip == 25:
            assert wanted < 0.75 * 600


def test_the_frames_are_the_right_ones(clips: list[Path]) -> None:
    """The number that each frame carries in its top rows is read by the model itself."""
    from framefeed.testing.samples import read_number, write_clip

    path = clips[0].with_name("numbers.mp4")
    write_clip(path, frames=60, width=WIDTH, height=HEIGHT, gop=20, bframes=2)
    seen: list[int] = []

    def read(batch: torch.Tensor) -> torch.Tensor:
        seen.extend(read_number(frame.permute(1, 2, 0).numpy()) for frame in batch)
        return torch.zeros(len(batch), 7, 84)

    run(path, read, image_size=(HEIGHT, WIDTH), resize="stretch")
    path.unlink()
    assert seen == list(range(0, 60, SKIP))


def test_so_many_batches(clips: list[Path], models: Mapping[str, Path]) -> None:
    result = run(clips, models["onnx"], max_batches=3)
    assert (result.stats["batches"], result.num_frames) == (3, 12)
    check_rows(rows(result), {str(clips[0]): sampled(clips)[str(clips[0])], str(clips[1]): [0, 7, 14, 21, 28]})


# --- which videos -------------------------------------------------------------------------------------------------


def test_folders_patterns_catalogs_and_stores(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    folder = clips[0].parent
    plain = run(clips, models["onnx"]).rows
    assert plain is not None
    assert plain.equals(run(folder, models["onnx"]).rows)
    assert plain.equals(run([folder / "*.mp4", clips[0], folder], models["onnx"]).rows)  # each once
    catalog = Catalog.build([folder], tmp_path / "all.arrow")
    assert plain.equals(run(tmp_path / "all.arrow", models["onnx"]).rows)
    pack(catalog, tmp_path / "store")
    assert plain.equals(run(tmp_path / "store", models["onnx"]).rows)
    # A catalog and files beside it: not all can share a segment.
    Catalog.build([clips[1]], tmp_path / "one.arrow")
    mixed = run([clips[0], tmp_path / "one.arrow", *clips[2:]], models["onnx"])
    assert plain.equals(mixed.rows)
    with pytest.raises(InvalidFile, match="no video file below this folder"):
        (tmp_path / "empty").mkdir()
        run(tmp_path / "empty", models["onnx"])
    with pytest.raises(InvalidFile, match="none given"):
        run([], models["onnx"])


def test_bad_files_among_good_ones(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    good = []
    for number in range(9):
        path = tmp_path / str(number % 3) / str(number) / clips[number % 3].name
        path.parent.mkdir(parents=True)
        path.write_bytes(clips[number % 3].read_bytes())
        good.append(path)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(clips[0].read_bytes())
    damaged.flip_bits(broken, *damaged.group_bytes(broken, 2), 200, 1)
    result = run(
        [*good[:5], broken, tmp_path / "missing.mp4", *good[5:]], models["onnx"], output=tmp_path / "found.csv"
    )
    found = read_rows(tmp_path / "found.csv").to_pylist()
    check_rows([row for row in found if row["video"] != str(broken)], sampled(good))
    reasons = {Path(bad.path).name: bad.reason for bad in result.errors}
    assert set(reasons) == {"broken.mp4", "missing.mp4"}
    # Frames 20 to 29 are damaged; the others of that file are there.
    assert "of 7 frames failed; the first: frame 2" in reasons["broken.mp4"]
    kept = sorted({row["frame_index"] for row in found if row["video"] == str(broken)})
    assert kept == [0, 7, 14, 35, 42]
    assert (result.num_frames, result.frames_lost) == (9 * 7 + 5, 2)
    record = json.loads((tmp_path / "found.csv.run.json").read_text())
    assert record["complete"] is False and len(record["summary"]["errors"]) == 2


def test_a_bad_file_is_tried_again(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    late = tmp_path / "1.mp4"
    late.write_bytes(b"still being copied")
    output = tmp_path / "found.csv"
    assert [bad.path for bad in run([clips[0], late], models["onnx"], output=output).errors] == [str(late)]
    late.write_bytes(clips[1].read_bytes())
    result = run([clips[0], late], models["onnx"], output=output)
    assert not result.errors
    check_rows(read_rows(output).to_pylist(), sampled([clips[0], late]))
    assert not (tmp_path / "found.csv.work").exists()


def test_the_last_good_file_gets_bad(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    """What is kept of an interrupted run has videos; that is no reason to go on with them."""
    path = tmp_path / "0.mp4"
    path.write_bytes(clips[0].read_bytes())

    def interrupted(batch: torch.Tensor) -> Any:
        raise KeyboardInterrupt

    output = tmp_path / "found.csv"
    interrupted.image_size = SIZE  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        run([path], interrupted, output=output)
    assert len(Catalog.open(tmp_path / "found.csv.work" / "catalog.arrow")) == 1
    path.unlink()
    with pytest.raises(InvalidFile, match=r"0\.mp4: no such file"):
        run([path], interrupted, output=output)


def test_a_file_that_changes_on_the_way(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "0.mp4"
    path.write_bytes(clips[0].read_bytes())
    detector = ShapeDetector(*SIZE)

    def model(batch: torch.Tensor) -> Any:
        path.write_bytes(clips[1].read_bytes())
        return detector(batch)

    result = run([path], model, image_size=SIZE, frame_skip=1, batch_size=1, memory_budget=0)
    assert [Path(bad.path).name for bad in result.errors] == ["0.mp4"]
    assert 0 < result.num_frames < 45


def test_nothing_usable(models: Mapping[str, Path], tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(InvalidFile, match=r"a\.mp4: .*\(and 1 more unusable"):
        run([tmp_path / "a.mp4", tmp_path / "b.mp4"], models["onnx"], output=tmp_path / "found.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mp4"]


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"frame_skip": 0},
        {"confidence": 1.5},
        {"iou": -0.1},
        {"resize": "crop"},
        {"layout": "ssd"},
        {"image_size": "big"},
        {"max_batches": 0},
        {"segment_frames": 0},
        {"fallback": "gpu"},
        {"device": "tpu"},
    ],
)
def test_arguments_that_make_no_sense(clips: list[Path], models: Mapping[str, Path], wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        run(clips, models["onnx"], **wrong)


def test_class_names_have_to_fit(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="7, 256"):
        run(clips, models["onnx"], classes=["one", "two"])
    with pytest.raises(ModelError, match="returned class 2, but only 2 names"):
        run(clips, models["boxes"], classes=["one", "two"])
    with pytest.raises(InvalidFile, match="cannot read class names"):
        run(clips, models["onnx"], classes=tmp_path / "missing.txt")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InvalidFile, match="has no class names"):
        run(clips, models["onnx"], classes=tmp_path / "empty.txt")


def test_outputs_that_cannot_be(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"\.csv or \.parquet"):
        run(clips, models["onnx"], output=tmp_path / "found.txt")
    with pytest.raises(OutputError, match=r"folder\.csv: cannot be written: No such file or directory$"):
        run(clips, models["onnx"], output=tmp_path / "no" / "such" / "folder.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        run(clips, models["onnx"], output=tmp_path / "folder.csv")


def test_names_that_are_no_unicode(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    import os

    path = Path(os.fsdecode(os.fsencode(tmp_path) + b'/caf\xe9, "0".mp4'))
    path.write_bytes(clips[0].read_bytes())
    result = run([path], models["onnx"], output=tmp_path / "found.csv")
    assert not result.errors
    (name,) = set(read_rows(tmp_path / "found.csv")["video"].to_pylist())
    assert name.endswith('caf\\udce9, "0".mp4')
