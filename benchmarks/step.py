"""A training step beside decoders and loaders.

A step is short on a GPU, and its thread shares Python's lock and the driver with those that decode. Here it is timed
alone, beside decoders that do nothing but decode, in threads and in another process, and beside a loader.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.gpu.clock import Clock
from framefeed._util.limits import available_cpus
from framefeed.convert.desc import ProcessDesc
from framefeed.cuda import driver
from framefeed.dataset.cameras import MultiCameraDataset
from framefeed.dataset.clip_sampler import VideoClipSampler
from framefeed.decode.default import cpu_engine, cuda_engine
from framefeed.device import resolve_device
from framefeed.index.video_index import VideoIndex
from framefeed.loader.loader import VideoLoader
from framefeed.request import decode_frames, decode_runs
from framefeed.source import media_of, open_source

CLIPS = 4  # of a batch
RUN = 60  # frames that a bare decoder is asked for at a time


def main(argv: list[str] | None = None) -> int:
    """Measures, prints a table and writes JSON."""
    parser = harness.make_parser("step", (__doc__ or "").split("\n\n")[0])
    parser.add_argument("--index_file", required=True, help="clips of several cameras (benchmarks.camera_clips)")
    parser.add_argument("--device", default="cuda", help="cpu, cuda or cuda:N (default: cuda)")
    parser.add_argument("--seconds", type=float, default=5, help="for each case (default: 5)")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 8], help="of the loader (default: 0 8)")
    arguments = parser.parse_args(argv)
    device = resolve_device(arguments.device)
    dataset = MultiCameraDataset(
        arguments.index_file, processing={"frames": ProcessDesc(type="byte")}, device=str(device)
    )
    step = Step(len(dataset.cameras), _frame_shape(dataset), device)
    files = [str(path) for path in dataset.filenames]
    cases: dict[str, Callable[[], dict[str, float]]] = {
        "alone": lambda: _timed(step, step.batches(), arguments.seconds),
        "decoders in threads": lambda: _beside(step, _Decoders(files, device), arguments.seconds),
        "decoders in a process": lambda: _beside(step, _DecoderProcess(files, str(device)), arguments.seconds),
    }
    for workers in arguments.workers:
        name = f"loader, {workers} workers" if workers else "loader"
        cases[name] = functools.partial(_beside_loader, step, dataset, workers, arguments.seconds)
    document = harness.stamped(harness.begin("step", argv, cpus=available_cpus(), results={}))
    document["machine"] |= harness.gpu_name(device)
    console = Console()
    for name, case in cases.items():
        clock = Clock()
        with console.status(name), clock.around_driver():
            result = case()
        driver_ms = {call: round(1e3 * taken, 1) for call, taken in sorted(clock.seconds.items())}
        document["results"][name] = {**result, "driver_ms": driver_ms}
        harness.save(arguments.output, document)
    console.print(_table(document["results"]))
    return 0


def _frame_shape(dataset: MultiCameraDataset) -> tuple[int, int]:
    stream = VideoIndex.scan(dataset.filenames[0]).stream
    height, width = stream.display_size
    return height, width


class Step:
    """A training step as in ``examples/separation_decode``, over batches of several cameras."""

    def __init__(self, cameras: int, size: tuple[int, int], device: torch.device) -> None:
        self._shape = (CLIPS, cameras, 1, 3, *size)
        self._device = device
        self._head = torch.nn.Linear(3 * cameras, 1).to(device)
        self._optimizer = torch.optim.SGD(self._head.parameters(), lr=0.01)

    def batches(self) -> Iterator[dict[str, torch.Tensor]]:
        """The same batch again and again."""
        return itertools.repeat({"frames": torch.zeros(self._shape, dtype=torch.uint8, device=self._device)})

    def take(self, frames: torch.Tensor) -> None:
        """Trains with a batch."""
        self._optimizer.zero_grad()
        small = frames[..., ::16, ::16].float().mean(dim=(2, 4, 5)) / 255
        self._head(small.flatten(1)).square().mean().backward()
        self._optimizer.step()

    def wait(self) -> None:
        """Until all that was launched is done."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _timed(step: Step, batches: Iterator[dict[str, torch.Tensor]], seconds: float) -> dict[str, float]:
    """Steps for a while: how long each takes, and how many frames a second that makes."""
    for batch in itertools.islice(batches, 20):
        step.take(batch["frames"])
    step.wait()
    times: list[float] = []
    frames = 0
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        batch = next(batches)
        before = time.perf_counter()
        step.take(batch["frames"])
        times.append(time.perf_counter() - before)
        frames += batch["frames"].shape[:3].numel()
    step.wait()
    whole = time.perf_counter() - begin
    return {
        "step_ms": round(1e3 * statistics.mean(times), 3),
        "median_step_ms": round(1e3 * statistics.median(times), 3),
        "frames_per_second": round(frames / whole, 1),
    }


class _Taker:
    """Counts pictures, and does nothing with them."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, rows: list[int], pictures: list[Any]) -> None:
        self.count += len(rows)

    def confirm(self) -> None:
        pass

    def reject(self) -> None:
        pass


class _Decoders:
    """Threads that decode, each a part of the files."""

    def __init__(self, files: list[str], device: torch.device) -> None:
        self._device = device
        self._engine = cuda_engine(device.index or 0) if device.type == "cuda" else cpu_engine()
        count = min(self._engine.max_threads, len(files))
        self._parts = [files[number::count] for number in range(count)]
        self._takers = [_Taker() for _ in self._parts]
        self._stopped = False

    @property
    def decoded(self) -> int:
        """Pictures so far."""
        return sum(taker.count for taker in self._takers)

    def start(self) -> None:
        """Begins."""
        pairs = zip(self._parts, self._takers, strict=True)
        self._threads = [threading.Thread(target=self._work, args=pair, daemon=True) for pair in pairs]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends, and waits for it."""
        self._stopped = True
        for thread in self._threads:
            thread.join()

    def _work(self, files: list[str], taker: _Taker) -> None:
        indexes = [VideoIndex.scan(file) for file in files]
        for index in itertools.cycle(indexes):
            source = open_source(index, media_of(index))
            for low in range(0, index.num_frames, RUN):
                if self._stopped:
                    return
                frames = range(low, min(low + RUN, index.num_frames))
                if self._device.type == "cuda":
                    with driver.on_device(self._device.index or 0):
                        decode_runs(self._engine, index, source, frames, taker, num_threads=1)
                else:
                    decode_frames(
                        self._engine,
                        index,
                        source,
                        frames,
                        lambda row, picture: taker.take([row], [picture]),
                        num_threads=1,
                    )


class _DecoderProcess:
    """The same in another process."""

    def __init__(self, files: list[str], device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._decoded = context.Value("q", 0)
        self._end = context.Event()
        self._process = context.Process(target=_decode_until, args=(files, device, self._decoded, self._end))

    @property
    def decoded(self) -> int:
        """Pictures so far."""
        return int(self._decoded.value)

    def start(self) -> None:
        """Begins."""
        self._process.start()
        while not self.decoded and self._process.is_alive():
            time.sleep(0.01)

    def stop(self) -> None:
        """Ends, and waits for it."""
        self._end.set()
        self._process.join()


def _decode_until(files: list[str], device: str, decoded: Any, end: Any) -> None:
    decoders = _Decoders(files, torch.device(device))
    decoders.start()
    while not end.wait(0.02):
        decoded.value = decoders.decoded
    decoders.stop()


def _beside(step: Step, decoders: _Decoders | _DecoderProcess, seconds: float) -> dict[str, float]:
    """Steps beside decoders."""
    decoders.start()
    try:
        time.sleep(min(1.0, seconds / 4))  # until decoders are made
        before, begin = decoders.decoded, time.perf_counter()
        result = _timed(step, step.batches(), seconds)
        rate = (decoders.decoded - before) / (time.perf_counter() - begin)
    finally:
        decoders.stop()
    return result | {"frames_per_second": round(rate, 1)}


def _beside_loader(step: Step, dataset: MultiCameraDataset, workers: int, seconds: float) -> dict[str, float]:
    """Steps with batches of a loader."""
    sampler = VideoClipSampler(dataset, CLIPS, frame_read_type="stream")
    loader = VideoLoader(dataset, batch_sampler=sampler, num_workers=workers, packet_cache="1GiB" if workers else 0)
    for batch in loader:  # everything is warm then
        step.take(batch["frames"])
    return _timed(step, itertools.chain.from_iterable(iter(loader) for _ in itertools.count()), seconds)


def _table(results: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for name, row in results.items():
        calls = ", ".join(f"{call} {taken:g}" for call, taken in row["driver_ms"].items()) or "-"
        rows.append((name, f"{row['step_ms']:g}", f"{row['median_step_ms']:g}", f"{row['frames_per_second']:,}", calls))
    figures = ["step, ms", "median", "frames/s", "in the driver, ms"]
    return harness.table("", ["beside the step"], figures, rows)


if __name__ == "__main__":
    sys.exit(main())
