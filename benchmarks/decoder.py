"""Framefeed beside other readers: random frames, many files, in order, resized; frames are checked before timing."""

from __future__ import annotations

import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from benchmarks import harness
from benchmarks.harness import Entry, Work
from benchmarks.peers.readers import PEERS, Peer, installed
from framefeed.index.video_index import VideoIndex
from framefeed.testing.scenes import REFERENCE_CLIPS, read_strip, write_reference_clip, write_short_files

GROUPS = ["scan", "random", "many files", "in order", "resized"]
FLOOR = "decode alone"
NUM_SHORT_FILES = 200
NUM_RANDOM = 32
RANDOM_SETS = 2


@dataclass
class Case:
    """Readers that do the same work.

    Attributes:
        group: The kind of work.
        name: The files.
        entries: The readers. ``decode alone`` is the floor: the planned packets, unconverted.
        unit: What is counted.
    """

    group: str
    name: str
    entries: list[Entry]
    unit: str = "frames"

    def ratios(self) -> dict[str, float]:
        """Compares framefeed with the fastest reader, with TorchCodec and with the floor."""
        readers = [entry for entry in self.entries if entry.name != FLOOR]
        floor = harness.versus([entry for entry in self.entries if entry.is_ours or entry.name == FLOOR])
        return harness.rounded(
            {
                "vs_fastest_peer": harness.versus(readers),
                "vs_torchcodec": harness.versus(readers, "TorchCodec"),
                "over_decode_alone": floor and 1 / floor,
            }
        )

    def result(self) -> dict[str, Any]:
        """Returns its part of the results."""
        rows = [entry.row(digits=5) for entry in self.entries]
        return {"case": self.group, "on": self.name, "unit": f"{self.unit}/s", "readers": rows, **self.ratios()}


# --- cases --------------------------------------------------------------------------------------------------------


def _pictures(result: Any) -> Iterator[NDArray[np.uint8]]:
    """Yields single pictures, channels last, of a reader's frame, batch or list of these."""
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
    """Counts pictures that do not show the number that they should."""
    wrong, seen = 0, 0
    for number, picture in zip(expected, pictures, strict=False):
        seen += 1
        try:
            wrong += read_strip(picture) != number
        except ValueError:
            wrong += 1
    return wrong + len(expected) - seen


def _peers(way: str) -> list[Peer]:
    return [peer for peer in PEERS if installed(peer) and way in peer.ways]


def _random_case(path: Path) -> Case:
    count = VideoIndex.scan(path).num_frames
    rng = np.random.default_rng(7)
    sets = [rng.choice(count, NUM_RANDOM, replace=False).tolist() for _ in range(RANDOM_SETS)]

    def work(read: Callable[[list[int]], Any]) -> Work:
        return Work(
            lambda: sum(len(read(wanted)) for wanted in sets),
            lambda: sum(_count_wrong(_pictures(read(wanted)), wanted) for wanted in sets),
        )

    entries = [Entry(peer.name, work(partial(peer.read, peer.open(path)))) for peer in _peers("random")]
    return Case("random", path.stem, [*entries, Entry(FLOOR, _decode_alone(path, sets))])


def _decode_alone(path: Path, sets: list[list[int]]) -> Work:
    """Returns the floor: the planned packets through bare PyAV contexts, both cores, nothing converted or kept."""
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

    return Work(run)


def _order_case(path: Path, way: str) -> Case:
    count = VideoIndex.scan(path).num_frames

    def work(peer: Peer) -> Work:
        def batches() -> Iterator[Any]:  # opening is part of reading a file from start to end
            return peer.ordered(peer.open(path, resize=way == "resized"))

        return Work(
            lambda: sum(len(batch) if batch.ndim == 4 else 1 for batch in batches()),
            lambda: _count_wrong((picture for batch in batches() for picture in _pictures(batch)), list(range(count))),
        )

    return Case(way, path.stem, [Entry(peer.name, work(peer)) for peer in _peers(way)])


def _many_files_case(paths: list[Path], catalog: Any) -> Case:
    """One random frame from each of many short files, by two threads."""
    rng = np.random.default_rng(11)
    wanted = [(path, int(rng.integers(0, 90))) for path in paths]

    def work(one_frame: Callable[[Path, int, Any], Any]) -> Work:
        def read() -> list[Any]:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(lambda item: one_frame(item[0], item[1], catalog), wanted))

        return Work(lambda: len(read()), lambda: _count_wrong(_pictures(read()), [number for _, number in wanted]))

    entries = [Entry(peer.name, work(peer.one_frame)) for peer in _peers("many files")]
    return Case("many files", f"{len(paths)} files", entries)


def _scan_case(paths: list[Path], name: str) -> Case:
    def work(peer: Peer) -> Work:
        return Work(lambda: sum(peer.scan(path) is not None for path in paths))

    entries = [Entry(peer.name, work(peer)) for peer in _peers("scan")]
    return Case("scan", name, entries, unit="files")


def make_cases(clips: list[Path], short_files: list[Path], catalog: Any, groups: list[str]) -> Iterator[Case]:
    """The chosen cases, each made when it is its turn."""
    if "scan" in groups:
        for path in clips:
            if path.suffix == ".mp4":
                yield _scan_case([path] * 10, path.stem)
        yield _scan_case(short_files, f"{len(short_files)} short files")
    if "random" in groups:
        yield from (_random_case(path) for path in clips)
    if "many files" in groups:
        yield _many_files_case(short_files, catalog)
    for group in ("in order", "resized"):
        if group in groups:
            yield from (_order_case(path, group) for path in clips)


# --- the whole ----------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames of framefeed were right."""
    parser = harness.make_parser("decoder", __doc__, repeat=5)
    parser.add_argument("--cases", nargs="+", choices=GROUPS, default=GROUPS, help="what to measure (default: all)")
    parser.add_argument("--clips", nargs="+", choices=REFERENCE_CLIPS, default=list(REFERENCE_CLIPS))
    parser.add_argument("--cpus", type=int, default=2, help="CPUs to use, 0 for all (default: 2)")
    parser.add_argument("--folder", type=Path, default=Path(".bench"), help="where clips are kept (default: .bench)")
    arguments = parser.parse_args(argv)
    console = harness.make_console()
    harness.use_cpus(arguments.cpus)
    missing = sorted({peer.package for peer in PEERS if not installed(peer)})
    if missing:
        console.print(f"not installed, so not compared: {', '.join(missing)}")
    with console.status("making the clips (once, about a minute)"):
        clips, short_files, catalog = _material(arguments.folder, arguments.clips)
    document = harness.begin("decoder", argv, cpus=arguments.cpus)
    for case in make_cases(clips, short_files, catalog, arguments.cases):
        with console.status(f"{case.group}: {case.name}"):
            for entry in case.entries:
                entry.check()
            for entry in case.entries:
                entry.warm_up()
            for _ in harness.in_turns(case.entries, arguments.repeat, slow_every=arguments.repeat):
                pass
        document["results"].append(harness.stamped(case.result()))
        console.print(_table(case))
        harness.save(arguments.output, document)
    console.print(_summary(document["results"]))
    bad = sum(row["wrong"] for case in document["results"] for row in case["readers"] if row["reader"] == harness.OURS)
    return 1 if bad else 0


def _material(folder: Path, names: list[str]) -> tuple[list[Path], list[Path], Any]:
    from framefeed import Catalog

    many = folder / "many"
    many.mkdir(parents=True, exist_ok=True)
    clips = [write_reference_clip(name, folder) for name in names]
    short_files = write_short_files(many, NUM_SHORT_FILES)
    return clips, short_files, Catalog.build(short_files, folder / "many.arrow", progress=False)


def _table(case: Case) -> Table:
    notes = ", ".join(f"{name.replace('_', ' ')} {ratio:.2f}" for name, ratio in case.ratios().items())
    rows = [
        (entry.name, f"{entry.median:,.1f}", f"{max(entry.rates):,.1f}", f"{'[red]' * bool(entry.wrong)}{entry.wrong}")
        for entry in sorted(case.entries, key=lambda entry: -entry.median)
    ]
    title = f"{case.group}: {case.name}  ({notes})"
    return harness.table(title, ["reader"], [f"median {case.unit}/s", "best", "wrong"], rows)


def _summary(results: list[dict[str, Any]]) -> Table:
    rows = []
    for group in dict.fromkeys(result["case"] for result in results):
        chosen = [result for result in results if result["case"] == group]
        cells = []
        for name in ("vs_torchcodec", "vs_fastest_peer"):
            ratios = [result[name] for result in chosen if name in result]
            cells += [f"{statistics.geometric_mean(ratios):.2f}", f"{min(ratios):.2f}"] if ratios else ["-", "-"]
        floors = [result["over_decode_alone"] for result in chosen if "over_decode_alone" in result]
        rows.append((group, *cells, f"{max(floors):.2f}" if floors else "-"))
    names = ["vs TorchCodec (geometric mean)", "least", "vs fastest peer", "least", "over decode alone"]
    return harness.table("framefeed beside the others (ratio of medians)", ["case"], names, rows)


if __name__ == "__main__":
    sys.exit(main())
