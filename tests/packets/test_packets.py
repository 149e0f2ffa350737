"""Packets that one process reads and another one decodes: the same tensors, whatever is between the two."""

from __future__ import annotations

import gc
import json
import os
import pickle
import re
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from framefeed import (
    DecodeError,
    FileChanged,
    FramefeedError,
    FrameSizeError,
    MultiCameraDataset,
    PacketDataset,
    PacketDecoder,
    PacketGroup,
    ProcessDesc,
    SourceError,
    VideoClipSampler,
    VideoDataset,
    VideoIndex,
    VideoLoader,
)
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.packets.group_store import GroupStore
from framefeed.packets.packet_dataset import PacketRequest
from framefeed.packets.packet_group import take_group
from framefeed.packets.packet_requests import GroupLedger
from framefeed.source import media_of, open_source
from helpers import state_help as help
from helpers.cameras_help import (
    PLAIN,
    ROUGH,
    Losing,
    clip_of,
    cut,
    differences,
    direct,
    noisy,
    num_packets,
    numbers_in,
    packet_loader,
    packet_threads,
    plain_camera,
    separated,
    write_cameras,
)
from helpers.clips_help import MIXED, clip, clips_of, start_of, within
from helpers.workers_help import Telling, frame_of
from waiting import soon

KINDS: tuple[Any, ...] = ("stream", "random")
TINY = 20_000  # some of the groups


@pytest.fixture(scope="module")
def index(clip_folder: Path) -> Path:
    return write_cameras(clip_folder)


@pytest.fixture(scope="module")
def cameras(index: Path) -> MultiCameraDataset:
    return MultiCameraDataset(index, processing=PLAIN)


@pytest.fixture(scope="module")
def mixed(clip_folder: Path) -> VideoDataset:
    """Every codec and container, in sequences."""
    paths = clips_of([*MIXED[:-1], "film.ts"], clip_folder)
    return VideoDataset(paths, 3, frame_stride=2, processing=ROUGH, get_label=start_of, seed=11)


@pytest.fixture(scope="module")
def paths(clip_folder: Path) -> list[str]:
    return help.few_files(clip_folder)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Two clips of two plain cameras, to be spoilt."""
    for clip_name, first in (("one", 0), ("two", 500)):
        plain_camera(tmp_path / "v" / clip_name / "left.mp4", 12, first)
        plain_camera(tmp_path / "v" / clip_name / "right.mp4", 12, first + 100)
    return tmp_path / "v"


def _pair(folder: Path, **options: Any) -> MultiCameraDataset:
    return MultiCameraDataset({str(folder): {"one": 12, "two": 12}}, **{"processing": PLAIN, **options})


def _some(dataset: FrameDataset, size: int = 5, count: int = 8) -> list[list[int]]:
    """A few batches from all over, some samples more than once."""
    random = np.random.default_rng(7)
    return [random.integers(0, len(dataset), size).tolist() for _ in range(count)]


def _held_bytes(decoder: PacketDecoder) -> int:
    return decoder._store.held_bytes


# --- the same tensors -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wanted(cameras: MultiCameraDataset) -> dict[str, list[dict[str, Any]]]:
    """What each kind of reading has to give."""
    return {kind: direct(cameras, VideoClipSampler(cameras, 2, frame_read_type=kind)) for kind in KINDS}


@pytest.mark.parametrize(
    ("kind", "memory_budget", "packet_cache"),
    [
        ("stream", 0, 0),
        ("stream", 0, "64MB"),
        ("stream", 100_000, 0),
        ("stream", 100_000, TINY),
        ("stream", "64MB", TINY),
        ("stream", "64MB", "64MB"),
        ("random", "64MB", 0),
        ("random", "64MB", TINY),
    ],
)
def test_any_cache_and_budget(
    kind: Any,
    packet_cache: Any,
    memory_budget: Any,
    cameras: MultiCameraDataset,
    wanted: dict[str, list[dict[str, Any]]],
) -> None:
    sampler = VideoClipSampler(cameras, 2, frame_read_type=kind)
    decoder = PacketDecoder(cameras, packet_cache=packet_cache, memory_budget=memory_budget)
    for _ in range(2):
        assert differences(separated(cameras, sampler, decoder), wanted[kind]) == []
    stats = decoder.stats()
    assert stats.groups_reread == 0
    assert (stats.group_hits > 0) == (packet_cache != 0)
    assert stats.batches == 2 * len(sampler)
    assert stats.frames_delivered == 2 * len(cameras) * 4
    assert _held_bytes(decoder) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_loader_gives_the_same(
    kind: Any, cameras: MultiCameraDataset, wanted: dict[str, list[dict[str, Any]]]
) -> None:
    sampler = VideoClipSampler(cameras, 2, frame_read_type=kind)
    assert differences(list(VideoLoader(cameras, batch_sampler=list(sampler))), wanted[kind]) == []


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize(("num_workers", "prefetch"), [(1, 2), (3, 4)])
@pytest.mark.parametrize("kind", KINDS)
def test_forked_workers(
    kind: Any, num_workers: int, prefetch: int, cameras: MultiCameraDataset, wanted: dict[str, list[dict[str, Any]]]
) -> None:
    sampler = VideoClipSampler(cameras, 2, frame_read_type=kind)
    decoder = PacketDecoder(cameras, packet_cache=TINY)
    options = {"num_workers": num_workers, "prefetch_factor": prefetch, "multiprocessing_context": "fork"}
    found = within(30, lambda: separated(cameras, sampler, decoder, **options))
    assert differences(found, wanted[kind]) == []
    assert decoder.stats().groups_reread == 0


def test_spawned_workers_know_neither_pyav_nor_cuda(clip_folder: Path, tmp_path: Path) -> None:
    """They go through two epochs, and are told of the second."""
    paths = clips_of(["bframes.mp4", "hevc.mp4"], clip_folder)
    dataset = VideoDataset(paths, 2, processing=ROUGH, get_label=frame_of, seed=1)
    decoder = PacketDecoder(dataset)
    batches = _some(dataset)
    loader = packet_loader(
        dataset,
        batches,
        decoder,
        packets=Telling(dataset, tmp_path),
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    for epoch in range(2):
        dataset.set_epoch(epoch)
        found = within(60, lambda: list(decoder(loader)))
        assert differences(found, direct(dataset, batches)) == []
    told = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert told == [{"cuda": False, "modules": []}]


def test_forked_workers_do_not_touch_cuda(cameras: MultiCameraDataset, tmp_path: Path) -> None:
    here = {"av", *sys.modules}  # what the parent has, they have as well
    separated(
        cameras, _some(cameras), packets=Telling(cameras, tmp_path), num_workers=2, multiprocessing_context="fork"
    )
    told = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    assert [each["cuda"] for each in told] == [False, False]
    assert all(set(each["modules"]) <= here for each in told)


@pytest.mark.parametrize("whole_groups", [True, False])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_sequences_of_every_codec_and_container(num_workers: int, whole_groups: bool, mixed: VideoDataset) -> None:
    batches = _some(mixed, 6, 10)
    packets = PacketDataset(mixed, whole_groups=whole_groups)
    decoder = PacketDecoder(mixed, packet_cache="1MB")
    options: dict[str, Any] = {"packets": packets, "num_workers": num_workers}
    if num_workers:
        options |= {"multiprocessing_context": "fork", "persistent_workers": True}
    loader = packet_loader(mixed, batches, decoder, **options)
    for epoch in (0, 5):
        mixed.set_epoch(epoch)
        assert differences(list(decoder(loader)), direct(mixed, batches)) == []


def test_sequences_in_order(clip_folder: Path) -> None:
    """Frames are used by several samples that follow one another, and decoded once nevertheless."""
    paths = clips_of(["open_gop.mp4", "hevc.mp4"], clip_folder)
    for length, stride in ((3, 1), (2, 3)):
        dataset = VideoDataset(paths, length, frame_stride=stride, processing=PLAIN)
        decoder = PacketDecoder(dataset)
        streams = VideoClipSampler(dataset, 2, frame_read_type="stream")
        assert differences(separated(dataset, streams, decoder), direct(dataset, streams)) == []
        # Some packets belong to two groups.
        assert num_packets(dataset) <= decoder.stats().packets_decoded <= num_packets(dataset) + 10
        assert _held_bytes(decoder) == 0
        batches = [list(range(low, min(low + 7, len(dataset)))) for low in range(0, len(dataset), 7)]
        decoder = PacketDecoder(dataset)
        assert differences(separated(dataset, batches, decoder, in_order=True), direct(dataset, batches)) == []
        assert decoder.stats().packets_decoded <= num_packets(dataset) + 10


def test_without_requests_everything_is_sent(cameras: MultiCameraDataset) -> None:
    packets, decoder = PacketDataset(cameras), PacketDecoder(cameras)
    loader: DataLoader[Any] = DataLoader(packets, 4, collate_fn=packets.collate)
    wanted = direct(cameras, [range(low, min(low + 4, len(cameras))) for low in range(0, len(cameras), 4)])
    for _ in range(2):
        assert differences(list(decoder(loader)), wanted) == []
    assert (decoder.stats().group_hits, decoder.stats().groups_reread) == (0, 0)
    assert differences([decoder.decode(packets[5])], direct(cameras, [[5]])) == []


def test_labels_masks_and_orders_of_dimensions(copy: Path) -> None:
    (copy / "two" / "left.mp4").unlink()
    plain_camera(copy / "one" / "right.mp4", 9, 100)
    processing = {
        **ROUGH,
        "last": ProcessDesc(index_map=[-1, -1, 0], type="byte", dimension_order="hwfc"),
        "turned": ProcessDesc(index_map=[1, 0], width=30, height=20, center_crop=True, mean=100.0, std=3.0),
    }
    dataset = _pair(copy, processing=processing, missing="mask", sequence_length=3, get_label=clip_of, seed=4)
    dataset.set_epoch(2)
    batches = [list(range(low, low + 5)) for low in range(0, 20, 5)]
    wanted = direct(dataset, batches)
    assert {name: tuple(value.shape[1:]) for name, value in wanted[0].items() if name != "labels"} == {
        "part": (2, 3, 3, 32, 40),
        "small": (2, 3, 3, 24, 32),
        "last": (2, 48, 64, 1, 3),
        "turned": (2, 2, 3, 20, 30),
        "mask": (2,),
    }
    for in_order in (True, False):
        assert differences(separated(dataset, batches, in_order=in_order), wanted) == []
    only = _pair(copy, processing={"last": processing["last"]}, missing="mask", sequence_length=3)
    wanted = direct(only, batches)
    assert [row.tolist() for row in wanted[1]["mask"]][:3] == [[True, True], [True, True], [True, False]]
    assert differences(separated(only, batches), wanted) == []
    assert differences(list(VideoLoader(only, batch_sampler=batches)), wanted) == []


def test_cameras_of_different_rates_in_order(tmp_path: Path) -> None:
    """A frame of the slower one belongs to two samples, and is decoded once."""
    for name, rate, count in (("a", 30, 24), ("b", 15, 13)):
        times = [1000 * place // rate for place in range(count)]
        plain_camera(tmp_path / "c" / f"{name}.mkv", count, fps=rate, pts=times, time_base=Fraction(1, 1000), gop=6)
    dataset = MultiCameraDataset({str(tmp_path): {"c": 24}}, synchronise="time", processing=PLAIN)
    decoder = PacketDecoder(dataset)
    streams = VideoClipSampler(dataset, 2, frame_read_type="stream")
    assert differences(separated(dataset, streams, decoder), direct(dataset, streams)) == []
    assert decoder.stats().packets_decoded == 24 + 12
    assert _held_bytes(decoder) == 0


def test_other_descriptions_than_the_datasets(cameras: MultiCameraDataset, index: Path) -> None:
    batches = _some(cameras)
    other = MultiCameraDataset(index, processing=ROUGH)
    decoder = PacketDecoder(ROUGH)
    assert differences(separated(cameras, batches, decoder), direct(other, batches)) == []


def test_descriptions_that_need_what_was_not_sent(index: Path) -> None:
    first = MultiCameraDataset(index, sequence_length=3, processing={"x": ProcessDesc(index_map=[0, -1, 1])})
    packets = PacketDataset(first)[0]
    assert PacketDecoder({"x": ProcessDesc(index_map=[-1, -1, 0])}).decode(packets)["x"].shape[:3] == (1, 4, 1)
    with pytest.raises(ValueError, match=r"show frames \[1\] of a sequence, which the dataset's do not"):
        PacketDecoder({"x": ProcessDesc()}).decode(packets)
    with pytest.raises(ValueError, match="index_map has 4 entries"):
        PacketDecoder({"x": ProcessDesc(index_map=[0, 1, 2, 3])}).decode(packets)


@pytest.mark.parametrize("num_threads", [1, 4])
def test_many_batches_wait_for_one_group(num_threads: int, clip_folder: Path) -> None:
    dataset = VideoDataset([clip("one_group.mp4", clip_folder)], processing=PLAIN)
    decoder = PacketDecoder(dataset, num_threads=num_threads)
    batches = [[number] for number in range(len(dataset))]
    found = within(30, lambda: separated(dataset, batches, decoder, in_order=True))
    assert numbers_in(torch.cat([batch["frames"] for batch in found])) == list(range(70))
    assert decoder.stats().packets_decoded == 70


def test_a_user_who_leaves_early_and_comes_back(
    cameras: MultiCameraDataset, wanted: dict[str, list[dict[str, Any]]]
) -> None:
    for kind in KINDS:
        sampler = VideoClipSampler(cameras, 2, frame_read_type=kind)
        decoder = PacketDecoder(cameras, packet_cache=TINY, num_threads=2)
        loader = packet_loader(
            cameras, sampler, decoder, num_workers=1, multiprocessing_context="fork", persistent_workers=True
        )
        for stop in (1, 7, 2):
            for number, batch in enumerate(decoder(loader), 1):
                assert differences([batch], wanted[kind][number - 1 : number]) == []
                if number == stop:
                    break
            assert soon(lambda decoder=decoder: _held_bytes(decoder) == 0)  # type: ignore[misc]
        assert differences(list(decoder(loader)), wanted[kind]) == []
        assert decoder.stats().groups_reread == 0


def test_two_iterations_at_once(cameras: MultiCameraDataset, wanted: dict[str, list[dict[str, Any]]]) -> None:
    """They share one ledger, which is of no use then; the frames are right."""
    streams, random = (VideoClipSampler(cameras, 2, frame_read_type=kind) for kind in KINDS)
    decoder = PacketDecoder(cameras)
    iterators = [decoder(packet_loader(cameras, batches, decoder)) for batches in (streams, random)]
    found: list[list[dict[str, Any]]] = [[], []]
    while any(iterators):
        for place, iterator in enumerate(iterators):
            batch = next(iterator, None) if iterator is not None else None
            if batch is None:
                iterators[place] = None  # type: ignore[call-overload]
            else:
                found[place].append(batch)
    assert differences(found[0], wanted["stream"]) == []
    assert differences(found[1], wanted["random"]) == []
    assert _held_bytes(decoder) == 0


@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_pin_memory_without_a_gpu(cameras: MultiCameraDataset) -> None:
    batches = _some(cameras)
    assert differences(separated(cameras, batches, pin_memory=True), direct(cameras, batches)) == []
    assert PacketDataset(cameras)[0].pin_memory().data.is_pinned() is False


# --- packets as values ----------------------------------------------------------------------------------------------


def _group(path: str, frame: int) -> PacketGroup:
    table = VideoIndex.scan(path)
    start = int(table.packets.start[table.packets.frames[frame]])
    return take_group(table, open_source(table, media_of(table)), start)


def test_a_group_pickles_to_its_data_and_little_more(clip_folder: Path, tmp_path: Path) -> None:
    group = _group(clip("thirty.mp4", clip_folder), 35)
    assert group.frames == list(range(30, 60))
    data = pickle.dumps(group)
    assert group.num_bytes < len(data) < group.num_bytes + 4096
    assert len(pickle.dumps(group.without_data())) < 4096
    # A part of a batch does not bring the rest of it.
    batch = PacketDataset(VideoDataset([clip("thirty.mp4", clip_folder)], processing=PLAIN)).__getitems__([0, 35, 80])
    part = batch.filled()[1]
    assert isinstance(part, PacketGroup) and part.key == group.key
    assert abs(len(pickle.dumps(part)) - len(data)) < 64
    again = pickle.loads(data)
    assert (again.key, again.frames, again.whole, again.new_headers) == (group.key, group.frames, True, False)
    assert group.data is not None and torch.equal(again.data, group.data)
    assert again.packets.tolist() == list(range(30, 60))
    (tmp_path / "group").write_bytes(data)
    assert help.run(help.decode_group, path=str(tmp_path / "group")) == list(range(30, 60))


@pytest.mark.parametrize("name", ["open_gop.mp4", "hevc.mp4", "vp9.webm", "film.ts", "vfr.mkv"])
def test_groups_decode_elsewhere(name: str, clip_folder: Path, tmp_path: Path) -> None:
    group = _group(clip(name, clip_folder), 30)
    assert 30 in group.frames
    (tmp_path / "group").write_bytes(pickle.dumps(group))
    assert help.run(help.decode_group, path=str(tmp_path / "group")) == group.frames


def test_numbers_of_a_groups_frames(clip_folder: Path) -> None:
    group = _group(clip("open_gop.mp4", clip_folder), 20)
    assert group.local(group.numbers).tolist() == list(range(len(group.frames)))
    assert group.local([group.frames[3], group.frames[1]]).tolist() == [3, 1]
    for frame in (-1, group.frames[0] - 1, group.frames[-1] + 1):
        with pytest.raises(ValueError, match="lacks some of the frames"):
            group.local([frame])
    alone = group.without_data()
    assert (alone.data, alone.num_bytes) == (None, group.num_bytes)
    with pytest.raises(SourceError, match="were not sent"):
        alone.source()
    with pytest.raises(ValueError, match="no frame decodes from packet 1"):
        table = VideoIndex.scan(clip("open_gop.mp4", clip_folder))
        take_group(table, open_source(table, media_of(table)), 1)


def test_only_what_is_needed_where_groups_are_not_whole(clip_folder: Path) -> None:
    dataset = VideoDataset([clip("bframes.mp4", clip_folder)], processing=PLAIN)
    whole, part = (PacketDataset(dataset, whole_groups=each)[14] for each in (True, False))
    (all_of_it,), (some_of_it,) = whole.groups, part.groups
    assert isinstance(all_of_it, PacketGroup) and isinstance(some_of_it, PacketGroup)
    assert all_of_it.frames == list(range(12, 24))
    assert {14} <= set(some_of_it.frames) < set(all_of_it.frames)
    assert part.num_bytes < whole.num_bytes == all_of_it.num_bytes


def test_groups_keep_the_order_of_pictures_without_times(tmp_path: Path) -> None:
    """A raw stream has no times. With open groups, a packet that belongs to the next is decoded in between."""
    path = tmp_path / "raw.h264"
    plain_camera(path, 24, gop=8, bframes=3, options=help_x264(), format="h264")
    table = VideoIndex.scan(str(path))
    for frame in range(24):
        group = _group(str(path), frame)
        ranks = group.index.packets.display_rank
        assert np.array_equal(np.argsort(ranks), np.argsort(table.packets.display_rank[group.packets]))
    dataset = VideoDataset([path], processing=PLAIN)
    assert numbers_in(torch.cat([b["frames"] for b in separated(dataset, [[n] for n in range(24)])])) == list(range(24))


def help_x264() -> dict[str, str]:
    return {"preset": "veryfast", "x264-params": "scenecut=0:b-adapt=0:open-gop=1"}


# --- the cache ------------------------------------------------------------------------------------------------------


def _num_groups(dataset: FrameDataset) -> int:
    tables = [dataset.index_of(file).packets for file in range(len(dataset.filenames))]
    return sum(len(np.unique(table.start[table.frames])) for table in tables)


@pytest.mark.parametrize("kind", KINDS)
def test_with_a_large_cache_each_group_is_sent_once_an_epoch(kind: Any, cameras: MultiCameraDataset) -> None:
    decoder = PacketDecoder(cameras)
    separated(cameras, VideoClipSampler(cameras, 2, frame_read_type=kind), decoder)
    stats = decoder.stats()
    assert stats.groups - stats.group_hits == _num_groups(cameras)
    assert stats.hit_rate == stats.group_hits / stats.groups > 0.5
    tables = [cameras.index_of(file).packets for file in range(len(cameras.filenames))]
    total = sum(int(table.size.sum()) for table in tables)
    assert total <= stats.bytes_moved < 1.3 * total  # open groups share packets
    moved, decoder = stats.bytes_moved, PacketDecoder(cameras, packet_cache=0)
    separated(cameras, VideoClipSampler(cameras, 2, frame_read_type=kind), decoder)
    stats = decoder.stats()
    assert (stats.hit_rate, stats.group_hits) == (0, 0)
    assert stats.bytes_moved > 4 * moved


@pytest.mark.parametrize("packet_cache", [0, TINY, "64MB"])
def test_streams_decode_each_group_once(packet_cache: Any, index: Path) -> None:
    dataset = MultiCameraDataset(index, cameras=["front", "side"], processing=PLAIN)  # closed groups
    decoder = PacketDecoder(dataset, packet_cache=packet_cache)
    separated(dataset, VideoClipSampler(dataset, 2, frame_read_type="stream"), decoder)
    assert decoder.stats().packets_decoded == num_packets(dataset) == decoder.stats().frames_delivered
    assert decoder.stats().frame_hits > 0


def test_a_budget_for_some_of_the_streams(index: Path) -> None:
    """What is kept is used: groups that are read side by side do not drive one another out."""
    dataset = MultiCameraDataset(index, cameras=["front", "side"], processing=PLAIN)
    streams = list(VideoClipSampler(dataset, 3, frame_read_type="stream"))
    decoded = []
    for frames in (0, 6, 12, 24, 60):
        decoder = PacketDecoder(dataset, memory_budget=frames * 64 * 48 * 3)
        loader = packet_loader(dataset, streams, decoder, in_order=True)
        for _ in decoder(loader):
            assert _held_bytes(decoder) <= frames * 64 * 48 * 3
        decoded.append(decoder.stats().packets_decoded)
    assert decoded == sorted(decoded, reverse=True)
    assert decoded[-1] == num_packets(dataset) < decoded[0]


@pytest.mark.parametrize("lost", [{0}, {8, 9, 10}, set(range(1, 20))])
def test_where_batches_get_lost_packets_are_read_again(
    lost: set[int], cameras: MultiCameraDataset, wanted: dict[str, list[dict[str, Any]]]
) -> None:
    for kind, packet_cache in (("stream", "64MB"), ("random", 3 * TINY), ("random", "64MB")):
        decoder = PacketDecoder(cameras, packet_cache=packet_cache)
        sampler = VideoClipSampler(cameras, 2, frame_read_type=kind)  # type: ignore[arg-type]
        found = list(decoder(Losing(packet_loader(cameras, sampler, decoder), lost)))
        assert differences(found, [b for n, b in enumerate(wanted[kind]) if n not in lost]) == []
        assert decoder.stats().groups_reread > 0 or packet_cache != "64MB"


def test_packets_that_were_never_sent(cameras: MultiCameraDataset) -> None:
    known = frozenset((file, 0) for file in range(len(cameras.filenames)))
    batch = PacketDataset(cameras)[PacketRequest(0, known)]
    assert batch.num_bytes == 0
    with pytest.raises(SourceError, match="packet 0 were neither sent nor cached; use this decoder"):
        PacketDecoder(cameras).decode(batch)


def test_ledgers_that_are_told_the_same_agree() -> None:
    random = np.random.default_rng(3)
    one, other = GroupLedger(100), GroupLedger(100)
    held: dict[int, int] = {}
    sizes = random.integers(1, 60, 40).tolist() + [101]
    for key in random.integers(0, 41, 2000).tolist():
        size = sizes[key]
        found = one.visit(key, size)
        assert found == other.visit(key, size)
        assert found[0] == (key in held)
        for dropped in found[1]:
            del held[dropped]
        if size <= 100:
            held[key] = size
        assert sum(held.values()) == one.held_bytes <= 100
        assert all(one.has(each) == (each in held) for each in range(41))
    assert not one.has(40)  # larger than all there is


def test_what_is_kept_holds_no_file_open(clip_folder: Path) -> None:
    paths = help.few_files(clip_folder)
    found = help.run(help.packets_with_few_open_files, paths=paths, limit=24)
    assert found == help.truth(help.make_dataset(paths))


# --- errors ---------------------------------------------------------------------------------------------------------


def _outcomes(dataset: FrameDataset, batches: Sequence[Sequence[int]], **options: Any) -> list[Any]:
    """For each batch by itself what it gives, or its error."""
    found: list[Any] = []
    for batch in batches:
        try:
            found += separated(dataset, [batch], **options)
        except FramefeedError as error:
            found.append((type(error), error.path, _message(error)))
    return found


def _direct_outcomes(dataset: FrameDataset, batches: Sequence[Sequence[int]]) -> list[Any]:
    found: list[Any] = []
    for batch in batches:
        try:
            found += list(VideoLoader(dataset, batch_sampler=[list(batch)]))
        except FramefeedError as error:
            found.append((type(error), error.path, _message(error)))
    return found


def _message(error: FramefeedError | str) -> str:
    """Without the byte where a file ends: of what lies behind it, that is where it should begin."""
    return re.sub(r"cut off at byte \d+", "cut off", str(error))


def _noise(folder: Path) -> str:
    noisy(str(folder / "one" / "right.mp4"), 5)
    return str(folder / "one" / "right.mp4")


def _cut_off(folder: Path) -> str:
    cut(str(folder / "two" / "left.mp4"), 6)
    return str(folder / "two" / "left.mp4")


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("spoil", [_noise, _cut_off])
def test_damage_is_told_as_the_loader_tells_it(spoil: Callable[[Path], str], in_order: bool, copy: Path) -> None:
    path = spoil(copy)
    dataset = _pair(copy)
    batches = [[number] for number in range(24)]
    wanted = _direct_outcomes(dataset, batches)
    bad = [number for number, outcome in enumerate(wanted) if isinstance(outcome, tuple)]
    assert 0 < len(bad) < 12
    assert {wanted[number][:2] for number in bad} == {(DecodeError, path)}
    found = _outcomes(dataset, batches, in_order=in_order)
    assert [found[number] for number in bad] == [wanted[number] for number in bad]
    good = [number for number in range(24) if number not in bad]
    assert differences([found[number] for number in good], [wanted[number] for number in good]) == []
    # And in one go, in batches of two, without the bad ones.
    decoder = PacketDecoder(dataset, on_error="skip")
    pairs = [[number, number + 12] for number in range(12)]
    left = [[number for number in pair if number not in bad] for pair in pairs]
    options = {"num_workers": 2, "multiprocessing_context": "fork", "in_order": in_order}
    found = within(30, lambda: separated(dataset, pairs, decoder, **options))
    assert differences(found, direct(dataset, [batch for batch in left if batch])) == []
    assert sorted(map(_message, decoder.skip_reasons)) == sorted(wanted[number][2] for number in bad)
    assert decoder.stats().skipped == len(bad)
    assert _held_bytes(decoder) == 0
    with pytest.raises(DecodeError, match="cannot be decoded exactly"):
        within(30, lambda: separated(dataset, pairs, num_workers=1, multiprocessing_context="fork"))


def test_frames_of_a_damaged_group_are_not_tried_again(copy: Path) -> None:
    _noise(copy)
    dataset = _pair(copy, cameras=["right"])
    decoder = PacketDecoder(dataset, on_error="skip")
    found = separated(dataset, [[number] for number in range(12)], decoder, in_order=True)
    assert len(found) == 12 - decoder.stats().skipped
    # The two good groups once, the damaged one a few times to find out which frames can be had.
    assert decoder.stats().packets_decoded < 30


@pytest.mark.parametrize("num_workers", [0, 2])
def test_files_that_change_or_vanish_later(num_workers: int, copy: Path) -> None:
    dataset = _pair(copy)
    options: dict[str, Any] = {"num_workers": num_workers}
    if num_workers:
        options["multiprocessing_context"] = "fork"
    os.utime(copy / "one" / "right.mp4", (1, 1))
    with pytest.raises(FileChanged, match="index it again") as caught:
        within(30, lambda: separated(dataset, [[13], [3]], **options))
    assert caught.value.path == str(copy / "one" / "right.mp4")
    (copy / "two" / "left.mp4").unlink()
    with pytest.raises(SourceError, match="no such file") as gone:
        within(30, lambda: separated(dataset, [[13], [3]], **options))
    assert gone.value.path == str(copy / "two" / "left.mp4")
    decoder = PacketDecoder(dataset, on_error="skip")
    assert within(30, lambda: separated(dataset, [[13], [3, 14], [0]], decoder, **options)) == []
    assert decoder.stats().skipped == len(decoder.skip_reasons) == 4


def test_good_groups_of_failed_samples_are_kept(copy: Path) -> None:
    """Only one camera fails: the other one's packets came, and are not sent again."""
    dataset = _pair(copy)
    os.utime(copy / "one" / "right.mp4", (1, 1))
    decoder = PacketDecoder(dataset, on_error="skip")
    assert separated(dataset, [[0], [1], [2]], decoder) == []
    stats = decoder.stats()
    assert (stats.groups, stats.group_hits, stats.skipped) == (6, 2, 3)


def test_batches_before_an_error_are_delivered(copy: Path) -> None:
    dataset = _pair(copy)
    os.utime(copy / "two" / "left.mp4", (1, 1))
    decoder = PacketDecoder(dataset)
    iterator = decoder(packet_loader(dataset, [[0], [1], [2], [12]], decoder))
    assert [numbers_in(next(iterator)["frames"]) for _ in range(3)] == [[n, n + 100] for n in range(3)]
    with pytest.raises(FileChanged):
        next(iterator)


def test_sizes_that_do_not_fit(copy: Path) -> None:
    plain_camera(copy / "one" / "right.mp4", 12, 100, width=80)
    dataset = _pair(copy)
    batches = [[0, 12], [13]]
    with pytest.raises(FrameSizeError, match="give scale_width") as caught:
        separated(dataset, batches)
    wanted = _direct_outcomes(dataset, batches)
    assert wanted[0] == (FrameSizeError, caught.value.path, _message(caught.value))
    decoder = PacketDecoder(dataset, on_error="skip")
    assert differences(separated(dataset, batches, decoder), direct(dataset, [[12], [13]])) == []
    large = _pair(copy, processing={"x": ProcessDesc(width=70)}, get_label=clip_of)
    with pytest.raises(FrameSizeError, match=r"left\.mp4: cannot be processed as 'x' says"):
        separated(large, [[0]])


def test_a_killed_worker(paths: list[str]) -> None:
    """Batches that came before are delivered; there is an error, no hang, and the decoder is as good as before."""
    child = help.start(help.packets_with_killed_worker, paths=paths, sample=17)
    assert child.wait(20) != 0
    # What torch says depends on what its main process was doing: waiting for a batch, or fetching one from the worker.
    told = r"DataLoader worker .*(killed|exited unexpectedly)|Connection(Reset|Refused)Error|EOFError|FileNotFoundError"
    assert re.search(told, child.errors)
    *before, after = child.lines
    expected = help.truth(help.make_dataset(paths))
    assert help.flat(before) == expected[: 4 * len(before)]
    assert len(before) <= 4
    assert after == {"rows": expected, "held": 0}


def test_errors_of_others_come_through(cameras: MultiCameraDataset, index: Path) -> None:
    decoder = PacketDecoder(cameras)
    with pytest.raises(IndexError, match="no sample 61"):
        separated(cameras, [[0], [61]], decoder)

    def stop(*_: Any) -> Any:
        raise StopIteration

    dataset = MultiCameraDataset(index, processing=PLAIN, get_label=stop)
    with pytest.raises(RuntimeError, match="get_label raised StopIteration"):
        separated(dataset, [[0]])


def test_a_defect_in_a_job_is_raised(cameras: MultiCameraDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = PacketDecoder(cameras, on_error="skip")

    def fail(*_: Any, **__: Any) -> None:
        raise LookupError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(decoder._workshop, "take", fail)
        with pytest.raises(LookupError, match="a defect"):
            separated(cameras, [[0], [1]], decoder, in_order=True)
    assert soon(lambda: _held_bytes(decoder) == 0)
    assert differences(separated(cameras, [[0], [1]], decoder), direct(cameras, [[0], [1]])) == []


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"on_error": "ignore"}, '"raise" or "skip"'),
        ({"num_threads": 0}, "num_threads must be at least 1"),
        ({"packet_cache": "much"}, "no amount of memory"),
        ({"packet_cache": -1}, "at least 0"),
        ({"memory_budget": -1}, "at least 0"),
        ({"device": "mps"}, "not supported"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PacketDecoder(PLAIN, **options)


# --- threads and memory ---------------------------------------------------------------------------------------------


def test_threads_end_with_the_decoder(cameras: MultiCameraDataset) -> None:
    gc.collect()
    before = packet_threads()
    decoder = PacketDecoder(cameras, num_threads=3)
    separated(cameras, _some(cameras), decoder)
    assert len(packet_threads() - before) == 3
    seen = weakref.ref(decoder)
    del decoder
    assert seen() is None  # nothing keeps it but its user
    assert soon(lambda: not packet_threads() - before)


def test_threads_end_where_an_iteration_is_let_go_of(cameras: MultiCameraDataset) -> None:
    gc.collect()
    before = packet_threads()
    iterator = PacketDecoder(cameras, num_threads=2)(
        DataLoader(PacketDataset(cameras), 4, collate_fn=PacketDataset.collate)
    )
    next(iterator)
    del iterator
    assert soon(lambda: not packet_threads() - before)


def test_after_close_nothing_is_decoded(cameras: MultiCameraDataset) -> None:
    before = packet_threads()
    with PacketDecoder(cameras) as decoder:
        loader = packet_loader(cameras, [[number] for number in range(20)], decoder, in_order=True)
        iterator = decoder(loader)
        next(iterator)
    with pytest.raises(RuntimeError, match="closed"):
        for _ in iterator:
            pass
    with pytest.raises(RuntimeError, match="the decoder is closed"):
        decoder.decode(PacketDataset(cameras)[0])
    with pytest.raises(RuntimeError, match="the decoder is closed"):
        list(loader)
    decoder.close()
    assert soon(lambda: not packet_threads() - before and _held_bytes(decoder) == 0)


def test_memory_is_used_again(cameras: MultiCameraDataset) -> None:
    """No more frames are held than the budget says, and their memory goes round."""
    budget = 40 * 64 * 48 * 3
    decoder = PacketDecoder(cameras, memory_budget=budget)
    sampler = VideoClipSampler(cameras, 2, frame_read_type="stream")
    loader = packet_loader(cameras, sampler, decoder)
    for stop in (3, 1000, 5, 1000):
        for number, _ in enumerate(decoder(loader)):
            assert 0 <= _held_bytes(decoder) <= budget
            if number == stop:
                break
        assert soon(lambda: _held_bytes(decoder) == 0)
    assert decoder._workshop.memory_peak <= budget
    workshop: Any = decoder._workshop
    given_back = sum(len(free) for free in workshop._store._free.values())
    assert given_back * 64 * 48 * 3 == decoder._workshop.memory_held


def test_packets_of_past_groups_are_let_go_of(cameras: MultiCameraDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a packet cache, streams hold the groups that they are in and no others."""
    most: list[int] = []
    original = GroupStore.begin_batch

    def begin_batch(self: GroupStore) -> None:
        most.append(len(self._decoded))
        assert not self._kept
        original(self)

    monkeypatch.setattr(GroupStore, "begin_batch", begin_batch)
    decoder = PacketDecoder(cameras, packet_cache=0)
    separated(cameras, VideoClipSampler(cameras, 2, frame_read_type="stream"), decoder)
    assert 0 < max(most) <= 8


def test_several_threads_may_decode(cameras: MultiCameraDataset) -> None:
    decoder = PacketDecoder(cameras, num_threads=2)
    packets = PacketDataset(cameras)
    batches = _some(cameras, 3, 24)
    found: dict[int, dict[str, Any]] = {}

    def decode(part: int) -> None:
        for number in range(part, len(batches), 4):
            found[number] = decoder.decode(packets.__getitems__(batches[number]))

    threads = [threading.Thread(target=decode, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert differences([found[number] for number in range(len(batches))], direct(cameras, batches)) == []


# --- processes ------------------------------------------------------------------------------------------------------


def test_control_c_ends_it(paths: list[str]) -> None:
    child = help.start(help.packets_slowly, paths=paths, repeats=8)
    child.until_printed(1)
    os.kill(child.pid, signal.SIGINT)
    begin = time.monotonic()
    assert child.wait(20) != 0
    assert time.monotonic() - begin < 8
    assert "KeyboardInterrupt" in child.errors
    assert "Fatal" not in child.errors


def test_a_process_ends_while_it_decodes(paths: list[str]) -> None:
    for child in [help.start(help.exit_with_packets, paths=paths, repeats=20) for _ in range(2)]:
        assert child.wait(15) == 0, child.errors
        assert child.lines[0] == help.truth(help.make_dataset(paths), numbers=range(4))


def test_a_forked_process_decodes_on_its_own(paths: list[str]) -> None:
    child = help.start(help.packets_after_fork, paths=paths)
    assert child.wait(20) == 0, child.errors
    expected = help.truth(help.make_dataset(paths))
    in_child, in_parent = child.lines
    assert in_child == expected
    assert in_parent == {"code": 0, "rest": expected, "rows": expected}, child.errors
