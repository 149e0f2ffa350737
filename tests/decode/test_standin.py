"""What runs on a GPU, run by a stand-in: decoders, requests in order, the loader."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import clips
import standin
from framefeed import (
    DecodeError,
    FramefeedError,
    PacketDataset,
    PacketDecoder,
    ProcessDesc,
    VideoDataset,
    VideoDecoder,
    VideoLoader,
)
from framefeed.batch.assembly import locate_samples
from framefeed.batch.videos import OpenVideo
from framefeed.testing import samples
from standin import StandIn

KINDS = ("h264_b_pyramid", "h264_one_group", "hevc_open_gop", "h264_ts", "vp9_alt_ref", "vp8_alt_ref")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    # Decoders that were used longest ago are taken first: what is decoded again is so on another stream.
    monkeypatch.setattr("framefeed.decode.pool.reversed", list, raising=False)
    with standin.installed(monkeypatch) as used:
        yield used
        gc.collect()
        assert used.order.found() == []


def _without_group(good: Path, bad: Path, nth: int) -> list[int]:
    """Writes zeros over the first packet of a group; returns the frames that are lost."""
    packets, data = VideoDecoder(good).index.packets, bytearray(good.read_bytes())
    hit = int(np.unique(packets.start)[nth])
    begin, size = int(packets.pos[hit]), int(packets.size[hit])
    data[begin : begin + size] = bytes(size)
    bad.write_bytes(data)
    lost: list[int] = np.flatnonzero(packets.start[packets.frames] == hit).tolist()
    return lost


def _truth(path: Path) -> torch.Tensor:
    """All frames as the stand-in converts them."""
    frames = [clips.luma(frame) for frame in clips.linear_decode(path)]
    return torch.from_numpy(np.stack(frames))[:, None].expand(-1, 3, -1, -1)


@pytest.mark.parametrize("name", KINDS)
def test_any_frames_in_any_order(name: str, gpu: StandIn, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    truth, reader = _truth(path), gpu.reader(VideoDecoder(path))
    rng = np.random.default_rng(1)
    for wanted in (rng.permutation(len(truth)), rng.integers(0, len(truth), 9), np.array([len(truth) - 1])):
        assert torch.equal(gpu.look_at(reader.read(wanted)), truth[wanted])
    assert torch.equal(torch.stack(list(reader.iterate())), truth)
    assert 0 < gpu.decoders <= 2 * standin.UNITS


@pytest.mark.parametrize("heeds_ends", [True, False])
@pytest.mark.parametrize("name", ["h264_b_pyramid", "h264_one_group", "hevc_open_gop"])
def test_the_end_comes_with_the_last_packets(name: str, heeds_ends: bool, gpu: StandIn, clip_folder: Path) -> None:
    """One call for a run. Decoders that do not heed it are asked for the rest."""
    path = clips.make(name, clip_folder)
    gpu.heeds_ends = heeds_ends
    truth, reader = _truth(path), gpu.reader(VideoDecoder(path))
    for wanted in np.random.default_rng(2).permutation(len(truth))[:12].reshape(4, 3):
        assert torch.equal(gpu.look_at(reader.read(wanted)), truth[wanted])
    assert (gpu.ends == 0) is heeds_ends


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("length", [1, 2, 7])
@pytest.mark.parametrize("budget", [5, 16, 1000])
def test_requests_in_order(
    name: str, length: int, budget: int, gpu: StandIn, clip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read ahead for them is what would have come without."""
    path = clips.make(name, clip_folder)
    truth, reader = _truth(path), gpu.reader(VideoDecoder(path))
    monkeypatch.setattr("framefeed.decoder.reading_cuda.WINDOW_BYTES", (0, budget * truth[0].numel()))
    for _ in range(2):
        for start in range(0, len(truth), length):
            wanted = np.arange(start, min(start + length, len(truth)))
            assert torch.equal(gpu.look_at(reader.read(wanted)), truth[wanted]), wanted
        assert torch.equal(reader.read(np.array([3]))[0], truth[3])  # elsewhere, in the middle
    assert torch.equal(torch.stack(list(reader.iterate())), truth)


@pytest.mark.parametrize("gop", [20, 60, 250])
@pytest.mark.parametrize("length", [1, 16, 23])
def test_requests_in_order_decode_each_frame_about_once(gop: int, length: int, gpu: StandIn, tmp_path: Path) -> None:
    frames = 500
    path = samples.write_clip(tmp_path / "long.mp4", frames=frames, gop=gop, bframes=2, width=64, height=48)
    reader = gpu.reader(VideoDecoder(path))
    for start in range(0, frames, length):
        reader.read(np.arange(start, min(start + length, frames)))
    assert gpu.pictures <= 1.2 * frames


def test_a_frame_that_is_kept_keeps_no_others(gpu: StandIn, clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    reader = gpu.reader(VideoDecoder(path))
    size = _truth(path)[0].numel()
    assert {frame.untyped_storage().nbytes() for frame in reader.iterate()} == {size}
    reads = [reader.read(np.arange(start, start + 4)) for start in range(0, 16, 4)]
    assert {frames.untyped_storage().nbytes() for frames in reads} == {4 * size}


def test_what_was_read_ahead_is_ready_on_any_stream(gpu: StandIn, clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    truth, reader = _truth(path), gpu.reader(VideoDecoder(path))
    streams = [standin.Stream() for _ in range(3)]
    for number in range(len(truth)):
        with gpu.order.on(streams[number % 3]):
            assert torch.equal(gpu.look_at(reader.read(np.array([number])))[0], truth[number])
    frames = reader.iterate()
    for number in range(len(truth)):
        with gpu.order.on(streams[number % 3]):
            assert torch.equal(gpu.look_at(next(frames)), truth[number])


def test_no_memory_for_reading_ahead(gpu: StandIn, clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clips.make("h264_bframes", clip_folder)
    truth, reader = _truth(path), gpu.reader(VideoDecoder(path))
    empty, most = torch.empty, 2

    def refuse(shape: Any, **arguments: Any) -> torch.Tensor:
        nonlocal most
        most -= 1
        if most < 0 and len(shape) == 4:
            most = 2
            raise torch.cuda.OutOfMemoryError("out of memory")
        return empty(shape, **arguments)

    reader.read(np.arange(2))
    monkeypatch.setattr(torch, "empty", refuse)
    for start in range(2, len(truth), 2):
        wanted = np.arange(start, start + 2)
        assert torch.equal(gpu.look_at(reader.read(wanted)), truth[wanted])


def test_damage_ahead_is_for_the_request_that_asks_for_it(gpu: StandIn, clip_folder: Path, tmp_path: Path) -> None:
    good, path = clips.make("h264_bframes", clip_folder), tmp_path / "bad.mp4"
    first = _without_group(good, path, 2)[0]
    truth, reader = _truth(good), gpu.reader(VideoDecoder(path))
    for number in range(first):
        assert torch.equal(reader.read(np.array([number]))[0], truth[number])
    with pytest.raises(DecodeError, match=f"frame {first} "):
        reader.read(np.array([first]))
    assert torch.equal(reader.read(np.arange(3)), truth[:3])


def test_what_was_read_ahead_of_a_changed_file_is_not_handed_out(
    gpu: StandIn, clip_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(clips.make("h264_bframes", clip_folder).read_bytes())
    reader = gpu.reader(VideoDecoder(path))
    for number in range(6):
        reader.read(np.array([number]))
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(FramefeedError, match="changed since it was indexed"):
        reader.read(np.array([6]))


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_a_loader_that_is_left(share: float, gpu: StandIn, clip_folder: Path) -> None:
    """Memory of batches that nobody has taken, and of frames that were kept, goes back when all is written to it."""
    path = clips.make("h264_b_pyramid", clip_folder)
    dataset = VideoDataset([str(path)] * 4, processing={"default": ProcessDesc(type="byte")})
    budget = int(share * len(dataset) * _truth(path)[0].numel())
    for number in range(1, 8):
        stream = standin.Stream()
        loader = VideoLoader(dataset, 4, order="shuffle", memory_budget=budget)
        batches = iter(loader)
        for _ in range(number):
            with gpu.order.on(stream):
                gpu.look_at(next(batches)["default"])
        batches.close()
        del batches, loader


@pytest.mark.parametrize("order", ["sequential", "shuffle", "chunked:8", "buffered:32"])
@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("type_", ["byte", "float"])
def test_the_loader(order: str, share: float, type_: Any, gpu: StandIn, clip_folder: Path) -> None:
    paths = [clips.make(name, clip_folder) for name in ("h264_b_pyramid", "hevc_open_gop", "h264_one_group")]
    truth = {str(path): _truth(path) for path in paths}
    dataset = VideoDataset(
        [str(path) for path in paths],
        sequence_length=2,
        processing={"default": ProcessDesc(type=type_)},
        get_label=lambda path, frame, changes: (path, frame),
    )
    size = next(iter(truth.values()))[0].numel()
    budget = int(share * sum(map(len, truth.values())) * size)
    loader = VideoLoader(dataset, 4, order=order, memory_budget=budget, drop_last=False)
    for _ in range(2):
        seen = []
        for batch in loader:
            gpu.look_at(batch["default"])
            for row, (path, frame) in enumerate(batch["labels"]):
                got = batch["default"][row]
                assert torch.equal(got, truth[path][frame : frame + 2].to(got.dtype))
                seen.append((path, frame))
        assert len(seen) == len(dataset) == len(set(seen))
    assert gpu.decoders <= 2 * 2 * standin.UNITS  # for each of two codecs


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_memory_over_many_batches(
    share: float, gpu: StandIn, clip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is allocated on the device, and how many decoders there are, does not depend on how long one reads."""
    # Each thread gets memory of that size when it needs it first, which may be late.
    monkeypatch.setattr("framefeed.batch.workshop_cuda.MAX_SCRATCH_FRAMES", 4)
    paths = [str(clips.make(name, clip_folder)) for name in ("h264_b_pyramid", "hevc_open_gop")]
    processing = {
        "whole": ProcessDesc(type="byte"),
        "half": ProcessDesc(type="half", color_space="YCbCr", index_map=[0, -1]),
    }
    dataset = VideoDataset(paths, 2, processing=processing)
    loader = VideoLoader(dataset, 4, order="shuffle", memory_budget=int(share * 2e6))
    allocated = []
    for _ in range(24):
        most = 0
        for batch in loader:
            gpu.look_at(batch["whole"])
            gpu.look_at(batch["half"])
            most = max(most, gpu.order.allocated())
        allocated.append(most)
    assert gpu.decoders <= 2 * 2 * standin.UNITS  # for each of two codecs
    # Another decoder may come late, with what belongs to it. Batches of an epoch are as much as nearly all the rest.
    assert max(allocated[12:]) <= 1.5 * max(allocated[:12])
    assert loader.stats().memory_peak <= loader.memory_budget


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_several_descriptions(mixed: bool, share: float, gpu: StandIn, clip_folder: Path) -> None:
    """Each makes something else of a picture, one of them of the second frame of each sample alone."""
    path = clips.make("h264_b_pyramid", clip_folder)
    truth = _truth(path)
    processing = {
        "second": ProcessDesc(type="byte", color_space="YCbCr", index_map=[-1, 0]),  # the stand-in knows no colours
        "both": ProcessDesc(type="half", dimension_order="cfhw"),
    }
    dataset = VideoDataset([str(path)] * 2, 2, processing=processing, get_label=lambda path, frame, changes: frame)
    budget = int(share * 2 * len(truth) * 2 * truth[0].numel())
    numbers = np.arange(0, len(dataset), 2)  # each frame once
    sampler = np.random.default_rng(0).permutation(numbers) if mixed else numbers
    loader = VideoLoader(dataset, 4, sampler=sampler.tolist(), memory_budget=budget, drop_last=False)
    seen = []
    for batch in loader:
        gpu.look_at(batch["second"])
        gpu.look_at(batch["both"])
        for row, frame in enumerate(batch["labels"]):
            assert torch.equal(batch["second"][row], truth[frame + 1 : frame + 2])
            assert torch.equal(batch["both"][row], truth[frame : frame + 2].half().transpose(0, 1))
            seen.append(frame)
    assert len(seen) == len(numbers)


@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_packets_that_workers_read(order: str, gpu: StandIn, clip_folder: Path) -> None:
    path = clips.make("h264_b_pyramid", clip_folder)
    truth, dataset = _truth(path), VideoDataset([str(path)] * 3, processing={"default": ProcessDesc(type="byte")})
    loader = VideoLoader(dataset, 8, order=order, memory_budget="200KB", num_workers=2, drop_last=False)
    samples = loader._epochs.batches(0, 0)
    for batch, numbers in zip(loader, samples, strict=True):
        wanted = truth[numbers % len(truth)]
        assert torch.equal(gpu.look_at(batch["default"])[:, 0], wanted)


def _damage(good: Path, bad: Path, rng: np.random.Generator) -> None:
    """Writes zeros or ones over one or two packets."""
    packets, data = VideoDecoder(good).index.packets, bytearray(good.read_bytes())
    for hit in rng.integers(0, len(packets), int(rng.integers(1, 3))):
        begin, end = int(packets.pos[hit]), int(packets.pos[hit] + packets.size[hit])
        kept = int(rng.choice([0, 4]))
        data[begin + kept : end] = bytes([255 if kept else 0]) * (end - begin - kept)
    bad.write_bytes(data)


@pytest.mark.parametrize("name", ["h264_bframes", "h264_b_pyramid", "h264_open_gop", "hevc_open_gop", "h264_one_group"])
@pytest.mark.parametrize("seed", range(4))
def test_what_becomes_of_a_frame_does_not_depend_on_others(
    name: str, seed: int, gpu: StandIn, clip_folder: Path, tmp_path: Path
) -> None:
    good, bad = clips.make(name, clip_folder), tmp_path / "bad.mp4"
    truth, rng = _truth(good), np.random.default_rng(seed)
    _damage(good, bad, rng)
    decoder = VideoDecoder(bad)
    failed = set()
    for number in range(len(truth)):
        try:
            found = gpu.look_at(gpu.reader(decoder).read(np.array([number])))
        except DecodeError:
            failed.add(number)
        else:
            assert torch.equal(found[0], truth[number])
    reader = gpu.reader(decoder)
    for _ in range(6):
        wanted = rng.choice(len(truth), int(rng.integers(2, len(truth))), replace=False)
        try:
            assert torch.equal(gpu.look_at(reader.read(wanted)), truth[wanted])
        except DecodeError as error:
            assert set(error.reasons) == failed & set(wanted.tolist())
        else:
            assert not failed & set(wanted.tolist())
    dataset = VideoDataset(
        [str(bad), str(good), str(bad)],
        processing={"default": ProcessDesc(type="byte")},
        get_label=lambda path, frame, changes: (path, frame),
    )
    for order in ("sequential", "shuffle"):
        loader = VideoLoader(dataset, 4, order=order, memory_budget="500KB", on_error="skip", drop_last=False)
        seen = []
        for batch in loader:
            for frame, (path, number) in zip(gpu.look_at(batch["default"]), batch["labels"], strict=True):
                assert torch.equal(frame[0], truth[number])
                seen.append((path, number))
        bad_ones = [number for path, number in seen if path == str(bad)]
        assert len(seen) == 3 * len(truth) - 2 * len(failed) and not failed & set(bad_ones)


@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_a_damaged_file_among_others(order: str, gpu: StandIn, clip_folder: Path, tmp_path: Path) -> None:
    good, bad = clips.make("h264_bframes", clip_folder), tmp_path / "bad.mp4"
    truth, lost = _truth(good), _without_group(good, bad, 1)
    dataset = VideoDataset(
        [str(good), str(bad), str(good)],
        processing={"default": ProcessDesc(type="byte")},
        get_label=lambda path, frame, changes: (path, frame),
    )
    loader = VideoLoader(dataset, 4, order=order, memory_budget="100KB", on_error="skip", drop_last=False)
    seen = []
    for batch in loader:
        gpu.look_at(batch["default"])
        for frame, (path, number) in zip(batch["default"], batch["labels"], strict=True):
            assert torch.equal(frame[0], truth[number])
            seen.append((path, number))
    expected = [(path, number) for path in dataset.filenames for number in range(len(truth))]
    failed = {(str(bad), number) for number in lost}
    assert sorted(seen) == sorted(pair for pair in expected if pair not in failed)


def test_kept_as_decoded_where_that_is_less(gpu: StandIn, clip_folder: Path, tmp_path: Path) -> None:
    """Twice as many frames are kept in the same memory."""
    full, quarter = ProcessDesc(), ProcessDesc(scale_width=24, scale_height=16)
    path = samples.write_clip(tmp_path / "odd.mp4", frames=4, width=98, height=66)
    videos = VideoDataset([str(path)], processing={"default": full}).videos
    assert videos[0].kept_size == (99, 98) and videos[0].frame_bytes == 99 * 98
    assert videos[0].intermediate_bytes == 3 * 98 * 66
    assert VideoDataset([str(path)], processing={"default": quarter}).videos[0].kept_size is None
    both = VideoDataset([str(path)], processing={"one": full, "two": quarter}).videos[0]
    assert both.kept_size == (99, 98) and both.intermediate_bytes == 3 * (98 * 66 + 24 * 16)
    ten_bits = clips.make("hevc_10bit", clip_folder)
    assert VideoDataset([str(ten_bits)], processing={"default": full}).videos[0].kept_size is None
    on_cpu = dataclasses.replace(videos[0], on_cpu=True)
    assert on_cpu.kept_size is None and on_cpu.frame_bytes == 3 * 98 * 66


def test_less_is_decoded(gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = samples.write_clip(tmp_path / "long.mp4", frames=300, gop=30, width=64, height=48)
    budget = 4 * 75 * 3 * 64 * 48  # a quarter of all frames as RGB
    decoded = []
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr(OpenVideo, "kept_size", None)
        dataset = VideoDataset([str(path)] * 4, processing={"default": ProcessDesc(type="byte")})
        loader = VideoLoader(dataset, 10, order="shuffle", memory_budget=budget, drop_last=False)
        for batch in loader:
            gpu.look_at(batch["default"])
        decoded.append(loader.stats().packets_decoded)
        assert loader.stats().memory_peak <= budget
    assert decoded[0] < 0.85 * decoded[1]


def test_samples_one_by_one(gpu: StandIn, clip_folder: Path) -> None:
    """As a dataset gives them that is asked itself."""
    path = clips.make("h264_b_pyramid", clip_folder)
    truth = _truth(path)
    dataset = VideoDataset([str(path)], 3, processing={"byte": ProcessDesc(type="byte"), "float": ProcessDesc()})
    numbers = np.random.default_rng(2).permutation(len(dataset))
    refs = locate_samples(dataset.frame_layout, numbers, dataset.seed, dataset.epoch, draws=dataset.draws)
    for number, sample in zip(numbers.tolist(), dataset._read_on_gpu(refs), strict=True):
        for name, frames in (("byte", truth), ("float", truth.float())):
            assert torch.equal(gpu.look_at(sample[name]), frames[number : number + 3])


@pytest.mark.parametrize("memory_budget", ["20KB", "1GB"])
def test_packets(memory_budget: str, gpu: StandIn, clip_folder: Path) -> None:
    """What was read elsewhere is decoded by it."""
    paths = [clips.make(name, clip_folder) for name in ("h264_b_pyramid", "hevc_open_gop")]
    truth = [_truth(path) for path in paths]
    dataset = VideoDataset([str(path) for path in paths], processing={"default": ProcessDesc(type="byte")})
    packets, decoder = PacketDataset(dataset), PacketDecoder(dataset, memory_budget=memory_budget)
    every = torch.cat(truth)
    wanted = np.random.default_rng(4).permutation(len(dataset)).reshape(-1, 6).tolist()
    for _ in range(2):
        loader: DataLoader[Any] = DataLoader(packets, batch_sampler=wanted, collate_fn=packets.collate)
        for numbers, batch in zip(wanted, decoder(loader), strict=True):
            assert torch.equal(gpu.look_at(batch["default"])[:, 0], every[numbers])
    decoder.close()


def test_streams_that_need_more_surfaces(gpu: StandIn, tmp_path: Path) -> None:
    """A decoder does not notice by itself that a stream refers to more pictures than the one before it."""
    sizes = {"small": (96, 64), "large": (160, 96)}
    paths = [
        samples.write_clip(
            tmp_path / f"{name}{refs}.mp4",
            frames=24,
            gop=12,
            width=size[0],
            height=size[1],
            options={"x264-params": f"ref={refs}"},
        )
        for name, size in sizes.items()
        for refs in (1, 4, 9)
    ]
    truth = [_truth(path) for path in paths]
    readers = [gpu.reader(VideoDecoder(path)) for path in paths]
    rng = np.random.default_rng(5)
    for which in [*range(6), *rng.integers(0, 6, 60).tolist()]:
        wanted = rng.integers(0, 24, 3)
        assert torch.equal(gpu.look_at(readers[which].read(wanted)), truth[which][wanted]), paths[which]
    assert gpu.decoders <= 2 * standin.UNITS


def test_decoders_are_not_made_again_for_another_size(gpu: StandIn, tmp_path: Path) -> None:
    paths = [
        samples.write_clip(tmp_path / f"{size[0]}{number}.mp4", frames=24, gop=12, width=size[0], height=size[1])
        for size in ((96, 64), (160, 96))
        for number in range(3)
    ]
    readers = [gpu.reader(VideoDecoder(path)) for path in paths]
    rng = np.random.default_rng(6)
    for which in rng.integers(0, 6, 60).tolist():
        readers[which].read(rng.integers(0, 24, 3))
    assert gpu.decoders <= 2 * standin.UNITS


def test_streams_of_decoders_are_used_again(gpu: StandIn, clip_folder: Path) -> None:
    """What belongs to a stream stays for ever, and decoders come and go."""
    from framefeed.convert.cuda import surfaces

    readers = [gpu.reader(VideoDecoder(clips.make(name, clip_folder))) for name in KINDS]
    numbers = np.arange(0, 40, 6)
    found = []
    for _ in range(8):
        for reader in readers:
            reader.read(numbers)
        gc.collect()
        found.append(len(surfaces._contexts))
    assert found[-1] <= 2 * found[0], found  # how many are in use at a time is a matter of luck


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_epochs_that_are_known(order: str, share: float, gpu: StandIn, clip_folder: Path) -> None:
    """What is kept for the next epoch is what would have come without."""
    paths = [clips.make(name, clip_folder) for name in ("h264_b_pyramid", "hevc_open_gop")]
    every = torch.cat([_truth(path) for path in paths])
    dataset = VideoDataset([str(path) for path in paths], processing={"default": ProcessDesc(type="byte")})
    budget = int(share * len(dataset) * dataset.videos[0].frame_bytes)
    loader = VideoLoader(dataset, 6, order=order, drop_last=False, memory_budget=budget, num_epochs=4)
    for epoch in range(4):
        numbers = np.concatenate(list(loader._epochs.batches(epoch, 0)))
        found = torch.cat([gpu.look_at(batch["default"])[:, 0] for batch in loader])
        assert torch.equal(found, every[numbers]), epoch
    assert loader.stats().memory_peak <= budget
    if share == 1.0:
        assert loader.stats().packets_decoded < 3 * len(dataset)  # how many go by before they are known to be of use
