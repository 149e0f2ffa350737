"""Frames that are decoded on a GPU are the CPU's: unconverted bit for bit, as RGB within a tolerance."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clips
from framefeed import DecodeError, FramefeedError, Resize, UnsupportedCodec, VideoDataset, VideoDecoder, VideoLoader
from framefeed.cuda.driver import Event
from framefeed.decode.default import cuda_engine
from framefeed.decode.nvdec.annexb import framing
from framefeed.decode.nvdec.nvcuvid import parse_sequence
from framefeed.media.native import NativeFrame
from framefeed.testing import samples
from random_clips import same

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

KINDS = sorted(clips.KINDS)


def _on_gpu(path: Path, **arguments: object) -> VideoDecoder:
    try:
        return VideoDecoder(path, device="cuda", **arguments)  # type: ignore[arg-type]
    except UnsupportedCodec as error:
        assert "use device=" in str(error) and str(path) in str(error)
        pytest.skip(f"not decoded on this GPU: {error.reason}")


@pytest.mark.parametrize("name", KINDS)
def test_pictures_are_the_cpu_decoders(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    decoder = _on_gpu(path)
    truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]
    rng = np.random.default_rng(3)
    for wanted in (rng.permutation(len(truth)).tolist(), rng.integers(0, len(truth), 9).tolist(), [len(truth) - 1]):
        got = decoder.get_native_frames_at(wanted)
        assert [frame for frame, picture in zip(wanted, got, strict=True) if not same(picture, truth[frame])] == []


@pytest.mark.parametrize("name", KINDS)
def test_rgb_is_close_to_the_cpus(name: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    gpu, cpu = _on_gpu(path), VideoDecoder(path)
    one_size = len({frame.shape for frame in (cpu[number] for number in range(len(cpu)))}) == 1
    for number in range(0, len(cpu), 1 if not one_size else max(1, len(cpu) // 7)):
        one, other = gpu[number], cpu[number]
        assert one.device.type == "cuda" and one.shape == other.shape
        difference = (one.cpu().int() - other.int()).abs().float()
        assert difference.max() <= 2 and difference.mean() <= 0.5, f"frame {number}"


@pytest.mark.parametrize("name", ["h264_b_pyramid", "hevc_open_gop"])
@pytest.mark.parametrize("order", ["NCHW", "NHWC"])
def test_resized_is_close_to_the_cpus(name: str, order: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    arguments = {"transforms": [Resize((40, 56))], "dimension_order": order}
    gpu, cpu = _on_gpu(path, **arguments), VideoDecoder(path, **arguments)  # type: ignore[arg-type]
    one, other = gpu.get_all_frames().data.cpu(), cpu.get_all_frames().data
    assert one.shape == other.shape
    assert (one.int() - other.int()).abs().float().mean() <= 1


def test_in_order_and_in_batches(clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    decoder = _on_gpu(path)
    every = decoder.get_all_frames().data
    assert all(torch.equal(frame, every[number]) for number, frame in enumerate(decoder))
    wanted = [5, 0, 5, len(decoder) - 1]
    assert torch.equal(decoder.get_frames_at(wanted).data, every[wanted])
    assert decoder.get_frames_at([]).data.shape == (0, *every.shape[1:])


def test_results_are_ready_on_the_callers_stream(clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    decoder = _on_gpu(path)
    truth = decoder.get_all_frames().data.cpu()
    for _ in range(20):
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            frames = decoder.get_all_frames().data
            total = frames.clone()
        stream.synchronize()
        assert torch.equal(total.cpu(), truth)


@pytest.mark.parametrize("name", ["h264_b_pyramid", "hevc_open_gop", "h264_one_group", "vp9_alt_ref"])
@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("budget", [5, 16, 1000])
def test_requests_in_order(
    name: str, length: int, budget: int, clip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read ahead for them is what would have come without."""
    from framefeed.decoder import reading_cuda

    decoder = _on_gpu(clips.make(name, clip_folder))
    every = decoder.get_all_frames().data
    monkeypatch.setattr(reading_cuda, "WINDOW_BYTES", (0, budget * every[0].nbytes))
    decoder = _on_gpu(clips.make(name, clip_folder))
    for _ in range(2):
        for start in range(0, len(every), length):
            wanted = list(range(start, min(start + length, len(every))))
            assert torch.equal(decoder.get_frames_at(wanted).data, every[wanted]), wanted
        assert torch.equal(decoder[3], every[3])  # elsewhere, in the middle
    frames = list(decoder)
    assert len(frames) == len(every) and all(torch.equal(one, two) for one, two in zip(frames, every, strict=True))


def test_requests_in_order_decode_each_frame_about_once(tmp_path: Path) -> None:
    path = samples.write_clip(tmp_path / "long.mp4", frames=480, gop=60, bframes=2, width=192, height=160)
    decoder = _on_gpu(path)
    packets, plan = 0, None
    for start in range(0, 480, 16):
        decoder.get_frames_in_range(start, start + 16)
        if decoder.last_plan is not plan:
            plan = decoder.last_plan
            packets += plan.num_packets if plan is not None else 0
    assert packets <= 1.2 * 480


def test_what_was_read_ahead_is_ready_on_any_stream(clip_folder: Path) -> None:
    decoder = _on_gpu(clips.make("h264_b_pyramid", clip_folder))
    truth = decoder.get_all_frames().data.cpu()
    for _ in range(10):
        found = []
        for number in range(len(truth)):
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            with torch.cuda.stream(stream):
                found.append(decoder[number].clone())
        torch.cuda.synchronize()
        assert torch.equal(torch.stack(found).cpu(), truth)


def test_damage_ahead_is_for_the_request_that_asks_for_it(clip_folder: Path, tmp_path: Path) -> None:
    good = _on_gpu(clips.make("h264_bframes", clip_folder))
    packets = good.index.packets
    hit = int(np.unique(packets.start)[2])
    data = bytearray(Path(good.index.path).read_bytes())
    begin = int(packets.pos[hit])
    data[begin : begin + int(packets.size[hit])] = bytes(int(packets.size[hit]))
    path = tmp_path / "bad.mp4"
    path.write_bytes(data)
    bad = VideoDecoder(path, device="cuda")
    first = int(np.flatnonzero(packets.start[packets.frames] == hit)[0])
    for number in range(first):
        assert torch.equal(bad[number], good[number])
    with pytest.raises(DecodeError, match=f"frame {first} "):
        bad[first]


def test_what_was_read_ahead_of_a_changed_file_is_not_handed_out(clip_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(clips.make("h264_bframes", clip_folder).read_bytes())
    decoder = _on_gpu(path)
    for number in range(6):
        decoder[number]
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(FramefeedError, match="changed since it was indexed"):
        decoder[6]


def test_what_the_gpu_cannot_decode(clip_folder: Path) -> None:
    path = clips.make("mpeg2_ts", clip_folder)
    with pytest.raises(UnsupportedCodec, match=r"fallback=\"cpu\""):
        VideoDecoder(path, device="cuda")
    decoder = VideoDecoder(path, device="cuda", fallback="cpu")
    assert decoder.cpu_fallback and "mpeg2video" in decoder.cpu_fallback.reason
    assert decoder[0].device.type == "cuda"
    assert torch.equal(decoder[3].cpu(), VideoDecoder(path)[3])
    assert VideoDecoder(path, device="auto").cpu_fallback


def test_a_damaged_file_does_not_harm_the_next(clip_folder: Path, tmp_path: Path) -> None:
    from framefeed.decode.default import cuda_engine

    path = clips.make("h264_b_pyramid", clip_folder)
    good = _on_gpu(path)
    truth = good.get_all_frames().data
    made, idle = cuda_engine(0).pool.created, len(cuda_engine(0).pool)
    packets = good.index.packets
    data = bytearray(path.read_bytes())
    start = int(packets.start[packets.frames[-1]])
    place, length = int(packets.pos[start]), int(packets.size[start])
    data[place : place + length] = bytes(length)
    bad_path = tmp_path / "bad.mp4"
    bad_path.write_bytes(data)
    bad = VideoDecoder(bad_path, device="cuda", index=None)
    for _ in range(3):
        with pytest.raises(DecodeError, match=r"bad\.mp4"):
            bad.get_frames_at(list(range(len(bad))))
        assert torch.equal(good.get_all_frames().data, truth)
    assert torch.equal(bad[0].cpu(), truth[0].cpu())
    assert len(cuda_engine(0).pool) >= idle > 0
    assert cuda_engine(0).pool.created - made <= cuda_engine(0).max_threads


def test_streams_that_need_more_surfaces(tmp_path: Path) -> None:
    """A decoder does not notice by itself that a stream refers to more pictures than the one before it."""
    cuda_engine(0).pool._idle.clear()  # none is left that has enough from the beginning
    sizes, codecs = ((192, 160), (256, 192)), (("libx264", "x264-params"), ("libx265", "x265-params"))
    paths = [
        samples.write_clip(
            tmp_path / f"{codec}{size[0]}_{refs}.mp4",
            codec=codec,
            frames=48,
            gop=24,
            bframes=3,
            width=size[0],
            height=size[1],
            options={"preset": "medium", parameters: f"ref={refs}"},
        )
        for codec, parameters in codecs
        for size in sizes
        for refs in (1, 5, 16 if codec == "libx264" else 8)
    ]
    truth = [[NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)] for path in paths]
    decoders = [_on_gpu(path) for path in paths]
    rng = np.random.default_rng(5)
    engine: Any = cuda_engine(0)
    made = engine.factory.created
    for which in [*range(len(paths)), *rng.integers(0, len(paths), 80).tolist()]:
        wanted = rng.integers(0, 48, 5).tolist()
        got = decoders[which].get_native_frames_at(wanted)
        for frame, picture in zip(wanted, got, strict=True):
            assert same(picture, truth[which][frame]), (paths[which], frame)
    assert engine.factory.created - made <= len(codecs) * engine.max_threads  # they change, and are not made anew


def _one_after_the_other(paths: list[Path]) -> None:
    """Files of one group each, so that the same decoder gets them all."""
    cuda_engine(0).pool._idle.clear()
    for path in paths:
        truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]
        got = VideoDecoder(path, device="cuda").get_native_frames_at(range(12))
        assert [frame for frame in range(12) if not same(got[frame], truth[frame])] == [], path.name


def test_the_same_size_coded_in_another_size(tmp_path: Path) -> None:
    """160x168 is coded as it is in units of 8, and as 160x176 in units of 16."""
    paths = [
        samples.write_clip(
            tmp_path / f"{unit}.mp4",
            codec="libx265",
            frames=12,
            gop=12,
            width=160,
            height=168,
            options={"x265-params": f"min-cu-size={unit}:log-level=none"},
        )
        for unit in (8, 16)
    ]
    _one_after_the_other(paths)
    _one_after_the_other(paths[::-1])


def test_larger_pictures_coded_in_the_same_size(tmp_path: Path) -> None:
    small, less, more = (
        samples.write_clip(tmp_path / f"{width}.mp4", frames=12, gop=12, width=width, height=height)
        for width, height in ((192, 160), (242, 182), (256, 192))
    )
    engine: Any = cuda_engine(0)
    for paths in ([small, less, more], [small, more, less], [less, more]):
        made = engine.factory.created
        _one_after_the_other(paths)
        assert engine.factory.created - made == 1


@pytest.mark.parametrize("codec", ["libvpx", "libvpx-vp9"])
def test_sizes_of_other_codecs(codec: str, tmp_path: Path) -> None:
    """Whether these are coded alike is the parser's business."""
    sizes = ((176, 144), (170, 138), (192, 160), (190, 146), (186, 158), (177, 145), (191, 145), (177, 159), (321, 181))
    paths = [
        samples.write_clip(tmp_path / f"{size[0]}.mkv", codec=codec, frames=12, gop=12, width=size[0], height=size[1])
        for size in sizes
    ]
    _one_after_the_other(paths)
    rng = np.random.default_rng(6)
    _one_after_the_other([paths[number] for number in rng.integers(0, len(paths), 24)])


def test_what_the_parser_says(tmp_path: Path) -> None:
    found = []
    for refs in (1, 5, 16):
        path = samples.write_clip(
            tmp_path / f"{refs}.mp4", frames=24, gop=24, width=190, height=146, options={"x264-params": f"ref={refs}"}
        )
        index = VideoDecoder(path).index
        begin, size = int(index.packets.pos[0]), int(index.packets.size[0])
        first = path.read_bytes()[begin : begin + size]
        how = framing("h264", index.stream.extradata)
        found.append(parse_sequence("h264", bytes(how.convert(first, True))))
        assert found[-1] is not None and found[-1].size == (192, 160) and found[-1].progressive
    needed = [sequence.surfaces for sequence in found if sequence is not None]
    assert needed == sorted(set(needed)) and needed[-1] >= 16
    assert parse_sequence("h264", b"nothing that it understands") is None


def test_threads_that_have_not_used_the_gpu(clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoders that a loader has made are used by threads that have no CUDA context of their own yet."""
    path = clips.make("h264_bframes", clip_folder)
    deque(VideoLoader(VideoDataset([str(path)] * 14, device="cuda"), 8), maxlen=0)
    monkeypatch.setattr(cuda_engine(0), "_executor", None)
    monkeypatch.setattr(Event, "_free", {})
    whole, cpu = _on_gpu(path), VideoDecoder(path)
    wanted = list(range(0, len(cpu), 5))
    difference = whole.get_frames_at(wanted).data.cpu().int() - cpu.get_frames_at(wanted).data.int()
    assert difference.abs().max() <= 2
