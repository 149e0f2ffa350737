"""Batches of several clips: what is in them, how ranks share them, and where they go on."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from framefeed import MultiCameraDataset, StateError, VideoClipSampler, VideoDataset, VideoLoader
from helpers.cameras_help import PLAIN, differences, direct, numbers_in, write_cameras
from helpers.clips_help import clips_of

COUNTS = (5, 0, 3, 8, 1, 8, 2)
WORLDS = (1, 2, 3, 4)
TYPES: tuple[Any, ...] = ("stream", "random")


class Counts:
    """What a sampler asks of a dataset."""

    def __init__(self, *counts: int) -> None:
        self.counts = np.array(counts, np.int64)

    def __len__(self) -> int:
        return int(self.counts.sum())


def _sampler(group_num: int = 2, *, counts: tuple[int, ...] = COUNTS, **options: Any) -> VideoClipSampler:
    return VideoClipSampler(Counts(*counts), group_num, **options)  # type: ignore[arg-type]


def _flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def _place(sample: int) -> tuple[int, int]:
    """The clip of a sample, and its number there."""
    ends = np.cumsum(COUNTS)
    clip = int(np.searchsorted(ends, sample, side="right"))
    return clip, sample - int(ends[clip] - COUNTS[clip])


# --- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("group_num", [1, 2, 3, 50])
@pytest.mark.parametrize("kind", TYPES)
def test_each_sample_comes_once(kind: Any, group_num: int, shuffle: bool) -> None:
    sampler = _sampler(group_num, frame_read_type=kind, shuffle=shuffle, seed=4)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert sorted(_flat(batches)) == list(range(sum(COUNTS)))
        assert len(batches) == len(sampler)
        assert all(1 <= len(batch) <= group_num for batch in batches)


def test_streams_go_through_clips_together() -> None:
    batches = [[_place(sample) for sample in batch] for batch in _sampler(3, frame_read_type="stream", seed=2)]
    together: list[frozenset[int]] = []
    last: dict[int, int] = {}
    for batch in batches:
        clips = frozenset(clip for clip, _ in batch)
        assert len(clips) == len(batch)
        if not together or not clips <= together[-1]:
            together.append(clips)
        for clip, place in batch:
            assert place == last.get(clip, -1) + 1
            last[clip] = place
    assert [len(clips) for clips in together] == [3, 3]
    assert last == {clip: count - 1 for clip, count in enumerate(COUNTS) if count}


def test_without_shuffling_everything_is_in_order() -> None:
    assert list(_sampler(2, frame_read_type="stream", shuffle=False, counts=(2, 3, 1))) == [[0, 2], [1, 3], [4], [5]]
    assert list(_sampler(4, frame_read_type="random", shuffle=False, counts=(2, 3, 1))) == [[0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("kind", TYPES)
def test_order_is_a_function_of_seed_and_epoch(kind: Any) -> None:
    orders = set()
    for seed, epoch in itertools.product((0, 1, 2**63), range(3)):
        samplers = [_sampler(2, frame_read_type=kind, seed=seed) for _ in range(2)]
        for sampler in samplers:
            sampler.set_epoch(epoch)
        torch.manual_seed(seed)  # has no part in it
        first, second = (list(sampler) for sampler in samplers)
        assert first == second == list(samplers[0])
        orders.add(tuple(_flat(first)))
    assert len(orders) == 9


# --- ranks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", TYPES)
def test_ranks_share_the_batches_of_one(kind: Any, world: int) -> None:
    for epoch, group_num in itertools.product(range(3), (1, 2, 4)):
        alone = _sampler(group_num, frame_read_type=kind, seed=1)
        ranks = [_sampler(group_num, frame_read_type=kind, seed=1, rank=rank, world=world) for rank in range(world)]
        for sampler in (alone, *ranks):
            sampler.set_epoch(epoch)
        shares = [list(sampler) for sampler in ranks]
        assert [len(share) for share in shares] == [len(sampler) for sampler in ranks]
        assert sorted(itertools.chain.from_iterable(shares)) == sorted(alone)


def test_six_clips_on_three_ranks() -> None:
    """Whole groups of clips would give 84, 84 and 0 batches."""
    counts = (84,) * 6
    ranks = [_sampler(4, counts=counts, frame_read_type="stream", rank=rank, world=3) for rank in range(3)]
    assert [len(list(sampler)) for sampler in ranks] == [56, 56, 56]


@pytest.mark.parametrize("kind", TYPES)
def test_ranks_differ_by_a_batch_at_most(kind: Any) -> None:
    random = np.random.default_rng(19)
    for _ in range(400):
        counts = tuple(random.integers(0, random.choice([2, 10, 60]), random.integers(1, 12)).tolist())
        group_num, world, epoch = (int(random.integers(1, most)) for most in (9, 9, 4))
        shuffle, drop_uneven = (bool(random.integers(2)) for _ in range(2))
        options = {"counts": counts, "frame_read_type": kind, "shuffle": shuffle, "seed": 5}
        alone = _sampler(group_num, **options)
        alone.set_epoch(epoch)
        batches = list(alone)
        drop_uneven &= len(batches) >= world
        shares = []
        for rank in range(world):
            sampler = _sampler(group_num, rank=rank, world=world, drop_uneven=drop_uneven, **options)
            sampler.set_epoch(epoch)
            share = list(sampler)
            assert len(sampler) == len(share)
            done = int(random.integers(len(share) + 1))
            again = _sampler(group_num, rank=rank, world=world, drop_uneven=drop_uneven, **options)
            again.load_state_dict(json.loads(json.dumps(sampler.state_dict(done))))
            assert list(again) == share[done:]
            shares.append(share)

        lengths = [len(share) for share in shares]
        assert max(lengths) - min(lengths) <= (0 if drop_uneven else 1)
        found = [batch for share in shares for batch in share]
        kept = len(batches) - len(batches) % world if drop_uneven else len(batches)
        assert sorted(found) == sorted(batches[:kept])
        if not drop_uneven:
            assert sorted(_flat(found)) == list(range(sum(counts)))
        ends = np.cumsum(counts)
        for share in shares if kind == "stream" else ():
            places: dict[int, list[int]] = {}
            for batch in share:
                clips = np.searchsorted(ends, batch, side="right").tolist()
                assert len(set(clips)) == len(clips)  # one sample each of several clips
                for clip, sample in zip(clips, batch, strict=True):
                    places.setdefault(clip, []).append(sample)
            for samples in places.values():  # a run of the clip, in its order
                assert samples == list(range(samples[0], samples[0] + len(samples)))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", TYPES)
def test_equal_numbers_of_batches(kind: Any, world: int) -> None:
    for epoch in range(3):
        ranks = [_sampler(1, frame_read_type=kind, rank=r, world=world, drop_uneven=True) for r in range(world)]
        for sampler in ranks:
            sampler.set_epoch(epoch)
        shares = [list(sampler) for sampler in ranks]
        assert len({len(share) for share in shares} | {len(sampler) for sampler in ranks}) == 1
        assert len(shares[0]) > 0
        found = [sample for share in shares for sample in _flat(share)]
        assert len(set(found)) == len(found)
        if kind == "random":
            assert sum(COUNTS) - len(found) < world


def test_nothing_would_be_left_for_anybody() -> None:
    for kind, group_num in (("stream", 1), ("random", 3)):
        with pytest.raises(ValueError, match="fewer batches than the 4 ranks; use a smaller group_num"):
            _sampler(group_num, counts=(1, 2), frame_read_type=kind, rank=0, world=4, drop_uneven=True)


def test_ranks_are_those_of_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (_sampler().rank, _sampler().world) == (0, 1)
    for name, value in (("is_initialized", True), ("get_rank", 1), ("get_world_size", 3)):
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    assert (_sampler().rank, _sampler().world) == (1, 3)
    assert (_sampler(rank=0, world=1).rank, _sampler(rank=0, world=1).world) == (0, 1)


# --- going on -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("kind", TYPES)
def test_goes_on_after_any_batch(kind: Any, world: int) -> None:
    for rank in range(world):
        options = {"frame_read_type": kind, "seed": 6, "rank": rank, "world": world}
        sampler = _sampler(2, **options)
        sampler.set_epoch(3)
        batches = list(sampler)
        for done in range(len(batches) + 1):
            state = json.loads(json.dumps(sampler.state_dict(done)))
            again = _sampler(2, **options)
            again.load_state_dict(state)
            assert again.epoch == 3
            again.set_epoch(3)  # as loops over epochs do
            assert list(again) == batches[done:]
            assert list(again) == batches  # the rest was asked for once
            again.load_state_dict(state)
            again.set_epoch(4)
            sampler.set_epoch(4)
            assert list(again) == list(sampler)
            sampler.set_epoch(3)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"group_num": 3}, "different group_num"),
        ({"frame_read_type": "random"}, "different frame_read_type"),
        ({"seed": 1, "shuffle": False}, "different shuffle, seed"),
        ({"drop_uneven": True}, "different drop_uneven"),
        ({"counts": (5, 3)}, "different clips or clip lengths"),
        ({"rank": 1, "world": 2}, "in mid-epoch with 1 ranks, not 2"),
    ],
)
def test_states_of_others(options: dict[str, Any], why: str) -> None:
    state = _sampler(2, frame_read_type="stream").state_dict(3)
    other = _sampler(**{"group_num": 2, "frame_read_type": "stream", **options})
    with pytest.raises(StateError, match=why):
        other.load_state_dict(state)


def test_between_epochs_the_number_of_ranks_may_change() -> None:
    sampler = _sampler(2, frame_read_type="stream")
    sampler.set_epoch(2)
    other = _sampler(2, frame_read_type="stream", rank=1, world=2)
    other.load_state_dict(sampler.state_dict(0))
    assert other.epoch == 2


@pytest.mark.parametrize("damage", [{"epoch": None}, {"epoch": -1}, {"batches_done": 1.5}, {"batches_done": "x"}])
def test_damaged_states(damage: dict[str, Any]) -> None:
    with pytest.raises(StateError, match="is damaged"):
        _sampler().load_state_dict({**_sampler().state_dict(1), **damage})
    state = _sampler(2, frame_read_type="stream", rank=0, world=2).state_dict(99)
    with pytest.raises(StateError, match="99 batches are done, more than the epoch has"):
        _sampler(2, frame_read_type="stream", rank=1, world=2).load_state_dict(state)
    with pytest.raises(StateError, match="is not a state of"):
        _sampler().load_state_dict([])  # type: ignore[arg-type]
    state = _sampler().state_dict(1)
    del state[next(iter(damage))]
    with pytest.raises(StateError, match="is damaged"):
        _sampler().load_state_dict(state)


# --- wrong arguments, real datasets ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"group_num": 0}, ValueError, "group_num"),
        ({"group_num": 1.5}, TypeError, "group_num"),
        ({"frame_read_type": "both"}, ValueError, '"stream" or "random"'),
        ({"seed": -1}, ValueError, "seed"),
        ({"rank": 0}, ValueError, "must be given together"),
        ({"rank": 2, "world": 2}, ValueError, r"rank must be in 0\.\.world-1"),
        ({"rank": 0, "world": 0}, ValueError, "rank must be in"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        _sampler(**options)
    with pytest.raises(ValueError, match="epoch"):
        _sampler().set_epoch(-1)


def test_no_samples() -> None:
    for kind in TYPES:
        assert list(_sampler(counts=(0, 0), frame_read_type=kind)) == []


@pytest.mark.parametrize("kind", TYPES)
def test_loaders_take_it(kind: Any, clip_folder: Path) -> None:
    dataset = MultiCameraDataset(write_cameras(clip_folder), cameras=["front", "rear"], processing=PLAIN)
    sampler = VideoClipSampler(dataset, 2, frame_read_type=kind)
    loader = VideoLoader(dataset, batch_sampler=sampler)
    for epoch in range(2):
        found = list(loader)
        assert sampler.epoch == epoch
        assert differences(found, direct(dataset, sampler)) == []


def test_files_of_a_video_dataset_are_clips(clip_folder: Path) -> None:
    dataset = VideoDataset(clips_of(["bframes.mp4", "one_frame.mp4", "hevc.mp4"], clip_folder), processing=PLAIN)
    batches = list(VideoClipSampler(dataset, 3, frame_read_type="stream", shuffle=False))
    assert batches[:3] == [[0, 60, 61], [1, 62], [2, 63]]
    assert numbers_in(direct(dataset, batches[2:3])[0]["frames"]) == [2, 2]
