"""What is timed: each case gives, for every reader, a function to time and one that checks its frames."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import PEERS, Peer, installed
from framefeed.index.video_index import VideoIndex
from framefeed.testing.scenes import read_strip

__all__ = ["Case", "Entry", "make_cases"]

NUM_RANDOM = 32
RANDOM_SETS = 2


@dataclass
class Entry:
    """One reader in one case."""

    reader: str
    run: Callable[[], int]  # returns the number of frames (or files) it has delivered
    wrong: int = 0
    count: int = 0
    seconds: list[float] = field(default_factory=list)


@dataclass
class Case:
    """A comparison: readers that do the same work.

    Attributes:
        group: What kind of work.
        name: On what.
        unit: What is counted.
        entries: The readers. ``decode alone`` is no reader but the floor: the planned packets, unconverted.
    """

    group: str
    name: str
    unit: str
    entries: list[Entry]


def _pictures(result: Any) -> Iterator[NDArray[np.uint8]]:
    """Single pictures, channels last, of whatever a reader returns."""
    if isinstance(result, list):
        for one in result:
            yield from _pictures(one)
        return
    array = np.asarray(result)
    if array.ndim == 4:
        for one in array:
            yield from _pictures(one)
        return
    yield array if array.shape[-1] == 3 else array.transpose(1, 2, 0)


def _count_wrong(pictures: Iterator[NDArray[np.uint8]], expected: list[int]) -> int:
    """How many pictures do not show the number that they should."""
    wrong, seen = 0, 0
    for number, picture in zip(expected, pictures, strict=False):
        seen += 1
        try:
            wrong += read_strip(picture) != number
        except ValueError:
            wrong += 1
    return wrong + len(expected) - seen


def _peers(way: str) -> list[Peer]:
    return [peer for peer in PEERS if installed(peer) and getattr(peer, way) is not None]


def _random_case(path: Path) -> Case:
    count = VideoIndex.scan(path).num_frames
    rng = np.random.default_rng(7)
    sets = [rng.choice(count, NUM_RANDOM, replace=False).tolist() for _ in range(RANDOM_SETS)]
    entries = []
    for peer in _peers("random"):
        assert peer.random is not None
        read = peer.random(path)

        def run(read: Callable[[list[int]], Any] = read) -> int:
            return sum(len(read(wanted)) for wanted in sets)

        wrong = sum(_count_wrong(_pictures(read(wanted)), wanted) for wanted in sets)
        entries.append(Entry(peer.name, run, wrong))
    entries.append(_decode_alone(path, sets))
    return Case("random", path.stem, "frames", entries)


def _decode_alone(path: Path, sets: list[list[int]]) -> Entry:
    """The floor: the planned packets through bare PyAV contexts, both cores, nothing converted, nothing kept."""
    from framefeed.decode.cpu.session_cpu import CpuFactory
    from framefeed.plan import plan_frames
    from framefeed.plan.schedule import choose_wide_jobs

    index = VideoIndex.scan(path)
    data = path.read_bytes()
    factory = CpuFactory()
    table = index.packets
    sessions = {
        (threads, place): factory.create(index.stream, threads, closed_start=False)
        for threads, place in ((1, 0), (1, 1), (2, 0))
    }

    def decode(packets: list[int], session: Any) -> None:
        for number in packets:
            position = int(table.pos[number])
            session.feed(number, data[position : position + int(table.size[number])], False)
        session.drain()
        session.reset()

    def run() -> int:
        for wanted in sets:
            jobs = [job.packets.tolist() for job in plan_frames(table, wanted).jobs]
            wide = choose_wide_jobs([len(job) for job in jobs], 2)
            for job in jobs[:wide]:
                decode(job, sessions[2, 0])
            todo = iter(jobs[wide:])
            lock = threading.Lock()

            def work(place: int, todo: Iterator[list[int]] = todo, lock: threading.Lock = lock) -> None:
                while True:
                    with lock:
                        job = next(todo, None)
                    if job is None:
                        return
                    decode(job, sessions[1, place])

            helper = threading.Thread(target=work, args=(1,))
            helper.start()
            work(0)
            helper.join()
        return len(sets) * NUM_RANDOM

    return Entry("decode alone", run)


def _order_case(path: Path, way: str) -> Case:
    index = VideoIndex.scan(path)
    entries = []
    for peer in _peers(way):
        batches = getattr(peer, way)(path, index)

        def run(batches: Any = batches) -> int:
            count = 0
            for batch in batches():
                count += len(batch) if batch.ndim == 4 else 1
            return count

        pictures = (picture for batch in batches() for picture in _pictures(batch))
        entries.append(Entry(peer.name, run, _count_wrong(pictures, list(range(index.num_frames)))))
    return Case("in order" if way == "in_order" else "resized", path.stem, "frames", entries)


def _many_files_case(paths: list[Path], catalog: Any) -> Case:
    """One random frame from each of many short files, by two threads."""
    rng = np.random.default_rng(11)
    wanted = [(path, int(rng.integers(0, 90))) for path in paths]
    entries = []
    for peer in _peers("one_frame"):
        one_frame = peer.one_frame
        assert one_frame is not None

        def read(one_frame: Any = one_frame) -> list[Any]:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(lambda item: one_frame(item[0], item[1], catalog), wanted))

        wrong = _count_wrong(_pictures(read()), [number for _, number in wanted])

        def run(read: Any = read) -> int:
            return len(read())

        entries.append(Entry(peer.name, run, wrong))
    return Case("many files", f"{len(paths)} files", "frames", entries)


def _scan_case(paths: list[Path], name: str) -> Case:
    entries = []
    for peer in _peers("open_exactly"):

        def run(open_exactly: Any = peer.open_exactly) -> int:
            for path in paths:
                open_exactly(path)
            return len(paths)

        entries.append(Entry(peer.name, run))
    return Case("scan", name, "files", entries)


def make_cases(clips: list[Path], short_files: list[Path], catalog: Any, groups: list[str]) -> Iterator[Case]:
    """The chosen cases, each made (and its frames checked) when it is its turn."""
    if "scan" in groups:
        for path in clips:
            if path.suffix == ".mp4":
                yield _scan_case([path] * 10, path.stem)
        yield _scan_case(short_files, f"{len(short_files)} short files")
    if "random" in groups:
        yield from (_random_case(path) for path in clips)
    if "many files" in groups:
        yield _many_files_case(short_files, catalog)
    if "in order" in groups:
        yield from (_order_case(path, "in_order") for path in clips)
    if "resized" in groups:
        yield from (_order_case(path, "resized") for path in clips)
