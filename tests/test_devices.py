"""Which device is taken, and what is said where one cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from framefeed import MissingBackend
from framefeed.decode.nvdec import capabilities
from framefeed.device import resolve_device

ADVICE = "\n\n=== TROUBLESHOOTING STEPS ===\n" + "and so on\n" * 20


@pytest.fixture
def no_video_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container that was started without the driver's part for video: CUDA works, PyNvVideoCodec does not."""
    for name, content in (
        ("triton", ""),
        ("PyNvVideoCodec", f"raise RuntimeError({'no libnvidia-encode' + ADVICE!r})"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    capabilities.library.cache_clear()


@pytest.mark.usefixtures("no_video_library")
def test_auto_takes_the_cpu_without_a_library_for_video() -> None:
    assert resolve_device("auto") == torch.device("cpu")


@pytest.mark.usefixtures("no_video_library")
def test_cuda_says_what_is_missing() -> None:
    with pytest.raises(MissingBackend, match="NVIDIA_DRIVER_CAPABILITIES=compute,video,utility") as caught:
        resolve_device("cuda")
    assert "no libnvidia-encode" in str(caught.value) and "TROUBLESHOOTING" not in str(caught.value)
