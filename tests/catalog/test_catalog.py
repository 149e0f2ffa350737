"""Catalogs once they are there: round trips, lookups, lifetimes and the file itself."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
import pytest

import clips
from framefeed import Catalog, CatalogError, FileChanged, FrameIndexError, NotInCatalog, VideoDecoder
from framefeed.catalog.arrow_file import VERSION_KEY, Rows, write_file
from framefeed.catalog.catalog import MAX_CACHED
from framefeed.catalog.catalog_rows import encode
from framefeed.catalog.parts import gather
from framefeed.index.video_index import VideoIndex
from framefeed.testing import samples

from .catalog_help import SMALL, assert_same, copies

KINDS = (
    "h264_bframes",
    "hevc_open_gop",
    "hevc_raw",
    "vp9_alt_ref",
    "av1_mp4",
    "mpeg2_ts",
    "mpeg4_packed_b",
    "mjpeg_mov",
    "rawvideo_avi",
    "h264_mkv_live",
    "mp4_fragments",
    "ts_wraps",
    "mkv_negative_pts",
    "edit_two_parts",
    "two_streams_second_best_mp4",
    "mirrored_rotated_90",
    "wide_pixels",
    "color_hevc_10bit_2020",
)


@pytest.fixture(scope="module")
def zoo(clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    paths = [clips.make(kind, clip_folder) for kind in KINDS]
    return Catalog.build(paths, tmp_path_factory.mktemp("zoo") / "zoo.arrow")


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_comes_back(zoo: Catalog, clip_folder: Path, kind: str) -> None:
    path = clips.make(kind, clip_folder)
    assert_same(zoo[path], VideoIndex.scan(str(path)))


def test_numbers_paths_and_totals(zoo: Catalog, clip_folder: Path) -> None:
    paths = [str(clips.make(kind, clip_folder)) for kind in KINDS]
    assert len(zoo) == len(KINDS)
    assert list(zoo) == list(zoo.paths) == paths
    assert zoo[3] is zoo[paths[3]] is zoo[Path(paths[3])] is zoo[np.int64(3)] is zoo[3 - len(KINDS)]  # type: ignore[index]
    assert paths[0] in zoo
    assert "other.mp4" not in zoo
    assert 3 not in zoo
    assert zoo.num_frames.tolist() == [zoo[number].num_frames for number in range(len(zoo))]
    assert zoo.total_frames == zoo.num_frames.sum()
    assert zoo.report == []
    assert repr(len(KINDS)) in repr(zoo)


def test_locate(zoo: Catalog) -> None:
    truth = [(video, frame) for video, count in enumerate(zoo.num_frames) for frame in range(count)]
    assert [zoo.locate(number) for number in range(zoo.total_frames)] == truth
    videos, frames = zoo.locate(np.arange(zoo.total_frames).reshape(1, -1))
    assert list(zip(videos[0].tolist(), frames[0].tolist(), strict=True)) == truth
    assert zoo.locate(-1) == truth[-1]
    for wrong in (zoo.total_frames, -zoo.total_frames - 1):
        with pytest.raises(FrameIndexError, match=f"zoo.arrow: no frame {wrong}"):
            zoo.locate(wrong)
    with pytest.raises(TypeError, match="whole numbers"):
        zoo.locate(np.array([0.5]))


def test_unknown_videos(zoo: Catalog) -> None:
    with pytest.raises(NotInCatalog, match=r"nowhere.mp4: not in the catalog .*zoo.arrow"):
        zoo["nowhere.mp4"]
    with pytest.raises(KeyError):
        zoo["nowhere.mp4"]
    with pytest.raises(IndexError, match=f"videos are 0..{len(zoo) - 1}"):
        zoo[len(zoo)]
    with pytest.raises(TypeError, match="number or path"):
        zoo[1.5]  # type: ignore[index]


def test_decoder_takes_its_index_from_a_catalog(zoo: Catalog, clip_folder: Path) -> None:
    path = clips.make("h264_bframes", clip_folder)
    decoder = VideoDecoder(path, index=zoo, dimension_order="NHWC")
    assert decoder.index is zoo[0]
    assert [samples.read_number(frame.numpy()) for frame in decoder.get_frames_at([40, 3, 17]).data] == [40, 3, 17]


def test_decoder_notices_a_file_that_has_changed(clip_folder: Path, tmp_path: Path) -> None:
    path = copies(clips.make("h264_bframes", clip_folder), tmp_path, 1)[0]
    catalog = Catalog.build(path, tmp_path / "c.arrow")
    decoder = VideoDecoder(path, index=catalog)
    decoder[0]
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    with pytest.raises(FileChanged, match=r"000.mp4: changed since it was indexed"):
        decoder[30]
    with pytest.raises(FileChanged, match=r"000.mp4: changed since it was indexed"):
        VideoDecoder(path, index=catalog)


def test_an_index_in_use_stays_the_same_object(tmp_path: Path, clip_folder: Path) -> None:
    catalog = many_rows(clip_folder, tmp_path / "c.arrow", MAX_CACHED + 10)
    first = catalog[0]
    dropped = id(catalog[1])
    for number in range(2, len(catalog)):
        catalog[number]
    gc.collect()
    assert catalog[0] is first
    assert len(catalog._recent) == MAX_CACHED
    assert 1 not in catalog._held and dropped


# --- spelling ---------------------------------------------------------------------------------------------------------


def test_any_spelling_of_a_path_is_found(clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos = copies(clips.make(SMALL, clip_folder), tmp_path / "a", 2)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    catalog = Catalog.build(["a/000.mp4", videos[1]], "c.arrow")
    for spelling in ("a/000.mp4", "./a//000.mp4", "link/../a/000.mp4", "link/000.mp4", str(videos[0]), videos[0]):
        assert catalog[spelling] is catalog[0]
    assert catalog["a/001.mp4"] is catalog["link/001.mp4"] is catalog[1]
    monkeypatch.chdir(tmp_path / "a")
    assert catalog["000.mp4"] is catalog["../a/000.mp4"] is catalog[0]
    assert catalog["a/000.mp4"] is catalog[0]  # as the table's column has it


def test_relative_paths_move_with_the_catalog(
    clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    inside = copies(clips.make(SMALL, clip_folder), here / "videos", 2)
    outside = copies(clips.make(SMALL, clip_folder), tmp_path / "outside", 1)
    monkeypatch.chdir(here)
    catalog = Catalog.build(["videos/000.mp4", inside[1], "../outside/000.mp4", "videos/bad.mp4"], "c.arrow")
    stored = pa.ipc.open_file(here / "c.arrow").read_all()["path"].to_pylist()
    assert stored == ["videos/000.mp4", str(inside[1]), str(outside[0])]
    assert catalog.paths == (str(inside[0]), str(inside[1]), str(outside[0]))
    catalog.close()
    shutil.move(here, there)
    monkeypatch.chdir(tmp_path)
    moved = Catalog.open("there/c.arrow")
    assert moved.paths == (str(there / "videos/000.mp4"), str(inside[1]), str(outside[0]))
    assert moved["there/videos/000.mp4"] is moved[0]
    assert moved.report[0].path == str(there / "videos/bad.mp4")
    assert len(VideoDecoder(there / "videos/000.mp4", index=moved)[0]) == 3


def test_names_that_are_not_unicode(clip_folder: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.mp4")
    shutil.copy(clips.make(SMALL, clip_folder), path)
    catalog = Catalog.build([path], tmp_path / "c.arrow")
    assert catalog.paths == (path,)
    assert catalog[path].path == path
    assert pa.ipc.open_file(tmp_path / "c.arrow").read_all()["path"].to_pylist() == [str(tmp_path / "caf\ufffd.mp4")]


# --- lifetime and processes -------------------------------------------------------------------------------------------


def test_closed_catalogs_refuse(clip_folder: Path, tmp_path: Path) -> None:
    with Catalog.build(clips.make("h264_bframes", clip_folder), tmp_path / "c.arrow") as catalog:
        index = catalog[0]
    (tmp_path / "c.arrow").unlink()
    gc.collect()
    assert index.packets.flags.sum() > 0  # a view of the file that outlives it
    for use in (lambda: catalog[0], lambda: len(catalog), lambda: catalog.paths, lambda: pickle.dumps(catalog)):
        with pytest.raises(CatalogError, match=r"c.arrow: this catalog is closed"):
            use()
    assert "closed" in repr(catalog)


def test_pickled_catalogs_open_the_same_content(zoo: Catalog, clip_folder: Path, tmp_path: Path) -> None:
    data = pickle.dumps(zoo)
    assert len(data) < 1000
    assert_same(pickle.loads(data)[2], zoo[2])
    videos = copies(clips.make(SMALL, clip_folder), tmp_path, 2)
    catalog = Catalog.build(videos, tmp_path / "c.arrow")
    data = pickle.dumps(catalog)
    Catalog.build(videos, tmp_path / "c.arrow")
    assert pickle.loads(data).paths == catalog.paths
    Catalog.build(videos[::-1], tmp_path / "c.arrow")
    with pytest.raises(CatalogError, match="was rebuilt with other content"):
        pickle.loads(data)
    assert catalog[0].path == str(videos[0])  # who had it open keeps it


def _frames(catalog: Catalog, number: int) -> int:
    return catalog[catalog.paths[number]].num_frames


def test_spawned_processes(zoo: Catalog) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply_async(_frames, (zoo, 4)).get(timeout=60) == zoo[4].num_frames


_FORK = """
import os, sys
from framefeed import Catalog
catalog = Catalog.open(sys.argv[1])
catalog[0]
catalog._lock.acquire()  # as another thread may hold it at that moment
child = os.fork()
if child == 0:
    catalog[0], catalog[1], catalog[catalog.paths[2]]
    os._exit(7)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_processes(zoo: Catalog) -> None:
    assert subprocess.run([sys.executable, "-c", _FORK, zoo.path], timeout=60, check=False).returncode == 7


# --- the file ---------------------------------------------------------------------------------------------------------


def test_the_file_is_a_table(zoo: Catalog) -> None:
    table = pa.ipc.open_file(pa.memory_map(zoo.path)).read_all()
    assert table.num_rows == len(zoo)
    row = table.filter(pa.compute.equal(table["codec"], "hevc")).slice(0, 1).to_pylist()[0]
    index = zoo[row["path"]]
    assert (row["width"], row["height"], row["num_frames"]) == (96, 64, index.num_frames)
    assert row["duration_seconds"] == index.duration_seconds
    assert row["extradata"] == index.stream.extradata
    assert row["frame_pts"] == index.packets.frame_pts.tolist()
    times = dict(zip(table["path"].to_pylist(), table["pts"].to_pylist(), strict=True))
    raw = next(path for path in times if "hevc_raw" in path)
    assert times[raw][0] is None  # no time stamp is null and not a huge negative number
    assert table.schema.field("size").type == pa.list_(pa.int32())


def test_wide_numbers_only_where_they_are_needed(clip_folder: Path, tmp_path: Path) -> None:
    index = VideoIndex.scan(str(clips.make("h264_bframes", clip_folder)))
    narrow = Rows([encode([index])])
    index.packets.pos[:] += 1 << 33  # a file of many gigabytes
    wide = Rows([encode([index])])
    from framefeed.catalog.catalog_rows import common_schema

    schema = common_schema(rows.batches[0].schema for rows in (narrow, wide))
    assert [field.name for field in schema if field.type == pa.list_(pa.int64())] == ["pos"]
    picks: list[tuple[Rows, int]] = [(wide, 0), (narrow, 0)]
    catalog = Catalog(write_file(str(tmp_path / "c.arrow"), gather(picks, ["a", "b"], schema), schema, []))
    assert np.array_equal(catalog[0].packets.pos, index.packets.pos)
    assert np.array_equal(catalog[1].packets.pos + (1 << 33), index.packets.pos)


def many_rows(clip_folder: Path, target: Path, count: int) -> Catalog:
    """A catalog of one small table, over and over under different paths."""
    rows = Rows([encode([VideoIndex.scan(str(clips.make(SMALL, clip_folder)))] * 1000)])
    picks: list[tuple[Rows, int]] = [(rows, number % 1000) for number in range(count)]
    paths = [f"videos/{number:06d}.mp4" for number in range(count)]
    schema = rows.batches[0].schema
    return Catalog(write_file(str(target), gather(picks, paths, schema), schema, []))


def test_a_hundred_thousand_videos(clip_folder: Path, tmp_path: Path) -> None:
    seconds = {}
    for count in (1_000, 100_000):
        many_rows(clip_folder, tmp_path / f"{count}.arrow", count).close()
        opening, by_number, by_path = [], [], []
        for attempt in range(3):
            start = time.perf_counter()
            catalog = Catalog.open(tmp_path / f"{count}.arrow")
            opening.append(time.perf_counter() - start)
            chosen = np.random.default_rng(attempt).choice(count, 101, replace=False).tolist()
            catalog[str(tmp_path / f"videos/{chosen.pop():06d}.mp4")]
            start = time.perf_counter()
            for number in chosen[:50]:
                assert catalog[number].path.endswith(f"{number:06d}.mp4")
            by_number.append(time.perf_counter() - start)
            start = time.perf_counter()
            for number in chosen[50:]:
                assert catalog[str(tmp_path / f"videos/{number:06d}.mp4")] is catalog[number]
            by_path.append(time.perf_counter() - start)
            assert catalog.locate(catalog.total_frames - 1) == (count - 1, 0)
        seconds[count] = (min(opening), min(by_number) / 50, min(by_path) / 50)
    print({count: [f"{value * 1e6:.0f} us" for value in values] for count, values in seconds.items()})
    assert seconds[100_000][0] < 0.3
    for few, many in zip(seconds[1_000][1:], seconds[100_000][1:], strict=True):
        assert many < 5 * few + 0.001


def test_files_that_are_no_catalogs(zoo: Catalog, tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    good = Path(zoo.path).read_bytes()
    how = r" with: framefeed index VIDEOS -o catalog.arrow \(in Python: framefeed.Catalog.build\(videos, "
    with pytest.raises(CatalogError, match=f"c.arrow: no such catalog; build one{how}"):
        Catalog.open(path)
    for data in (b"", good[:4], good[: len(good) // 2], good[:-1], good[:-200] + bytes(200)):
        path.write_bytes(data)
        with pytest.raises(
            CatalogError, match=rf"c.arrow: not a catalog, or a damaged one .*; delete it and build .*{how}"
        ):
            Catalog.open(path)
    for data in (b"not Arrow at all", b"AR\n", Path(zoo.paths[0]).read_bytes()):  # the last one is a video
        path.write_bytes(data)
        with pytest.raises(CatalogError, match=f"c.arrow: not a catalog; build one{how}") as caught:
            Catalog.open(path)
        assert "delete" not in caught.value.reason
    with pytest.raises(CatalogError, match=f"a folder, not a catalog; build one{how}"):
        Catalog.open(tmp_path)
    _rewrite(path, zoo, {})
    with pytest.raises(CatalogError, match=f"c.arrow: an Arrow file but not a catalog; build one{how}"):
        Catalog.open(path)
    _rewrite(path, zoo, {VERSION_KEY: b"0"})
    with pytest.raises(
        CatalogError, match=r"c.arrow: a catalog of version 0; this framefeed reads versions 1 and 2; build"
    ):
        Catalog.open(path)
    _rewrite(path, zoo, {VERSION_KEY: b"1"}, drop="pos")
    with pytest.raises(CatalogError, match=r"c.arrow: its columns are not those of a catalog"):
        Catalog.open(path)


def _rewrite(path: Path, catalog: Catalog, metadata: dict[bytes, bytes], drop: str | None = None) -> None:
    table = pa.ipc.open_file(catalog.path).read_all().replace_schema_metadata(metadata)
    table = table.drop_columns([drop]) if drop else table
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def test_damage_in_the_middle_is_never_decoded_from(zoo: Catalog, tmp_path: Path) -> None:
    good = Path(zoo.path).read_bytes()
    rng = np.random.default_rng(1)
    noticed = 0
    for _ in range(300):
        data = bytearray(good)
        data[rng.integers(len(good))] ^= 1 << int(rng.integers(8))
        (tmp_path / "c.arrow").write_bytes(data)
        try:
            catalog = Catalog.open(tmp_path / "c.arrow")
            found = [catalog[number] for number in range(len(catalog))]
            assert catalog.report == []
            for number, index in enumerate(found):
                if index.path == zoo.paths[number]:  # a wrong path leads to no file
                    assert_same(index, zoo[number])
        except CatalogError as error:
            assert "c.arrow" in str(error)
            noticed += 1
    assert noticed > 100


def test_the_report_is_kept(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    built = Catalog.build(tmp_path, tmp_path / "c.arrow")
    opened = Catalog.open(tmp_path / "c.arrow")
    assert len(opened) == 0 and opened.total_frames == 0 and opened.paths == ()
    assert opened.report == built.report
    assert opened.report[0].path == str(tmp_path / "bad.mp4")
    assert "not a video file" in opened.report[0].reason
    with pytest.raises(NotInCatalog, match="could not be indexed: not a video file"):
        opened[tmp_path / "bad.mp4"]
    stored = pa.ipc.open_file(tmp_path / "c.arrow").schema.metadata[b"framefeed.catalog.report"]
    assert json.loads(stored)[0]["error"] == "InvalidFile"
