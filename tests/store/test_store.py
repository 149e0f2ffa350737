"""Packet stores: what is read from one is what the videos gave, wherever it is, and damage is never decoded from."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
import torch

import clips
from catalog.catalog_help import SMALL, copies
from framefeed import (
    Catalog,
    CatalogError,
    DecodeError,
    FileChanged,
    MultiCameraDataset,
    PacketDataset,
    PacketDecoder,
    SourceError,
    VideoDataset,
    VideoDecoder,
    VideoIndex,
    VideoLoader,
)
from framefeed.catalog.arrow_file import VERSION_KEY
from framefeed.catalog.paths import UNFINISHED
from framefeed.media.media import PathMedia
from framefeed.source import open_source, shards
from framefeed.store import packing as store_packing
from framefeed.store.store import pack, verify

KINDS = (
    "h264_bframes",
    "h264_open_gop",
    "h264_paff_ts",
    "hevc_open_gop",
    "hevc_rasl_at_start_mp4",
    "hevc_raw",
    "hevc_ts",
    "vp9_alt_ref",
    "av1_mp4",
    "av1_webm",
    "mpeg2_ps",
    "mpeg4_packed_b",
    "rawvideo_avi",
    "h264_avi",
    "h264_ts",
    "h264_mkv_cues",
    "h264_mkv_live",
    "mp4_fragments",
    "mkv_vfr",
    "edit_starts_in_group",
    "edit_two_parts",
    "edit_repeats",
    "two_streams_second_best_mp4",
    "audio_first_ts",
    "rotated_90",
)
SHARD_SIZE = 60_000  # a few videos each; rawvideo_avi alone is larger


@dataclass(frozen=True)
class Zoo:
    """A store that was copied elsewhere, of videos that are gone, and what these were.

    Attributes:
        paths: The videos, by kind.
        indexes: Of the videos.
        packets: Of the videos.
        frames: Of the videos.
        store: The store's catalog.
    """

    paths: dict[str, str]
    indexes: dict[str, VideoIndex]
    packets: dict[str, list[bytes]]
    frames: dict[str, torch.Tensor]
    store: Catalog


def packets_of(index: VideoIndex) -> list[bytes]:
    source = open_source(index, PathMedia(index.path))
    return [bytes(data) for _, data in source.read(np.arange(len(index.packets)))]


@pytest.fixture(scope="module")
def zoo(clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Zoo:
    folder = tmp_path_factory.mktemp("zoo")
    (folder / "videos").mkdir()
    paths = {kind: shutil.copy(clips.make(kind, clip_folder), folder / "videos") for kind in KINDS}
    catalog = Catalog.build(paths.values(), folder / "zoo.arrow")
    names = {kind: str(path) for kind, path in paths.items()}
    indexes = {kind: catalog[path] for kind, path in names.items()}
    packets = {kind: packets_of(index) for kind, index in indexes.items()}
    frames = {kind: VideoDecoder(path).get_all_frames().data for kind, path in names.items()}
    pack(catalog, folder / "store", shard_size=SHARD_SIZE)
    shutil.copytree(folder / "store", folder / "copy", copy_function=shutil.copyfile)  # with other times
    (folder / "copy").rename(folder / "moved")
    shutil.rmtree(folder / "store")
    shutil.rmtree(folder / "videos")
    return Zoo(names, indexes, packets, frames, Catalog.open(folder / "moved"))


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_those_of_the_video(zoo: Zoo, kind: str) -> None:
    decoder = VideoDecoder(zoo.paths[kind], index=zoo.store)
    frames = zoo.frames[kind]
    order = np.random.default_rng(1).permutation(len(frames)).tolist()
    for number in order[:4]:
        assert torch.equal(decoder[number], frames[number])
    assert torch.equal(decoder.get_frames_at(order).data, frames[order])
    assert torch.equal(decoder.get_all_frames().data, frames)


@pytest.mark.parametrize("kind", KINDS)
def test_packets_and_facts_are_those_of_the_video(zoo: Zoo, kind: str) -> None:
    index, before = zoo.store[zoo.paths[kind]], zoo.indexes[kind]
    assert index.stored is not None and index.byte_ranges
    assert index.stored.video == before.fingerprint
    assert index.path == before.path and index.stream == before.stream
    for column in dataclasses.fields(before.packets):
        ours, theirs = (getattr(each.packets, column.name) for each in (index, before))
        assert ours.dtype == theirs.dtype
        assert column.name == "pos" or np.array_equal(ours, theirs), column.name
    data = Path(index.stored.shard).read_bytes()
    spans = zip(index.packets.pos.tolist(), index.packets.size.tolist(), strict=True)
    assert [data[pos : pos + size] for pos, size in spans] == zoo.packets[kind]
    assert (np.diff(index.packets.pos) == index.packets.size[:-1]).all()  # nothing in between


def test_shards(zoo: Zoo) -> None:
    folder = Path(zoo.store.path).parent
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["catalog.arrow", *(f"packets-{number:05d}.bin" for number in range(len(names) - 1))]
    videos: dict[str, list[VideoIndex]] = {}
    for number in range(len(zoo.store)):
        index = zoo.store[number]
        assert index.stored is not None
        videos.setdefault(os.path.basename(index.stored.shard), []).append(index)
    assert sorted(videos) == names[1:] and len(videos) > 2
    for name, here in videos.items():
        size = sum(int(index.packets.size.sum()) for index in here)
        assert (folder / name).stat().st_size == size + shards.TRAILER_SIZE
        assert size <= SHARD_SIZE or len(here) == 1


def test_the_catalog_of_a_store_is_a_catalog(zoo: Zoo) -> None:
    catalog = zoo.store
    assert catalog.is_store and catalog.report == []
    assert catalog.paths == tuple(zoo.paths.values())
    assert Catalog.open(os.path.dirname(catalog.path)).paths == catalog.paths
    again = pickle.loads(pickle.dumps(catalog))
    assert again[3].fingerprint == catalog[3].fingerprint
    table = pa.ipc.open_file(catalog.path).read_all()
    assert table.schema.metadata[VERSION_KEY] == b"2"
    assert table["shard"][0].as_py() == "packets-00000.bin"
    assert table["file_size"].to_pylist() == [index.fingerprint[0] for index in zoo.indexes.values()]


def test_plain_catalogs_are_what_they_were(clip_folder: Path, tmp_path: Path) -> None:
    catalog = Catalog.build(clips.make(SMALL, clip_folder), tmp_path / "c.arrow")
    schema = pa.ipc.open_file(tmp_path / "c.arrow").schema
    assert schema.metadata[VERSION_KEY] == b"1" and "shard" not in schema.names
    assert not catalog.is_store and catalog[0].stored is None


# --- what reads from it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """The same videos twice."""

    folder: Path
    videos: list[Path]
    catalog: Catalog
    store: Catalog

    @property
    def shard(self) -> Path:
        return self.folder / "store" / "packets-00000.bin"


@pytest.fixture
def pair(clip_folder: Path, tmp_path: Path) -> Pair:
    (tmp_path / "videos").mkdir()
    kinds = ("h264_bframes", "h264_ts", "h264_mkv_cues", "hevc_open_gop")
    videos = [Path(shutil.copy(clips.make(kind, clip_folder), tmp_path / "videos")) for kind in kinds]
    catalog = Catalog.build(videos, tmp_path / "c.arrow")
    return Pair(tmp_path, videos, catalog, pack(catalog, tmp_path / "store").catalog)


def test_loaders_give_the_same_batches(pair: Pair) -> None:
    def batches(catalog: Catalog, names: Any) -> Iterator[torch.Tensor]:
        dataset = VideoDataset(names, 3, catalog=catalog)
        for batch in VideoLoader(dataset, batch_size=8, shuffle=True, seed=3, memory_budget="1MB"):
            yield batch["default"]

    truth = list(batches(pair.catalog, pair.videos))
    shutil.rmtree(pair.folder / "videos")
    for names in (None, pair.videos):
        found = list(batches(Catalog.open(pair.folder / "store"), names))
        assert len(found) == len(truth) and all(map(torch.equal, found, truth))


def test_packets_of_samples_come_from_the_store(pair: Pair) -> None:
    numbers = [5, 170, 60, 100, 6]
    truth = VideoDataset(None, catalog=pair.catalog).__getitems__(numbers)
    shutil.rmtree(pair.folder / "videos")
    dataset = VideoDataset(None, catalog=pair.folder / "store")
    found = PacketDecoder(dataset, memory_budget=0).decode(PacketDataset(dataset).__getitems__(numbers))
    assert torch.equal(found["default"], torch.stack([sample["default"] for sample in truth]))


def test_cameras(pair: Pair) -> None:
    cameras = {"one": {"front": str(pair.videos[0]), "back": str(pair.videos[2])}}
    truth = MultiCameraDataset(cameras, catalog=pair.catalog)[7]["default"]
    shutil.rmtree(pair.folder / "videos")
    found = MultiCameraDataset(cameras, catalog=pair.folder / "store")
    assert torch.equal(found[7]["default"], truth)


def test_an_index_of_a_store_belongs_to_its_video(pair: Pair) -> None:
    index = pair.store[0]
    assert VideoDecoder(pair.videos[0], index=index).index is index
    for other in (pair.videos[1], b"bytes"):
        with pytest.raises(ValueError, match=r"the index is of .*h264_bframes.mp4, whose packets a store has"):
            VideoDecoder(other, index=index)


def test_a_store_of_a_store(pair: Pair) -> None:
    shutil.rmtree(pair.folder / "videos")
    again = pack(pair.store, pair.folder / "again", shard_size=1)
    assert again.num_shards == len(pair.videos)
    shutil.rmtree(pair.folder / "store")
    for number, path in enumerate(pair.videos):
        assert again.catalog[path].stored.video == pair.catalog[number].fingerprint  # type: ignore[union-attr]
        VideoDecoder(path, index=again.catalog).get_all_frames()
    with pytest.raises(CatalogError, match="contains the catalog to pack"):
        pack(pair.folder / "again", pair.folder / "again")


# --- damage -----------------------------------------------------------------------------------------------------------


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def forget() -> None:
    """As in a new process."""
    from framefeed.media import media

    media._POOL.forget()
    shards._known.clear()


def test_a_flipped_bit(pair: Pair) -> None:
    index = pair.store[3]  # HEVC: the decoder would not notice
    packet = 20
    frame = int(np.flatnonzero(index.packets.frames == packet)[0])
    flip(pair.shard, int(index.packets.pos[packet]) + int(index.packets.size[packet]) // 2)
    decoder = VideoDecoder(pair.videos[3], index=pair.store)
    with pytest.raises(
        DecodeError, match=rf"hevc_open_gop.*frame {frame} .*{pair.shard} is damaged: .*packet {packet}"
    ):
        decoder[frame]
    assert torch.equal(decoder[0], VideoDecoder(pair.videos[3])[0])
    found = verify(pair.folder / "store")
    assert [bad.path for bad in found.bad] == [str(pair.videos[3])]
    assert found.num_bytes == sum(int(pair.store[number].packets.size.sum()) for number in range(3))


@pytest.mark.parametrize("fresh", [True, False])
def test_a_shard_that_is_cut_off(pair: Pair, fresh: bool) -> None:
    os.truncate(pair.shard, 1000)
    if fresh:
        forget()
    with pytest.raises(SourceError, match=str(pair.shard)):
        VideoDecoder(pair.videos[1], index=pair.store)[40]
    assert len(verify(pair.folder / "store").bad) == len(pair.videos)


def test_a_shard_that_is_missing(pair: Pair) -> None:
    pair.shard.unlink()
    forget()
    with pytest.raises(SourceError, match=rf"{pair.shard}: no such file; .* packets of {pair.videos[1]}"):
        VideoDecoder(pair.videos[1], index=pair.store)
    with pytest.raises(SourceError, match=rf"{pair.shard}: no such file"):
        next(iter(VideoLoader(VideoDataset(None, catalog=pair.store), batch_size=2)))


@pytest.mark.parametrize("fresh", [True, False])
def test_another_shard_in_its_place(pair: Pair, clip_folder: Path, fresh: bool) -> None:
    other = Catalog.build(clips.make("h264_open_gop", clip_folder), pair.folder / "o.arrow")
    pack(other, pair.folder / "other")
    (pair.folder / "other" / pair.shard.name).replace(pair.shard)
    if fresh:
        forget()
        with pytest.raises(FileChanged, match=rf"{pair.shard}: not the shard with the packets of {pair.videos[0]}"):
            VideoDecoder(pair.videos[0], index=pair.store)
    assert len(verify(pair.folder / "store").bad) == len(pair.videos)


def test_a_file_that_is_no_shard(pair: Pair) -> None:
    pair.shard.write_bytes(bytes(pair.shard.stat().st_size))
    forget()
    with pytest.raises(SourceError, match="truncated, damaged or not a shard"):
        VideoDecoder(pair.videos[0], index=pair.store)


def test_a_damaged_store_is_repaired_while_the_videos_are_there(pair: Pair) -> None:
    pair.shard.unlink()
    packed = pack(pair.catalog, pair.folder / "store")
    assert packed.num_new == len(pair.videos)
    assert verify(pair.folder / "store").bad == []
    assert sorted(os.listdir(pair.folder / "store")) == ["catalog.arrow", "packets-00000.bin"]


# --- packing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def many(clip_folder: Path, tmp_path: Path) -> Catalog:
    videos = copies(clips.make("h264_closed_no_b", clip_folder), tmp_path / "videos", 12)
    return Catalog.build(videos, tmp_path / "c.arrow")


def test_sizes_are_told(many: Catalog, tmp_path: Path) -> None:
    packed = pack(many, tmp_path / "store", shard_size=30_000)
    assert packed.num_new == len(packed.catalog) == 12
    assert packed.video_bytes == sum(os.path.getsize(path) for path in many.paths)
    assert packed.store_bytes == sum(path.stat().st_size for path in (tmp_path / "store").iterdir())
    assert packed.num_shards == len(list((tmp_path / "store").iterdir())) - 1 > 1


def test_the_same_again(many: Catalog, tmp_path: Path) -> None:
    pack(many, tmp_path / "store", shard_size=30_000)
    before = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()}
    assert pack(many, tmp_path / "store", shard_size=30_000).num_new == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir()} == before
    pack(many, tmp_path / "other", shard_size=30_000)
    assert {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()} == before


def test_an_interrupted_call_goes_on(many: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"
    monkeypatch.setattr(store_packing, "COMMIT_SECONDS", 0.0)
    copy, copied = store_packing.Packing._copy, []

    def interrupted(packing: Any, index: VideoIndex, *others: Any) -> Any:
        found = copy(packing, index, *others)
        copied.append(index.path)
        if len(copied) in (5, 8):
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(store_packing.Packing, "_copy", interrupted)
    for done in (4, 6):
        with pytest.raises(KeyboardInterrupt):
            pack(many, folder, shard_size=40_000)
        with pytest.raises(CatalogError, match="store: an unfinished packet store; rerun"):
            Catalog.open(folder)
        assert (folder / UNFINISHED).read_bytes().count(b"FFJ1") == done
    # What a crash in the middle of a write leaves.
    with open(folder / UNFINISHED, "ab") as file:
        file.write(b'FFJ1\x30\0\0\0\0\0\0\0["half')
    part = next(folder.glob("*.part"))
    part.write_bytes(part.read_bytes() + b"half")
    assert pack(many, folder, shard_size=40_000).num_new == 6
    assert len(copied) == 5 + 3 + 6
    pack(many, tmp_path / "at_once", shard_size=40_000)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "at_once").iterdir()
    }


_PACK = """
import sys, time
from framefeed.store import store, packing as store_packing
store_packing.COMMIT_SECONDS = 0.0
copy = store_packing.Packing._copy
def slow(*arguments):
    time.sleep(0.3)
    return copy(*arguments)
store_packing.Packing._copy = slow
store.pack(sys.argv[1], sys.argv[2], shard_size=20_000)
"""


def test_a_killed_process(many: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with subprocess.Popen([sys.executable, "-c", _PACK, many.path, str(folder)]) as process:
        end = time.monotonic() + 30
        while not list(folder.glob("*.bin")) and process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        with pytest.raises(CatalogError, match="another process is packing videos into it"):
            pack(many, folder)
        process.send_signal(signal.SIGKILL)
    with pytest.raises(CatalogError, match="an unfinished packet store"):
        Catalog.open(folder)
    packed = pack(many, folder)
    assert 0 < packed.num_new < 12
    assert verify(folder).bad == []
    assert not (folder / UNFINISHED).exists() and not list(folder.glob("*.part"))


_FULL = """
import resource, sys
from framefeed.store import store
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))  # a disk that takes this much of a file
store.pack(sys.argv[1], sys.argv[2])
"""


def test_a_full_disk(many: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    command = [sys.executable, "-c", _FULL, many.path, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    message = result.stderr.splitlines()[-1]
    assert message.startswith(f"framefeed.errors.CatalogError: {folder}/packets-00000.bin: cannot be written (File too")
    assert not (folder / "catalog.arrow").exists()
    pack(many, folder)
    assert verify(folder).bad == []


def test_a_disk_that_does_not_keep_what_is_written(
    many: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = shards.ShardWriter.read
    monkeypatch.setattr(shards.ShardWriter, "read", lambda *arguments: read(*arguments)[::-1])
    with pytest.raises(
        CatalogError, match=r"packets-00000.bin: reads back other bytes than were written for .*000.mp4"
    ):
        pack(many, tmp_path / "store")


def test_a_video_that_changes_while_it_is_read(many: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_all, turns = store_packing.read_all, []

    def unsteady(index: VideoIndex) -> Iterator[tuple[int, Any]]:
        turns.append(index.path)
        for number, data in read_all(index):
            yield number, b"other" if turns.count(index.path) == 2 and number == 7 else data

    monkeypatch.setattr(store_packing, "read_all", unsteady)
    with pytest.raises(FileChanged, match=r"000.mp4: packet 7 differs when it is read again"):
        pack(many, tmp_path / "store")


def test_missing_and_changed_videos(many: Catalog, tmp_path: Path) -> None:
    folder, paths = tmp_path / "store", [Path(path) for path in many.paths]
    content = paths[4].read_bytes()
    paths[4].unlink()
    os.utime(paths[6], ns=(0, 7))
    with pytest.raises(SourceError, match=r"004.mp4: no such file"):
        pack(many, folder)
    packed = pack(many, folder, on_error="skip")
    assert packed.num_new == 12 - 2 - 4  # the first four are there already
    assert [bad.path for bad in packed.bad] == [str(paths[4]), str(paths[6])]
    assert "no such file" in packed.bad[0].reason and "changed since it was indexed" in packed.bad[1].reason
    assert Catalog.open(folder).report == packed.bad
    assert paths[4] not in packed.catalog and len(packed.catalog) == 10
    assert verify(folder).bad == []
    # Once they are back, only they are packed.
    paths[4].write_bytes(content)
    packed = pack(Catalog.build(paths, many.path), folder, on_error="skip")
    assert (packed.num_new, packed.bad, len(packed.catalog)) == (2, [], 12)
    assert verify(folder).bad == []


def test_a_store_is_brought_up_to_date(many: Catalog, tmp_path: Path) -> None:
    folder, paths = tmp_path / "store", list(many.paths)
    pack(Catalog.build(paths[:8], tmp_path / "first.arrow"), folder, shard_size=1)
    first = Catalog.open(folder)
    packed = pack(Catalog.build(paths[2:], tmp_path / "second.arrow"), folder, shard_size=1)
    assert packed.num_new == 4 and packed.catalog.paths == tuple(paths[2:])
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["catalog.arrow", *(f"packets-{number:05d}.bin" for number in range(2, 12))]
    assert verify(folder).bad == []
    VideoDecoder(paths[3], index=first)[0]  # who has the old catalog open still finds what is there


def test_an_empty_catalog(tmp_path: Path) -> None:
    (tmp_path / "bad.mp4").write_bytes(b"no video")
    packed = pack(Catalog.build(tmp_path / "bad.mp4", tmp_path / "c.arrow"), tmp_path / "store")
    assert (len(packed.catalog), packed.num_shards, packed.video_bytes, packed.bad) == (0, 0, 0, [])
    assert [path.name for path in (tmp_path / "store").iterdir()] == ["catalog.arrow"]
    catalog = Catalog.open(tmp_path / "store")
    assert catalog.is_store and catalog.report[0].path == str(tmp_path / "bad.mp4")
    assert verify(tmp_path / "store").bad == []


def test_names_that_are_not_unicode(clip_folder: Path, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.mp4")
    shutil.copy(clips.make(SMALL, clip_folder), path)
    packed = pack(Catalog.build([path], tmp_path / "c.arrow"), tmp_path / "store")
    assert packed.catalog.paths == (path,)
    assert len(VideoDecoder(path, index=packed.catalog)[0]) == 3


def test_places_that_are_taken(many: Catalog, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"c.arrow: a file; choose another folder"):
        pack(many, many.path)
    (tmp_path / "taken").mkdir()
    shutil.copy(many.path, tmp_path / "taken" / "catalog.arrow")
    with pytest.raises(CatalogError, match=r"catalog.arrow: a catalog of videos, .* choose another folder"):
        pack(many, tmp_path / "taken")
    with pytest.raises(CatalogError, match=r"catalog.arrow: a catalog of videos, not of a packet store"):
        verify(tmp_path / "taken")
    (tmp_path / "taken" / "catalog.arrow").write_bytes(b"damaged")
    with pytest.raises(CatalogError, match=r"catalog.arrow: not a catalog"):
        pack(many, tmp_path / "taken")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["catalog.arrow"]
    pack(many, tmp_path / "store")
    with pytest.raises(CatalogError, match=r"catalog.arrow: the catalog of a packet store, .* choose another name"):
        Catalog.build(many.paths, tmp_path / "store" / "catalog.arrow")
    for options in ({"shard_size": 0}, {"on_error": "ignore"}):
        with pytest.raises(ValueError, match=r"at least 1 byte|raise"):
            pack(many, tmp_path / "store", **options)


def test_progress(many: Catalog, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pack(many, tmp_path / "quiet")
    assert capsys.readouterr() == ("", "")
    pack(many, tmp_path / "loud", progress=True)
    verify(tmp_path / "loud", progress=True)
    shown = capsys.readouterr()
    assert shown.out == "" and "12/12 files" in shown.err and "packing" in shown.err and "checking" in shown.err
