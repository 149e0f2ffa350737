"""Clips that every reader has to read right, and readers whose libraries are stand-ins."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from framefeed.readers import READERS
from framefeed.testing.samples import write_clip

FRAMES = 48
# decord2 does not read widths below 128.
_SIZE: dict[str, Any] = {"width": 160, "height": 96, "frames": FRAMES, "gop": 12}
# Nor does it read HEVC with B-frames that are references.
_X265 = "scenecut=0:b-adapt=0:bframes=3:b-pyramid=0:open-gop="

CLIPS: dict[str, dict[str, Any]] = {
    "h264_bframes.mp4": {"bframes": 3, "options": {"x264-params": "scenecut=0:b-adapt=0"}},
    "hevc_closed.mp4": {"codec": "libx265", "options": {"preset": "ultrafast", "x265-params": f"{_X265}0"}},
    "hevc_open_gop.mp4": {"codec": "libx265", "options": {"preset": "ultrafast", "x265-params": f"{_X265}1"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8", "b": "400k"}},
}


@pytest.fixture(scope="session")
def reader_clips(clip_folder: Path) -> Callable[[str], Path]:
    """Writes a clip, once a run."""

    def find(name: str) -> Path:
        path = clip_folder / "readers" / name
        return path if path.exists() else write_clip(path, **{**_SIZE, **CLIPS[name]})

    return find


Install = Callable[[dict[str, types.ModuleType]], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts stand-ins in the place of libraries."""

    def put(modules: dict[str, types.ModuleType]) -> None:
        for name, module in modules.items():
            monkeypatch.setitem(sys.modules, name, module)

    return put


@pytest.fixture
def no_gpu_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that decode on a GPU put their frames into ordinary memory."""
    for name in ("pynvvideocodec", "vali", "dali"):
        monkeypatch.setattr(READERS[name], "check_device", classmethod(lambda cls, device: torch.device("cpu")))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
