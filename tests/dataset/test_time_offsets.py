"""``delta_timestamps``: frames at times around an anchor, by their exact times, padded at the ends of a file."""

from __future__ import annotations

import pickle
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from framefeed import (
    Catalog,
    FrameTimeError,
    PacketDataset,
    PacketDecoder,
    ProcessDesc,
    VideoDataset,
    VideoIndex,
    VideoLoader,
)
from framefeed.dataset.time_offsets import check_times, frames_near
from helpers.clips_help import SPECS, clip, clips_of, num_frames, painted_number, same_bits, start_of

BYTE = ProcessDesc(type="byte")
LEROBOT = {"observation": [-0.2, -0.1, 0.0]}


def _numbers(frames: torch.Tensor) -> list[int]:
    return [painted_number(frame.numpy()) for frame in frames]


def _seconds(path: str) -> list[Fraction]:
    """When each frame is shown, exactly."""
    index = VideoIndex.scan(path)
    return [int(pts) * index.stream.time_base for pts in index.packets.frame_pts]


def _expected(path: str, anchor: int, offsets: list[float], tolerance: float) -> tuple[list[int], list[bool]]:
    """The plain way: look at all frames for each time."""
    times = _seconds(path)
    frames, padded = [], []
    for offset in offsets:
        wanted = times[anchor] + Fraction(offset)
        nearest = min(range(len(times)), key=lambda frame: (abs(times[frame] - wanted), frame))
        frames.append(nearest)
        padded.append(abs(times[nearest] - wanted) > tolerance)
        assert not padded[-1] or nearest in (0, len(times) - 1)
    return frames, padded


@pytest.mark.parametrize(
    ("name", "offsets"),
    [
        ("thirty.mp4", [-0.2, -0.1, 0.0]),
        ("thirty.mkv", [-0.2, -1 / 30, 0.0, 1 / 30]),  # whose times are rounded to milliseconds
        ("ntsc.mp4", [-1.001, -1001 / 30000, 0, 1001 / 3000]),
        ("film.ts", [1001 / 24000, 0.0, -1001 / 12000]),  # begins at some other time than 0
    ],
)
def test_constant_rates(name: str, offsets: list[float], clip_folder: Path) -> None:
    path = clip(name, clip_folder)
    dataset = VideoDataset(path, delta_timestamps={"frames": offsets}, processing={"frames": BYTE})
    count = num_frames(path)
    assert len(dataset) == count  # every frame is an anchor
    rate = Fraction(SPECS[name].get("fps", 30))
    steps = [round(Fraction(offset) * rate) for offset in offsets]
    samples = dataset.__getitems__(list(range(0, count, 3)) + [count - 1])
    for anchor, sample in zip([*range(0, count, 3), count - 1], samples, strict=True):
        wanted = [anchor + step for step in steps]
        assert _numbers(sample["frames"]) == [min(max(0, frame), count - 1) for frame in wanted]
        assert sample["frames_is_pad"].dtype == torch.bool
        assert sample["frames_is_pad"].tolist() == [not 0 <= frame < count for frame in wanted]


def test_variable_rate(clip_folder: Path) -> None:
    path = clip("vfr.mkv", clip_folder)
    offsets = [-0.31, -0.1, 0.0, 0.25]
    dataset = VideoDataset(path, delta_timestamps={"frames": offsets}, tolerance_s=0.05, processing={"frames": BYTE})
    steps = set()
    for anchor in range(0, len(dataset), 3):
        frames, padded = _expected(path, anchor, offsets, 0.051)
        sample = dataset[anchor]
        assert _numbers(sample["frames"]) == frames
        assert sample["frames_is_pad"].tolist() == padded
        steps.add(tuple(np.subtract(frames, anchor).tolist()))
    assert len(steps) > 5  # another number of frames back each time


def test_a_time_without_a_frame_is_an_error_that_says_what_would_do(clip_folder: Path) -> None:
    vfr, thirty = clips_of(["vfr.mkv", "thirty.mp4"], clip_folder)
    with pytest.raises(FrameTimeError, match=r"vfr\.mkv: no frame within .* s of -0\.1 s from frame \d+") as caught:
        VideoDataset(vfr, delta_timestamps=LEROBOT)
    enough = float(str(caught.value).partition("tolerance_s=")[2].split()[0])
    VideoDataset(vfr, delta_timestamps=LEROBOT, tolerance_s=enough)
    with pytest.raises(FrameTimeError, match="no frame within"):
        VideoDataset(vfr, delta_timestamps=LEROBOT, tolerance_s=0.95 * enough - 0.001)
    # Half of a frame's time off, in each sample but those at the end: nowhere is the nearest one taken silently.
    with pytest.raises(FrameTimeError, match=r"nearest is frame .* 89 of 90 frames.*30 frames/s"):
        VideoDataset(thirty, delta_timestamps={"ahead": [1 / 60]})
    with pytest.warns(UserWarning, match=r"left out 1 of 2 files: .*vfr\.mkv") as warned:
        dataset = VideoDataset([vfr, thirty], delta_timestamps=LEROBOT, on_error="skip")
    assert [Path(warning.filename) for warning in warned] == [Path(__file__)]
    assert dataset.filenames == (thirty,) and [bad.path for bad in dataset.unreadable] == [vfr]


def test_tolerance_and_rounded_times(clip_folder: Path) -> None:
    """What a container rounds is no error; what is more than that is one, and is no padding inside of a file."""
    mp4, mkv = clips_of(["thirty.mp4", "thirty.mkv"], clip_folder)
    for path in (mp4, mkv):
        VideoDataset(path, delta_timestamps={"x": [-1 / 30, 1 / 30]}, tolerance_s=0)
        for off in (-0.003, 0.003):
            with pytest.raises(FrameTimeError):
                VideoDataset(path, delta_timestamps={"x": [-1 / 30 + off]})
            dataset = VideoDataset(path, delta_timestamps={"x": [-1 / 30 + off]}, tolerance_s=0.003)
            assert dataset[1]["x_is_pad"].tolist() == [False]
            assert dataset[0]["x_is_pad"].tolist() == [True]


def test_times_that_floats_cannot_count() -> None:
    """Nanoseconds since 1970, as cameras write them: near the anchor they have to be exact."""
    begin, step = 1_700_000_000_000_000_123, 33_333_333
    times = begin + step * np.arange(30, dtype=np.int64)
    index: Any = SimpleNamespace(
        packets=SimpleNamespace(frame_pts=times, frame_duration=np.full(30, step)),
        stream=SimpleNamespace(time_base=Fraction(1, 10**9)),
        num_frames=30,
        path="clock",
    )
    near = frames_near(index, np.arange(30), [-0.033333333, 0.0], 0)
    assert near.frames.tolist() == [[max(0, frame - 1), frame] for frame in range(30)]
    assert near.padded.sum() == 1 and near.padded[0, 0] and near.away.max() < 1e-9
    check_times(index, [-0.033333333, 0.0], 0)


def test_several_names_and_labels_of_the_anchor(clip_folder: Path) -> None:
    path = clip("thirty.mp4", clip_folder)
    dataset = VideoDataset(
        path,
        delta_timestamps={"past": [-0.1, 0.0], "future": [0.1, 0.1, -0.1]},
        processing={
            "past": BYTE,
            "now": ProcessDesc(type="byte", scale_width=48, scale_height=36),
            "future": ProcessDesc(type="half", dimension_order="cfhw"),
        },
        get_label=start_of,
    )
    sample = dataset[88]
    assert list(sample) == ["past", "now", "future", "past_is_pad", "future_is_pad", "labels"]
    assert _numbers(sample["past"]) == [85, 88]
    assert _numbers(sample["now"]) == [88] and sample["now"].shape == (1, 3, 36, 48)
    assert sample["future"].shape == (3, 3, 48, 64)
    assert _numbers(sample["future"].movedim(0, 1).float()) == [89, 89, 85]
    assert sample["past_is_pad"].tolist() == [False, False]
    assert sample["future_is_pad"].tolist() == [True, True, False]
    assert sample["labels"] == (path, 88) and dataset.locate(88) == (path, 88)
    assert "samples of 6 frames" in repr(dataset)
    plain = VideoDataset(path, delta_timestamps={"a": [0.0], "b": (0, -0.2)})[6]
    assert plain["a"].dtype == torch.float32 and _numbers(plain["b"]) == [6, 0]


def test_all_ways_of_reading_agree(clip_folder: Path) -> None:
    paths = clips_of(["thirty.mp4", "vfr.mkv", "one_frame.mp4"], clip_folder)
    catalog = Catalog.build(paths, clip_folder / "offsets.arrow", num_workers=1)
    dataset = VideoDataset(
        None,
        delta_timestamps={"seen": [-0.2, -0.1, 0.0], "next": [0.1]},
        tolerance_s=0.05,
        processing={"seen": ProcessDesc(type="byte", random_flip=True), "next": BYTE},
        get_label=start_of,
        catalog=catalog,
    )
    assert len(dataset) == 90 + 60 + 1
    truth = {sample["labels"]: sample for sample in dataset.__getitems__(list(range(len(dataset))))}
    assert len(truth) == len(dataset)

    def wrong(batches: Any) -> list[Any]:
        seen = []
        found: list[Any] = []
        for batch in batches:
            for row, label in enumerate(map(tuple, batch["labels"])):
                seen.append(label)
                names = [name for name in truth[label] if name != "labels"]
                found += [(label, name) for name in names if not same_bits(batch[name][row], truth[label][name])]
        return found + sorted(truth.keys() - set(seen))

    loader = VideoLoader(dataset, batch_size=32, shuffle=True, drop_last=False, memory_budget="1MB")
    assert wrong(loader) == []
    assert wrong(VideoLoader(dataset, batch_size=32, drop_last=False, num_workers=1)) == []
    packets, numbers = PacketDataset(dataset), np.random.default_rng(0).permutation(len(dataset)).tolist()
    with PacketDecoder(dataset) as decoder:
        assert wrong(decoder(packets.__getitems__(numbers[low : low + 40]) for low in range(0, 160, 40))) == []
    copied = pickle.loads(pickle.dumps(dataset))
    plain = DataLoader(copied, batch_size=64, collate_fn=lambda rows: _stacked(rows))
    assert wrong(plain) == []


def _stacked(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = [name for name in rows[0] if name != "labels"]
    return {**{name: torch.stack([row[name] for row in rows]) for name in names}, "labels": [r["labels"] for r in rows]}


def test_arguments(clip_folder: Path) -> None:
    path = clip("thirty.mp4", clip_folder)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"delta_timestamps": {}}, "empty"),
        ({"delta_timestamps": {"x": []}}, "one or more"),
        ({"delta_timestamps": {"x": [float("nan")]}}, "finite"),
        ({"delta_timestamps": {"x": 0.1}}, "list of seconds"),
        ({"delta_timestamps": {"x": ["soon"]}}, "list of seconds"),
        ({"delta_timestamps": {"action": [0.0]}, "processing": {"x": BYTE}}, r"'action', but processing has 'x'"),
        ({"delta_timestamps": {"x": [0.0]}, "processing": {"x": BYTE, "x_is_pad": BYTE}}, "mask of 'x'"),
        ({"delta_timestamps": {"x": [0.0]}, "processing": {"x": ProcessDesc(index_map=[0])}}, "desired order"),
        ({"delta_timestamps": {"x": [0.0]}, "sequence_length": 2}, "delta_timestamps cannot be combined"),
        ({"delta_timestamps": {"x": [0.0]}, "frame_stride": 2}, "delta_timestamps cannot be combined"),
        ({"delta_timestamps": {"x": [0.0]}, "fps": 10}, "delta_timestamps cannot be combined"),
        ({"delta_timestamps": {"x": [0.0]}, "tolerance_s": -1}, "tolerance_s"),
        ({"delta_timestamps": {"x": [0.0]}, "tolerance_s": float("nan")}, "tolerance_s"),
    ]
    for arguments, what in wrong:
        with pytest.raises(ValueError, match=what):
            VideoDataset(path, **arguments)
    with pytest.raises(TypeError, match="must be a ProcessDesc"):
        VideoDataset(path, delta_timestamps={"x": [0.0]}, processing={"x": "float"})  # type: ignore[dict-item]
