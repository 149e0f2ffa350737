"""The loader: every batch, bit for bit, what a linear decode gives, whatever the order, the threads and the memory."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, WeightedRandomSampler

from framefeed import (
    Buffered,
    Chunked,
    FrameSizeError,
    ProcessDesc,
    Sequential,
    Shuffle,
    SourceError,
    VideoDataset,
    VideoLoader,
)
from framefeed.batch.workshop import CpuWorkshop
from framefeed.decode.cpu.session_cpu import CpuFactory
from framefeed.decode.engine import Engine
from framefeed.loader.decoding import Decoding
from framefeed.request import decode_frames
from helpers.clips_help import (
    MIXED,
    Truth,
    changes_of,
    clip,
    clips_of,
    labels_of,
    loader_threads,
    noisy_copy,
    numbers_of,
    painted_number,
    same_bits,
    settled_stats,
    start_of,
    within,
    wrong_samples,
)
from waiting import soon

FRAME = 3 * 64 * 48  # bytes of a frame that is kept in full size

RANDOM = {
    "small": ProcessDesc(type="byte", scale_width=32, scale_height=24, random_flip=True),
    "part": ProcessDesc(type="half", width=20, height=16, random_crop=True, random_flip=True, normalized=True),
}
KEPT = FRAME + FRAME // 4  # what is kept of a frame for these
BYTES = {"frames": ProcessDesc(type="byte")}

SEQUENCES = {"single": (1, 1), "five": (5, 2)}


def _truth(sequences: str, folder: Path, processing: Mapping[str, ProcessDesc], seed: int = 0) -> Truth:
    length, stride = SEQUENCES[sequences]
    names = [name for name in MIXED if length == 1 or name != "one_frame.mp4"]
    return Truth(clips_of(names, folder), length, stride, processing, seed)


def _dataset(truth: Truth, get_label: Any = start_of) -> VideoDataset:
    dataset = VideoDataset(
        truth.paths,
        truth.length,
        frame_stride=truth.stride,
        processing=truth.processing,
        get_label=get_label,
        seed=truth.seed,
    )
    assert len(dataset) == len(truth)
    return dataset


@pytest.fixture(scope="module")
def truths(clip_folder: Path) -> dict[str, Truth]:
    return {sequences: _truth(sequences, clip_folder, RANDOM) for sequences in SEQUENCES}


@pytest.fixture(scope="module")
def whole(clip_folder: Path) -> Truth:
    """Five frames each, as they are."""
    return _truth("five", clip_folder, BYTES)


# --- every order, budget and number of threads ---

ORDERS = ["sequential", "shuffle", "chunked:4", "buffered:32", "sampler", "batch_sampler", "weighted"]
BUDGETS = {"none": 0, "two frames": 2 * KEPT, "some": 60 * KEPT, "all": 1000 * KEPT}
THREADS = [1, 2, 8]


def _order(name: str, dataset: VideoDataset) -> dict[str, Any]:
    """What a loader is given for an order."""
    if name == "sampler":
        return {"sampler": RandomSampler(dataset), "batch_size": 16}
    if name == "batch_sampler":
        return {"batch_sampler": BatchSampler(RandomSampler(dataset), 11, drop_last=False)}
    if name == "weighted":  # some samples many times, also in one batch, others never
        weights = np.random.default_rng(0).random(len(dataset)) ** 6
        return {"sampler": WeightedRandomSampler(weights.tolist(), len(dataset)), "batch_size": 32}
    return {"order": name, "batch_size": 16}


def _cases() -> Iterator[tuple[str, str, int, str]]:
    """Every order with every budget; threads and lengths take turns, so that each meets each."""
    for row, order in enumerate(ORDERS):
        for column, budget in enumerate(BUDGETS):
            yield order, budget, THREADS[(row + column) % 3], list(SEQUENCES)[(row + column // 2) % 2]


@pytest.mark.parametrize(("order", "budget", "threads", "sequences"), list(_cases()))
def test_batches_equal_a_linear_decode(
    order: str, budget: str, threads: int, sequences: str, truths: dict[str, Truth]
) -> None:
    truth = truths[sequences]
    dataset = _dataset(truth)
    loader = VideoLoader(
        dataset,
        drop_last=False,
        num_threads=threads,
        memory_budget=BUDGETS[budget],
        **_order(order, dataset),
    )
    batches = within(30, lambda: list(loader))  # all are kept: none may be written to again
    numbers = numbers_of(batches, truth)
    if order == "sequential":
        assert numbers == list(range(len(truth)))
    elif order == "weighted":
        assert len(numbers) == len(truth) > 1.5 * len(set(numbers))
        assert any(len(set(batch["labels"])) < len(batch["labels"]) for batch in batches)
    else:
        assert numbers != sorted(numbers) == list(range(len(truth)))
    assert len(loader) == len(batches)
    assert wrong_samples(batches, truth, numbers) == []
    stats = loader.stats()
    assert stats.memory_peak <= BUDGETS[budget]
    if budget == "none":
        assert stats.hits == 0


@pytest.mark.parametrize("at_once", [0, 100])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_batches_as_a_gpu_makes_them(
    order: str, budget: str, threads: int, at_once: int, truths: dict[str, Truth], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that are decoded together, batches that are opened early, frames that go straight into them."""
    monkeypatch.setattr(CpuWorkshop, "frames_together", 40)
    monkeypatch.setattr(CpuWorkshop, "frames_ahead", 60)
    monkeypatch.setattr(CpuWorkshop, "groups_ahead", 4)
    monkeypatch.setattr(CpuWorkshop, "frames_at_once", at_once)
    together: list[int] = []
    decode, choose = CpuWorkshop.decode, Decoding.together

    def count(self: Any, video: Any, source: Any, frames: Any, *more: Any, **options: Any) -> None:
        together.append(len(np.unique(video.starts[list(frames)])))
        decode(self, video, source, frames, *more, **options)

    def check(self: Decoding, job: Any) -> list[Any]:
        jobs = choose(self, job)
        if len(jobs) > 1:  # where little is wanted of a group, it is decoded by itself
            starts = self._videos[job.video].starts
            assert all(2 * len(each.frames) >= (starts == each.start).sum() for each in jobs)
        return jobs

    monkeypatch.setattr(Decoding, "together", check)
    monkeypatch.setattr(CpuWorkshop, "decode", count)
    truth = truths["single"]
    loader = VideoLoader(
        _dataset(truth), 16, order=order, drop_last=False, num_threads=threads, memory_budget=BUDGETS[budget]
    )
    batches = within(30, lambda: list(loader))
    assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
    assert loader.stats().memory_peak <= BUDGETS[budget]
    assert soon(lambda: loader._budget.taken == 0)
    if order == "sequential":
        assert max(together) > 1 or budget in ("none", "two frames")


@pytest.mark.parametrize("buffer_length", [1, 7])
@pytest.mark.parametrize("batch_size", [1, 3, 500])
def test_batch_sizes_and_buffers(batch_size: int, buffer_length: int, truths: dict[str, Truth]) -> None:
    truth = truths["single"]
    loader = VideoLoader(
        _dataset(truth),
        batch_size,
        order="chunked:4",
        drop_last=False,
        buffer_length=buffer_length,
        memory_budget=BUDGETS["two frames"],
        num_threads=3,
    )
    batches = within(30, lambda: list(loader))
    assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []


@pytest.mark.parametrize("order", [Sequential(), Shuffle(), Chunked(4), Buffered(32)], ids=repr)
def test_the_order_is_the_one_that_was_asked_for(order: Any, clip_folder: Path) -> None:
    truth = _truth("single", clip_folder, BYTES)
    dataset = _dataset(truth)
    loader = VideoLoader(dataset, 8, order=order, seed=11, drop_last=False)
    for epoch in range(2):
        wanted = order.indices(dataset.sequences.layout, seed=11, epoch=epoch).tolist()
        assert numbers_of(loader, truth) == wanted


@pytest.mark.parametrize("seed", range(4))
def test_frames_come_back_after_they_were_dropped(seed: int, whole: Truth) -> None:
    """Memory for a part of the epoch, many groups in each batch: frames are kept, dropped and kept again."""
    truth, dataset = whole, _dataset(whole)
    loader = VideoLoader(
        dataset, 2, order="shuffle", seed=seed, drop_last=False, memory_budget=200 * FRAME, num_threads=1 + seed % 3
    )
    batches = within(30, lambda: list(loader))
    assert sorted(numbers_of(batches, truth)) == list(range(len(truth)))
    assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []


def test_a_frame_that_was_given_up_for_a_larger_one_comes_all_the_same(clip_folder: Path) -> None:
    """A large frame is looked at ahead of time and does not fit; a small one that was kept has to come nevertheless."""
    paths = clips_of(["bframes.mp4", "wide.mp4"], clip_folder)
    processing = {"part": ProcessDesc(type="byte", width=32, height=32, random_crop=True)}
    dataset = VideoDataset(paths, processing=processing, get_label=start_of)
    small, large = 0, 60
    loader = VideoLoader(
        dataset,
        2,
        sampler=[small, small + 1, large, small + 2],
        buffer_length=1,
        num_threads=1,
        memory_budget=FRAME + 1000,
    )
    batches = iter(loader)
    time.sleep(0.3)  # the first batch is complete, and the thread looks ahead
    try:
        found = within(5, lambda: list(batches))
    finally:
        batches.close()
    truth = Truth(paths, processing=processing)
    assert wrong_samples(found, truth, [small, small + 1, large, small + 2]) == []


def test_more_files_than_are_kept_open(clip_folder: Path, tmp_path: Path) -> None:
    original = clip("one_frame.mp4", clip_folder)
    paths = []
    for number in range(700):
        paths.append(str(tmp_path / f"{number:03d}.mp4"))
        os.link(original, paths[-1])
    dataset = VideoDataset(paths, processing=BYTES, get_label=start_of)
    loader = VideoLoader(dataset, 50, shuffle=True, memory_budget=20 * FRAME, num_threads=2)
    seen = []
    for batch in loader:
        seen += batch["labels"]
        assert {painted_number(frame[0].numpy()) for frame in batch["frames"]} == {0}
    assert sorted(seen) == [(path, 0) for path in paths]


# --- descriptions ---

DESCRIPTIONS: dict[str, dict[str, ProcessDesc]] = {
    "super-resolution": {
        "input": ProcessDesc(type="half", scale_width=64 / 4, scale_height=48 / 4),  # type: ignore[arg-type]
        "target": ProcessDesc(type="half", index_map=[-1, -1, 0]),
    },
    "only one of five": {"middle": ProcessDesc(type="byte", index_map=[-1, -1, 0])},
    "reordered": {
        "a": ProcessDesc(type="byte", index_map=[2, 0, -1, 1]),
        "b": ProcessDesc(type="byte", index_map=[4, 3, 2, 1, 0], scale_height=20),
    },
    "colours": {
        "rgb": ProcessDesc(type="byte"),
        "ycbcr": ProcessDesc(type="byte", color_space="YCbCr"),
        "scaled": ProcessDesc(color_space="YCbCr", scale_width=40, scale_height=40, normalized=True),
    },
    "types": {
        "float": ProcessDesc(mean=[120.5, 100.25, 90], std=[60, 50.5, 40]),
        "half": ProcessDesc(type="half", normalized=True, mean=0.45, std=[0.2, 0.3, 0.225]),
        "bfloat16": ProcessDesc(
            type="bfloat16", normalized=True, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]
        ),
        "plain": ProcessDesc(type="bfloat16"),
        "plain half": ProcessDesc(type="half"),
        "normalized": ProcessDesc(normalized=True),
    },
    "dimensions": {
        order: ProcessDesc(type=kind, dimension_order=order, scale_width=24, scale_height=20, random_flip=True)  # type: ignore[arg-type]
        for order, kind in [("cfhw", "float"), ("fhwc", "byte"), ("hwcf", "half"), ("whcf", "bfloat16")]
    },
    "crops": {
        "corner": ProcessDesc(type="byte", width=21, height=17, random_flip=True),
        "corner, as it is": ProcessDesc(type="byte", width=21, height=17),
        "middle": ProcessDesc(type="byte", width=20, height=16, center_crop=True, random_flip=True),
        "odd middle": ProcessDesc(type="byte", width=21, height=17, center_crop=True, random_flip=True),
        "anywhere": ProcessDesc(type="byte", width=21, height=17, random_crop=True, random_flip=True),
        "all that there is": ProcessDesc(type="byte", width=64, height=48, random_crop=True),
        "one side": ProcessDesc(type="byte", width=30, random_crop=True),
        "of a scaled one": ProcessDesc(scale_width=40, width=20, height=20, random_crop=True, dimension_order="fhwc"),
        "one line": ProcessDesc(type="half", height=1, random_crop=True, color_space="YCbCr"),
    },
    "larger": {"larger": ProcessDesc(type="byte", scale_width=100, scale_height=77, random_flip=True)},
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_descriptions(name: str, clip_folder: Path) -> None:
    processing = DESCRIPTIONS[name]
    truth = _truth("five", clip_folder, processing, seed=7)
    loader = VideoLoader(
        _dataset(truth), 16, order="chunked:4", drop_last=False, num_threads=2, memory_budget=15 * FRAME, seed=7
    )
    numbers = loader._epochs.order.indices(loader.dataset.sequences.layout, seed=7, epoch=0).tolist()[: 16 * 5]  # type: ignore[attr-defined]
    batches = iter(loader)
    found = within(30, lambda: [next(batches) for _ in range(5)])
    batches.close()
    assert list(found[0]) == [*processing, "labels"]
    assert numbers_of(found, truth) == numbers
    assert wrong_samples(found, truth, numbers) == []


def test_rotated_and_wide_files(clip_folder: Path) -> None:
    """Files of different sizes, made equal by scaling or cropping."""
    paths = clips_of(["rotated.mp4", "wide.mp4", "bframes.mp4"], clip_folder)
    processing = {
        "scaled": ProcessDesc(type="byte", scale_width=40, scale_height=30, random_flip=True),
        "part": ProcessDesc(type="byte", width=31, height=33, random_crop=True, color_space="YCbCr"),
    }
    truth = Truth(paths, 2, 3, processing)
    for budget in (0, 5 * FRAME, 10**8):
        loader = VideoLoader(_dataset(truth), 7, shuffle=True, drop_last=False, memory_budget=budget, num_threads=2)
        batches = within(30, lambda loader=loader: list(loader))  # type: ignore[misc]
        assert sorted(numbers_of(batches, truth)) == list(range(len(truth)))
        assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
        assert loader.stats().memory_peak <= budget


# --- randomness ---


def test_a_sample_is_changed_in_the_same_way_whatever_the_order(truths: dict[str, Truth]) -> None:
    dataset = _dataset(truths["single"], changes_of)

    def changes(seed: int, epoch: int, **options: Any) -> dict[Any, Any]:
        loader = VideoLoader(dataset, 8, seed=seed, drop_last=False, **options)
        loader.set_epoch(epoch)
        return dict(labels_of(loader))

    first = changes(0, 0)
    assert len(first) == len(dataset)
    assert changes(0, 0, order="shuffle", num_threads=8) == first
    assert changes(0, 0, order="buffered:16", memory_budget=0, num_threads=1) == first
    for other in (changes(0, 1), changes(1, 0, order="shuffle")):
        assert other.keys() == first.keys()
        assert sum(other[start] == first[start] for start in first) < 0.1 * len(first)
    flips = [dict(change)["small"].flip for change in first.values()]
    assert 0.4 < np.mean(flips) < 0.6


def test_seed_of_the_loader_and_of_the_dataset(clip_folder: Path) -> None:
    truth = _truth("single", clip_folder, RANDOM, seed=5)
    dataset = _dataset(truth)
    batches = [batch for batch, _ in zip(VideoLoader(dataset, 4, shuffle=True), range(6), strict=False)]
    assert wrong_samples(batches, truth, numbers_of(batches, truth)) == []
    other = Truth(truth.paths, 1, 1, RANDOM, seed=6)
    batches = [batch for batch, _ in zip(VideoLoader(dataset, 4, shuffle=True, seed=6), range(6), strict=False)]
    assert wrong_samples(batches, other, numbers_of(batches, other)) == []


def test_loader_and_dataset_agree(truths: dict[str, Truth]) -> None:
    """In the same epoch, what ``dataset[n]`` is."""
    dataset = _dataset(truths["five"])
    loader = VideoLoader(dataset, 1, shuffle=True)
    loader.set_epoch(3)
    dataset.set_epoch(3)
    for batch, _ in zip(loader, range(10), strict=False):
        (number,) = numbers_of([batch], truths["five"])
        alone = dataset[number]
        assert all(same_bits(batch[name][0], alone[name]) for name in RANDOM)


def test_a_torch_sampler_depends_on_seed_and_epoch_alone(clip_folder: Path) -> None:
    truth = _truth("single", clip_folder, BYTES)
    dataset = _dataset(truth)

    def numbers(seed: int, epoch: int) -> list[int]:
        loader = VideoLoader(dataset, 16, sampler=RandomSampler(dataset), seed=seed, drop_last=False)
        loader.set_epoch(epoch)
        torch.rand(3)
        return numbers_of(loader, truth)

    assert numbers(0, 0) == numbers(0, 0)
    assert len({tuple(numbers(*both)) for both in ((0, 0), (0, 1), (1, 0))}) == 3


class _Slow(SequentialSampler):
    """Takes a while before it draws."""

    def __init__(self, dataset: VideoDataset) -> None:
        super().__init__(dataset)
        self.entered = threading.Event()

    def __iter__(self) -> Iterator[int]:
        self.entered.set()
        time.sleep(0.2)
        yield from torch.randperm(len(self)).tolist()


def test_random_numbers_of_the_consumer_are_its_own(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder))
    sampler = _Slow(dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        wanted = torch.rand(4)
        torch.manual_seed(0)
        batches = iter(VideoLoader(dataset, 4, sampler=sampler))
        sampler.entered.wait(5)
        found = [torch.rand(2)]
        next(batches)
        found.append(torch.rand(2))
        batches.close()
    assert torch.equal(torch.cat(found), wanted)


# --- batches and epochs ---


def test_layout_of_a_batch(clip_folder: Path) -> None:
    path = clip("bframes.mp4", clip_folder)
    processing = {"b": ProcessDesc(type="half", dimension_order="cfhw"), "a": ProcessDesc(type="byte", index_map=[0])}
    (batch, *_) = VideoLoader(VideoDataset(path, 3, processing=processing), 4)
    assert list(batch) == ["b", "a"]
    assert batch["b"].shape == (4, 3, 3, 48, 64) and batch["b"].dtype == torch.float16
    assert batch["a"].shape == (4, 1, 3, 48, 64) and batch["a"].dtype == torch.uint8
    (batch, *_) = VideoLoader(VideoDataset(path, 3, get_label=start_of), 4)
    assert list(batch) == ["default", "labels"]
    assert batch["labels"] == [(path, number) for number in range(4)]


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [16] * 3), (False, [16] * 3 + [12])])
def test_the_last_batch(drop_last: bool, sizes: list[int], clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder), processing=BYTES, get_label=start_of)
    sampler = SequentialSampler(dataset)
    for given in ({}, {"shuffle": True}, {"sampler": sampler}):
        loader = VideoLoader(dataset, 16, drop_last=drop_last, **given)
        assert [len(batch["frames"]) for batch in loader] == sizes
        assert [len(batch["labels"]) for batch in loader] == sizes
        assert len(loader) == len(sizes)
    loader = VideoLoader(dataset, batch_sampler=BatchSampler(sampler, 16, drop_last))
    assert [len(batch["frames"]) for batch in loader] == sizes
    assert len(loader) == len(sizes)


def test_batches_larger_than_the_dataset(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("rotated.mp4", clip_folder), processing=BYTES)
    for given in ({}, {"shuffle": True}, {"sampler": range(24)}):
        with pytest.warns(UserWarning, match="fewer than 25 samples"):
            assert list(VideoLoader(dataset, 25, **given)) == []
    assert list(VideoLoader(dataset, sampler=[])) == list(VideoLoader(dataset, batch_sampler=[])) == []
    (batch,) = VideoLoader(dataset, 25, drop_last=False)
    assert len(batch["frames"]) == 24


def test_an_empty_dataset_has_no_batches() -> None:
    for options in ({}, {"shuffle": True}, {"order": "chunked"}, {"order": "buffered"}):
        loader = VideoLoader(VideoDataset([]), drop_last=False, **options)
        assert len(loader) == 0 and within(5, lambda loader=loader: list(loader)) == []  # type: ignore[misc]


def test_epochs_advance(truths: dict[str, Truth]) -> None:
    truth = truths["single"]
    loader = VideoLoader(_dataset(truth), 16, shuffle=True, drop_last=False, memory_budget=50 * KEPT)
    orders = []
    assert loader.epoch == 0
    for epoch in range(3):
        batches = within(30, lambda: list(loader))
        assert loader.epoch == epoch
        orders.append(numbers_of(batches, truth))
        assert wrong_samples(batches, truth, orders[-1], epoch) == []
    assert len({tuple(order) for order in orders}) == 3
    loader.set_epoch(1)
    assert loader.epoch == 1
    batches = within(30, lambda: list(loader))
    assert numbers_of(batches, truth) == orders[1]
    assert wrong_samples(batches, truth, orders[1], 1) == []
    assert numbers_of(loader, truth) == orders[2]
    with pytest.raises(ValueError, match="at least 0"):
        loader.set_epoch(-1)


@pytest.mark.parametrize("budget", [0, 20 * KEPT, 10**8])
def test_two_iterators_at_once(budget: int, truths: dict[str, Truth]) -> None:
    truth = truths["five"]
    loader = VideoLoader(_dataset(truth), 8, shuffle=True, drop_last=False, memory_budget=budget, num_threads=2)
    both = [iter(loader), iter(loader)]
    found: list[list[dict[str, Any]]] = [[], []]

    def take_turns() -> None:
        for _ in range(len(loader)):
            for place in (0, 1):
                found[place].append(next(both[place]))

    within(30, take_turns)
    for epoch, batches in enumerate(found):
        assert next(both[epoch], None) is None
        numbers = numbers_of(batches, truth)
        assert sorted(numbers) == list(range(len(truth)))
        assert wrong_samples(batches, truth, numbers, epoch) == []


def test_closing_ends_an_iterator(truths: dict[str, Truth]) -> None:
    truth = truths["single"]
    loader = VideoLoader(_dataset(truth), 8, shuffle=True, drop_last=False, memory_budget=10**8, num_threads=3)
    for epoch in range(4):
        batches = iter(loader)
        found = within(30, lambda batches=batches, epoch=epoch: [next(batches) for _ in range(epoch)])  # type: ignore[misc]
        batches.close()
        batches.close()
        assert next(batches, None) is None
        assert wrong_samples(found, truth, numbers_of(found, truth), epoch) == []
        assert soon(lambda: loader_threads() == 0)
    batches = within(30, lambda: list(loader))  # type: ignore[assignment]
    assert wrong_samples(batches, truth, numbers_of(batches, truth), 4) == []


def test_leaving_a_loop_early(truths: dict[str, Truth]) -> None:
    truth = truths["single"]
    loader = VideoLoader(_dataset(truth), 8, shuffle=True, drop_last=False, memory_budget=20 * KEPT, num_threads=2)

    def leave() -> dict[str, Any]:
        for batch in loader:
            return batch
        raise AssertionError

    for epoch in range(10):
        batch = within(30, leave)
        assert wrong_samples([batch], truth, numbers_of([batch], truth), epoch) == []
    assert loader.stats().batches == 10


def test_letting_go_of_an_iterator_ends_it(clip_folder: Path) -> None:
    loader = VideoLoader(VideoDataset(clip("bframes.mp4", clip_folder)), 8, shuffle=True)
    batches = iter(loader)
    next(batches)
    del batches
    gc.collect()
    try:
        assert soon(lambda: loader_threads() == 0, 2)
    finally:
        iter(loader).close()


def test_letting_go_of_the_loader_ends_all(clip_folder: Path) -> None:
    loader = VideoLoader(VideoDataset(clip("bframes.mp4", clip_folder)), 8, shuffle=True)
    next(iter(loader))
    del loader
    gc.collect()
    assert soon(lambda: loader_threads() == 0)


def test_batches_are_not_written_to_again(clip_folder: Path) -> None:
    """Only what the consumer has let go of is used again: a view is enough to hold a batch."""
    dataset = VideoDataset(clips_of(MIXED[:4], clip_folder), processing={"a": ProcessDesc(scale_width=64)})
    views, copies = [], []
    for batch in VideoLoader(dataset, 16, shuffle=True, memory_budget=20 * FRAME):
        views.append(batch["a"][3, 0, 1])
        copies.append(views[-1].clone())
        del batch
    assert all(torch.equal(view, copied) for view, copied in zip(views, copies, strict=True))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_dataset_serves_both_loaders_at_once(truths: dict[str, Truth]) -> None:
    truth = truths["single"]
    dataset = _dataset(truth)
    ours = iter(VideoLoader(dataset, 8, shuffle=True, num_threads=2))
    found = [next(ours)]
    for batch in DataLoader(dataset, 50, num_workers=2, multiprocessing_context="fork", timeout=60):
        assert len(batch["part"])
        found.append(next(ours))
    ours.close()
    assert wrong_samples(found, truth, numbers_of(found, truth)) == []


# --- what was done ---


@pytest.mark.parametrize("order", ["sequential", "buffered:32", "shuffle"])
@pytest.mark.parametrize("sequences", SEQUENCES)
def test_enough_memory_decodes_everything_once(order: str, sequences: str, clip_folder: Path) -> None:
    truth = _truth(sequences, clip_folder, BYTES)
    loader = VideoLoader(_dataset(truth), 8, order=order, drop_last=False, memory_budget=500 * FRAME, num_threads=2)
    batches = within(30, lambda: list(loader))
    stats = settled_stats(loader)
    assert stats.batches == len(loader) == len(batches)
    assert stats.samples_delivered == len(truth)
    assert stats.frames_delivered == len(truth) * truth.length
    frames = sum(
        len({(path, first + truth.stride * place) for path, first in batch["labels"] for place in range(truth.length)})
        for batch in batches
    )
    assert stats.hits + stats.misses == frames
    assert stats.skipped == 0 and loader.skipped == []
    if truth.length == 1:
        assert 1.0 <= stats.decoded_per_delivered <= 1.03
    else:  # each frame is in up to five samples
        assert stats.decoded_per_delivered <= 1.25 / truth.length + 0.03
    sizes = sum(os.path.getsize(path) for path in truth.paths)
    assert 0 < stats.bytes_read <= 1.3 * sizes
    assert stats.wait_seconds > 0
    assert 0 < stats.memory_held <= stats.memory_peak <= 500 * FRAME


@pytest.mark.parametrize("name", ["one_group.mp4", "bframes.mp4"])
@pytest.mark.parametrize("frames", [0, 5, 30])
def test_sequential_order_needs_no_memory(name: str, frames: int, clip_folder: Path) -> None:
    """Decoders are left where they are: whatever does not fit into memory is not decoded from the start again."""
    dataset = VideoDataset(clip(name, clip_folder), processing=BYTES)
    for batch_size in (1, 8):
        loader = VideoLoader(dataset, batch_size, drop_last=False, memory_budget=frames * FRAME, num_threads=1)
        found = [painted_number(frame[0].numpy()) for batch in loader for frame in batch["frames"]]
        assert found == list(range(len(dataset)))
        assert settled_stats(loader).decoded_per_delivered <= 1.5


def test_frames_that_nobody_sees_are_not_decoded(clip_folder: Path) -> None:
    path = clip("bframes.mp4", clip_folder)
    dataset = VideoDataset(path, 5, processing={"first": ProcessDesc(type="byte", index_map=[0])})
    loader = VideoLoader(dataset, 8, memory_budget=10**8, num_threads=1)
    assert [painted_number(frame[0].numpy()) for batch in loader for frame in batch["first"]] == list(range(56))
    assert settled_stats(loader).frames_delivered == 56


@pytest.mark.parametrize("budget", [0, 10 * FRAME, 10**8])
def test_hits_and_misses_of_repeated_samples(budget: int, clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder), processing=BYTES)
    loader = VideoLoader(
        dataset, 4, sampler=[7, 7, 7, 7, 7, 8, 7, 8, 50, 51, 52, 7], memory_budget=budget, num_threads=1
    )
    numbers = [painted_number(frame[0].numpy()) for batch in loader for frame in batch["frames"]]
    assert numbers == [7, 7, 7, 7, 7, 8, 7, 8, 50, 51, 52, 7]
    stats = loader.stats()
    assert stats.hits + stats.misses == 1 + 2 + 4
    assert stats.frames_delivered == 12
    if budget > 10 * FRAME:
        assert stats.hits >= 3


def test_stats_are_a_copy(clip_folder: Path) -> None:
    loader = VideoLoader(VideoDataset(clip("rotated.mp4", clip_folder)), 8)
    before = loader.stats()
    assert len(list(loader)) == 3
    assert before.batches == 0 and before.decoded_per_delivered == 0.0 and before.hit_rate == 0.0
    assert loader.stats().batches == 3


# --- errors ---


def test_different_sizes_in_a_batch_name_the_file(clip_folder: Path) -> None:
    paths = clips_of(["bframes.mp4", "wide.mp4"], clip_folder)
    dataset = VideoDataset(paths, processing={"whole": ProcessDesc(type="byte")}, get_label=start_of)
    batches = iter(VideoLoader(dataset, 16, drop_last=False))
    good = [next(batches) for _ in range(3)]
    with pytest.raises(FrameSizeError, match=r"wide\.mp4: 'whole'.*96x56.*bframes\.mp4 64x48.*scale_width"):
        next(batches)
    good += within(10, lambda: list(batches))
    assert [len(batch["labels"]) for batch in good] == [16, 16, 16, 16, 16, 4]
    truth = Truth(paths, processing={"whole": ProcessDesc(type="byte")})
    assert wrong_samples(good, truth, numbers_of(good, truth)) == []


def test_different_sizes_are_skipped_where_that_is_wanted(clip_folder: Path) -> None:
    paths = clips_of(["bframes.mp4", "wide.mp4"], clip_folder)
    dataset = VideoDataset(paths, processing={"whole": ProcessDesc(type="byte")}, get_label=start_of)
    loader = VideoLoader(dataset, 16, drop_last=False, on_error="skip")
    good = within(10, lambda: list(loader))
    assert [len(batch["labels"]) for batch in good] == [16, 16, 16, 12, 16, 16, 4]
    assert [skipped.sample for skipped in loader.skipped] == [60, 61, 62, 63]
    assert {skipped.path for skipped in loader.skipped} == {paths[1]}
    assert loader.stats().skipped == 4


def test_a_file_that_is_gone(clip_folder: Path, tmp_path: Path) -> None:
    paths = [shutil.copy(clip("bframes.mp4", clip_folder), tmp_path / f"{number}.mp4") for number in range(2)]
    dataset = VideoDataset([str(path) for path in paths], processing=BYTES, get_label=start_of)
    os.unlink(paths[0])
    batches = iter(VideoLoader(dataset, 20, num_threads=2))
    for _ in range(3):
        with pytest.raises(SourceError, match=r"0\.mp4"):
            next(batches)
    assert [len(batch["frames"]) for batch in batches] == [20, 20, 20]


@pytest.mark.parametrize(
    ("name", "packet"),
    [
        ("bframes.mp4", 28),
        ("bframes.mp4", 44),
        ("bframes.mp4", 45),
        ("hevc.mp4", 20),
        ("open_gop.mp4", 17),
        ("vp9.webm", 20),
    ],
)
def test_damage_in_a_group(name: str, packet: int, clip_folder: Path, tmp_path: Path) -> None:
    """The loader leaves out exactly the samples that the dataset cannot give, and hands out nothing that is wrong."""
    paths = [noisy_copy(clip(name, clip_folder), packet, tmp_path / "damaged.mp4"), clip("rotated.mp4", clip_folder)]
    processing = {"small": ProcessDesc(type="byte", scale_width=64, scale_height=48)}
    dataset = VideoDataset(paths, processing=processing, get_label=start_of)
    alone: dict[tuple[str, int], torch.Tensor] = {}
    for number in range(len(dataset)):
        try:
            alone[dataset.locate(number)] = dataset[number]["small"]
        except RuntimeError:
            continue
    assert len(alone) < len(dataset)
    for order in ("sequential", "shuffle"):
        for budget in (0, 10 * FRAME, 10**8):
            loader = VideoLoader(
                dataset, 4, order=order, drop_last=False, on_error="skip", memory_budget=budget, num_threads=1
            )
            found = {
                label: tensor
                for batch in within(30, lambda loader=loader: list(loader))  # type: ignore[misc]
                for label, tensor in zip(batch["labels"], batch["small"], strict=True)
            }
            assert found.keys() == alone.keys()
            assert all(torch.equal(found[start], alone[start]) for start in alone)
            assert {dataset.locate(skipped.sample) for skipped in loader.skipped} == (
                {dataset.locate(number) for number in range(len(dataset))} - alone.keys()
            )
            assert loader.stats().memory_peak <= budget


def test_a_damaged_frame_is_not_handed_out(clip_folder: Path, tmp_path: Path) -> None:
    path = noisy_copy(clip("bframes.mp4", clip_folder), 44, tmp_path / "damaged.mp4")
    dataset = VideoDataset(path, processing=BYTES)
    with pytest.raises(RuntimeError, match="frame 43"):
        dataset[43]
    with pytest.raises(RuntimeError, match="frame 43"):
        next(iter(VideoLoader(dataset, 1, sampler=[43])))


def test_a_damaged_frame_that_was_read_ahead_is_not_handed_out(clip_folder: Path, tmp_path: Path) -> None:
    """Frame 45 is packet 43, frame 43 packet 44, which the decoder refuses; its picture comes out all the same."""
    path = noisy_copy(clip("bframes.mp4", clip_folder), 44, tmp_path / "damaged.mp4")
    dataset = VideoDataset(path, processing=BYTES)
    video, engine = dataset.videos[0], Engine(CpuFactory(), 1)
    got: list[int] = []

    def ask(frame: int, *, read_on: bool) -> None:
        def sink(row: int, picture: Any) -> None:
            got.append(picture.pts)

        decode_frames(engine, video.index, video.source, [frame], sink, num_threads=1, read_on=read_on)

    ask(45, read_on=True)
    with pytest.raises(RuntimeError, match="frame 43"):
        ask(43, read_on=False)
    assert got == [43]


def test_bad_arguments(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("rotated.mp4", clip_folder))
    sampler = SequentialSampler(dataset)
    bad: list[dict[str, Any]] = [
        {"batch_size": 0},
        {"buffer_length": 0},
        {"num_threads": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"on_error": "ignore"},
        {"order": "backwards"},
        {"order": "chunked:0"},
        {"order": "shuffle", "shuffle": True},
        {"sampler": sampler, "shuffle": True},
        {"sampler": sampler, "order": "sequential"},
        {"sampler": sampler, "batch_sampler": BatchSampler(sampler, 2, False)},
        {"batch_sampler": BatchSampler(sampler, 2, False), "batch_size": 2},
        {"memory_budget": -1},
        {"memory_budget": "much"},
        {"memory_budget": "-5MB"},
    ]
    for arguments in bad:
        with pytest.raises(ValueError, match=r"\w"):
            VideoLoader(dataset, **arguments)
    for wrong in ({"batch_size": 1.5}, {"memory_budget": 1.5}, {"num_threads": "2"}):
        with pytest.raises(TypeError):
            VideoLoader(dataset, **wrong)
    with pytest.raises(TypeError, match="needs a VideoDataset or another framefeed dataset, got list"):
        VideoLoader([1, 2, 3])  # type: ignore[arg-type]


def test_a_sampler_that_asks_for_too_much(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("rotated.mp4", clip_folder), processing=BYTES)
    loader = VideoLoader(dataset, 2, sampler=[0, -1, 24], drop_last=False)
    with pytest.raises(IndexError, match=r"sample 24; samples are 0\.\.23"):
        within(5, lambda: list(loader))
    (batch,) = VideoLoader(dataset, 2, sampler=[-24, -1])
    assert [painted_number(np.rot90(frame[0].numpy(), -1, (1, 2))) for frame in batch["frames"]] == [0, 23]


def test_an_error_of_a_sampler_is_not_lost(clip_folder: Path) -> None:
    class Broken(SequentialSampler):
        def __iter__(self) -> Iterator[int]:
            yield from range(5)
            raise ZeroDivisionError("in the sampler")

    dataset = VideoDataset(clip("rotated.mp4", clip_folder))
    loader = VideoLoader(dataset, 2, sampler=Broken(dataset))
    with pytest.raises(ZeroDivisionError, match="in the sampler"):
        within(5, lambda: list(loader))


def test_an_error_of_a_label_is_not_lost(clip_folder: Path) -> None:
    def label(filename: str, frame: int, changes: Any) -> int:
        return 1 // (frame - 5)

    dataset = VideoDataset(clip("rotated.mp4", clip_folder), get_label=label)
    batches = iter(VideoLoader(dataset, 4))
    next(batches)
    with pytest.raises(ZeroDivisionError):
        next(batches)
    assert len(list(batches)) == 4
