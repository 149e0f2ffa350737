"""A loader on a GPU yields what the plain path yields there, whatever it keeps."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import time
from collections import deque
from pathlib import Path
from typing import Any

import pytest
import torch

import clips
from framefeed import ProcessDesc, VideoDataset, VideoLoader
from waiting import soon

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

PROCESSING = {
    "half": ProcessDesc(type="half", scale_width=32, scale_height=24, normalized=True, random_flip=True),
    "full": ProcessDesc(type="byte", index_map=[-1, 0], dimension_order="fhwc"),
    "crop": ProcessDesc(scale_width=48, scale_height=40, width=24, height=16, random_crop=True, color_space="YCbCr"),
    "norm": ProcessDesc(type="bfloat16", normalized=True, mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.4]),
}


def _files(folder: Path) -> list[Path]:
    found = [clips.make(name, folder) for name in ("h264_b_pyramid", "hevc_open_gop", "h264_open_gop")]
    shapes = [(VideoDataset([path]).videos[0].index.stream.display_size) for path in found]
    return [path for path, shape in zip(found, shapes, strict=True) if shape == shapes[0]]


def _dataset(folder: Path, device: str) -> VideoDataset:
    return VideoDataset(_files(folder), 2, processing=PROCESSING, device=device, get_label=lambda *what: what[:2])


@pytest.mark.parametrize("order", ["sequential", "shuffle", "buffered:16", "chunked:4"])
@pytest.mark.parametrize("budget", [0, "1MB", "1GB"])
def test_batches_equal_the_plain_path(order: str, budget: int | str, clip_folder: Path) -> None:
    dataset = _dataset(clip_folder, "cuda")
    loader = VideoLoader(dataset, 8, order=order, memory_budget=budget, drop_last=False)
    samples = loader._epochs.batches(0, 0)
    count = 0
    for batch, numbers in zip(loader, samples, strict=True):
        for row, number in enumerate(numbers.tolist()):
            plain = dataset[number]
            for name in PROCESSING:
                assert batch[name].device.type == "cuda"
                assert torch.equal(batch[name][row], plain[name]), (number, name)
            assert batch["labels"][row] == plain["labels"]
            count += 1
    assert count == len(dataset)
    assert loader.stats().memory_peak <= loader.memory_budget


def test_batches_are_close_to_the_cpus(clip_folder: Path) -> None:
    on_gpu, on_cpu = (VideoLoader(_dataset(clip_folder, device), 8, shuffle=True, seed=3) for device in ("cuda", "cpu"))
    for one, other in zip(on_gpu, on_cpu, strict=True):
        for name, scale in (("half", 1 / 255), ("full", 1.0), ("crop", 1.0), ("norm", 5 / 255)):
            difference = (one[name].cpu().float() - other[name].float()).abs()
            assert difference.mean() <= scale, name


def test_no_decoder_is_made_after_the_first_epoch(clip_folder: Path) -> None:
    from framefeed.decode.default import cuda_engine

    dataset = _dataset(clip_folder, "cuda")
    loader = VideoLoader(dataset, 8, shuffle=True, memory_budget="1MB")
    for _ in loader:
        pass
    engine: Any = cuda_engine(0)
    made = engine.factory.created
    for _ in range(3):
        for _ in loader:
            pass
    assert engine.factory.created == made


def _allocated() -> int:
    """Device memory without that of streams and of decoders, which stays."""
    from framefeed.convert.cuda.surfaces import StreamContext
    from framefeed.decode.nvdec.session_nvdec import NvdecSession

    stays: list[torch.Tensor | None] = []
    for thing in gc.get_objects():
        if type(thing) is StreamContext:
            stays += [thing._scratch, *(ring._there for ring in (thing.placing, thing._converting, thing._copying))]
        elif type(thing) is NvdecSession:
            stays.append(thing._aside)
    taken = int(torch.cuda.memory_stats()["requested_bytes.all.current"])  # allocators round up
    return taken - sum(tensor.nbytes for tensor in stays if tensor is not None)


@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_memory_is_free_again_without_a_collector(order: str, clip_folder: Path) -> None:
    def loader() -> VideoLoader:
        return VideoLoader(_dataset(clip_folder, "cuda"), 4, order=order, memory_budget="16MB")

    for batch in loader():  # some small things are made once
        size = sum(tensor.nbytes for tensor in batch.values() if isinstance(tensor, torch.Tensor))
    del batch
    gc.collect()
    gc.disable()
    try:
        torch.cuda.synchronize()
        taken = [_allocated()]
        ours = loader()
        for _ in range(4):
            deque(ours, maxlen=0)  # none is kept
            taken.append(_allocated())
        assert max(taken[2:]) - taken[1] <= 3 * size, taken  # the last ones may be in some thread's hands
        del ours
        end = time.monotonic() + 10
        while _allocated() > taken[0] + size and time.monotonic() < end:
            time.sleep(0.05)
        assert _allocated() <= taken[0] + size, taken
    finally:
        gc.enable()


def test_kernels_are_compiled_by_many_threads(clip_folder: Path, tmp_path: Path) -> None:
    script = """
        import sys
        from framefeed import ProcessDesc, VideoDataset, VideoLoader
        desc = ProcessDesc(type="half", scale_width=32, scale_height=24, random_flip=True)
        dataset = VideoDataset([sys.argv[1]] * 14, processing={"frames": desc}, device="cuda")
        print(sum(len(batch["frames"]) for batch in VideoLoader(dataset, 14, order="chunked:14", drop_last=False)))
        print(len(dataset))
    """
    path = clips.make("h264_b_pyramid", clip_folder)
    for turn in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(path)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / str(turn))},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(set(done.stdout.split())) == 1


def test_leaving_early(clip_folder: Path) -> None:
    dataset = _dataset(clip_folder, "cuda")
    for _ in range(10):
        loader = VideoLoader(dataset, 4, shuffle=True)
        next(iter(loader))
        del loader


def test_files_that_fall_back(clip_folder: Path) -> None:
    path = clips.make("mpeg2_ts", clip_folder)
    processing = {"default": ProcessDesc(type="byte")}
    gpu = VideoLoader(VideoDataset([path], processing=processing, device="cuda", fallback="cpu"), 4, shuffle=True)
    cpu = VideoLoader(VideoDataset([path], processing=processing), 4, shuffle=True)
    for one, other in zip(gpu, cpu, strict=True):
        assert one["default"].device.type == "cuda"
        assert torch.equal(one["default"].cpu(), other["default"])


def _train(device: str, folder: Path) -> list[float]:
    """A training script in which nothing but the device is named twice."""
    torch.manual_seed(0)
    dataset = VideoDataset(
        _files(folder),
        processing={"frames": ProcessDesc(scale_width=32, scale_height=24, normalized=True)},
        device=device,
        get_label=lambda path, frame, changes: float(frame),
    )
    loader = VideoLoader(dataset, 8, shuffle=True, memory_budget="1MB", seed=5)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 24 * 32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)
    losses = []
    for batch in loader:
        target = torch.tensor(batch["labels"], device=device)
        loss = (model(batch["frames"])[:, 0] - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_training_script_changes_only_the_device(clip_folder: Path) -> None:
    on_gpu, on_cpu = _train("cuda", clip_folder), _train("cpu", clip_folder)
    assert len(on_gpu) == len(on_cpu) > 5
    assert on_gpu == pytest.approx(on_cpu, rel=0.1)  # frames differ by rounding where they are scaled


def _with_zeros(path: Path, target: Path) -> Path:
    """A copy of a video whose last group begins with a packet of zeros."""
    packets = VideoDataset([path]).videos[0].index.packets
    start = int(packets.start[packets.frames[-1]])
    data = bytearray(path.read_bytes())
    place, length = int(packets.pos[start]), int(packets.size[start])
    data[place : place + length] = bytes(length)
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_a_damaged_file_between_good_ones(order: str, clip_folder: Path, tmp_path: Path) -> None:
    from framefeed.decode.default import cuda_engine

    good = clips.make("h264_b_pyramid", clip_folder)
    bad = _with_zeros(good, tmp_path / "bad.mp4")
    processing = {"x": ProcessDesc(type="byte")}
    truth = VideoLoader(VideoDataset([good], processing=processing, device="cuda"), 1, drop_last=False)
    expected = torch.cat([batch["x"] for batch in truth])
    dataset = VideoDataset(
        [good, bad, good], processing=processing, device="cuda", get_label=lambda path, frame, _: (path, frame)
    )
    made, idle = cuda_engine(0).pool.created, len(cuda_engine(0).pool)
    for _ in range(3):
        loader = VideoLoader(dataset, 4, order=order, on_error="skip", drop_last=False, memory_budget="1MB")
        seen = []
        for batch in loader:
            for (path, frame), sample in zip(batch["labels"], batch["x"], strict=True):
                assert torch.equal(sample[0], expected[frame, 0]), (path, frame)
                seen.append((path, frame))
        assert seen.count((str(good), 0)) == 2 and len(seen) < len(dataset)
        assert {skipped.path for skipped in loader.skipped} == {str(bad)}
        assert len(seen) + len(loader.skipped) == len(dataset)
    assert cuda_engine(0).pool.created - made <= cuda_engine(0).max_threads
    assert soon(lambda: len(cuda_engine(0).pool) >= max(1, idle))


def test_on_a_stream_of_the_users(clip_folder: Path) -> None:
    """Batches are ready on whatever stream the consumer has, and their memory stays theirs."""
    dataset = VideoDataset(_files(clip_folder), processing={"x": ProcessDesc(type="byte")}, device="cuda")
    loader = VideoLoader(dataset, 8, shuffle=True, memory_budget="1MB")
    truth = [batch["x"].cpu() for batch in loader]
    loader = VideoLoader(dataset, 8, shuffle=True, memory_budget="1MB")
    copies = []
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        for batch in loader:
            torch.cuda._sleep(1_000_000)  # type: ignore[no-untyped-call]
            copies.append(batch["x"].clone())
            del batch
        torch.cuda.current_stream().synchronize()
    assert all(torch.equal(one.cpu(), other) for one, other in zip(copies, truth, strict=True))


def test_many_readers_at_once(clip_folder: Path) -> None:
    import threading

    from framefeed import VideoDecoder
    from framefeed.decode.default import cuda_engine

    decoder = VideoDecoder(clips.make("h264_b_pyramid", clip_folder), device="cuda")
    truth = decoder.get_all_frames().data
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        for _ in range(20):
            number = int(torch.randint(len(decoder), (1,), generator=rng))
            if not torch.equal(decoder[number], truth[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3 * cuda_engine(0).max_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(cuda_engine(0).pool) <= 2 * cuda_engine(0).max_threads
