"""The examples on a GPU: they run, learn something, and go on from a checkpoint bit for bit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

ROOT = Path(__file__).parent.parent.parent


def _run(example: str, folder: Path, *arguments: str) -> str:
    return _start(example, "--folder", str(folder), *arguments)


def _start(example: str, *arguments: str) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(ROOT / "examples" / example / "main.py"), "--device", "cuda"]
    environment = {**os.environ, "PYTHONPATH": path}
    ran = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_superres(tmp_path: Path) -> None:
    common = ("--clips", "12", "--epochs", "3")
    said = _run("superres", tmp_path / "whole", *common)
    gains = [float(gain) for gain in re.findall(r"\(([+-][\d.]+)\)", said)]
    assert len(gains) == 4 and gains[-1] > 0.5
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "clips").symlink_to(tmp_path / "whole" / "clips")
    _run("superres", tmp_path / "parts", *common, "--steps", "35")  # in mid-epoch
    _run("superres", tmp_path / "parts", *common, "--resume")
    one, other = (_checkpoint(tmp_path / name) for name in ("whole", "parts"))
    assert one["progress"]["step"] == other["progress"]["step"] > 35
    assert one["loader"] == other["loader"]
    for name, weights in one["model"].items():
        assert torch.equal(weights, other["model"][name]), name


def _checkpoint(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    return state


def test_frames200(tmp_path: Path) -> None:
    said = _run("frames200", tmp_path, "--files", "60")
    assert "on cuda" in said
    assert float(re.findall(r"unseen files ([\d.]+)%", said)[-1]) > 50


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("times", ["fps", "offsets"])
def test_clips(times: str, augment: bool, tmp_path: Path) -> None:
    if augment:
        pytest.importorskip("kornia")
    options = () if augment else ("--no-augment",)
    said = _run("clips", tmp_path, "--files", "4", "--epochs", "1", "--times", times, *options)
    assert "on cuda" in said and "accuracy" in said


def test_augment() -> None:
    pytest.importorskip("kornia")
    said = _start("augment")
    changes = [float(change) for change in re.findall(r"on cuda.*changed by ([\d.]+)", said)]
    assert len(changes) == 4 and min(changes) > 0.01
