"""Many reads over many files: memory stays flat, open files bounded; threads, forked and spawned workers agree."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import clips
from framefeed import Catalog, VideoDecoder

NUM_FILES = 300
NAMES = ["h264_bframes", "hevc_open_gop", "vp9_mp4", "h264_ts", "mpeg4_avi", "h264_mkv_cues", "av1_mp4", "h264_slices"]


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory, clip_folder: Path) -> tuple[list[Path], Catalog]:
    folder = tmp_path_factory.mktemp("collection")
    paths = []
    for number in range(NUM_FILES):
        original = clips.make(NAMES[number % len(NAMES)], clip_folder)
        path = folder / f"{number:03d}{original.suffix}"
        path.write_bytes(original.read_bytes())
        paths.append(path)
    return paths, Catalog.build(paths, folder / "catalog.arrow", progress=False)


@pytest.fixture(scope="module")
def truth(collection: tuple[list[Path], Catalog]) -> dict[tuple[int, int], int]:
    """A checksum of every frame of every original, by sequential reading."""
    paths, _ = collection
    sums = {}
    for kind in range(len(NAMES)):
        for frame, picture in enumerate(VideoDecoder(paths[kind], num_ffmpeg_threads=1)):
            sums[kind, frame] = _checksum(picture)
    return sums


def _checksum(picture: torch.Tensor) -> int:
    return hash(picture.numpy().tobytes())


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _requests(count: int, seed: int) -> Iterator[tuple[int, int]]:
    rng = np.random.default_rng(seed)
    for video, frame in zip(rng.integers(0, NUM_FILES, count), rng.integers(0, 48, count), strict=True):
        yield int(video), int(frame)


def _read(
    collection: tuple[list[Path], Catalog], truth: dict[tuple[int, int], int], count: int, seed: int
) -> list[tuple[int, int]]:
    """Random single frames, each through a decoder of its own; returns those that are wrong."""
    paths, catalog = collection
    wrong = []
    for video, frame in _requests(count, seed):
        picture = VideoDecoder(paths[video], index=catalog, num_ffmpeg_threads=1)[frame]
        if _checksum(picture) != truth[video % len(NAMES), frame]:
            wrong.append((video, frame))
    return wrong


def test_memory_and_open_files_stay_flat(
    collection: tuple[list[Path], Catalog], truth: dict[tuple[int, int], int]
) -> None:
    assert _read(collection, truth, 2000, seed=0) == []
    gc.collect()
    memory, files = _memory(), _open_files()
    assert _read(collection, truth, 18_000, seed=1) == []
    gc.collect()
    assert _memory() - memory < 100 << 20
    assert _open_files() <= max(files, 64) + 32


def test_eight_threads_at_once(collection: tuple[list[Path], Catalog], truth: dict[tuple[int, int], int]) -> None:
    wrong: list[tuple[int, int]] = []
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            wrong.extend(_read(collection, truth, 200, seed))
        except BaseException as error:
            failures.append(error)

    memory, files = _memory(), _open_files()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert wrong == [] and failures == []
    assert _memory() - memory < 200 << 20
    assert _open_files() <= files + 64 + 32  # those that are kept open, and what other tests left


def test_eight_threads_share_one_decoder(clip_folder: Path) -> None:
    decoder = VideoDecoder(clips.make("h264_b_pyramid", clip_folder), num_ffmpeg_threads=2)
    expected = [_checksum(picture) for picture in decoder]
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(30):
            wanted = rng.integers(0, len(expected), 5).tolist()
            for number, picture in zip(wanted, decoder.get_frames_at(wanted).data, strict=True):
                if _checksum(picture) != expected[number]:
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert wrong == []


class _Frames(Dataset[torch.Tensor]):
    """Frames of a collection, as a training script would write it."""

    def __init__(self, paths: list[Path], catalog: Path, count: int) -> None:
        self._paths = paths
        self._catalog_path = catalog
        self._catalog: Catalog | None = None
        self._wanted = list(_requests(count, seed=5))

    def __len__(self) -> int:
        return len(self._wanted)

    def __getitem__(self, number: int) -> torch.Tensor:
        if self._catalog is None:
            self._catalog = Catalog.open(self._catalog_path)
        video, frame = self._wanted[number]
        picture = VideoDecoder(self._paths[video], index=self._catalog)[frame]
        return torch.nn.functional.interpolate(picture[None].float(), (32, 32))[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_worker_processes(method: str, collection: tuple[list[Path], Catalog]) -> None:
    paths, _ = collection
    # The parent has decoded before it forks: pools, locks and threads must not be inherited half used.
    VideoDecoder(paths[0], num_ffmpeg_threads=2).get_frames_at([0, 40])
    dataset = _Frames(paths, paths[0].parent / "catalog.arrow", 400)
    expected = [dataset[number] for number in range(len(dataset))]
    workers = 2 if method == "fork" else 1  # each that is spawned takes seconds to start
    loader = DataLoader(dataset, batch_size=20, num_workers=workers, multiprocessing_context=method, timeout=60)
    got = [picture for batch in loader for picture in batch]
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert torch.equal(dataset[0], expected[0])  # the parent goes on as before
