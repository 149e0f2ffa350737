"""Several ranks that decode packets: together they have the batches of one, and each goes on where it was."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from framefeed import MultiCameraDataset, PacketDecoder, VideoClipSampler
from helpers import state_help as help
from helpers.cameras_help import PLAIN, differences, direct, numbers_in, packet_loader, separated, write_cameras

KINDS: tuple[Any, ...] = ("stream", "random")


@pytest.fixture(scope="module")
def index(clip_folder: Path) -> Path:
    return write_cameras(clip_folder)


@pytest.fixture(scope="module")
def dataset(index: Path) -> MultiCameraDataset:
    return MultiCameraDataset(index, cameras=["front", "rear"], processing=PLAIN)


def _on_ranks(world: int, states: Iterable[Any] = itertools.repeat(None), **options: Any) -> list[dict[str, Any]]:
    """What each rank has done, in processes that know of one another by gloo."""
    with tempfile.TemporaryDirectory() as folder:
        children = [
            help.start_quick(help.rank_packets, store=f"{folder}/store", rank=rank, world=world, state=state, **options)
            for rank, state in zip(range(world), states, strict=False)
        ]
        return [child.result(60) for child in children]


def _painted(dataset: MultiCameraDataset, sampler: VideoClipSampler) -> list[list[int]]:
    """What the batches of a sampler show."""
    sampler.set_epoch(1)
    return [numbers_in(batch["frames"]) for batch in direct(dataset, sampler)]


@pytest.mark.parametrize(("kind", "world"), [("stream", 2), ("random", 2), ("random", 4)])
def test_ranks_share_the_batches_of_one_and_go_on(
    kind: Any, world: int, dataset: MultiCameraDataset, index: Path
) -> None:
    alone = _painted(dataset, VideoClipSampler(dataset, 2, frame_read_type=kind, seed=3))
    ranks = _on_ranks(world, index=str(index), kind=kind, stop=None)
    found = [rank["batches"] for rank in ranks]
    assert [len(batches) for batches in found] == [rank["length"] for rank in ranks]
    assert sorted(itertools.chain.from_iterable(found)) == sorted(alone)
    frames = [number for batches in found for batch in batches for number in batch]
    assert len(set(frames)) == len(frames) == 2 * len(dataset)
    stopped = _on_ranks(world, index=str(index), kind=kind, stop=3)
    assert [rank["batches"] for rank in stopped] == [batches[:3] for batches in found]
    states = [rank["state"] for rank in stopped]
    resumed = _on_ranks(world, states, index=str(index), kind=kind, stop=None)
    assert [rank["batches"] for rank in resumed] == [batches[3:] for batches in found]


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_by_number(kind: Any, world: int, dataset: MultiCameraDataset) -> None:
    """Without processes: the same decoder takes the place of each rank in turn."""
    decoder = PacketDecoder(dataset)
    ranks = [VideoClipSampler(dataset, 1, frame_read_type=kind, rank=rank, world=world) for rank in range(world)]
    found = [separated(dataset, sampler, decoder) for sampler in ranks]
    assert [len(batches) for batches in found] == [len(sampler) for sampler in ranks]
    for sampler, batches in zip(ranks, found, strict=True):
        assert differences(batches, direct(dataset, sampler)) == []
    shown = [numbers_in(batch["frames"]) for batches in found for batch in batches]
    whole = [numbers_in(batch["frames"]) for batch in direct(dataset, [[n] for n in range(len(dataset))])]
    assert sorted(shown) == sorted(whole)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_numbers_of_batches(kind: Any, world: int, dataset: MultiCameraDataset) -> None:
    ranks = [
        VideoClipSampler(dataset, 1, frame_read_type=kind, rank=rank, world=world, drop_uneven=True)
        for rank in range(world)
    ]
    assert len({len(separated(dataset, sampler)) for sampler in ranks} | {len(sampler) for sampler in ranks}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_goes_on_in_mid_epoch(kind: Any, dataset: MultiCameraDataset) -> None:
    """With workers that are ahead: what counts are the batches that were handed out."""

    def make() -> VideoClipSampler:
        return VideoClipSampler(dataset, 2, frame_read_type=kind, seed=1, rank=1, world=2)

    whole = direct(dataset, make())
    for stop in (1, 4):
        sampler, decoder = make(), PacketDecoder(dataset)
        loader = packet_loader(dataset, sampler, decoder, num_workers=1, multiprocessing_context="fork")
        state = None
        for done, _ in enumerate(decoder(loader), 1):
            state = sampler.state_dict(done)
            if done == stop:
                break
        assert state is not None
        again = make()
        again.load_state_dict(state)
        decoder = PacketDecoder(dataset)
        assert differences(separated(dataset, again, decoder), whole[stop:]) == []
        assert decoder.stats().groups_reread == 0
