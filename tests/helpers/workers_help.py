"""What worker processes do. They load this and nothing else of the tests, and so no PyAV."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch.utils.data import get_worker_info

from framefeed import MultiCameraDataset, PacketBatch, PacketDataset
from framefeed.convert.desc import Changes
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.packets.packet_dataset import PacketRequest


def frame_of(filename: str, frame: int, changes: Mapping[str, Changes]) -> tuple[str, int]:
    """A label that tells which sample it is."""
    return Path(filename).name, frame


# Cameras are read in workers as well, and loading them loads no decoder.
DATASETS = (MultiCameraDataset, PacketDataset)


class Telling(PacketDataset):
    """Notes what is imported in the worker, and whether CUDA was touched, after each batch."""

    def __init__(self, dataset: FrameDataset, folder: Path) -> None:
        super().__init__(dataset)
        self.folder = folder

    def __getitems__(self, requests: Sequence[int | PacketRequest]) -> PacketBatch:
        found = super().__getitems__(requests)
        worker = get_worker_info()
        assert worker is not None, "not in a worker"
        told = {
            "cuda": torch.cuda.is_initialized(),  # type: ignore[no-untyped-call]
            "modules": [name for name in ("av", "PyNvVideoCodec", "triton") if name in sys.modules],
        }
        (self.folder / f"{worker.id}.json").write_text(json.dumps(told))
        return found


class Dying(PacketDataset):
    """Its worker is killed in mid-epoch."""

    def __init__(self, dataset: FrameDataset, sample: int) -> None:
        super().__init__(dataset)
        self.sample = sample

    def __getitems__(self, requests: Sequence[int | PacketRequest]) -> PacketBatch:
        if any(isinstance(each, PacketRequest) and each.number == self.sample for each in requests):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitems__(requests)
