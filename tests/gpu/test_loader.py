"""A loader on a GPU yields what the plain path yields there, whatever it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import clips
from framefeed import ProcessDesc, VideoDataset, VideoLoader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

PROCESSING = {
    "half": ProcessDesc(type="half", scale_width=32, scale_height=24, normalized=True, random_flip=True),
    "full": ProcessDesc(type="byte", index_map=[-1, 0], dimension_order="fhwc"),
    "crop": ProcessDesc(scale_width=48, scale_height=40, width=24, height=16, random_crop=True, color_space="YCbCr"),
    "norm": ProcessDesc(type="bfloat16", normalized=True, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.4]),
}


def _files(folder: Path) -> list[Path]:
    found = [clips.make(name, folder) for name in ("h264_b_pyramid", "hevc_open_gop", "h264_open_gop")]
    shapes = [(VideoDataset([path]).videos[0].index.stream.display_size) for path in found]
    return [path for path, shape in zip(found, shapes, strict=True) if shape == shapes[0]]


def _dataset(folder: Path, device: str) -> VideoDataset:
    return VideoDataset(_files(folder), 2, processing=PROCESSING, device=device, get_label=lambda *what: what[:2])


@pytest.mark.parametrize("order", ["sequential", "shuffle", "buffered:16", "chunked:4"])
@pytest.mark.parametrize("budget", [0, "1MB", "1GB"])
def test_batches_equal_the_plain_path(order: str, budget: int | str, clip_folder: Path) -> None:
    dataset = _dataset(clip_folder, "cuda")
    loader = VideoLoader(dataset, 8, order=order, memory_budget=budget, drop_last=False)
    samples = loader._epochs.batches(0, 0)
    count = 0
    for batch, numbers in zip(loader, samples, strict=True):
        for row, number in enumerate(numbers.tolist()):
            plain = dataset[number]
            for name in PROCESSING:
                assert batch[name].device.type == "cuda"
                assert torch.equal(batch[name][row], plain[name]), (number, name)
            assert batch["labels"][row] == plain["labels"]
            count += 1
    assert count == len(dataset)
    assert loader.stats().memory_peak <= loader.memory_budget


def test_batches_are_close_to_the_cpus(clip_folder: Path) -> None:
    on_gpu, on_cpu = (VideoLoader(_dataset(clip_folder, device), 8, shuffle=True, seed=3) for device in ("cuda", "cpu"))
    for one, other in zip(on_gpu, on_cpu, strict=True):
        for name, scale in (("half", 1 / 255), ("full", 1.0), ("crop", 1.0), ("norm", 5 / 255)):
            difference = (one[name].cpu().float() - other[name].float()).abs()
            assert difference.mean() <= scale, name


def test_no_decoder_is_made_after_the_first_epoch(clip_folder: Path) -> None:
    from framefeed.decode.default import cuda_engine

    dataset = _dataset(clip_folder, "cuda")
    loader = VideoLoader(dataset, 8, shuffle=True, memory_budget="1MB")
    for _ in loader:
        pass
    made = cuda_engine(0).pool.created
    for _ in range(3):
        for _ in loader:
            pass
    assert cuda_engine(0).pool.created == made


def test_leaving_early(clip_folder: Path) -> None:
    dataset = _dataset(clip_folder, "cuda")
    for _ in range(10):
        loader = VideoLoader(dataset, 4, shuffle=True)
        next(iter(loader))
        del loader


def test_files_that_fall_back(clip_folder: Path) -> None:
    path = clips.make("mpeg2_ts", clip_folder)
    processing = {"default": ProcessDesc(type="byte")}
    gpu = VideoLoader(VideoDataset([path], processing=processing, device="cuda", fallback="cpu"), 4, shuffle=True)
    cpu = VideoLoader(VideoDataset([path], processing=processing), 4, shuffle=True)
    for one, other in zip(gpu, cpu, strict=True):
        assert one["default"].device.type == "cuda"
        assert torch.equal(one["default"].cpu(), other["default"])
