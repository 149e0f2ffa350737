"""Whatever has become of a catalog or a store: the error that names the file, or the right frames."""

from __future__ import annotations

import contextlib
import json
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import clips
from framefeed import Catalog, CatalogError, FramefeedError, VideoDecoder, VideoIndex
from framefeed._util.journal import Journal
from framefeed.catalog import catalog_rows
from framefeed.catalog.catalog_rows import SCALARS, encode
from framefeed.store.store import pack, verify
from framefeed.store.store_journal import StoreJournal

SEEDS = 150


@pytest.fixture(scope="module")
def original(clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    names = ["h264_open_gop", "mkv_vfr"]
    for name in names:
        shutil.copy(clips.make(name, clip_folder), folder)
    catalog = Catalog.build(folder, folder / "c.arrow", progress=False)
    pack(catalog, folder / "store", progress=False)
    return folder


@pytest.fixture(scope="module")
def frames(original: Path) -> dict[str, Any]:
    return {path: VideoDecoder(path).get_frames_at([0, 7]).data for path in Catalog.open(original / "c.arrow").paths}


def use(path: Path, frames: dict[str, Any]) -> int:
    """Does everything that can be done with a catalog. What it gives is right; returns how many videos were read."""
    catalog = Catalog.open(path)
    read = 0
    for ask in (lambda: catalog.num_frames.sum(), lambda: catalog.paths, lambda: catalog.report, catalog._content):
        ask()
    for number, name in enumerate(catalog.paths):
        index = catalog[number]
        assert name in catalog
        got = VideoDecoder(name, index=index).get_frames_at([0, 7]).data
        assert name in frames and (got == frames[name]).all()
        read += 1
    return read


def refused(path: Path, frames: dict[str, Any], folder: Path) -> bool:
    try:
        use(path, frames)
    except FramefeedError as error:
        assert str(folder) in str(error)
        return True
    return False


@pytest.mark.parametrize("where", ["c.arrow", "store"])
def test_random_damage(where: str, original: Path, frames: dict[str, Any], tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), hard))  # no memory bomb
    count = 0
    try:
        for seed in range(SEEDS):
            rng = random.Random(f"{where} {seed}")
            target = tmp_path / str(seed)
            if where == "store":
                shutil.copytree(original / "store", target)
                file = target / rng.choice(["catalog.arrow", "catalog.arrow", "packets-00000.bin"])
            else:
                file = target = target.with_suffix(".arrow")
                shutil.copy(original / "c.arrow", file)
            data = bytearray(file.read_bytes())
            kind = rng.choice(["flip", "flip", "cut", "fill", "word", "insert"])
            place = rng.choice(
                [rng.randrange(len(data)), rng.randrange(min(2000, len(data))), len(data) - 1 - rng.randrange(500)]
            )
            if kind == "flip":
                data[place] ^= 1 << rng.randrange(8)
            elif kind == "cut":
                del data[place:]
            elif kind == "fill":
                data[place : place + rng.randrange(200)] = b""
            elif kind == "word":
                data[place : place + 8] = rng.choice([2**31 - 1, 2**63 - 1, 2**40, 1]).to_bytes(8, "little")
            else:
                data[place:place] = rng.randbytes(rng.randrange(64))
            file.write_bytes(data)
            count += refused(target, frames, tmp_path)
            if where == "store":
                with contextlib.suppress(CatalogError):
                    verify(target, progress=False)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert count > SEEDS // 4


# --- made to look right, checksums and all ----------------------------------------------------------------------------


def write(path: Path, table: Any, **options: Any) -> None:
    with pa.ipc.new_file(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)


def rewritten(original: Path, path: Path, change: Callable[[Any], Any], **options: Any) -> None:
    with pa.ipc.open_file(str(original)) as reader:
        table = reader.read_all()
    write(path, change(table).replace_schema_metadata(table.schema.metadata), **options)


def column(name: str, values: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def change(table: Any) -> Any:
        place = table.column_names.index(name)
        return table.set_column(place, name, values(table.column(place)))

    return change


TABLES: dict[str, Callable[[Any], Any]] = {
    "a missing column": lambda table: table.drop_columns(["codec"]),
    "another type": column("width", lambda old: old.cast(pa.int64())),
    "text for numbers": column("num_frames", lambda old: pa.array(["x"] * len(old))),
    "other order": lambda table: table.select(table.column_names[::-1]),
    "an extra column": lambda table: table.append_column("more", pa.array([1] * len(table))),
    "no number of frames": column("num_frames", lambda old: pa.nulls(len(old), pa.int64())),
    "many frames": column("num_frames", lambda old: pa.array([2**62] * len(old))),
    "negative frames": column("num_frames", lambda old: pa.array([-5] * len(old))),
    "no hashes": column("path_hash", lambda old: pa.nulls(len(old), pa.uint64())),
    "no paths": column("path", lambda old: pa.nulls(len(old), pa.string())),
    "bytes for paths": column("path_bytes", lambda old: pa.array([b""] * len(old))),
    "no text": column("path", lambda old: pa.array([b"\xff\xfe"] * len(old)).view(pa.string())),
    "no lists": column("pos", lambda old: pa.nulls(len(old), old.type)),
    "no codec": column("codec", lambda old: pa.nulls(len(old), pa.string())),
    "other paths": column("path", lambda old: pa.array(["/nowhere"] * len(old))),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables(kind: str, original: Path, frames: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    rewritten(original / "c.arrow", path, TABLES[kind])
    with pytest.raises(FramefeedError, match=r"c\.arrow"):
        use(path, frames)


@pytest.mark.parametrize("metadata", [b"", b"[", b"{}", b"[1]", b'[{"path": 1}]', b'[{"path":1,"reason":2,"error":3}]'])
def test_reports(metadata: bytes, original: Path, frames: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    with pa.ipc.open_file(str(original / "c.arrow")) as reader:
        table = reader.read_all()
    write(path, table.replace_schema_metadata({**table.schema.metadata, b"framefeed.catalog.report": metadata}))
    with pytest.raises(CatalogError, match=r"c\.arrow"):
        use(path, frames)


def test_nested_report(original: Path, frames: dict[str, Any], tmp_path: Path) -> None:
    test_reports(b"[" * 100_000, original, frames, tmp_path)


def test_compressed(original: Path, frames: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "c.arrow"
    rewritten(original / "c.arrow", path, lambda table: table)
    assert use(path, frames) == 2
    rewritten(original / "c.arrow", path, lambda table: table, compression="zstd")
    with pytest.raises(CatalogError, match="compressed"):
        Catalog.open(path)


VALUES: dict[str, Any] = {
    "width": -1,
    "height": None,
    "codec": None,
    "time_base_num": 0,
    "time_base_den": 0,
    "sample_aspect_ratio_den": 0,
    "quarter_turns": 7,
    "stream_index": -1,
    "reorder_depth": -1,
    "file_size": -1,
}
LISTS: dict[str, Callable[[Any], Any]] = {
    "start": lambda old: old + 1,
    "start ": lambda old: old - 1000,
    "frames": lambda old: old + 5,
    "frames ": lambda old: old - 5,
    "pos": lambda old: old - (1 << 40),
    "size": lambda old: old + (1 << 40),
    "size ": lambda old: -old,
    "frame_pts": lambda old: old[::-1].copy(),
    "flags": lambda old: old[:-1],
    "pts": lambda old: old[:-1],
}


@pytest.mark.parametrize("name", [*VALUES, *LISTS])
def test_rows_with_their_checksum(
    name: str, original: Path, frames: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = VideoIndex.scan(str(original / "h264_open_gop.mp4"))
    real_values, real_lists = catalog_rows._values, catalog_rows._lists

    def values(video: VideoIndex) -> dict[str, Any]:
        found = real_values(video) | ({"sample_aspect_ratio_num": 1} if "ratio" in name else {})
        return found | ({name: VALUES[name]} if name in VALUES else {})

    def lists(video: VideoIndex) -> dict[str, Any]:
        found, key = real_lists(video), name.strip()
        return found | ({key: np.asarray(LISTS[name](found[key]))} if name in LISTS else {})

    path = tmp_path / "c.arrow"
    with monkeypatch.context() as patch:
        patch.setattr(catalog_rows, "_values", values)
        patch.setattr(catalog_rows, "_lists", lists)
        batch = encode([index])
    metadata = {b"framefeed.catalog.version": b"1", b"framefeed.catalog.report": b"[]"}
    schema = catalog_rows.common_schema([batch.schema]).with_metadata(metadata)
    write(path, pa.Table.from_batches([catalog_rows.cast(batch, schema)], schema))
    with pytest.raises(CatalogError, match=rf"{path}.*damaged"):
        use(path, frames)
    assert set(SCALARS) >= set(VALUES)


@pytest.mark.parametrize("shard", ["/etc/passwd", "../store/packets-00000.bin", "..", ""])
def test_shards_lie_beside_the_catalog(
    shard: str, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    shutil.copytree(original / "store", path)
    file = path / "catalog.arrow"
    with pa.ipc.open_file(str(original / "store" / "catalog.arrow")) as reader:
        table = reader.read_all()
    rewritten(original / "store" / "catalog.arrow", file, column("shard", lambda old: pa.array([shard] * len(old))))
    checksum = table.column("checksum")[0].as_py()
    monkeypatch.setattr(catalog_rows, "_checksum", lambda values, lists: checksum)  # as if it had been made, too
    with pytest.raises(CatalogError, match="beside the catalog"):
        _ = Catalog.open(path)[0]


# --- journals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [1, 2],
        ["a", 1, 2, 0, 3, "x", 0, 1, ""],
        ["a", 1, 2, 0, 3, -1, 0, 1, "AAAAAA=="],
        ["a", 1, 2, 0, 3, 0, 5, 1, "AAAAAA=="],
        ["a", 1, 2, 0, 3, 0, 0, 1, "AAA="],
        ["a", 1, 2, 0, 3, 0, 0, 1, 7],
        {"a": 1},
        None,
    ],
)
def test_journal_of_a_store(fields: Any, tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "unfinished.journal", lambda *_: None)) as file:
        file.append(json.dumps(fields).encode())
    with contextlib.closing(StoreJournal(str(tmp_path))) as journal:
        assert journal.entries == []


def test_damaged_journals_of_a_store(original: Path, frames: dict[str, Any], tmp_path: Path) -> None:
    """Packing again mends everything."""
    catalog = Catalog.open(original / "c.arrow")
    for seed in range(20):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(original / "store", folder)
        (folder / "catalog.arrow").unlink()
        (folder / "unfinished.journal").write_bytes(rng.randbytes(rng.randrange(400)))
        (folder / "packets-00000.bin").rename(folder / "packets-00000.bin.part")
        pack(catalog, folder, progress=False)
        assert use(folder, frames) == 2
