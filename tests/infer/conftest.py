"""Clips of rectangles and the tiny detector in all its formats, made once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from framefeed.testing.shape_detector import ShapeDetector, export, write_shape_clip
from infer.truth import HEIGHT, SIZE, WIDTH


@pytest.fixture(scope="session")
def shape_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shapes")


@pytest.fixture(scope="session")
def clips(shape_folder: Path) -> list[Path]:
    """Three clips of one size, groups of 10 with B-frames, and one that is turned."""
    folder = shape_folder / "clips"
    made = [
        write_shape_clip(folder / f"{seed}.mp4", frames=45, width=WIDTH, height=HEIGHT, seed=seed, gop=10, bframes=2)
        for seed in range(3)
    ]
    return [*made, write_shape_clip(folder / "turned.mp4", frames=30, width=WIDTH, height=HEIGHT, seed=3, rotation=90)]


@pytest.fixture(scope="session")
def models(shape_folder: Path) -> Mapping[str, Path]:
    """Files by what they are."""
    folder = shape_folder / "models"
    folder.mkdir()
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # beside other tests, several wait for each other for ages
    plain = ShapeDetector(*SIZE)
    found = {name: export(plain, folder / f"shapes.{name}") for name in ("onnx", "pt2", "ts")}
    found["fixed"] = export(plain, folder / "fixed.onnx", batch=4)
    found["boxes"] = export(ShapeDetector(*SIZE, layout="boxes"), folder / "boxes.onnx")
    found["half"] = export(ShapeDetector(*SIZE).half(), folder / "half.onnx")
    torch.set_num_threads(before)
    return found
