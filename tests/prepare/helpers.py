"""Prepares single videos in this process: starting another one takes longer than the tiny clips do."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed import VideoDecoder
from framefeed.catalog import Catalog
from framefeed.prepare.encoding.task import Task, TaskResult, prepare_video
from framefeed.prepare.options import PrepareOptions

QUICK = {"h264": "ultrafast", "hevc": "ultrafast", "vp9": "8", "av1": "10"}


def prepare_one(path: Path, folder: Path, **options: Any) -> TaskResult:
    """Prepares a video with a quick preset."""
    chosen = {"preset": QUICK[options.get("codec", "h264")], **options}
    catalog = Catalog.build([path], folder / "one.arrow", progress=False)
    assert catalog.report == []
    return prepare_video(Task(0, catalog.path, 0, path.stem, f"{folder}/made-", PrepareOptions(**chosen), 2))


def prepared(path: Path, folder: Path, **options: Any) -> Path:
    """The file that comes of it."""
    outcome = prepare_one(path, folder, **options)
    assert (outcome.error, len(outcome.files)) == ("", 1)
    return Path(outcome.files[0])


def in_this_process(
    tasks: Sequence[Task], num_workers: int, advance: Callable[[int, int], None]
) -> Generator[TaskResult, None, None]:
    """Stands for ``prepare_all``."""
    for task in tasks:
        yield prepare_video(task)


def rgb(path: Path, step: int = 6) -> NDArray[np.float32]:
    """Every sixth frame or so, as numbers."""
    decoder = VideoDecoder(path, dimension_order="NHWC")
    return np.stack([decoder[number].numpy().astype(np.float32) for number in range(0, len(decoder), step)])


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the catalog, which has modification times in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".arrow")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
