"""What happens on a GPU once in a while: joined files, sizes that are mixed, threads that fail or are late."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clips
import standin
from framefeed import ProcessDesc, VideoDataset, VideoDecoder, VideoLoader
from framefeed.batch.assembly import locate_samples
from framefeed.batch.work import Taken
from framefeed.cuda import driver
from framefeed.request import decode_runs
from framefeed.testing import samples
from standin import StandIn

BYTES = {"default": ProcessDesc(type="byte")}


def _truth(path: Path) -> torch.Tensor:
    frames = [clips.luma(frame) for frame in clips.linear_decode(path)]
    return torch.from_numpy(np.stack(frames))[:, None].expand(-1, 3, -1, -1)


def _number(filename: str, frame_index: int, changes: Any) -> int:
    return frame_index


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offsets", [(0, 0), (0, 7), (250, 0)])
def test_files_that_were_joined(offsets: tuple[int, int], gpu: StandIn, tmp_path: Path) -> None:
    """Times begin again; groups that are decoded in one go are told apart by their order."""
    joined = tmp_path / "joined.ts"
    parts = [
        samples.write_clip(
            tmp_path / f"{seed}.ts",
            frames=24,
            gop=12,
            width=96,
            height=64,
            seed=seed,
            pts=lambda place, offset=offset: place + offset,
        )
        for seed, offset in enumerate(offsets)
    ]
    joined.write_bytes(b"".join(part.read_bytes() for part in parts))
    truth = _truth(joined)
    dataset = VideoDataset([str(joined)] * 6, processing=BYTES, get_label=_number)
    loader = VideoLoader(dataset, 8, order="sequential", memory_budget="1GB", drop_last=False, num_threads=1)
    for batch in loader:
        gpu.look_at(batch["default"])
        for row, frame in enumerate(batch["labels"]):
            assert torch.equal(batch["default"][row, 0], truth[frame]), frame


def _read(gpu: StandIn, paths: list[Path]) -> None:
    for path in paths:
        assert torch.equal(gpu.look_at(gpu.reader(VideoDecoder(path)).read(np.array([4])))[0], _truth(path)[4]), path


def test_the_same_size_coded_in_another_size(gpu: StandIn, tmp_path: Path) -> None:
    """1080 lines may be coded as 1080 or as 1088; here 104, or 112."""
    eight, sixteen = (
        samples.write_clip(
            tmp_path / f"{unit}.mp4",
            codec="libx265",
            frames=12,
            gop=6,
            width=160,
            height=104,
            options={"x265-params": f"min-cu-size={unit}:log-level=none"},
        )
        for unit in (8, 16)
    )
    _read(gpu, [eight, sixteen, eight, sixteen, sixteen])
    assert gpu.decoders == 1


def test_larger_pictures_coded_in_the_same_size(gpu: StandIn, tmp_path: Path) -> None:
    small, less, more = (
        samples.write_clip(tmp_path / f"{width}.mp4", frames=12, gop=6, width=width, height=height)
        for width, height in ((96, 64), (162, 98), (176, 112))
    )
    _read(gpu, [small, less, more, less, small, more, less])
    assert gpu.decoders == 1


def test_a_run_that_is_not_fed(gpu: StandIn, tmp_path: Path) -> None:
    """A decoder is not what the stream needs that it was meant for, if that could not be read."""
    made = ((24, 12, 96, 1), (24, 12, 96, 9), (300, 250, 160, 1))
    few, many, long = (
        samples.write_clip(
            tmp_path / f"{number}.mp4",
            frames=frames,
            gop=gop,
            width=width,
            height=64,
            options={"x264-params": f"ref={references}:scenecut=0"},
        )
        for number, (frames, gop, width, references) in enumerate(made)
    )
    reader = gpu.reader(VideoDecoder(long))
    source = reader._source

    class Failing:
        def read(self, numbers: Any) -> Iterator[Any]:
            for count, item in enumerate(source.read(numbers)):
                if count == 150:
                    raise OSError(5, "Input/output error")
                yield item

    _read(gpu, [few])
    reader._source = Failing()
    with pytest.raises(OSError, match="Input/output"):
        reader.read(np.arange(200))
    _read(gpu, [many])


def test_decoders_of_several_formats_are_kept(gpu: StandIn, clip_folder: Path) -> None:
    """H.264, HEVC, VP8 and VP9 side by side: none is made anew once there are enough."""
    names = ("h264_b_pyramid", "hevc_open_gop", "vp8_alt_ref", "vp9_alt_ref")
    readers = [gpu.reader(VideoDecoder(clips.make(name, clip_folder))) for name in names]
    for _ in range(2):
        for reader in readers:
            reader.read(np.arange(40))
    made = gpu.decoders
    for _ in range(4):
        for reader in readers:
            reader.read(np.arange(40))
    assert gpu.decoders <= len(names) * 2 * standin.UNITS
    assert gpu.decoders - made <= 2  # as many as could not be in use at the same time before


# --- threads --------------------------------------------------------------------------------------------------------


def test_pictures_that_nobody_took(gpu: StandIn, clip_folder: Path) -> None:
    """A library that does not heed the end of a stream, and an error between: the next run gets its own pictures."""
    gpu.heeds_ends = False
    path = clips.make("h264_b_pyramid", clip_folder)
    truth, reader = _truth(path), gpu.reader(VideoDecoder(path))

    class Stops:
        def take(self, rows: Any, pictures: Any) -> None:
            raise RuntimeError("it is closed")

        def confirm(self) -> None:
            pass

        reject = confirm

    with driver.on_device(0):
        for last in range(3, 40):
            with pytest.raises(RuntimeError, match="it is closed"):
                decode_runs(reader._engine, reader._index, reader._source, [last], Stops(), num_threads=1)
            wanted = np.array([last % 13, last % 13 + 1])
            assert torch.equal(reader.read(wanted), truth[wanted])


def test_a_request_waits_for_all_its_threads(gpu: StandIn, tmp_path: Path) -> None:
    """Where one of them fails, others still write to its memory."""
    path = samples.write_clip(tmp_path / "groups.mp4", frames=120, gop=10, bframes=2, width=64, height=48)
    reader = gpu.reader(VideoDecoder(path))
    reader.read(np.arange(120))
    source, main, lock = reader._source, threading.current_thread(), threading.Lock()
    busy: set[int] = set()
    failed: list[int] = []

    class Slow:
        def read(self, numbers: Any) -> Iterator[Any]:
            if threading.current_thread() is not main:
                with lock:
                    is_first = not failed
                    failed.append(0)
                if is_first:
                    raise OSError(5, "Input/output error")
                busy.add(threading.get_ident())
                time.sleep(0.2)
            yield from source.read(numbers)
            busy.discard(threading.get_ident())

    reader._source = Slow()
    with pytest.raises(OSError, match="Input/output"):
        reader.read(np.arange(0, 120, 7))
    assert not busy


def test_an_iterator_that_is_closed_while_a_thread_reads(
    gpu: StandIn, clip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frames are not written over before that is done."""
    workshop_cuda: Any = importlib.import_module("framefeed.batch.workshop_cuda")
    path = clips.make("h264_b_pyramid", clip_folder)
    truth = _truth(path)
    finish, arrived, go = workshop_cuda.finish_frames, threading.Event(), threading.Event()
    put = workshop_cuda.CudaWorkshop.put
    putting = threading.local()

    def noted(self: Any, *arguments: Any) -> None:
        putting.is_so = True
        try:
            put(self, *arguments)
        finally:
            putting.is_so = False

    def held_up(*arguments: Any) -> None:
        finish(*arguments)
        if getattr(putting, "is_so", False) and not arrived.is_set():
            arrived.set()
            go.wait(1)

    monkeypatch.setattr(workshop_cuda.CudaWorkshop, "put", noted)
    monkeypatch.setattr(workshop_cuda, "finish_frames", held_up)
    dataset = VideoDataset([str(path)] * 3, sequence_length=3, processing=BYTES, get_label=_number)
    budget = 30 * dataset.videos[0].frame_bytes
    loader = VideoLoader(dataset, 4, order="shuffle", memory_budget=budget, drop_last=False)
    iterator = iter(loader)
    while not arrived.wait(0.01):
        next(iterator)
    iterator.close()
    try:
        for batch in loader:
            gpu.look_at(batch["default"])
            for row, frame in enumerate(batch["labels"]):
                assert torch.equal(batch["default"][row], truth[frame : frame + 3])
    finally:
        go.set()
    assert loader.stats().memory_peak <= budget


class _Gate:
    """A lock at whose door one thread is held up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.slow: threading.Thread | None = None
        self.arrived, self.go = threading.Event(), threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread() is self.slow:
            self.arrived.set()
            self.go.wait(2)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_the_latest_use_of_a_kept_frame_is_noted(gpu: StandIn, clip_folder: Path) -> None:
    """Two batches read it on one stream; whoever writes there next waits for the later of the two."""
    dataset = VideoDataset(clips.make("h264_b_pyramid", clip_folder), processing=BYTES)
    workshop = importlib.import_module("framefeed.batch.workshop_cuda").CudaWorkshop(standin.DEVICE, 1 << 30)
    gate = workshop._lock = _Gate()
    video = dataset.videos[0]

    def decode_into(bases: Any, frame: int) -> None:
        class Taker:
            def take(self, rows: Any, pictures: Any) -> None:
                workshop.take(video, [Taken(frame, pictures[0], bases, [])])

            def confirm(self) -> None:
                pass

            reject = confirm

        workshop.decode(video, video.source, [frame], Taker(), read_on=False)

    def batch() -> Any:
        found = locate_samples(dataset.frame_layout, np.array([3]), 0, 0, draws=False)
        return workshop.assemble(dataset.videos, found, dataset.shape)

    with driver.on_device(0):
        bases = workshop.allocate(video)
        decode_into(bases, 3)
        one, two = batch(), batch()
        first = threading.Thread(target=workshop.put, args=(one, [(bases, one.targets[0, 3])]))
        gate.slow = first
        first.start()
        gate.arrived.wait(10)
        workshop.put(two, [(bases, two.targets[0, 3])])
        gate.go.set()
        first.join()
        workshop.give_back(bases)
        again = workshop.allocate(video)
        assert again is bases
        decode_into(again, 20)


def test_memory_that_is_full_is_no_damage(gpu: StandIn, clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    reader = gpu.reader(VideoDecoder(path))
    gpu.full = True
    with pytest.raises(
        torch.cuda.OutOfMemoryError, match=rf"{path.name}: the GPU's memory is full.*less memory_budget"
    ):
        reader.read(np.array([3, 17]))
    gpu.full = False
    assert torch.equal(reader.read(np.array([3]))[0], _truth(path)[3])


def test_no_memory_for_a_decoder(gpu: StandIn, clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    reader = gpu.reader(VideoDecoder(path))

    def full(*_: Any) -> Any:
        raise RuntimeError("cuvidCreateDecoder returned CUDA_ERROR_OUT_OF_MEMORY")

    with monkeypatch.context() as patch:
        patch.setattr("framefeed.decode.nvdec.session_nvdec.NvdecFactory.make_decoder", full)
        with pytest.raises(torch.cuda.OutOfMemoryError, match=rf"{path.name}: the GPU's memory is full"):
            reader.read(np.array([3]))
    assert torch.equal(reader.read(np.array([3]))[0], _truth(path)[3])
