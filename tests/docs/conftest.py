"""The folder that pages are read in: a few small videos and what pages suppose to be there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.camera_clips import write_camera_clips
from framefeed import Catalog
from framefeed.testing.samples import write_clip, write_samples
from framefeed.testing.shape_detector import ShapeDetector, export

FRAMES = 90


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once::

    videos/walk/*.mp4, videos/run/*.mp4   small clips of two classes
    video.mp4                             one of them
    clips/                                the six clips of the demo
    drive/index_frame.json                clips of three cameras
    catalog.arrow, clips.arrow            of videos/ and of clips/
    model.onnx                            a detector
    """
    folder = tmp_path_factory.mktemp("world")
    for number in range(4):
        path = folder / "videos" / ("walk", "run")[number % 2] / f"{number}.mp4"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_clip(path, frames=FRAMES, width=192, height=160, gop=30, codec="libx264", bframes=2, seed=number)
    shutil.copy(folder / "videos" / "walk" / "0.mp4", folder / "video.mp4")
    write_samples(folder / "clips")
    write_camera_clips(folder / "drive", clips=2, cameras=3, frames=30, width=320, height=180, gop=10)
    export(ShapeDetector(160, 192), folder / "model.onnx")
    return folder


@pytest.fixture
def here(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of its own with all that, which is the working directory."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # OpenMP's threads spin while others decode
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for folder, catalog in (("videos", "catalog.arrow"), ("clips", "clips.arrow")):
        Catalog.build(folder, catalog, progress=False).close()
    yield tmp_path
    torch.set_num_threads(threads)
