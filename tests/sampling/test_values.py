"""Numbers of frames: the user's own from files, and mean luma of a sample."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from framefeed import Catalog, FrameIndexError, InvalidFile, SourceError, VideoDecoder
from framefeed.catalog.catalog import NotInCatalog
from framefeed.sampling import FrameValues, measure_luma, read_values

from .conftest import LENGTHS, level


def test_luma_is_that_of_the_pictures(catalog: Catalog) -> None:
    told: list[tuple[int, int]] = []
    values = measure_luma(catalog, progress=lambda done, total: told.append((done, total)))
    assert told[0][0] == 0 and told[-1][0] == told[-1][1] == len(set(values.videos.tolist()))
    assert values.skipped == () and len(values) > 60
    expected = [
        255 / 219 * (level(video, frame) - 16)
        for video, frame in zip(values.videos.tolist(), values.frames.tolist(), strict=True)
    ]
    assert values.values == pytest.approx(expected, abs=3)
    assert len(set(zip(values.videos.tolist(), values.frames.tolist(), strict=True))) == len(values)
    starts = {video: catalog[video].packets.start[catalog[video].packets.frames] for video in range(len(catalog))}
    keys = [
        (video, starts[video][frame])
        for video, frame in zip(values.videos.tolist(), values.frames.tolist(), strict=True)
    ]
    assert (
        len(set(zip(keys, values.groups.tolist(), strict=True))) == len(set(keys)) == len(set(values.groups.tolist()))
    )
    found = values.correlation()
    assert found.group > 0.97 and 0.5 < found.file < found.group


def test_the_sample_is_seeded_and_bounded(catalog: Catalog) -> None:
    first, again, other = (measure_luma(catalog, num_videos=3, seed=seed) for seed in (1, 1, 2))
    assert first.values.tolist() == again.values.tolist()
    assert first.frames.tolist() != other.frames.tolist() or first.videos.tolist() != other.videos.tolist()
    assert len(set(first.videos.tolist())) <= 3


def test_videos_that_cannot_be_read_are_told(catalog_path: Path, tmp_path: Path) -> None:
    shutil.copytree(catalog_path.parent, tmp_path / "copy")
    (tmp_path / "copy" / "catalog.arrow").unlink()
    catalog = Catalog.build(tmp_path / "copy", tmp_path / "copy.arrow", progress=False)
    (tmp_path / "copy" / "6.mp4").unlink()
    values = measure_luma(catalog)
    assert len(values.skipped) == 1 and "6.mp4" in values.skipped[0] and 6 not in values.videos
    for path in catalog.paths:
        Path(path).unlink(missing_ok=True)
    with pytest.raises(SourceError):
        measure_luma(catalog)


def test_values_of_whole_videos(catalog: Catalog) -> None:
    luma = VideoDecoder(catalog.paths[3]).get_all_frames().data.float().mean((1, 2, 3)).numpy()
    values = FrameValues.of(catalog, {catalog.paths[3]: luma, 1: np.where(np.arange(20) % 2, np.nan, 5.0)})
    assert np.bincount(values.videos).tolist() == [0, 10, 0, LENGTHS[3]]
    assert values.frames[values.videos == 1].tolist() == list(range(0, 20, 2))
    with pytest.raises(ValueError, match="19 values for 20 frames"):
        FrameValues.of(catalog, {1: np.zeros(19)})
    with pytest.raises(ValueError, match="no values given"):
        FrameValues.of(catalog, {})


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("by", ["path", "number"])
def test_tables(catalog: Catalog, tmp_path: Path, suffix: str, by: str) -> None:
    rows = [(video, frame, float(level(video, frame))) for video in (6, 0, 3) for frame in range(LENGTHS[video])]
    names = [catalog.paths[video] if by == "path" else video for video, _, _ in rows]
    table = pa.table({"value": [row[2] for row in rows], "video": names, "frame": [row[1] for row in rows]})
    path = tmp_path / f"values{suffix}"
    if suffix == ".csv":
        lines = ["video,frame,value", *(f"{name},{row[1]},{row[2]}" for name, row in zip(names, rows, strict=True))]
        path.write_text("\n".join(lines) + "\n")
    else:
        pyarrow.parquet.write_table(table, path)
    values = read_values(path, catalog)
    assert np.bincount(values.videos, minlength=8).tolist() == [24, 0, 0, 33, 0, 0, 40, 0]
    assert values.values.tolist() == [float(level(v, f)) for v, f in zip(values.videos, values.frames, strict=True)]
    assert values.correlation().group > 0.9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video,frame\n0,1\n", "lacks the column value"),
        ("video,frame,value\n", "has no rows"),
        ("video,frame,value\n0,one,1.0\n", "frame must have integers"),
        ("video,frame,value\n0,1,1.0\n0,1,2.0\n", "frame 1 has two values"),
        ("video,frame,value\n0,,1.0\n", "frame has empty cells"),
        ("video,frame,value\n0,1\n", "not a CSV or Parquet table"),
    ],
)
def test_bad_tables_say_what_is_possible(catalog: Catalog, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidFile, match=message):
        read_values(path, catalog)


def test_videos_and_frames_have_to_be_there(catalog: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "values.csv"
    path.write_text("video,frame,value\n0,24,1.0\n")
    with pytest.raises(FrameIndexError, match=r"no frame 24; frames are 0\.\.23"):
        read_values(path, catalog)
    path.write_text("video,frame,value\nnothing.mp4,0,1.0\n")
    with pytest.raises(NotInCatalog, match=r"nothing\.mp4"):
        read_values(path, catalog)
    path.write_text("video,frame,value\n9,0,1.0\n")
    with pytest.raises(NotInCatalog, match=r"videos are 0\.\.7"):
        read_values(path, catalog)
    with pytest.raises(SourceError, match="cannot be read"):
        read_values(tmp_path / "none.csv", catalog)
