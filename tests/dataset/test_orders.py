"""Orders: every sample once, frozen, as random as they say, and as local as they say."""

from __future__ import annotations

import math
import pickle
import time
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from framefeed.dataset.orders import Buffered, Chunked, Layout, Order, Sequential, Shuffle, resolve

from .test_randomness import assert_even

SMALL = [[3, 2], [1], [4, 4]]
UNEVEN = [[1], [20], [1], [2, 1], [7], [1]]  # files of wildly different lengths
RANDOM_ORDERS: list[Order] = [Shuffle(), Chunked(3), Chunked(16), Buffered(0), Buffered(5), Buffered()]
ORDERS: list[Order] = [Sequential(), *RANDOM_ORDERS]

layouts = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), max_size=6).map(Layout.of)
orders = st.one_of(
    st.sampled_from([Sequential(), Shuffle()]),
    st.integers(1, 40).map(Chunked),
    st.integers(0, 100).map(Buffered),
)


def _places(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each sample, where it comes in the order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return places


def _group_stream(layout: Layout, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """What `Buffered` reads, before anything is mixed."""
    return Buffered(0).indices(layout, seed=seed, epoch=epoch)


# --- all orders ---


@settings(max_examples=300, deadline=None)
@given(layout=layouts, order=orders, seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 99), world=st.integers(1, 6))
def test_ranks_share_the_epoch_evenly(layout: Layout, order: Order, seed: int, epoch: int, world: int) -> None:
    parts = [order.indices(layout, seed=seed, epoch=epoch, rank=rank, world=world) for rank in range(world)]
    assert all(part.dtype == np.int64 for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(layout.num_samples))
    lengths = [len(part) for part in parts]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("order", ORDERS, ids=repr)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_large_epochs_are_shared_evenly(order: Order, world: int) -> None:
    layout = Layout.of([[50] * 40, [1], [300], [7] * 1000])
    parts = [order.indices(layout, seed=1, epoch=2, rank=rank, world=world) for rank in range(world)]
    assert np.bincount(np.concatenate(parts), minlength=layout.num_samples).tolist() == [1] * layout.num_samples
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_same_arguments_same_order(order: Order) -> None:
    arrays = [order.indices(Layout.of([[5, 6], [30]]), seed=4, epoch=5, rank=1, world=2).tolist() for _ in range(2)]
    assert arrays[0] == arrays[1]


@pytest.mark.parametrize("order", RANDOM_ORDERS, ids=repr)
def test_other_seeds_and_epochs_give_other_orders(order: Order) -> None:
    layout = Layout.of([[10] * 10] * 5)
    arrays = [order.indices(layout, seed=seed, epoch=epoch) for seed in range(5) for epoch in range(5)]
    assert len({tuple(array.tolist()) for array in arrays}) == len(arrays)


@pytest.mark.parametrize(
    ("order", "whole", "second_half"),
    [
        (Sequential(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], [7, 8, 9, 10, 11, 12, 13]),
        (Shuffle(), [9, 5, 6, 12, 11, 1, 10, 8, 7, 2, 13, 0, 4, 3], [5, 12, 1, 8, 2, 0, 3]),
        (Chunked(3), [1, 6, 7, 8, 9, 10, 11, 5, 12, 13, 2, 3, 4, 0], [5, 12, 13, 2, 3, 4, 0]),
        (Buffered(4), [6, 3, 4, 7, 8, 0, 9, 10, 2, 1, 12, 11, 5, 13], [10, 2, 1, 12, 11, 5, 13]),
    ],
    ids=repr,
)
def test_orders_are_frozen(order: Order, whole: list[int], second_half: list[int]) -> None:
    layout = Layout.of(SMALL)
    assert order.indices(layout, seed=7, epoch=3).tolist() == whole
    assert order.indices(layout, seed=7, epoch=3, rank=1, world=2).tolist() == second_half


@pytest.mark.parametrize("order", [Shuffle(), Chunked(3), Buffered(0), Buffered(2)], ids=repr)
def test_every_permutation_is_equally_likely(order: Order) -> None:
    layout = Layout.of([[1]] * 4)  # each sample is a chunk and a group of its own
    numbers = {permutation: number for number, permutation in enumerate(permutations(range(4)))}
    drawn = [numbers[tuple(order.indices(layout, seed=3, epoch=epoch).tolist())] for epoch in range(5000)]
    assert_even(np.bincount(drawn, minlength=24))


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_a_million_samples_are_ordered_fast(order: Order) -> None:
    layout = Layout.of([[50] * 5] * 4000)
    began = time.perf_counter()
    assert len(order.indices(layout, seed=0, epoch=0)) == 10**6
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize("order", ORDERS, ids=repr)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": -1}, "seed has to be in 0"),
        ({"epoch": -1}, "epoch has to be in 0"),
        ({"rank": 2}, r"rank has to be in 0\.\.1, got 2"),
        ({"rank": -1}, r"rank has to be in 0\.\.1, got -1"),
        ({"world": 0}, "world has to be in 1"),
    ],
)
def test_arguments_are_checked(order: Order, changed: dict[str, int], message: str) -> None:
    arguments = {"seed": 0, "epoch": 0, "rank": 0, "world": 2} | changed
    with pytest.raises(ValueError, match=message):
        order.indices(Layout.of(SMALL), **arguments)


def test_orders_are_values() -> None:
    assert len({Chunked(8), Chunked(8), Chunked(9), Buffered(8), Buffered(8), Shuffle(), Shuffle(), Sequential()}) == 5
    assert [repr(order) for order in (Sequential(), Shuffle(), Chunked(8), Buffered())] == [
        "Sequential()",
        "Shuffle()",
        "Chunked(chunk_size=8)",
        "Buffered(buffer_size=1024)",
    ]
    assert repr(Chunked(np.int64(8))) == repr(Chunked(8))  # type: ignore[arg-type]
    for order in ORDERS:
        assert pickle.loads(pickle.dumps(order)) == order


@pytest.mark.parametrize("size", [0, -1, 2**53 + 1])
def test_chunk_size_is_checked(size: int) -> None:
    with pytest.raises(ValueError, match=rf"chunk_size has to be in 1\.\.{2**53}, got {size}"):
        Chunked(size)


@pytest.mark.parametrize("size", [-1, 2**53 + 1])
def test_buffer_size_is_checked(size: int) -> None:
    with pytest.raises(ValueError, match=rf"buffer_size has to be in 0\.\.{2**53}, got {size}"):
        Buffered(size)


@pytest.mark.parametrize("order", [Chunked(2**53), Buffered(2**53)], ids=repr)
def test_largest_sizes_work(order: Order) -> None:
    assert sorted(order.indices(Layout.of(SMALL), seed=0, epoch=0).tolist()) == list(range(14))


# --- the layout ---


def test_layout_from_group_lengths() -> None:
    layout = Layout.of(SMALL)
    assert layout.num_samples == 14
    assert layout.files.tolist() == [0, 5, 6]
    assert layout.groups.tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert layout.group_starts.tolist() == [0, 3, 5, 6, 10]


def test_groups_are_looked_up_once_and_only_if_needed() -> None:
    calls = []

    def find_groups() -> NDArray[np.int64]:
        calls.append(1)
        return np.array([0, 0, 1, 1])

    layout = Layout(4, np.array([0, 2]), find_groups)
    for order in (Sequential(), Shuffle(), Chunked(2)):
        order.indices(layout, seed=0, epoch=0)
    assert len(calls) == 0
    for epoch in range(3):
        Buffered(2).indices(layout, seed=0, epoch=epoch)
    assert len(calls) == 1


def test_groups_of_two_files_may_have_the_same_number() -> None:
    layout = Layout(4, np.array([0, 2]), lambda: np.zeros(4, np.int64))
    assert layout.group_starts.tolist() == [0, 2]


@pytest.mark.parametrize(("count", "files"), [(3, [1]), (3, []), (3, [0, 3]), (3, [0, 2, 2]), (3, [0, 2, 1]), (0, [0])])
def test_files_are_checked(count: int, files: list[int]) -> None:
    with pytest.raises(ValueError, match="files must rise"):
        Layout(count, np.array(files, np.int64), lambda: np.zeros(count, np.int64))


def test_number_of_groups_is_checked() -> None:
    with pytest.raises(ValueError, match="got 2 for 3 samples"):
        _ = Layout(3, np.array([0]), lambda: np.zeros(2, np.int64)).groups


# --- sequential and shuffle ---


def test_sequential_ranks_have_pieces() -> None:
    parts = [Sequential().indices(Layout.of([[7]]), seed=0, epoch=0, rank=rank, world=3) for rank in range(3)]
    assert np.concatenate(parts).tolist() == list(range(7))


@pytest.mark.parametrize("world", [2, 3, 4])
def test_shuffle_steps_are_runs_of_the_permutation(world: int) -> None:
    layout = Layout.of([[12]])
    whole = Shuffle().indices(layout, seed=1, epoch=1)
    parts = [Shuffle().indices(layout, seed=1, epoch=1, rank=rank, world=world) for rank in range(world)]
    assert np.stack(parts, axis=1).reshape(-1).tolist() == whole.tolist()


# --- chunked ---


def _agrees(places: NDArray[np.int64], first: int, stop: int, chunk_size: int, phase: int) -> bool:
    """Whether the file's chunks with this phase are runs of the ring."""
    samples = np.arange(first, stop - 1)
    together = (samples - first + phase) // chunk_size == (samples + 1 - first + phase) // chunk_size
    return bool(((places[samples + 1] - places[samples] - 1) % len(places) == 0)[together].all())


@settings(max_examples=200, deadline=None)
@given(layout=layouts, size=st.integers(1, 12), epoch=st.integers(0, 10**6))
def test_chunks_are_runs_of_one_file(layout: Layout, size: int, epoch: int) -> None:
    places = _places(Chunked(size).indices(layout, seed=0, epoch=epoch))
    bounds = [*layout.files.tolist(), layout.num_samples]
    for first, stop in pairwise(bounds):
        assert any(_agrees(places, first, stop, size, phase) for phase in range(size))


def test_chunks_have_their_size() -> None:
    order = Chunked(10).indices(Layout.of([[10_000], [7]]), seed=0, epoch=0)
    runs = np.diff(np.flatnonzero(np.diff(order, prepend=-5, append=-5) != 1))
    assert (runs == 10).mean() > 0.95  # others lie at the ends of files, or two happen to be in order


def test_chunks_of_two_files_never_are_one() -> None:
    # Three files of five make three chunks in any of the six orders: runs over files come by chance alone.
    layout = Layout.of([[5], [5], [5]])
    epochs = 1000
    places = [_places(Chunked(100).indices(layout, seed=0, epoch=epoch)) for epoch in range(epochs)]
    follows = sum(int((place[5] - place[4]) % 15 == 1) for place in places)
    assert 0.4 < follows / epochs < 0.6  # in a ring of three, the second file follows the first half of the time


def test_every_sample_is_equally_likely_at_every_place() -> None:
    layout = Layout.of(UNEVEN)
    counts = np.zeros((layout.num_samples, layout.num_samples), np.int64)
    for epoch in range(6000):
        order = Chunked(4).indices(layout, seed=11, epoch=epoch)
        counts[np.arange(len(order)), order] += 1
    for of_place in counts:
        assert_even(of_place)


def test_each_file_has_its_own_even_phase() -> None:
    size = 4
    layout = Layout.of([[200], [200]])
    counts = np.zeros((size, size), np.int64)
    for epoch in range(3000):
        places = _places(Chunked(size).indices(layout, seed=2, epoch=epoch))
        phases = [[p for p in range(size) if _agrees(places, first, first + 200, size, p)] for first in (0, 200)]
        assert [len(found) for found in phases] == [1, 1]
        counts[phases[0][0], phases[1][0]] += 1
    assert_even(counts)


def test_chunked_ranks_have_pieces_of_the_stream() -> None:
    layout = Layout.of(UNEVEN)
    whole = Chunked(3).indices(layout, seed=1, epoch=1)
    for world in (2, 3, 4):
        parts = [Chunked(3).indices(layout, seed=1, epoch=1, rank=rank, world=world) for rank in range(world)]
        assert np.concatenate(parts).tolist() == whole.tolist()


# --- buffered ---


@settings(max_examples=200, deadline=None)
@given(layout=layouts, epoch=st.integers(0, 10**6))
def test_groups_are_read_once_and_in_order(layout: Layout, epoch: int) -> None:
    stream = _group_stream(layout, seed=0, epoch=epoch)
    groups = layout.groups[stream]
    is_first = np.diff(groups, prepend=-1) != 0
    assert is_first.sum() == len(np.unique(groups))
    assert (np.diff(stream)[~is_first[1:]] == 1).all()


@settings(max_examples=300, deadline=None)
@given(layout=layouts, size=st.integers(0, 60), epoch=st.integers(0, 10**6), world=st.integers(1, 3))
def test_no_sample_moves_further_than_the_buffer(layout: Layout, size: int, epoch: int, world: int) -> None:
    _check_replay(layout, size, epoch=epoch, world=world)


@pytest.mark.parametrize("size", [0, 1, 2, 10, 100, 1000, 100_000])
def test_no_sample_moves_further_than_the_buffer_at_length(size: int) -> None:
    most = _check_replay(Layout.of([[30] * 50, [700], [1] * 300]), size, epoch=1, world=1)
    if 10 <= size <= 1000:
        assert most > size / 4  # the room is used


def _check_replay(layout: Layout, size: int, *, epoch: int, world: int) -> int:
    """Reads the groups as the order needs them; gives the most samples that were held."""
    stream = _group_stream(layout, seed=0, epoch=epoch)
    most = 0
    for rank in range(world):
        piece = stream[layout.num_samples * rank // world : layout.num_samples * (rank + 1) // world]
        order = Buffered(size).indices(layout, seed=0, epoch=epoch, rank=rank, world=world)
        places = _places(stream)
        if not len(order):
            continue
        number_read = places[order] - places[piece[0]]  # each one's number in the piece
        assert sorted(number_read.tolist()) == list(range(len(piece)))
        assert (np.abs(number_read - np.arange(len(order))) <= size).all()
        held = np.maximum.accumulate(number_read) + 1 - np.arange(len(order))  # with the one that is handed out
        assert held.max() <= max(1, size)
        most = max(most, int(held.max()))
    return most


@pytest.mark.parametrize("size", [100, 1000])
def test_buffer_mixes_evenly(size: int) -> None:
    layout = Layout.of([[100_000]])
    moved = _places(Buffered(size).indices(layout, seed=0, epoch=0)) - np.arange(100_000)
    inner = moved[size:-size]
    assert abs(inner.std() / (size / math.sqrt(12)) - 1) < 0.02  # as far as an even delay in [0, size)
    # Without the ends, which others' delays blur; edges lie between whole numbers, so that all bins are equally wide.
    counts = np.histogram(inner, 8, (-0.4 * size - 0.5, 0.4 * size - 0.5))[0]
    assert counts.min() > 0.9 * counts.max()


def test_order_of_groups_is_even_and_without_mixing_as_they_lie() -> None:
    layout = Layout.of([[5, 1], [9], [2]])
    numbers = {permutation: number for number, permutation in enumerate(permutations(range(4)))}
    counts = np.zeros(24, np.int64)
    for epoch in range(5000):
        groups = layout.groups[_group_stream(layout, seed=0, epoch=epoch)].tolist()
        counts[numbers[tuple(dict.fromkeys(groups))]] += 1
    assert_even(counts)


# --- by name ---


@pytest.mark.parametrize(
    ("name", "order"),
    [
        ("sequential", Sequential()),
        ("shuffle", Shuffle()),
        ("exact", Shuffle()),
        ("chunked", Chunked(16)),
        ("chunked:8", Chunked(8)),
        ("buffered", Buffered(1024)),
        ("buffered:4096", Buffered(4096)),
        ("buffered:0", Buffered(0)),
    ],
)
def test_orders_by_name(name: str, order: Order) -> None:
    assert resolve(name, False) == order
    assert resolve(order.name, False) == order
    assert resolve(order, False) is order


def test_without_an_order_shuffle_decides() -> None:
    assert resolve(None, False) == Sequential()
    assert resolve(None, True) == Shuffle()


@pytest.mark.parametrize("order", ["shuffle", "sequential", Shuffle(), "nonsense"])
def test_either_shuffle_or_order(order: str | Order) -> None:
    with pytest.raises(ValueError, match="shuffle and order cannot be combined"):
        resolve(order, True)


@pytest.mark.parametrize(
    "order", ["", "random", "Shuffle", "shuffle:3", "chunked:", "chunked:-1", "chunked:a", "buffered:1.5", 7, Shuffle]
)
def test_unknown_orders(order: str) -> None:
    with pytest.raises(ValueError, match=r'unknown order .*expected "sequential", "shuffle".*"buffered:4096"'):
        resolve(order, False)


def test_sizes_in_names_are_checked() -> None:
    with pytest.raises(ValueError, match="chunk_size has to be in 1"):
        resolve("chunked:0", False)
