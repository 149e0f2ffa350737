"""Videos that are opened before a process is forked, and read on both sides of it at once."""

from __future__ import annotations

import gzip
import io
import os
import random
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFile  # type: ignore[import-untyped]

import clips
from framefeed import FileChanged, SourceError, VideoDecoder
from framefeed.media.media import open_media
from framefeed.testing import samples

CHILDREN = 6
REQUESTS = 25


def _unlinked(path: Path) -> Any:
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(path.read_bytes())  # not flushed
    return file


def _named(path: Path) -> Any:
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115
    file.write(path.read_bytes())
    return file


def _deleted(path: Path) -> Any:
    copy = path.with_name(f"deleted_{path.name}")
    copy.write_bytes(path.read_bytes())
    file = copy.open("rb")
    copy.unlink()
    return file


HANDLES: dict[str, Callable[[Path], Any]] = {
    "path": lambda path: path,
    "open": lambda path: path.open("rb"),
    "unbuffered": lambda path: path.open("rb", buffering=0),
    "update": lambda path: path.open("r+b"),
    "fsspec": lambda path: fsspec.open(str(path)).open(),
    "unlinked": _unlinked,
    "named": _named,
    "deleted": _deleted,
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "fsspec_memory": lambda path: MemoryFile(data=path.read_bytes()),
    "bytes": lambda path: path.read_bytes(),
}


@contextmanager
def _closing(handle: Any) -> Iterator[Any]:
    """Closes what can be closed, behind the decoders that use it."""
    try:
        yield handle
    finally:
        if hasattr(handle, "close"):
            handle.close()


@pytest.fixture(scope="module")
def files(clip_folder: Path) -> list[tuple[Path, list[torch.Tensor]]]:
    """By byte ranges, by a demuxer, each picture alone and in groups."""
    mjpeg = samples.write_clip(clip_folder / "mjpeg.avi", codec="mjpeg", pix_fmt="yuvj420p", width=96, height=64)
    paths = [mjpeg, *(clips.make(name, clip_folder) for name in ("h264_bframes", "h264_ts", "vp9_alt_ref"))]
    return [(path, list(VideoDecoder(path, num_ffmpeg_threads=1))) for path in paths]


def _wrong(decoder: VideoDecoder, expected: list[torch.Tensor], seed: int, requests: int = REQUESTS) -> int:
    """How many frames of random requests are not the expected ones."""
    numbers = random.Random(seed)
    count = 0
    for _ in range(requests):
        wanted = [numbers.randrange(len(expected)) for _ in range(numbers.choice((1, 1, 4)))]
        got = decoder.get_frames_at(wanted).data
        count += sum(not np.array_equal(frame, expected[n]) for n, frame in zip(wanted, got, strict=True))
    return count


def _fork(work: Callable[[int], int], children: int = CHILDREN) -> list[int]:
    """Forks children that each do some work and exit with what it returns."""
    processes = []
    for number in range(children):
        process = os.fork()
        if process == 0:
            code = 255
            try:
                signal.alarm(100)
                code = min(work(number), 200)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        processes.append(process)
    return processes


def _results(processes: list[int]) -> list[int]:
    """What the work of forked children returned."""
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]


@pytest.mark.parametrize("kind", HANDLES)
def test_no_wrong_frame_on_either_side_of_a_fork(kind: str, files: list[tuple[Path, list[torch.Tensor]]]) -> None:
    for number, (path, expected) in enumerate(files):
        with _closing(HANDLES[kind](path)) as handle:
            _check_both_sides(handle, expected, number)


def _check_both_sides(handle: Any, expected: list[torch.Tensor], seed: int) -> None:
    decoder = VideoDecoder(handle, num_ffmpeg_threads=1)
    assert _wrong(decoder, expected, seed, 3) == 0

    def work(child: int) -> int:
        """Some children have children themselves, and some open the handle again."""
        grandchildren = _fork(lambda each: _wrong(decoder, expected, 50 + each), 2) if child == 0 else []
        reader = VideoDecoder(handle, num_ffmpeg_threads=1) if child == 1 else decoder
        return _wrong(reader, expected, seed + child) + sum(_results(grandchildren))

    children = _fork(work)
    here = _wrong(decoder, expected, 99, 2 * REQUESTS)
    assert (_results(children), here) == ([0] * CHILDREN, 0)


@pytest.mark.parametrize("kind", ["open", "BytesIO"])
def test_a_fork_while_another_thread_reads(kind: str, files: list[tuple[Path, list[torch.Tensor]]]) -> None:
    path, expected = files[0]
    done = threading.Event()
    wrong: list[int] = []
    codes: list[int] = []
    with _closing(HANDLES[kind](path)) as handle:
        decoder = VideoDecoder(handle, num_ffmpeg_threads=1)

        def read() -> None:
            while not done.is_set():
                wrong.append(_wrong(decoder, expected, len(wrong), 5))

        thread = threading.Thread(target=read)
        thread.start()
        for _ in range(8):
            codes += _results(_fork(lambda child: _wrong(decoder, expected, child, 10), 2))
        done.set()
        thread.join()
    assert (sum(codes), sum(wrong)) == (0, 0)


class _Object:
    """Something that can be read, about which nothing is known."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.read, self.seek, self.close = self._file.read, self._file.seek, self._file.close


def _gzipped(path: Path) -> Path:
    target = path.with_name(path.name + ".gz")
    target.write_bytes(gzip.compress(path.read_bytes(), 1))
    return target


OTHERS: dict[str, Callable[[Path], Any]] = {
    "object": _Object,
    "gzip": lambda path: gzip.GzipFile(_gzipped(path)),
    "fsspec_gzip": lambda path: fsspec.open(str(_gzipped(path)), compression="gzip").open(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_objects_are_refused_in_a_fork(kind: str, files: list[tuple[Path, list[torch.Tensor]]]) -> None:
    for path, expected in (files[0], files[2]):
        with _closing(OTHERS[kind](path)) as handle:
            _check_refused(handle, expected)


def _check_refused(handle: Any, expected: list[torch.Tensor]) -> None:
    decoder = VideoDecoder(handle, num_ffmpeg_threads=1)

    def work(child: int) -> int:
        try:
            decoder[child]
        except SourceError as error:
            return 0 if "in a forked process" in str(error) and "open it in that process" in str(error) else 2
        return 1

    children = _fork(work)
    assert (_wrong(decoder, expected, 1), _results(children)) == (0, [0] * CHILDREN)


def test_data_loader_workers_that_are_forked(files: list[tuple[Path, list[torch.Tensor]]]) -> None:
    class Frames(torch.utils.data.Dataset[tuple[int, torch.Tensor]]):
        def __init__(self, source: Any) -> None:
            self.decoder = VideoDecoder(source, num_ffmpeg_threads=1)

        def __len__(self) -> int:
            return 8 * len(self.decoder)

        def __getitem__(self, number: int) -> tuple[int, torch.Tensor]:
            place = number * 7 % len(self.decoder)
            return place, self.decoder[place]

    for path, expected in files:
        with fsspec.open(str(path)) as file:
            loader = torch.utils.data.DataLoader(
                Frames(file), batch_size=4, shuffle=True, num_workers=2, multiprocessing_context="fork"
            )
            for places, frames in loader:
                for place, frame in zip(places.tolist(), frames, strict=True):
                    assert torch.equal(frame, expected[place])


def test_the_offset_of_an_open_file_is_not_used(files: list[tuple[Path, list[torch.Tensor]]]) -> None:
    path, expected = files[0]
    with path.open("rb") as file:
        decoder = VideoDecoder(file, num_ffmpeg_threads=1)
        for place in (0, 100, 7):
            file.seek(place)
            assert _wrong(decoder, expected, place, 3) == 0
            assert file.tell() == place
            file.read(50)
    with pytest.raises(ValueError, match="closed file"):
        decoder[0]


def test_an_open_file_that_changes(files: list[tuple[Path, list[torch.Tensor]]], tmp_path: Path) -> None:
    path = tmp_path / "changing.avi"
    path.write_bytes(files[0][0].read_bytes())
    os.utime(path, ns=(1, 1))
    with path.open("rb") as file:
        decoder = VideoDecoder(file)
        decoder[0]
        path.write_bytes(path.read_bytes())
        with pytest.raises(FileChanged, match=r"changing\.avi"):
            decoder[1]


def test_names_of_file_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"1234")
    with path.open("rb") as file, tempfile.TemporaryFile() as unnamed:
        assert open_media(file).name == str(path)
        assert open_media(unnamed).name == "<BufferedRandom>"
    assert open_media(io.BytesIO(b"1234")).name == "<4 bytes>"
