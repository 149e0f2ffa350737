"""With the loader: the same samples look the same in any order and batch; the example; and without Kornia."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from framefeed import ProcessDesc, VideoDataset, VideoLoader
from framefeed.testing import samples
from framefeed.testing.samples import write_clip
from framefeed.transforms import SampleLabels, VideoAugmentation, standard_video_augmentations

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "augment" / "main.py"

_WITHOUT = """
import sys
import framefeed, framefeed.transforms
print("kornia" in sys.modules)
sys.modules["kornia"] = None
from framefeed.transforms import VideoAugmentation, standard_video_augmentations
assert framefeed.transforms.sample_label("a.mp4", 1, {}).frame_index == 1
for make in (standard_video_augmentations, lambda: VideoAugmentation("flip")):
    try:
        make()
    except framefeed.MissingBackend as error:
        print(error)
"""


def test_kornia_is_loaded_late_and_may_be_missing() -> None:
    ran = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)
    loaded, *lines = ran.stdout.splitlines()
    assert loaded == "False" and len(lines) == 2
    assert all(line.startswith("kornia: cannot be loaded") for line in lines)
    assert all(line.endswith("pip install framefeed[transforms]") for line in lines)


def test_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kornia")
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--batches", "1"])
    monkeypatch.setattr(samples, "SAMPLES", dict([*samples.SAMPLES.items()][:2]))
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    said = capsys.readouterr()
    assert said.err == ""
    lines = said.out.splitlines()
    assert [line.split(", changed")[0] for line in lines] == [
        f"epoch {epoch}: (4, 4, 3, 45, 80) on cpu" for epoch in (0, 1)
    ]
    assert len(set(lines)) == 2


def test_orders_batches_and_threads_do_not_matter(clip_folder: Path) -> None:
    pytest.importorskip("kornia")
    folder = clip_folder / "augmented"
    files = [write_clip(folder / f"{seed}.mp4", seed=seed, frames=120) for seed in range(2)]

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
