"""Times around an anchor on a GPU: the frames and masks of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import clips
from framefeed import ProcessDesc, VideoDataset, VideoIndex, VideoLoader

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_frames_and_masks_equal_the_cpus(num_workers: int, clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    packets = VideoIndex.scan(path).packets
    step = int(packets.frame_duration[0]) * float(VideoIndex.scan(path).stream.time_base)
    times = {"seen": [-4 * step, -step, 0.0], "next": [step, step]}
    descs = {"seen": ProcessDesc(type="byte"), "now": ProcessDesc(type="byte"), "next": ProcessDesc(type="byte")}
    on_gpu, on_cpu = (
        VideoDataset(path, delta_timestamps=times, tolerance_s=step / 10, processing=descs, device=device)
        for device in ("cuda", "cpu")
    )
    loader = VideoLoader(on_gpu, 8, shuffle=True, drop_last=False, memory_budget="1MB", num_workers=num_workers)
    padded = 0
    for one, other in zip(loader, VideoLoader(on_cpu, 8, shuffle=True, drop_last=False), strict=True):
        assert one.keys() == other.keys() == {"seen", "now", "next", "seen_is_pad", "next_is_pad"}
        for name in one:
            assert one[name].device.type == "cuda"
            assert torch.equal(one[name].cpu(), other[name]), name
        padded += int(one["seen_is_pad"].sum() + one["next_is_pad"].sum())
    assert padded == 4 + 1 + 2
