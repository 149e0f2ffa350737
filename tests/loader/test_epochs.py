"""A loader that knows how many epochs there will be looks across their borders; what comes out is the same."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import SequentialSampler

from framefeed import DecodeError, ProcessDesc, VideoDataset, VideoLoader
from framefeed.dataset.orders import Layout, Sequential
from framefeed.loader.epochs import OrderedEpochs, across
from helpers.clips_help import clip, clips_of, loader_threads, noisy_copy
from waiting import soon

NAMES = ["bframes.mp4", "open_gop.mp4", "hevc.mp4", "thirty.mp4"]
FRAME = 3 * 64 * 48
RANDOM = {"part": ProcessDesc(type="byte", width=20, height=16, random_crop=True, random_flip=True)}
EPOCHS = 3
ORDERS = ["sequential", "shuffle", "chunked:4", "buffered:32"]


def _dataset(folder: Path, **arguments: Any) -> VideoDataset:
    return VideoDataset([str(path) for path in clips_of(NAMES, folder)], **arguments)


def _loader(folder: Path, num_epochs: int = EPOCHS, **arguments: Any) -> VideoLoader:
    chosen = {"batch_size": 7, "order": "shuffle", "seed": 5, "drop_last": False, "memory_budget": 60 * FRAME}
    return VideoLoader(_dataset(folder, processing=RANDOM), **{**chosen, **arguments}, num_epochs=num_epochs)


def _batches(iterator: Iterator[dict[str, Any]]) -> list[torch.Tensor]:
    return [batch["part"] for batch in iterator]


def _same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def _truth(folder: Path, count: int = EPOCHS, **arguments: Any) -> list[list[torch.Tensor]]:
    loader = _loader(folder, 1, **arguments)
    return [_batches(iter(loader)) for _ in range(count)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("budget", [0, 20, 120, 1000])
def test_the_same_comes_out(order: str, budget: int, clip_folder: Path) -> None:
    """And also where there are more epochs than were told."""
    truth = _truth(clip_folder, EPOCHS + 1, order=order)
    loader = _loader(clip_folder, order=order, memory_budget=budget * FRAME)
    for epoch in range(EPOCHS + 1):
        assert loader.epoch == max(0, epoch - 1)
        iterator = iter(loader)
        assert _same(_batches(iterator), truth[epoch]), epoch
        assert iterator.finished and iterator.epoch == epoch and iterator.position == len(loader)
        assert list(iterator) == []
    assert soon(lambda: loader._budget.taken == 0)
    assert loader.stats().memory_peak <= budget * FRAME


@pytest.mark.parametrize(("share", "most"), [(0.5, 0.85), (1.0, 0.35)])
def test_less_is_decoded(share: float, most: float, clip_folder: Path) -> None:
    decoded = []
    for num_epochs in (1, 4):
        dataset = _dataset(clip_folder)
        budget = int(share * len(dataset) * FRAME)
        loader = VideoLoader(dataset, 8, order="shuffle", memory_budget=budget, num_threads=2, num_epochs=num_epochs)
        for _ in range(4):
            for _ in loader:
                pass
        assert soon(lambda: not loader_threads())
        decoded.append(loader.stats().packets_decoded)
    assert decoded[1] <= most * decoded[0]


def test_the_first_batches_of_the_next_epoch_are_there(clip_folder: Path) -> None:
    """They are decoded while the consumer is still between the epochs."""
    loader = _loader(clip_folder, order="sequential", memory_budget=0)
    iterator = iter(loader)
    assert _batches(iterator)
    assert loader._going_on is not None
    board = loader._going_on._feed._board
    assert soon(lambda: len(board.open) == 3 and not any(batch.remaining for batch in board.open))


def test_the_last_batch_is_the_end(clip_folder: Path) -> None:
    """Also for those who count batches, and do not ask for one more."""
    truth = _truth(clip_folder)
    loader = _loader(clip_folder)
    for epoch in range(EPOCHS):
        batches = [batch["part"] for _, batch in zip(range(len(loader)), loader, strict=False)]
        assert _same(batches, truth[epoch])
        assert (loader._going_on is not None) == (epoch + 1 < EPOCHS)
    assert soon(lambda: loader._budget.taken == 0)


@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("how", ["set", "load"])
def test_what_was_done_for_another_epoch_is_let_go(epoch: int, how: str, clip_folder: Path) -> None:
    loader = _loader(clip_folder)
    state = loader.state_dict() | {"epoch": epoch}
    assert _batches(iter(loader))
    assert soon(lambda: loader._budget.taken > 0)
    if how == "set":
        loader.set_epoch(epoch)
    else:
        loader.load_state_dict(state)
    assert (loader._going_on is not None) == (epoch == 1)
    assert epoch == 1 or soon(lambda: loader._budget.taken == 0)
    assert _same(_batches(iter(loader)), _truth(clip_folder)[epoch])


def _leave(loader: VideoLoader) -> None:
    next(iter(loader))


def _set_other(loader: VideoLoader) -> None:
    loader.set_epoch(2)


def _set_next(loader: VideoLoader) -> None:
    loader.set_epoch(1)


def _begin_two(loader: VideoLoader) -> None:
    one, other = iter(loader), iter(loader)
    for _ in zip(one, other, strict=True):
        pass


def _begin_two_and_leave_one(loader: VideoLoader) -> None:
    one, other = iter(loader), iter(loader)
    assert _batches(one)
    assert next(other)


@pytest.mark.parametrize("what", [_leave, _set_other, _set_next, _begin_two, _begin_two_and_leave_one])
def test_whatever_is_done_between_epochs(what: Any, clip_folder: Path) -> None:
    truth = _truth(clip_folder, 6)
    loader = _loader(clip_folder, 6)
    assert _same(_batches(iter(loader)), truth[0])
    what(loader)
    for _ in range(2):
        iterator = iter(loader)
        assert _same(_batches(iterator), truth[iterator.epoch])
    del iterator
    assert soon(lambda: len(_feeds()) == 1), "others than the one that goes on"


def _feeds() -> list[Any]:
    """Those that have not been ended."""
    from framefeed.loader.feed import _feeds

    gc.collect()
    return [feed for feed in _feeds if not feed._board.closed]


@pytest.mark.parametrize("batches", [0, 3, None])
def test_states(batches: int | None, clip_folder: Path) -> None:
    """A loader goes on where another one was, in mid-epoch or between two."""
    truth = _truth(clip_folder)
    loader = _loader(clip_folder)
    assert _same(_batches(iter(loader)), truth[0])
    iterator = iter(loader)
    taken = [next(iterator)["part"] for _ in range(len(truth[1]) if batches is None else batches)]
    state = loader.state_dict()
    other = _loader(clip_folder)
    assert _same(_batches(iter(other)), truth[0])
    other.load_state_dict(state)
    if batches is not None:
        assert _same([*taken, *_batches(iter(other))], truth[1])
    assert _same(_batches(iter(other)), truth[2])


@pytest.mark.parametrize("how", ["between", "within"])
def test_all_is_gone_with_the_loader(how: str, clip_folder: Path) -> None:
    before = loader_threads()
    loader = _loader(clip_folder)
    assert _batches(iter(loader))
    workshop = weakref.ref(loader._workshop)
    iterator = iter(loader) if how == "within" else None
    del loader, iterator
    assert soon(lambda: workshop() is None and loader_threads() <= before)


def test_memory_is_free_after_the_last_epoch(clip_folder: Path) -> None:
    loader = _loader(clip_folder, 2)
    assert _batches(iter(loader))
    assert soon(lambda: loader._budget.taken > 0)  # for the second
    assert _batches(iter(loader))
    assert soon(lambda: loader._budget.taken == 0 and loader._going_on is None)


@pytest.mark.parametrize("on_error", ["skip", "raise"])
def test_bad_samples(on_error: str, clip_folder: Path, tmp_path: Path) -> None:
    """Each epoch has the error of each of them again, wherever it is in the epoch."""
    good = clip("bframes.mp4", clip_folder)
    bad = noisy_copy(good, 12, tmp_path / "bad.mp4")
    found: list[list[int]] = []
    for num_epochs in (1, EPOCHS):
        dataset = VideoDataset([str(good), str(bad)], processing=RANDOM)
        loader = VideoLoader(dataset, 4, seed=5, order="shuffle", on_error=on_error, num_epochs=num_epochs)  # type: ignore[arg-type]
        seen = []
        for _ in range(EPOCHS):
            iterator = iter(loader)
            while True:
                try:
                    seen.append(len(next(iterator)["part"]))
                except StopIteration:
                    break
                except DecodeError:
                    seen.append(-1)
        found.append(seen)
        assert (-1 in seen) == (on_error == "raise")
    assert found[0] == found[1]


def test_what_cannot_be_known(clip_folder: Path) -> None:
    dataset = _dataset(clip_folder)
    with pytest.raises(ValueError, match="num_epochs > 1 cannot be combined"):
        VideoLoader(dataset, 4, sampler=SequentialSampler(dataset), num_epochs=2)
    with pytest.raises(ValueError, match="num_epochs > 1 cannot be combined"):
        VideoLoader(dataset, 4, num_workers=1, num_epochs=2)
    with pytest.raises(ValueError, match="num_epochs must be at least 1"):
        VideoLoader(dataset, 4, num_epochs=0)
    assert len(VideoLoader(dataset, 4, sampler=SequentialSampler(dataset), num_epochs=1)) > 0


def test_across() -> None:
    epochs = OrderedEpochs(Sequential(), Layout.of([[5], [2]]), 3, False, 0)
    found = [(each.epoch, each.samples.tolist(), each.is_last) for each in across(epochs, 1, 2, 3)]
    assert found == [(1, [6], True), (2, [0, 1, 2], False), (2, [3, 4, 5], False), (2, [6], True)]
    assert list(across(epochs, 1, 3, 3)) == []


def test_threads_of_several_loaders(clip_folder: Path) -> None:
    """One that rests between epochs does not keep another from working."""
    truth = _truth(clip_folder)
    loaders = [_loader(clip_folder, num_threads=2) for _ in range(3)]
    results: dict[int, bool] = {}

    def read(which: int) -> None:
        results[which] = all(_same(_batches(iter(loaders[which])), truth[epoch]) for epoch in range(EPOCHS))

    threads = [threading.Thread(target=read, args=(which,)) for which in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {0: True, 1: True, 2: True}
