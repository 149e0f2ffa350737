"""Cameras, and packets that worker processes read, on a GPU: the same tensors by every path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from benchmarks.camera_clips import write_camera_clips
from framefeed import MultiCameraDataset, PacketDataset, PacketDecoder, ProcessDesc, VideoClipSampler, VideoLoader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

PROCESSING = {
    "frames": ProcessDesc(type="byte"),
    "small": ProcessDesc(type="half", scale_width=80, scale_height=48, normalized=True, random_flip=True),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drive")
    return write_camera_clips(folder, clips=4, cameras=3, frames=24, width=192, height=160, gop=8, kilobits=400)


def _same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> bool:
    return len(found) == len(wanted) and all(
        torch.equal(one[name], other[name]) for one, other in zip(found, wanted, strict=True) for name in PROCESSING
    )


@pytest.mark.parametrize("read_type", ["stream", "random"])
@pytest.mark.parametrize("budget", [0, "20MB", "1GB"])
def test_all_paths_give_the_same(read_type: Any, budget: int | str, index: Path) -> None:
    dataset = MultiCameraDataset(index, processing=PROCESSING, device="cuda")
    sampler = VideoClipSampler(dataset, 2, frame_read_type=read_type)
    batches = list(sampler)
    plain = []
    for numbers in batches[::7]:
        samples = dataset.__getitems__(numbers)
        plain.append({name: torch.stack([sample[name] for sample in samples]) for name in PROCESSING})
    for workers in (0, 2):
        loader = VideoLoader(dataset, batch_sampler=sampler, memory_budget=budget, num_workers=workers)
        found = list(loader)
        assert found[0]["frames"].device.type == "cuda"
        assert found[0]["frames"].shape == (2, 3, 1, 3, 160, 192)
        assert _same(found[::7], plain), workers
    for cache in (0, "1MB"):
        with PacketDecoder(dataset, packet_cache=cache, memory_budget=budget) as decoder:
            packets = PacketDataset(dataset)
            requests = decoder.requests(dataset, sampler)
            separated = DataLoader(packets, batch_sampler=requests, num_workers=2, collate_fn=packets.collate)
            assert _same(list(decoder(separated))[::7], plain), cache


def test_workers_never_use_the_gpu(index: Path) -> None:
    dataset = MultiCameraDataset(index, processing=PROCESSING, device="cuda")
    torch.zeros(1, device="cuda")
    for context in ("fork", "spawn"):
        loader = VideoLoader(dataset, 4, num_workers=1, multiprocessing_context=context)
        assert len(list(loader)) == len(loader)
