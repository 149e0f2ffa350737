"""Cuts are found where they are, and nowhere else: not in movement, fades, flashes or changes of light."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed import VideoDecoder, prepare
from framefeed.prepare import api
from framefeed.prepare.encoding.scenes import HEIGHT, WIDTH, find_cuts, measure
from framefeed.testing.samples import plane_samples, write_clip
from prepare.helpers import in_this_process

Frames = list[NDArray[np.float32]]

LARGE = (4 * HEIGHT, 4 * WIDTH)
BLACK, WHITE = np.zeros(LARGE, np.float32), np.full(LARGE, 255, np.float32)


def texture(rng: np.random.Generator, cell: int, height: int, width: int) -> NDArray[np.float64]:
    grid = rng.random((height // cell + 2, width // cell + 2))
    rows, row_part = np.divmod(np.arange(height) / cell, 1)
    cols, col_part = np.divmod(np.arange(width) / cell, 1)
    top, left = rows.astype(int), cols.astype(int)
    lines = grid[top] * (1 - row_part)[:, None] + grid[top + 1] * row_part[:, None]
    mixed: NDArray[np.float64] = lines[:, left] * (1 - col_part) + lines[:, left + 1] * col_part
    return mixed


@functools.cache
def land(seed: int) -> NDArray[np.float32]:
    """-0.5 to 0.5; far wider than a picture."""
    rng = np.random.default_rng(seed)
    size = (LARGE[0], LARGE[1] + 60 * 60)
    parts = [share * texture(rng, cell, *size) for cell, share in ((40, 0.6), (12, 0.3), (4, 0.1))]
    found: NDArray[np.float32] = (np.sum(parts, axis=0) - 0.5).astype(np.float32)
    return found


def scene(
    seed: int, count: int, *, speed: float = 1, mean: float = 120, contrast: float = 160, noise: float = 2
) -> Frames:
    """A camera that moves over a landscape of its own."""
    rng = np.random.default_rng((seed, 1))
    views = (land(seed)[:, (left := int(number * speed)) : left + LARGE[1]] for number in range(count))
    grain = [rng.normal(0, noise, LARGE).astype(np.float32) for _ in range(4)]
    return [np.clip(view * contrast + mean + grain[n % 4], 0, 255) for n, view in enumerate(views)]


def cuts(frames: Sequence[NDArray[np.float32]], min_scene_seconds: float = 0.0) -> list[int]:
    small = (frame.reshape(HEIGHT, 4, WIDTH, 4).mean((1, 3)) for frame in frames)
    return find_cuts(measure(small), np.arange(len(frames) + 1) / 30, min_scene_seconds)


def mixed(first: Frames, second: Frames) -> Frames:
    count = len(first)
    return [a + (b - a) * np.float32((n + 1) / (count + 1)) for n, (a, b) in enumerate(zip(first, second, strict=True))]


@pytest.mark.parametrize("speed", [0, 1, 4, 8])
def test_cuts_between_moving_scenes(speed: float) -> None:
    parts = [scene(seed, count, speed=speed) for seed, count in ((1, 40), (2, 33), (3, 21))]
    assert cuts([*chain.from_iterable(parts)]) == [40, 73]


def test_many_scenes_of_all_sorts() -> None:
    rng = np.random.default_rng(5)
    frames: Frames = []
    expected = []
    for seed in range(24):
        expected.append(len(frames))
        looks = {"mean": rng.uniform(30, 200), "contrast": rng.uniform(40, 220), "noise": rng.uniform(0, 6)}
        frames += scene(seed, int(rng.integers(14, 30)), speed=rng.uniform(0, 8), **looks)
    assert cuts(frames) == expected[1:]


@pytest.mark.parametrize("speed", [0, 4, 10, 25, 60])
def test_movement_is_no_cut(speed: float) -> None:
    assert cuts(scene(1, 60, speed=speed)) == []
    assert cuts(scene(1, 30, speed=0) + scene(1, 30, speed=speed)) == []  # it begins to move


def test_noise_is_no_cut() -> None:
    for mean in (5, 20, 128):
        rng = np.random.default_rng(1)
        assert cuts([np.clip(rng.normal(mean, 6, LARGE), 0, 255).astype(np.float32) for _ in range(40)]) == []


def test_dark_and_even_scenes() -> None:
    assert cuts(scene(1, 30, mean=20, contrast=30) + scene(2, 30, mean=20, contrast=30)) == [30]
    assert cuts(scene(1, 30, contrast=20) + scene(2, 30, contrast=20)) == [30]
    assert cuts([BLACK] * 20 + scene(1, 20)) == [20] == cuts(scene(1, 20) + [BLACK] * 20)
    assert cuts([WHITE] * 20 + [BLACK] * 20) == [20]
    assert cuts([BLACK] * 40) == []


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_flashes_are_no_cuts(length: int) -> None:
    for light in (80, 200):
        frames = scene(1, 60)
        for number in range(30, 30 + length):
            frames[number] = np.clip(frames[number] + light, 0, 255)
        assert cuts(frames) == []
    frames = scene(1, 60)
    frames[30 : 30 + length] = [WHITE] * length
    assert cuts(frames) == []


def test_a_flash_that_fades() -> None:
    frames = scene(1, 60)
    for number in range(8):
        frames[30 + number] = np.clip(frames[30 + number] + 220 * (1 - number / 8), 0, 255)
    assert cuts(frames) == []


@pytest.mark.parametrize("length", [5, 8, 12, 30])
def test_fades_are_no_cuts(length: int) -> None:
    whole = scene(1, 30 + length)
    for colour in (BLACK, WHITE):
        out = whole[:30] + mixed(whole[30:], [colour] * length)
        assert cuts([*out, *[colour] * 12]) == []
        assert cuts(out[::-1]) == []
        coming = scene(2, 30 + length)
        assert cuts([*out, colour, colour, *mixed([colour] * length, coming[:length]), *coming[length:]]) == []
    other = scene(2, 30 + length)
    assert cuts(whole[:30] + mixed(whole[30:], other[:length]) + other[length:]) == []  # a dissolve


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_light_that_is_switched_is_no_cut(factor: float) -> None:
    frames = scene(1, 60)
    assert cuts(frames[:30] + [np.clip(frame * factor, 0, 255) for frame in frames[30:]]) == []


def test_frames_shown_twice() -> None:
    frames = [frame for seed in (1, 2) for frame in scene(seed, 20, speed=6) for _ in range(2)]
    assert cuts(frames) == [40]


def test_short_scenes() -> None:
    parts = [scene(seed, 10) for seed in range(4)]
    assert cuts([*chain.from_iterable(parts)]) == [10, 20, 30]
    assert cuts(scene(1, 15) + scene(2, 15) + scene(1, 30)[15:]) == [15, 30]
    assert cuts(scene(1, 40) + scene(2, 10) + scene(3, 40), 1.0) in ([40], [50])
    assert cuts(scene(1, 20) + scene(2, 40) + scene(3, 20), 1.0) == []  # too close to both ends
    assert cuts(scene(1, 1)) == [] == cuts(scene(1, 2))


# --- as files -----------------------------------------------------------------------------------------------------


def write(path: Path, frames: Frames, **more: Any) -> Path:
    height, width = LARGE

    def paint(number: int) -> av.VideoFrame:
        picture = av.VideoFrame(width, height, "yuv420p")
        plane_samples(picture.planes[0], np.dtype(np.uint8))[:] = frames[number]
        for plane in picture.planes[1:]:
            plane_samples(plane, np.dtype(np.uint8))[:] = 128
        return picture

    quick = {"preset": "ultrafast", "crf": "20"}
    return write_clip(path, frames=len(frames), width=width, height=height, painter=paint, options=quick, **more)


def test_each_scene_becomes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "prepare_all", in_this_process)
    frames = scene(1, 36) + scene(2, 50) + scene(3, 34)
    (tmp_path / "videos" / "day").mkdir(parents=True)
    path = write(tmp_path / "videos" / "day" / "a.mp4", frames, pts=lambda number: number * 2 + number // 60)
    write(tmp_path / "videos" / "b.mp4", scene(4, 20))
    out = tmp_path / "out"
    result = prepare.run(tmp_path / "videos", out, scenes=True, gop=12, preset="ultrafast", crf=18, short_side=64)
    assert [output.file for video in result.videos for output in video.outputs] == [
        "b_0001.mp4",
        "day/a_0001.mp4",
        "day/a_0002.mp4",
        "day/a_0003.mp4",
    ]
    listed = json.loads((out / "prepared.json").read_text())["videos"][1]
    assert listed["source"] == str(path)
    source = VideoDecoder(path, dimension_order="NHWC")
    times = source.get_all_frames().pts_seconds.tolist()
    spans = [(each["first_frame"], each["last_frame"]) for each in listed["outputs"]]
    assert spans == [(0, 35), (36, 85), (86, 119)]
    for each, (first, last) in zip(listed["outputs"], spans, strict=True):
        assert each["start_seconds"] == times[first]
        assert each["end_seconds"] == pytest.approx([*times, source.metadata.end_stream_seconds][last + 1])
        part = VideoDecoder(out / each["file"], dimension_order="NHWC")
        assert len(part) == last - first + 1 == each["num_frames"]
        shown = [time - times[first] for time in times[first : last + 1]]
        assert part.get_all_frames().pts_seconds.tolist() == pytest.approx(shown, abs=1e-9)
        assert part.index.packets.keyframes.tolist() == list(range(0, len(part), 12))
        for number in (0, len(part) - 1):
            small = part[number].float().mean((0, 1))
            assert (small - source[first + number].float().mean((0, 1))).abs().max() < 3
    again = prepare.run(tmp_path / "videos", out, scenes=True, gop=12, preset="ultrafast", crf=18, short_side=64)
    assert again.num_new == 0
    # A video that has changed, and has fewer scenes now, leaves none of the old ones behind.
    write(path, scene(1, 36))
    again = prepare.run(tmp_path / "videos", out, scenes=True, gop=12, preset="ultrafast", crf=18, short_side=64)
    assert again.num_new == 1
    assert sorted(file.name for file in (out / "day").iterdir()) == ["a_0001.mp4"]
