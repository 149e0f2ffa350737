"""With the loader: the same samples look the same in any order and batch; the example; and without Kornia."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from framefeed import ProcessDesc, VideoDataset, VideoLoader
from framefeed.samples import write_samples
from framefeed.transforms import SampleLabels, VideoAugmentation, standard_video_augmentations

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "augment" / "main.py"

_WITHOUT = """
import sys
sys.modules["kornia"] = None
import framefeed, framefeed.transforms
from framefeed.transforms import VideoAugmentation, standard_video_augmentations
assert framefeed.transforms.sample_label("a.mp4", 1, {}).frame_index == 1
for make in (standard_video_augmentations, lambda: VideoAugmentation("flip")):
    try:
        make()
    except framefeed.MissingBackend as error:
        print(error)
"""


def test_without_kornia() -> None:
    ran = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("kornia: cannot be loaded") for line in lines)
    assert all(line.endswith("pip install framefeed[transforms]") for line in lines)


def test_kornia_is_loaded_late() -> None:
    code = "import sys, framefeed.transforms; print('kornia' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def test_example() -> None:
    pytest.importorskip("kornia")
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), "--batches", "1"], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    lines = ran.stdout.splitlines()
    assert [line.split(", changed")[0] for line in lines] == [
        f"epoch {epoch}: (4, 4, 3, 45, 80) on cpu" for epoch in (0, 1)
    ]
    assert len(set(lines)) == 2


def test_orders_batches_and_threads_do_not_matter(clip_folder: Path) -> None:
    pytest.importorskip("kornia")
    folder = clip_folder / "augmented"
    write_samples(folder)
    files = sorted(folder.iterdir())[:2]

    def augmented(epoch: int, **options: Any) -> dict[Any, Tensor]:
        dataset = VideoDataset(
            files,
            sequence_length=2,
            frame_stride=50,
            processing={
                "input": ProcessDesc(scale_width=32, scale_height=18, normalized=True),
                "target": ProcessDesc(type="byte", scale_width=64, scale_height=36, index_map=[0]),
            },
            get_label=SampleLabels(root=folder),
        )
        loader = VideoLoader(dataset, memory_budget="16MB", **options)
        loader.set_epoch(epoch)
        augment = VideoAugmentation(*standard_video_augmentations(), seed=1)
        found = {}
        for _, batch in zip(range(24 // loader.batch_size), loader, strict=False):
            result = augment(batch, epoch=loader.epoch)
            for row, label in enumerate(result["labels"]):
                found[label[:2]] = result["input"][row].clone(), result["target"][row].clone()
        return {(*key, which): pair[which] for key, pair in found.items() for which in (0, 1)}

    inputs = augmented(0, batch_size=4), augmented(0, batch_size=3, num_threads=1)
    assert len(inputs[0]) == len(inputs[1]) == 48
    assert all((inputs[0][key] == inputs[1][key]).all() for key in inputs[0])
    backwards = augmented(0, batch_size=6, sampler=range(23, -1, -1))
    assert backwards.keys() == inputs[0].keys()
    assert all((backwards[key] == inputs[0][key]).all() for key in backwards)
    later = augmented(1, batch_size=4)
    assert all(not (later[key] == inputs[0][key]).all() for key in later)
