"""Readers that need a GPU or a release that is gone, with stand-ins for their libraries."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from framefeed import DecodeError, MissingBackend
from framefeed.readers import READERS, open_reader
from readers import fakes
from readers.conftest import FRAMES, Install

Find = Callable[[str], Path]


@pytest.fixture
def path(reader_clips: Find) -> Path:
    return reader_clips("h264_bframes.mp4")


def numbers(frames: torch.Tensor) -> list[int]:
    assert frames.dtype == torch.uint8
    assert all((frame == frame[0, 0, 0]).all() for frame in frames)
    return frames[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("output_format", ["THWC", "TCHW"])
@pytest.mark.parametrize("mode", ["seek", "stream"])
@pytest.mark.parametrize("name", fakes.FAKES)
def test_frames(name: str, mode: str, output_format: str, path: Path, install: Install, no_gpu_needed: None) -> None:
    install(fakes.FAKES[name]())
    with open_reader(name, path, mode=mode, output_format=output_format) as reader:
        assert reader.num_frames == FRAMES
        size = (fakes.HEIGHT, fakes.WIDTH, 3) if output_format == "THWC" else (3, fakes.HEIGHT, fakes.WIDTH)
        kept = []
        for request in ([5], [40, 3, 3, 17], list(range(FRAMES)), [FRAMES - 1], []):
            frames = reader.read_frames(request)
            assert tuple(frames.shape) == (len(request), *size)
            kept.append((frames, request))
        # All of them at the end: the libraries use their own memory again.
        assert [numbers(frames) for frames, _ in kept] == [request for _, request in kept]
        for bad in (-1, FRAMES):
            with pytest.raises(IndexError, match=f"no frame {bad}; .*{FRAMES} frames"):
                reader.read_frames([bad])
    with pytest.raises(ValueError, match="closed"):
        reader.read_frames([0])


@pytest.mark.parametrize("part", ["_decoder", "_converter"])
def test_vali_failures_are_errors(part: str, path: Path, install: Install, no_gpu_needed: None) -> None:
    install(fakes.vali())
    with open_reader("vali", path, mode="seek") as reader:
        vars(reader)[part].broken = True
        with pytest.raises(DecodeError, match=re.escape(f"{path.name}: VALI cannot")) as caught:
            reader.read_frames([3])
        assert caught.value.frame == 3


def test_frames_that_pynvvideocodec_leaves_out_are_errors(
    path: Path, install: Install, no_gpu_needed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(fakes.pynvvideocodec())
    monkeypatch.setattr(fakes.SimpleDecoder, "get_batch_frames_by_index", lambda self, numbers: [])
    with open_reader("pynvvideocodec", path) as reader, pytest.raises(DecodeError, match="0 frames of 2"):
        reader.read_frames([3, 4])


def test_frames_that_torchvision_leaves_out_are_errors(
    path: Path, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(fakes.torchvision())
    with open_reader("torchvision", path, mode="seek") as reader:
        vars(reader)["_pts"][3] += 1
        with pytest.raises((DecodeError, RuntimeError), match=path.name):
            reader.read_frames([3])


def test_torchvision_without_video(path: Path, install: Install) -> None:
    install(fakes.torchvision(video=False))
    with pytest.raises(MissingBackend, match=r"torchvision: release 0\.28\.0 cannot read videos.*removed.*pip install"):
        open_reader("torchvision", path)


def test_dali_before_its_operator_left_experimental(path: Path, install: Install, no_gpu_needed: None) -> None:
    install(fakes.dali("experimental"))
    with open_reader("dali", path) as reader:
        assert numbers(reader.read_frames([9, 2])) == [9, 2]


def test_dali_without_its_operator(path: Path, install: Install, no_gpu_needed: None) -> None:
    install(fakes.dali("nowhere"))
    with pytest.raises(MissingBackend, match=r"nvidia\.dali: release 1\.2\.3 has no decoders\.video.*pip install"):
        open_reader("dali", path)


class _Decord:
    """decord with a bridge to torch."""

    def __init__(self, path: str, **arguments: Any) -> None:
        pass

    def __len__(self) -> int:
        return FRAMES

    def get_batch(self, numbers: list[int]) -> torch.Tensor:
        return torch.stack([fakes.picture(number) for number in numbers])


def test_decord_with_a_bridge(path: Path, install: Install) -> None:
    install({"decord": fakes.module("decord", VideoReader=_Decord, cpu=lambda number: number)})
    with open_reader("decord", path) as reader:
        assert numbers(reader.read_frames([9, 2])) == [9, 2]


class _Capture:
    """OpenCV that misses its seeks, as it does on some files, and says so; or that ends early."""

    starts = 0
    length = FRAMES

    def __init__(self, path: str, backend: int, options: list[int]) -> None:
        _Capture.starts += 1
        self._next = 0

    def isOpened(self) -> bool:  # noqa: N802
        return True

    def get(self, what: int) -> float:
        return float(FRAMES if what == 7 else self._next)

    def set(self, what: int, number: int) -> bool:
        self._next = number + 1 if number % 2 else number
        return True

    def grab(self) -> bool:
        self._next += 1
        return self._next <= self.length

    def retrieve(self) -> tuple[bool, Any]:
        return True, fakes.picture(self._next - 1).numpy()

    def release(self) -> None:
        pass


def _opencv() -> Any:
    return fakes.module(
        "cv2",
        VideoCapture=_Capture,
        CAP_FFMPEG=1900,
        CAP_PROP_POS_FRAMES=1,
        CAP_PROP_FRAME_COUNT=7,
        COLOR_BGR2RGB=4,
        cvtColor=lambda picture, code: picture,
    )


@pytest.mark.parametrize("mode", ["seek", "stream"])
def test_opencv_reads_from_the_start_where_a_seek_went_elsewhere(mode: str, path: Path, install: Install) -> None:
    install({"cv2": _opencv()})
    _Capture.starts = 0
    with open_reader("opencv", path, mode=mode) as reader:
        assert numbers(reader.read_frames([8, 10])) == [8, 10]
        assert _Capture.starts == 1
        assert numbers(reader.read_frames([9, 12])) == [9, 12]
        assert _Capture.starts == 2


def test_opencv_that_ends_early(path: Path, install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install({"cv2": _opencv()})
    monkeypatch.setattr(_Capture, "length", 20)
    with (
        open_reader("opencv", path) as reader,
        pytest.raises(DecodeError, match=f"stops before frame 20 of {FRAMES}") as caught,
    ):
        reader.read_frames([18, 30])
    assert caught.value.frame == 20


def test_errors_of_a_library_name_the_file(path: Path, install: Install) -> None:
    def fail(self: Any, numbers: list[int]) -> Any:
        raise RuntimeError("bad\n  weather " + "x" * 1000)

    broken = type("VideoReader", (_Decord,), {"get_batch": fail})
    install({"decord": fakes.module("decord", VideoReader=broken, cpu=lambda number: number)})
    with open_reader("decord", path) as reader, pytest.raises(DecodeError) as caught:
        reader.read_frames([1])
    said = str(caught.value)
    assert path.name in said and "decord cannot read frames: bad weather" in said and len(said) < 600


def test_all_that_cannot_run_here_have_a_stand_in() -> None:
    assert {name for name in READERS if READERS[name].devices == ("cuda",)} <= set(fakes.FAKES)
