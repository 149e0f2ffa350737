"""A wrong reader is never called right, and a right one never wrong, whatever the video shows."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed.compare.conversions import RgbConversion, conversions
from framefeed.compare.truth import DecodedTruth, Sight, Verdict
from framefeed.readers import open_reader
from framefeed.testing import samples

FRAMES, WIDTH, HEIGHT = 40, 64, 48
Picture = NDArray[np.uint8]


def _planes(kind: str, rng: np.random.Generator) -> list[NDArray[np.uint8]]:
    """The luma of each frame."""
    still = rng.integers(16, 235, (HEIGHT, WIDTH)).astype(np.uint8)
    frames = [still.copy() for _ in range(FRAMES)]
    for number, frame in enumerate(frames):
        if kind == "dot":
            frame[10:12, number : number + 2] = 235
        elif kind == "noise":
            frame[:] = rng.integers(16, 235, frame.shape)
        elif kind == "pixel":  # one step in one pixel, from each frame to the next
            frame[number % HEIGHT, 5] = still[number % HEIGHT, 5] + 1
        elif kind == "repeated":
            frame[:] = np.roll(still, number // 3)
        elif kind == "late":
            frame[0, 0] = 200 if number == FRAMES - 1 else 100
        elif kind == "black first":
            frame[:] = 16 if number < 25 else np.roll(still, number)
        elif kind == "two":
            frame[3, 3] = 100 + number % 2
    return frames


KINDS = ("dot", "noise", "pixel", "repeated", "late", "black first", "two", "still")


@pytest.fixture(scope="module", params=KINDS)
def clip(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    planes = _planes(request.param, np.random.default_rng(26))
    chroma = np.random.default_rng(1).integers(90, 160, (2, HEIGHT // 2, WIDTH // 2)).astype(np.uint8)

    def paint(number: int) -> av.VideoFrame:
        frame = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
        for plane, values in zip(frame.planes, (planes[number], *chroma), strict=True):
            samples.plane_samples(plane, np.dtype(np.uint8))[:] = values
        return frame

    path = tmp_path_factory.mktemp("truth") / "clip.mkv"
    samples.write_clip(path, codec="ffv1", frames=FRAMES, width=WIDTH, height=HEIGHT, gop=1, painter=paint)
    with av.open(str(path)) as container:
        return path, list(container.decode(video=0))


def _gpu(frame: Any) -> Picture:
    """Another library's own arithmetic: up to three levels from libswscale."""
    y, u, v = (samples.plane_samples(plane, np.dtype(np.uint8)).astype(np.float32) for plane in frame.planes)
    u, v = (np.repeat(np.repeat(each, 2, 0), 2, 1) - 128 for each in (u, v))
    y = 1.164 * (y - 16)
    picture = np.stack([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], axis=-1)
    return np.clip(picture + 1.2, 0, 255).astype(np.uint8)


READERS: dict[str, Callable[[Any], Picture]] = {
    "pyav": RgbConversion(None),
    "bilinear": RgbConversion(2),
    "accurate, full chroma": RgbConversion(4 | 0x42000),
    "bt709 for all": RgbConversion(4, matrix=1),
    "bgr": RgbConversion(4, swapped=True),
    "brighter": lambda frame: np.clip(RgbConversion(4)(frame).astype(np.int16) + 3, 0, 255).astype(np.uint8),
    "own arithmetic": _gpu,
}


def judged(
    truth: DecodedTruth, frames: list[Any], convert: Callable[[Any], Picture], asked: list[int], got: list[int]
) -> Verdict:
    pictures = {place: np.ascontiguousarray(convert(frames[number])) for place, number in enumerate(got)}
    sights = [Sight(0, place, index, truth.look(pictures[place])) for place, index in enumerate(asked)]
    return truth.judge(sights, lambda sight: pictures[sight.place])


@pytest.mark.parametrize("name", READERS)
def test_readers(name: str, clip: tuple[Path, list[Any]]) -> None:
    path, frames = clip
    convert = READERS[name]
    plain = [plane.tobytes() for plane in (samples.plane_samples(f.planes[0], np.dtype(np.uint8)) for f in frames)]
    truth = DecodedTruth(path, FRAMES)
    assert len(truth) == FRAMES
    rng = random.Random(name)
    every = list(range(FRAMES))
    unknown = name in ("brighter", "own arithmetic")  # each judgement searches all conversions in vain
    for asked in (
        (sorted(rng.sample(every, 12)),) if unknown else (every, [rng.randrange(FRAMES) for _ in range(16)], every[-6:])
    ):
        verdict = judged(truth, frames, convert, asked, asked)
        assert verdict.wrong == []
        if not unknown and any(plain.count(plain[each]) == 1 for each in asked):
            assert verdict.tested
        if len(set(plain)) == 1:
            assert not verdict.tested
        offsets = rng.sample((-5, -4, -3, -2, -1, 1, 2, 3, 4, 5), 2 if unknown else 4)
        wrongs = [[min(max(each + off, 0), FRAMES - 1) for each in asked] for off in offsets]
        wrongs.append([min(each, FRAMES - 2) for each in asked])
        if not unknown:
            wrongs += [[min(each, FRAMES - 4) for each in asked], [asked[0]] * len(asked)]
        for got in wrongs:
            differ = [place for place in range(len(asked)) if plain[asked[place]] != plain[got[place]]]
            verdict = judged(truth, frames, convert, asked, got)
            if differ:
                assert verdict.wrong or not verdict.tested, (asked, got)
                if not unknown:  # the conversion is known: each of them is caught
                    assert [each.index for each in verdict.wrong] == [asked[place] for place in differ]
            else:
                assert not verdict.wrong


def test_tolerances_are_of_use(tmp_path: Path) -> None:
    """A reader whose conversion is not known is right where frames differ enough, and wrong where they are others."""
    path = samples.write_clip(tmp_path / "clip.mkv", codec="ffv1", frames=FRAMES, gop=1, width=WIDTH, height=HEIGHT)
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    truth, asked = DecodedTruth(path, FRAMES), list(range(FRAMES))
    for name in ("brighter", "own arithmetic"):
        verdict = judged(truth, frames, READERS[name], asked, asked)
        assert verdict.tested and not verdict.wrong
        verdict = judged(truth, frames, READERS[name], asked[:-1], asked[1:])
        assert len(verdict.wrong) == FRAMES - 1 and all(each.got == each.index + 1 for each in verdict.wrong)


@pytest.mark.parametrize("name", ["bilinear", "own arithmetic"])
def test_a_frame_that_is_wrong_once(name: str, tmp_path: Path) -> None:
    """A request that repeats a frame gets it right and wrong."""
    path = samples.write_clip(tmp_path / "clip.mkv", codec="ffv1", frames=FRAMES, gop=1, width=WIDTH, height=HEIGHT)
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    verdict = judged(DecodedTruth(path, FRAMES), frames, READERS[name], [3, 9, 9, 9, 20], [3, 9, 11, 9, 20])
    assert [(each.index, each.got) for each in verdict.wrong] == [(9, 11)]


def test_pictures_of_nothing(clip: tuple[Path, list[Any]]) -> None:
    path, frames = clip
    truth, asked = DecodedTruth(path, FRAMES), list(range(FRAMES))
    verdict = judged(truth, frames, lambda frame: 255 - RgbConversion(4)(frame), asked, asked)
    assert verdict.wrong or not verdict.tested
    verdict = judged(truth, frames, lambda frame: RgbConversion(4)(frame)[:-2], asked, asked)
    assert verdict.wrong == [] and not verdict.tested  # of another size: nothing to compare with
    assert truth.judge([], lambda sight: np.zeros(0, np.uint8)) == Verdict(0, [], False)


def test_a_few_pictures_of_nothing(tmp_path: Path) -> None:
    path = samples.write_clip(tmp_path / "clip.mkv", codec="ffv1", frames=FRAMES, gop=1, width=WIDTH, height=HEIGHT)
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    truth = DecodedTruth(path, FRAMES)
    pictures = {
        n: RgbConversion(4)(frames[n]) if n % 7 else np.full((HEIGHT, WIDTH, 3), n, np.uint8) for n in range(FRAMES)
    }
    sights = [Sight(0, n, n, truth.look(pictures[n])) for n in range(FRAMES)]
    verdict = truth.judge(sights, lambda sight: pictures[sight.index])
    assert [(each.index, each.got) for each in verdict.wrong] == [(n, None) for n in range(0, FRAMES, 7)]


def test_turned_pictures_are_right_either_way(tmp_path: Path) -> None:
    path = samples.write_clip(tmp_path / "clip.mp4", frames=20, rotation=90)
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    truth, asked = DecodedTruth(path, 20, turned=True), list(range(20))
    for turns, mirrored in ((0, False), (1, False), (3, False), (0, True)):

        def convert(frame: Any, turns: int = turns, mirrored: bool = mirrored) -> Picture:
            picture = RgbConversion(4)(frame)
            return np.rot90(picture[:, ::-1] if mirrored else picture, turns)

        verdict = judged(truth, frames, convert, asked, asked)
        assert verdict.tested and not verdict.wrong
        assert len(judged(truth, frames, convert, asked[:-1], asked[1:]).wrong) == 19


@pytest.mark.parametrize("reader", ["framefeed", "pyav", "opencv"])
@pytest.mark.parametrize("spec", [{}, {"width": 98, "height": 67}, {"pix_fmt": "yuv420p10le"}, {"pix_fmt": "yuv444p"}])
def test_conversions_of_real_readers_are_known(reader: str, spec: dict[str, Any], tmp_path: Path) -> None:
    path = samples.write_clip(tmp_path / "clip.mkv", codec="ffv1", frames=6, gop=1, **spec)
    truth = DecodedTruth(path, 6)
    with open_reader(reader, path) as opened:
        pictures = opened.read_frames(list(range(6))).numpy()
    sights = [Sight(0, n, n, truth.look(pictures[n])) for n in range(6)]
    assert truth.judge(sights, lambda sight: pictures[sight.index]) == Verdict(6, [], True)
    shifted = [Sight(0, n, n, truth.look(pictures[n + 1])) for n in range(5)]
    verdict = truth.judge(shifted, lambda sight: pictures[sight.index + 1])
    assert [(each.index, each.got) for each in verdict.wrong] == [(n, n + 1) for n in range(5)]
    assert len({*conversions()}) == len([*conversions()])
