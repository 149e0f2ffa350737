"""Lost packets and segments: a frame is the linear decode's picture of that number or an error, however it is read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import random_damage
from clips.base import read_packets, remux
from framefeed import DecodeError, ProcessDesc, VideoDataset, VideoDecoder, VideoIndex, VideoLoader
from framefeed.testing import samples
from random_damage import FRAGMENTED, fragments, linear_truth, segments

OPEN = {
    "libx264": {"x264-params": "keyint=25:min-keyint=25:open-gop=1:bframes=2:scenecut=0"},
    "libx265": {"x265-params": "keyint=25:min-keyint=25:open-gop=1:bframes=3:scenecut=0:log-level=none"},
}


@pytest.fixture(scope="module", params=sorted(OPEN))
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of 120 frames with open groups of 25."""
    path = tmp_path_factory.mktemp("losses") / f"{request.param}.mp4"
    options = {"preset": "ultrafast", **OPEN[request.param]}
    return samples.write_clip(path, codec=request.param, frames=120, width=96, height=64, gop=25, options=options)


def _join_ts(source: Path, lost: int, folder: Path) -> Path:
    """Segments of a transport stream without one of them, as ``cat`` joins them."""
    pieces = []
    for number, part in enumerate(segments(read_packets(source))):
        piece = folder / f"{number}.ts"
        remux(source, piece, part)
        pieces.append(piece.read_bytes())
    path = folder / "joined.ts"
    path.write_bytes(b"".join(piece for number, piece in enumerate(pieces) if number != lost))
    return path


def _join_fmp4(source: Path, lost: int, folder: Path) -> Path:
    """Fragments of an MP4 without one of them."""
    remux(source, folder / "whole.mp4", movflags=FRAGMENTED)
    init, *parts = fragments((folder / "whole.mp4").read_bytes())
    path = folder / "joined.mp4"
    path.write_bytes(init + b"".join(part for number, part in enumerate(parts) if number != lost))
    return path


def _drop_every_7th(suffix: str) -> Callable[[Path, int, Path], Path]:
    def drop(source: Path, first: int, folder: Path) -> Path:
        path = folder / f"dropped{suffix}"
        kept = [packet for number, packet in enumerate(read_packets(source)) if not number or number % 7 != first]
        return remux(source, path, kept)

    return drop


@pytest.mark.parametrize("lost", [1, 3])
@pytest.mark.parametrize("lose", [_join_ts, _join_fmp4, *map(_drop_every_7th, (".mp4", ".mkv", ".ts"))])
def test_frames_are_those_of_a_linear_decode(
    lose: Callable[[Path, int, Path], Path], lost: int, source: Path, tmp_path: Path
) -> None:
    path = lose(source, lost, tmp_path)
    assert random_damage.check(path, random.Random(lost), others=[source]) == []
    if lose in (_join_ts, _join_fmp4):
        assert len(VideoIndex.scan(path)) == len(linear_truth(path).shown)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_the_loader_gives_the_same_frames_as_the_decoder(suffix: str, source: Path, tmp_path: Path) -> None:
    path = _drop_every_7th(suffix)(source, 3, tmp_path)
    index = VideoIndex.scan(path)
    decoder = VideoDecoder(path, index=index)
    singly = [_frame_or_none(decoder, frame) for frame in range(len(decoder))]
    assert any(frame is not None for frame in singly)
    for shuffle in (False, True):
        dataset = VideoDataset([path], 1, processing={"frames": ProcessDesc(type="byte")}, get_label=lambda *args: args)
        found = _loaded(VideoLoader(dataset, 1, shuffle=shuffle, seed=4, num_threads=2))
        for frame, picture in enumerate(singly):
            if picture is None:
                assert frame not in found
            else:
                assert torch.equal(found[frame], picture)


def _frame_or_none(decoder: VideoDecoder, frame: int) -> torch.Tensor | None:
    try:
        return decoder[frame]
    except DecodeError as error:
        assert error.frame == frame
        return None


def _loaded(loader: VideoLoader) -> dict[int, torch.Tensor]:
    """Frames by number, without those that could not be had."""
    found: dict[int, torch.Tensor] = {}
    batches = iter(loader)
    while True:
        try:
            batch: dict[str, Any] = next(batches)
        except StopIteration:
            return found
        except DecodeError:
            continue
        (label,) = batch["labels"]
        found[label[1]] = batch["frames"][0, 0].clone()


@pytest.mark.parametrize("lost", [{57}, set(range(1, 60, 2))], ids=["last reference", "every other"])
@pytest.mark.parametrize("bframes", [0, 4])
def test_references_that_counts_do_not_miss(bframes: int, lost: set[int], tmp_path: Path) -> None:
    source, path = tmp_path / "whole.mp4", tmp_path / "lossy.mp4"
    params = f"open-gop=0:bframes={bframes}:b-pyramid=0:ref=3:scenecut=0:b-adapt=0:log-level=none"
    options = {"preset": "ultrafast", "x265-params": params}
    samples.write_clip(source, codec="libx265", frames=60, width=160, height=64, gop=8, options=options)
    kept = [packet for number, packet in enumerate(read_packets(source)) if number not in lost]
    remux(source, path, kept, movflags=FRAGMENTED)
    assert random_damage.check(path, random.Random(3), others=[source]) == []


@pytest.mark.parametrize("first", [0, 8])
def test_losses_drawn_at_random(first: int, tmp_path: Path) -> None:
    counts = random_damage.compare("losses", seed=26, first=first, most=8, minutes=5, folder=tmp_path, kinds=[])
    assert not counts["bad"]
    assert counts["good"] >= 5
