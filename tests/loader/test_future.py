"""Batches that lie ahead: which of them are opened together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from framefeed import MultiCameraDataset, VideoClipSampler, VideoDataset
from framefeed.loader.epochs import of_one_epoch
from framefeed.loader.future import Future
from framefeed.plan.lookahead import Budget, LookAhead
from framefeed.testing.samples import write_clip

GOP, CLIPS, CAMERAS, FRAMES = 12, 3, 2, 36


@pytest.fixture(scope="module")
def cameras(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("cameras")
    files = [folder / f"{clip}-{camera}.mp4" for clip in range(CLIPS) for camera in range(CAMERAS)]
    for number, path in enumerate(files):
        write_clip(path, frames=FRAMES, gop=GOP, width=64, height=48, seed=number, options={"preset": "ultrafast"})
    return {f"clip{clip}": {f"camera{n}": files[CAMERAS * clip + n] for n in range(CAMERAS)} for clip in range(CLIPS)}


def _future(dataset: Any, batches: Sequence[NDArray[np.int64]]) -> Future:
    ahead = LookAhead(Budget(1 << 30), lambda _: 1)
    return Future(dataset, of_one_epoch(0, iter(batches)), seed=0, ahead=ahead, soon=4)


def _opened(future: Future, count: int) -> Iterator[int]:
    """How many batches are opened each time."""
    while True:
        future.add(future.read(count))
        planned = future.pop(count)
        if not planned:
            return
        yield len(planned)


def test_groups_are_not_divided(cameras: dict[str, dict[str, Path]]) -> None:
    dataset = MultiCameraDataset(cameras)
    batches = [np.asarray(batch, np.int64) for batch in VideoClipSampler(dataset, CLIPS, frame_read_type="stream")]
    assert len(batches) == FRAMES
    assert list(_opened(_future(dataset, batches), 1)) == [1] * FRAMES
    assert list(_opened(_future(dataset, batches), 16)) == [GOP] * (FRAMES // GOP)
    assert list(_opened(_future(dataset, batches), 30)) == [2 * GOP, GOP]
    assert list(_opened(_future(dataset, batches), 5))[:2] == [5, 5]  # a group is longer than that


def test_one_file_after_the_other(cameras: dict[str, dict[str, Path]]) -> None:
    dataset = VideoDataset([path for clip in cameras.values() for path in clip.values()])
    batches = list(np.arange(len(dataset)).reshape(-1, 8))
    opened = list(_opened(_future(dataset, batches), 10))
    assert sum(opened) == len(batches) and min(opened[:-1]) > 5
