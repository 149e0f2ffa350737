"""PyNvVideoCodec itself on an emulated driver: its pictures, and what it does to memory and decoders by itself.

Run by ``test_library.py`` in a process of its own.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch

import clips
import random_clips
import standin
from emulated import Driver
from framefeed import UnsupportedCodec, VideoDecoder
from framefeed.decode.nvdec.annexb import framing
from framefeed.decode.nvdec.capabilities import check_supported, library
from framefeed.media.native import NativeFrame
from framefeed.testing import samples
from random_clips import same
from standin import StandIn, Watched


@pytest.fixture
def driver(gpu: StandIn) -> Driver:
    assert isinstance(gpu, Watched)
    return gpu.driver


def _check(gpu: StandIn, path: Path, rng: np.random.Generator) -> None:
    truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]
    wanted = rng.permutation(len(truth))[:24].tolist()
    got = gpu.natives(VideoDecoder(path), wanted)
    wrong = [frame for frame, picture in zip(wanted, got, strict=True) if not same(picture, truth[frame])]
    assert wrong == [], path.name


def _supported(path: Path) -> bool:
    try:
        check_supported(VideoDecoder(path).index, 0)
    except UnsupportedCodec:
        return False
    return True


@pytest.mark.parametrize("name", sorted(clips.KINDS))
def test_pictures_are_the_cpu_decoders(name: str, gpu: StandIn, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    if not _supported(path):
        pytest.skip("not decoded on GPUs")
    _check(gpu, path, np.random.default_rng(3))


def test_any_file_after_any_other(gpu: StandIn, driver: Driver, clip_folder: Path) -> None:
    """Decoders go from file to file, and nothing of one is left for the next."""
    paths = [path for path in (clips.make(name, clip_folder) for name in sorted(clips.KINDS)) if _supported(path)]
    rng = np.random.default_rng(11)
    truth: dict[Path, list[NativeFrame]] = {}
    for path in [*paths, *(paths[number] for number in rng.integers(0, len(paths), 150))]:
        if path not in truth:
            truth[path] = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]
        wanted = rng.permutation(len(truth[path]))[:3].tolist()
        got = gpu.natives(VideoDecoder(path), wanted)
        wrong = [frame for frame, picture in zip(wanted, got, strict=True) if not same(picture, truth[path][frame])]
        assert wrong == [], path.name
    assert driver.count("scaled") == 0


@pytest.mark.parametrize("codec", ["libx264", "libx265", "libvpx", "libvpx-vp9"])
def test_many_sizes_and_references(codec: str, gpu: StandIn, driver: Driver, tmp_path: Path) -> None:
    """A decoder is made once, whatever comes; sizes are those that are often coded alike."""
    sizes = [(96, 64), (90, 58), (86, 50), (160, 96), (152, 90), (176, 112), (162, 98), (146, 82)]
    names = {"libx264": "x264-params", "libx265": "x265-params"}
    paths = [
        samples.write_clip(
            tmp_path / f"{width}_{references}.mkv",
            codec=codec,
            frames=12,
            gop=12,
            width=width,
            height=height,
            options={names[codec]: f"ref={references}:scenecut=0:log-level=none"} if codec in names else None,
        )
        for width, height in sizes
        for references in ((1, 3, 7) if codec in names else (1,))
    ]
    rng = np.random.default_rng(12)
    for number in rng.integers(0, len(paths), 60):
        _check(gpu, paths[number], rng)
    # Those of VP8 and VP9 cannot be sent on a detour.
    assert driver.count("made") == 1 or codec not in names
    assert driver.count("scaled") == 0


def test_clips_that_are_drawn_at_random(tmp_path: Path) -> None:
    counts = random_clips.compare("emulated", seed=1, first=0, minutes=5, most=24, folder=tmp_path)
    assert counts["bad"] == 0 and counts["good"] > 12


@pytest.mark.parametrize("full", [False, True])
def test_no_memory_for_a_decoder(full: bool, gpu: StandIn, clip_folder: Path) -> None:
    """It is made with the first packets, and the error that PyNvVideoCodec raises then has no name."""
    path = clips.make("h264_b_pyramid", clip_folder)
    gpu.full = full
    if full:
        with pytest.raises(torch.cuda.OutOfMemoryError, match=f"{path.name}: the GPU's memory is full"):
            gpu.natives(VideoDecoder(path), [3])
    gpu.full = False
    _check(gpu, path, np.random.default_rng(1))


# --- what it does by itself: why decoders are told of sizes, and sent on detours --------------------------------------


class _Plain:
    """A decoder of PyNvVideoCodec that is fed whole files."""

    def __init__(self) -> None:
        nvc = library()
        self._packet = nvc.PacketData()
        self._packet.decode_flag = nvc.VideoPacketFlag.ENDOFSTREAM
        self.decoder = nvc.CreateDecoder(
            gpuid=0,
            codec=nvc.cudaVideoCodec.H264,
            cudacontext=0,
            cudastream=standin.Stream().cuda_stream,
            usedevicememory=1,
            maxwidth=1920,
            maxheight=1088,
            outputColorType=nvc.OutputColorType.NATIVE,
        )

    def feed(self, path: Path) -> list[Any]:
        stream = VideoDecoder(path).index.stream
        with av.open(str(path)) as container:
            packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
        content = framing(stream.codec, stream.extradata).join(packets, True)
        self._packet.bsl_data = ctypes.addressof(ctypes.c_char.from_buffer(content))
        self._packet.bsl = len(content)
        frames: list[Any] = self.decoder.Decode(self._packet)
        return frames


def _of_size(folder: Path, width: int, height: int, references: int = 1) -> Path:
    options = {"x264-params": f"ref={references}"}
    name = folder / f"{width}_{height}_{references}.mp4"
    return samples.write_clip(name, frames=6, gop=6, width=width, height=height, options=options)


def test_sizes_that_it_is_not_told_of(driver: Driver, tmp_path: Path) -> None:
    plain = _Plain()
    plain.feed(_of_size(tmp_path, 96, 64))
    assert driver.count("scaled") == 0
    plain.feed(_of_size(tmp_path, 160, 96))
    assert driver.count("scaled") > 0


def test_larger_pictures_that_it_is_not_told_of(driver: Driver, tmp_path: Path) -> None:
    """They are written behind the end of its memory."""
    plain = _Plain()
    plain.feed(_of_size(tmp_path, 162, 98))
    assert driver.failures == []
    plain.feed(_of_size(tmp_path, 176, 112))
    assert any("of a copy has" in failure for failure in driver.failures)
    driver.failures.clear()


def test_surfaces_change_with_the_size_alone(driver: Driver, tmp_path: Path) -> None:
    few, many, other = _of_size(tmp_path, 96, 64), _of_size(tmp_path, 96, 64, 9), _of_size(tmp_path, 160, 96)
    plain = _Plain()
    plain.feed(few)
    plain.decoder.setReconfigParams(96, 64)
    plain.feed(many)
    assert driver.count("configured") == 0
    plain.decoder.setReconfigParams(160, 96)
    plain.feed(other)
    plain.decoder.setReconfigParams(96, 64)
    plain.feed(many)
    surfaces = [words[2] for words in driver.notes if words[0] in ("made", "configured")]
    assert len(surfaces) == 3 and surfaces[2] > surfaces[0]
