"""Several ranks: together they have the epoch; each goes on where it was; their number may change between epochs."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from framefeed import VideoLoader
from framefeed.dataset.orders import Layout, resolve
from framefeed.loader.epochs import OrderedEpochs
from helpers import state_help as help

WORLDS = (1, 2, 4)
BATCH_SIZE = 3
Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def paths(clip_folder: Path) -> list[str]:
    return help.few_files(clip_folder)


def _on_ranks(world: int, call: Callable[..., None], each: list[dict[str, Any]] | None = None, **same: Any) -> Ranks:
    """What a function prints on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        children = [
            help.start_quick(
                call, store=f"{folder}/store", rank=rank, world=world, **same, **(each[rank] if each else {})
            )
            for rank in range(world)
        ]
        return [child.result(60) for child in children]


@pytest.fixture(scope="module")
def epochs_of(paths: list[str]) -> Callable[[int], Ranks]:
    """What each rank does in two epochs; the processes are shared by all tests."""

    @functools.cache
    def epochs(world: int) -> Ranks:
        return _on_ranks(world, help.rank_epochs, paths=paths, orders=help.ORDERS, batch_size=BATCH_SIZE)

    return epochs


@pytest.fixture(scope="module")
def expected(paths: list[str]) -> list[list[str]]:
    return [sorted(help.truth(help.make_dataset(paths), epoch)) for epoch in range(3)]


# --- sharing out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("order", help.ORDERS)
def test_ranks_share_the_epoch(
    order: str, world: int, epochs_of: Callable[[int], Ranks], expected: list[list[str]]
) -> None:
    ranks = [rank[order] for rank in epochs_of(world)]
    for number, name in enumerate(("first", "second")):
        parts = [help.flat(rank[name]) for rank in ranks]
        assert sorted(help.flat(parts)) == expected[number]  # each sample once, on one rank
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
    assert [len(rank["first"]) for rank in ranks] == [rank["length"] for rank in ranks]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("order", help.ORDERS)
def test_without_last_batches_all_ranks_have_equally_many(
    order: str, world: int, epochs_of: Callable[[int], Ranks], expected: list[list[str]]
) -> None:
    ranks = [rank[order] for rank in epochs_of(world)]
    assert {len(rank["full"]) for rank in ranks} == {rank["full_length"] for rank in ranks} == {36 // world // 3}
    assert all(len(batch) == BATCH_SIZE for rank in ranks for batch in rank["full"])
    found = help.flat(help.flat(rank["full"]) for rank in ranks)
    assert len(set(found)) == len(found)
    assert set(found) <= set(expected[0])


def test_one_rank_is_like_no_ranks(paths: list[str], epochs_of: Callable[[int], Ranks]) -> None:
    (alone,) = epochs_of(1)
    for order in help.ORDERS:
        loader = help.make_loader(order, paths, batch_size=BATCH_SIZE)
        assert [help.epoch_rows(loader), help.epoch_rows(loader)] == [alone[order]["first"], alone[order]["second"]]


WITH_PIECES = [order for order in help.ORDERS if order != "shuffle"]


@pytest.mark.parametrize("order", ["shuffle", *WITH_PIECES])
def test_uneven_shares_lose_nothing(order: str, paths: list[str]) -> None:
    """26 samples for four ranks, in batches of three."""
    ranks = _on_ranks(4, help.rank_epochs, paths=paths[:4], orders=[order], batch_size=3)
    found = help.flat(help.flat(rank[order]["first"]) for rank in ranks)
    assert sorted(found) == sorted(help.truth(help.make_dataset(paths[:4])))
    assert all(len(rank[order]["first"]) == rank[order]["length"] for rank in ranks)


def _batches(order: str, count: int, world: int, size: int, *, drop_last: bool) -> list[list[list[int]]]:
    """The batches of each rank, without processes; there are as many as announced, and none is empty."""
    layout = Layout.of([[count // 2 + 1], [count - count // 2 - 1]] if count > 2 else [[count]])
    ranks = [OrderedEpochs(resolve(order, False), layout, size, drop_last, 1, rank, world) for rank in range(world)]
    batches = [[batch.tolist() for batch in rank.batches(2, 0)] for rank in ranks]
    assert [len(each) for each in batches] == [len(rank) for rank in ranks]
    assert all(batch for each in batches for batch in each)
    return batches


CASES = list(itertools.product((1, 5, 7, 12, 13, 30), (1, 2, 3, 4, 5), (1, 2, 3, 8)))


@pytest.mark.parametrize("order", ["shuffle", *WITH_PIECES])
def test_any_number_of_ranks_and_samples(order: str) -> None:
    for count, world, size in CASES:
        batches = _batches(order, count, world, size, drop_last=False)
        assert sorted(sample for rank in batches for batch in rank for sample in batch) == list(range(count))


@pytest.mark.parametrize("order", help.ORDERS)
def test_any_number_of_ranks_and_samples_without_last_batches(order: str) -> None:
    for count, world, size in CASES:
        batches = _batches(order, count, world, size, drop_last=True)
        found = [sample for rank in batches for batch in rank for sample in batch]
        assert len({len(rank) for rank in batches}) == 1
        assert len(found) == len(set(found)) == count // world // size * size * world


# --- going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_go_on_in_mid_epoch(world: int, paths: list[str], epochs_of: Callable[[int], Ranks]) -> None:
    """Each from its own state, and from that of the first rank."""
    before = epochs_of(world)
    stops = (0, len(before[0]["shuffle"]["states"]) // 2)
    own = [{order: [rank[order]["states"][stop] for stop in stops] for order in help.ORDERS} for rank in before]
    firsts = own[0]
    each = [{"states": {order: states[order] + firsts[order] for order in help.ORDERS}} for states in own]
    resumed = _on_ranks(world, help.rank_resume, each, paths=paths, batch_size=BATCH_SIZE)
    for rank, found in zip(before, resumed, strict=True):
        for order in help.ORDERS:
            rest = [rank[order]["second"][stop + 1 :] for stop in stops]
            assert found[order] == rest * 2


@pytest.mark.parametrize(("saved", "world"), [(2, 4), (4, 2), (2, 1)])
def test_the_number_of_ranks_may_change_between_epochs(
    saved: int, world: int, paths: list[str], epochs_of: Callable[[int], Ranks], expected: list[list[str]]
) -> None:
    old = epochs_of(saved)[saved - 1]
    states = {order: [old[order]["end"], old[order]["states"][0]] for order in help.ORDERS}
    resumed = _on_ranks(world, help.rank_resume, [{"states": states}] * world, paths=paths, batch_size=BATCH_SIZE)
    for order in help.ORDERS:
        following = [found[order][0] for found in resumed]
        assert sorted(help.flat(help.flat(part) for part in following)) == expected[2]
        for found in resumed:
            assert f"with {saved} ranks, not {world}" in found[order][1]
            assert "only change between epochs" in found[order][1]


def test_a_state_before_the_first_batch_is_for_any_number_of_ranks(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths)
    loader.load_state_dict({**loader.state_dict(), "world": 7})


def test_after_the_last_batch_the_number_of_ranks_may_change(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths)
    for _ in loader:
        state = loader.state_dict()
    loader.load_state_dict({**state, "world": 7})


# --- asking for it wrongly ------------------------------------------------------------------------------------------


def test_without_a_process_group(paths: list[str]) -> None:
    assert not torch.distributed.is_initialized()
    with pytest.raises(RuntimeError, match=r"distributed=True needs .*init_process_group"):
        help.make_loader("shuffle", paths, distributed=True)


def test_samplers_share_out_themselves(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("is_initialized", True), ("get_rank", 1), ("get_world_size", 2)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    dataset = help.make_dataset(paths)
    with pytest.raises(ValueError, match="cannot be combined with distributed"):
        VideoLoader(dataset, 2, sampler=list(range(5)), distributed=True)
    with pytest.raises(ValueError, match="cannot be combined with distributed"):
        VideoLoader(dataset, batch_sampler=[[1, 2], [3]], distributed=True)
