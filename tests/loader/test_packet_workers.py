"""A loader whose packets are read by worker processes: the same batches, and nothing that hangs."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, RandomSampler

import clips
from framefeed import ProcessDesc, SourceError, VideoDataset, VideoLoader
from framefeed.loader.packet_workers import THREAD, PacketWorkers
from helpers.clips_help import (
    MIXED,
    Truth,
    clip,
    clips_of,
    loader_threads,
    noisy_copy,
    numbers_of,
    start_of,
    within,
    wrong_samples,
)
from waiting import soon

DESCS = {
    "small": ProcessDesc(type="byte", scale_width=32, scale_height=24, random_flip=True),
    "part": ProcessDesc(type="half", width=20, height=16, random_crop=True, normalized=True),
}
FRAME = 3 * 64 * 48
BYTES = {"frames": ProcessDesc(type="byte")}


@pytest.fixture(scope="module")
def truth(clip_folder: Path) -> Truth:
    names = [name for name in MIXED if name != "one_frame.mp4"]
    return Truth(clips_of(names, clip_folder), 3, 2, DESCS, 0)


def _dataset(truth: Truth) -> VideoDataset:
    return VideoDataset(
        truth.paths, truth.length, frame_stride=truth.stride, processing=truth.processing, get_label=start_of
    )


@pytest.mark.parametrize(
    ("order", "budget", "cache", "workers"),
    [
        ("sequential", 0, "64MiB", 1),
        ("sequential", 10**9, 0, 2),
        ("shuffle", 40 * FRAME, "64MiB", 2),
        ("shuffle", 10**9, "20kB", 2),
        ("buffered:32", 60 * FRAME, 0, 2),
    ],
)
def test_batches_equal_a_linear_decode(order: str, budget: int, cache: int | str, workers: int, truth: Truth) -> None:
    loader = VideoLoader(
        _dataset(truth),
        16,
        order=order,
        drop_last=False,
        memory_budget=budget,
        num_workers=workers,
        packet_cache=cache,
        num_threads=2,
    )
    for _ in range(2):  # the workers live on
        loader.set_epoch(0)
        batches = within(60, lambda loader=loader: list(loader))  # type: ignore[misc]
        assert sorted(numbers_of(batches, truth)) == list(range(len(truth)))
        assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
    stats = loader.stats()
    assert stats.groups > 0 and stats.bytes_moved > 0
    assert (stats.group_hits > 0) == (cache != 0)
    assert len(multiprocessing.active_children()) <= workers
    del loader
    assert soon(lambda: not multiprocessing.active_children(), 10)


@pytest.mark.parametrize("name", ["edit_two_parts", "edit_repeats", "edit_goes_back", "edit_starts_in_group"])
def test_packets_that_an_edit_list_hides(name: str, clip_folder: Path) -> None:
    """No frame needs some of them, so workers do not send them."""
    dataset = VideoDataset(clips.make(name, clip_folder), 2, processing=BYTES)
    for order in ("shuffle", "sequential", "chunked:4"):
        for seed in range(2):
            given: dict[str, Any] = {"order": order, "seed": seed, "drop_last": False, "memory_budget": 6000}
            with_workers = VideoLoader(dataset, 4, num_workers=1, **given)
            for one, other in zip(with_workers, VideoLoader(dataset, 4, **given), strict=True):
                assert torch.equal(one["frames"], other["frames"])


def test_workers_that_are_spawned(truth: Truth) -> None:
    loader = VideoLoader(
        _dataset(truth), 16, shuffle=True, drop_last=False, num_workers=1, multiprocessing_context="spawn"
    )
    batches = within(60, lambda: list(loader))
    assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []


def test_a_sampler_is_asked_once(truth: Truth) -> None:
    dataset = _dataset(truth)
    asked = []

    class Counting(BatchSampler):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                asked.append(batch)
                yield batch

    loader = VideoLoader(dataset, batch_sampler=Counting(RandomSampler(dataset), 16, drop_last=False), num_workers=2)
    batches = within(60, lambda: list(loader))
    assert [number for batch in asked for number in batch] == numbers_of(batches, truth)


def test_an_error_of_a_sampler_is_not_lost(truth: Truth) -> None:
    def batches() -> Any:
        yield [0, 1]
        raise KeyError("mine")

    class Bad:
        def __iter__(self) -> Any:
            return batches()

    loader = VideoLoader(_dataset(truth), batch_sampler=Bad(), num_workers=1)
    iterator = iter(loader)
    assert len(within(30, lambda: next(iterator))["labels"]) == 2
    with pytest.raises(KeyError, match="mine"):
        within(30, lambda: next(iterator))


def test_leaving_early_and_two_at_once(truth: Truth) -> None:
    loader = VideoLoader(_dataset(truth), 8, shuffle=True, drop_last=False, num_workers=1)
    for _ in range(3):
        iterator = iter(loader)
        within(30, lambda iterator=iterator: next(iterator))  # type: ignore[misc]
        iterator.close()
    loader.set_epoch(0)
    one = iter(loader)
    loader.set_epoch(0)
    two = iter(loader)
    first = within(30, lambda: next(one))
    assert torch.equal(first["small"], within(30, lambda: next(two))["small"])
    batches = [first, *within(60, lambda: list(one))]
    assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
    two.close()
    assert soon(lambda: not loader_threads(), 10)
    assert soon(lambda: not [thread for thread in threading.enumerate() if thread.name == THREAD], 10)


def test_going_on_from_a_state(truth: Truth) -> None:
    def make() -> VideoLoader:
        return VideoLoader(_dataset(truth), 16, shuffle=True, drop_last=False, num_workers=1)

    loader = make()
    whole = within(60, lambda: list(loader))
    again = make()
    iterator = iter(again)
    for _ in range(3):
        within(30, lambda: next(iterator))
    state = again.state_dict()
    iterator.close()
    other = make()
    other.load_state_dict(state)
    rest = within(60, lambda: list(other))
    assert [batch["labels"] for batch in rest] == [batch["labels"] for batch in whole[3:]]
    assert all(torch.equal(one["small"], two["small"]) for one, two in zip(rest, whole[3:], strict=True))


def test_what_is_kept_is_sent_once(truth: Truth) -> None:
    loader = VideoLoader(_dataset(truth), 8, shuffle=True, drop_last=False, num_workers=2, memory_budget=0)
    first = within(60, lambda: list(loader))
    moved = loader.stats().bytes_moved
    total = sum(os.path.getsize(path) for path in truth.paths)
    assert 0 < moved < 1.3 * total  # open groups share packets
    loader.set_epoch(0)
    second = within(60, lambda: list(loader))
    assert loader.stats().bytes_moved == moved  # and not again in the next epoch
    iterator = iter(loader)
    within(30, lambda: next(iterator))
    iterator.close()  # what is kept then is kept
    loader.set_epoch(0)
    third = within(60, lambda: list(loader))
    assert loader.stats().bytes_moved == moved
    for batches in (first, second, third):
        assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
    assert [batch["labels"] for batch in third] == [batch["labels"] for batch in first]


def test_batches_without_end(truth: Truth) -> None:
    class Endless:
        def __iter__(self) -> Any:
            return itertools.repeat([3, 1])

    loader = VideoLoader(_dataset(truth), batch_sampler=Endless(), num_workers=1)
    for _ in range(2):
        loader.set_epoch(0)
        iterator = within(30, lambda: iter(loader))
        for _ in range(100):
            batch = within(30, lambda iterator=iterator: next(iterator))  # type: ignore[misc]
            assert wrong_samples([batch], truth, [3, 1]) == []
        iterator.close()


def test_a_cache_that_holds_a_few_groups(truth: Truth) -> None:
    sizes = []
    for cache in (0, "6kB", "60kB", "1GiB"):
        loader = VideoLoader(_dataset(truth), 4, shuffle=True, num_workers=1, packet_cache=cache, memory_budget=0)
        batches = within(60, lambda loader=loader: list(loader))  # type: ignore[misc]
        assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
        sizes.append(loader.stats().bytes_moved)
    assert sizes == sorted(set(sizes), reverse=True)


def test_a_file_that_is_gone(clip_folder: Path, tmp_path: Path) -> None:
    paths = [shutil.copy(clip("bframes.mp4", clip_folder), tmp_path / f"{number}.mp4") for number in range(2)]
    dataset = VideoDataset([str(path) for path in paths], processing=BYTES, get_label=start_of)
    os.unlink(paths[0])
    batches = iter(VideoLoader(dataset, 20, num_threads=2, num_workers=1))
    for _ in range(3):
        with pytest.raises(SourceError, match=r"0\.mp4"):
            within(30, lambda: next(batches))
    assert [len(batch["frames"]) for batch in within(30, lambda: list(batches))] == [20, 20, 20]


@pytest.mark.parametrize(("name", "packet"), [("bframes.mp4", 44), ("open_gop.mp4", 17)])
def test_damage_in_a_group(name: str, packet: int, clip_folder: Path, tmp_path: Path) -> None:
    paths = [noisy_copy(clip(name, clip_folder), packet, tmp_path / "damaged.mp4"), clip("rotated.mp4", clip_folder)]
    processing = {"small": ProcessDesc(type="byte", scale_width=64, scale_height=48)}
    dataset = VideoDataset(paths, processing=processing, get_label=start_of)
    found = []
    for workers in (0, 1):
        loader = VideoLoader(dataset, 4, shuffle=True, drop_last=False, on_error="skip", num_workers=workers)
        batches = within(60, lambda loader=loader: list(loader))  # type: ignore[misc]
        report = sorted((skipped.sample, skipped.reason) for skipped in loader.skipped)
        assert report
        found.append((report, {label: t for b in batches for label, t in zip(b["labels"], b["small"], strict=True)}))
    assert found[0][0] == found[1][0]
    assert found[0][1].keys() == found[1][1].keys()
    assert all(torch.equal(found[0][1][label], found[1][1][label]) for label in found[0][1])


def test_a_worker_that_is_killed(truth: Truth) -> None:
    loader = VideoLoader(_dataset(truth), 4, shuffle=True, num_workers=2, packet_cache=0, memory_budget=0)
    iterator = iter(loader)
    next(iterator)
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="DataLoader worker"):
        for _ in range(len(loader)):
            next(iterator)
    iterator.close()
    del iterator
    loader.set_epoch(0)
    assert len(next(iter(loader))["labels"]) == 4  # by other workers


def test_a_worker_that_is_killed_while_it_sends(truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is blamed."""
    begin = PacketWorkers.begin

    def break_off(self: PacketWorkers, requester: Any) -> Iterator[Any]:
        messages = begin(self, requester)
        yield next(messages)
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(PacketWorkers, "begin", break_off)
    loader = VideoLoader(_dataset(truth), 4, shuffle=True, num_workers=1, packet_cache=0, memory_budget=0)
    with pytest.raises(RuntimeError, match="a DataLoader worker ended while it sent packets"):
        list(loader)


def test_a_loader_that_goes_in_a_cycle(truth: Truth) -> None:
    """Its workers end soon, whatever the garbage collector frees first."""
    before = {process.pid for process in multiprocessing.active_children()}
    loader = VideoLoader(_dataset(truth), 16, shuffle=True, num_workers=2)
    assert len(list(loader)) == len(loader)
    processes = [process for process in multiprocessing.active_children() if process.pid not in before]
    assert len(processes) == 2
    cycle: list[Any] = [loader]
    cycle.append(cycle)
    time.sleep(0.2)  # the thread that took the packets refers to it, too
    del loader, cycle
    begin = time.monotonic()
    gc.collect()
    assert soon(lambda: not any(process.is_alive() for process in processes), 60)
    assert time.monotonic() - begin < 9.5  # torch would wait for ten


def test_bad_arguments(truth: Truth) -> None:
    with pytest.raises(ValueError, match="num_workers must be at least 0"):
        VideoLoader(_dataset(truth), num_workers=-1)
