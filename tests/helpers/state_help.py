"""Small datasets, records of what loaders deliver, and other processes to run loaders in.

``serve`` runs in a process that imports what is needed once, and then forks a fresh process for each call. So a new
process costs milliseconds, and it never shares a thread or a loader with the tests.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import hashlib
import itertools
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler, WeightedRandomSampler

from framefeed import (
    MultiCameraDataset,
    PacketDataset,
    PacketDecoder,
    ProcessDesc,
    StateError,
    VideoClipSampler,
    VideoDataset,
    VideoLoader,
)
from framefeed.batch.videos import OpenVideo
from framefeed.batch.work import Taken
from framefeed.batch.workshop import CpuWorkshop
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.decode.default import cpu_engine
from framefeed.request import decode_frames
from framefeed.source.packets import ByteRanges
from framefeed.testing import samples
from helpers.workers_help import Dying
from waiting import soon

ORDERS = ("sequential", "shuffle", "chunked:4", "buffered:16")
SAMPLERS = (
    "random",
    "random_generator",
    "replacement_generator",
    "weighted",
    "weighted_generator",
    "batch",
    "batch_generator",
    "set_epoch",
    "distributed_sampler",
)
OWN_GENERATOR = tuple(kind for kind in SAMPLERS if kind.endswith("_generator"))

FRAME_COUNTS = (5, 8, 11, 6, 11)  # 36 samples of two frames
NUMBERS = 20  # frame k of file n shows the number NUMBERS * n + k
THREAD = "framefeed-loader"

PROCESSING = {
    "plain": ProcessDesc(type="byte"),
    "crop": ProcessDesc(width=40, height=32, random_crop=True, random_flip=True, normalized=True),
}


# --- datasets -------------------------------------------------------------------------------------------------------


def write_clip(path: Path, file: int, frames: int, *, width: int = 64) -> Path:
    """A clip of closed groups of four frames."""
    options = {"preset": "ultrafast", "crf": "20", "x264-params": "scenecut=0"}
    first = NUMBERS * file
    return samples.write_clip(
        path, frames=frames, width=width, height=48, gop=4, bframes=1, first_number=first, options=options
    )


def few_files(folder: Path) -> list[str]:
    """Five clips, written once."""
    return _files(folder / "few", FRAME_COUNTS)


def many_files(folder: Path) -> list[str]:
    """Two hundred clips of eight frames, written once."""
    return _files(folder / "many", (8,) * 200)


def _files(folder: Path, counts: Sequence[int]) -> list[str]:
    paths = [folder / f"{file:03d}.mp4" for file in range(len(counts))]
    for file, (path, frames) in enumerate(zip(paths, counts, strict=True)):
        if not path.exists():
            write_clip(path, file, frames)
    return [str(path) for path in paths]


def label_of(filename: str, frame: int, changes: object = None) -> str:
    return f"{Path(filename).name}:{frame}"


def make_dataset(paths: Iterable[str], **options: Any) -> VideoDataset:
    return VideoDataset(list(paths), 2, **{"processing": PROCESSING, "get_label": label_of, "seed": 7, **options})


class EpochSampler(Sampler[int]):
    """Another order in each epoch, of which it has to be told."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.count))
        random.Random(self.epoch).shuffle(order)
        yield from order


def make_sampler(kind: str, count: int, batch_size: int = 4) -> dict[str, Any]:
    """The sampler of that kind, as an argument for a loader."""
    generator = torch.Generator().manual_seed(5) if kind.endswith("_generator") else None
    numbers = range(count)
    if kind.startswith("batch"):
        return {"batch_sampler": BatchSampler(RandomSampler(numbers, generator=generator), batch_size, drop_last=False)}
    found: Sampler[int]
    if kind.startswith("random"):
        found = RandomSampler(numbers, generator=generator)
    elif kind.startswith("replacement"):
        found = RandomSampler(numbers, replacement=True, num_samples=count, generator=generator)
    elif kind.startswith("weighted"):
        weights = [1.0 + number % 3 for number in numbers]
        found = WeightedRandomSampler(weights, count, generator=generator)
    elif kind == "distributed_sampler":
        found = DistributedSampler(torch.arange(count), num_replicas=2, rank=1, seed=3)  # type: ignore[arg-type]
    else:
        found = EpochSampler(count)
    return {"sampler": found, "batch_size": batch_size}


def make_loader(kind: str, paths: Iterable[str], dataset: VideoDataset | None = None, **options: Any) -> VideoLoader:
    """A loader with an order or a sampler, over a dataset of its own unless one is given."""
    dataset = make_dataset(paths) if dataset is None else dataset
    chosen = {"order": kind, "batch_size": 4} if kind in ORDERS else make_sampler(kind, len(dataset))
    return VideoLoader(dataset, **{"drop_last": False, **chosen, **options})


# --- what was delivered ---------------------------------------------------------------------------------------------


def rows(batch: dict[str, Any]) -> list[str]:
    """For each sample of a batch its label and a digest of all its pixels; the painted numbers are checked."""
    found = []
    for row, label in enumerate(batch["labels"]):
        _check_numbers(batch["plain"][row], label)
        found.append(_row(label, batch["plain"][row], batch["crop"][row]))
    return found


def _row(label: str, *tensors: torch.Tensor) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return f"{label} {digest.hexdigest()}"


_checked: set[str] = set()


def _check_numbers(sequence: torch.Tensor, label: str) -> None:
    row = _row(label, sequence)
    if row in _checked:
        return
    name, frame = label.split(":")
    for place, picture in enumerate(sequence):
        found = samples.read_number(picture.permute(1, 2, 0).numpy())
        assert found == NUMBERS * int(Path(name).stem) + int(frame) + place, f"{label} shows {found}"
    _checked.add(row)


def epoch_rows(batches: Iterable[dict[str, Any]]) -> list[list[str]]:
    return [rows(batch) for batch in batches]


def flat(batches: Iterable[Iterable[str]]) -> list[str]:
    return list(itertools.chain.from_iterable(batches))


def truth(dataset: FrameDataset, epoch: int = 0, numbers: Iterable[int] | None = None) -> list[str]:
    """What each sample has to be, by plain indexing."""
    dataset.set_epoch(epoch)
    chosen = list(range(len(dataset)) if numbers is None else numbers)
    found = dataset.__getitems__(chosen)
    return [_row(sample["labels"], sample["plain"], sample["crop"]) for sample in found]


# --- threads and files ----------------------------------------------------------------------------------------------


def loader_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == THREAD}


@contextlib.contextmanager
def no_thread_left(seconds: float = 5.0) -> Iterator[None]:
    """Fails where loader threads that began inside are still there afterwards."""
    gc.collect()
    before = loader_threads()
    yield
    assert soon(lambda: not loader_threads() - before, seconds), "threads of a loader go on"


# --- processes ------------------------------------------------------------------------------------------------------


class Child:
    """A process that the server has forked."""

    def __init__(self, server: Server, call: str, arguments: dict[str, Any], quick: bool) -> None:
        folder = Path(tempfile.mkdtemp(dir=server.folder))
        self._server = server
        self.out, self.err = folder / "out", folder / "err"
        for path in (self.out, self.err):
            path.touch()
        request = {"call": call, "arguments": arguments, "out": str(self.out), "err": str(self.err), "quick": quick}
        self.pid: int = server.ask(request)["pid"]
        self.code: int | None = None

    def wait(self, seconds: float = 30.0) -> int:
        """Its exit code; it is killed where it does not end in time."""
        if self.code is None:
            self.code = self._server.ask({"wait": self.pid, "seconds": seconds})["code"]
        if self.code is None:
            stacks = self._stacks()
            os.kill(self.pid, signal.SIGKILL)
            self._server.ask({"wait": self.pid, "seconds": 10})
            raise AssertionError(f"process goes on after {seconds} s; {stacks}\n{self.errors}")
        return self.code

    def _stacks(self) -> str:
        """Where its threads are, by what was registered at its start."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.3)
        return "stacks follow"

    @property
    def lines(self) -> list[Any]:
        """What it has printed so far, without a last line that is not complete."""
        return [json.loads(line) for line in self.out.read_text().splitlines(keepends=True) if line.endswith("\n")]

    @property
    def errors(self) -> str:
        return self.err.read_text()

    def result(self, seconds: float = 30.0) -> Any:
        """The last line that it printed; it has to end well."""
        assert self.wait(seconds) == 0, self.errors
        return self.lines[-1]

    def until_printed(self, count: int = 1, seconds: float = 20.0) -> None:
        """Waits until it has printed that many lines."""
        assert soon(lambda: len(self.lines) >= count, seconds), self.errors

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait()


class Server:
    """Forks processes on demand."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="framefeed-processes-")
        self.folder = self._folder.name
        tests = str(Path(__file__).parent.parent)
        code = f"import sys; sys.path.insert(0, {tests!r}); import {__name__} as it; it.serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        atexit.register(self.close)

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        self._folder.cleanup()


@functools.cache
def _server() -> Server:
    return Server()


def start(call: Callable[..., None], **arguments: Any) -> Child:
    """Calls a function of this module in a new process, which ends as any Python program does."""
    return Child(_server(), call.__name__, arguments, quick=False)


def start_quick(call: Callable[..., None], **arguments: Any) -> Child:
    """Calls a function of this module in a new process, which ends without tidying up: that takes long."""
    return Child(_server(), call.__name__, arguments, quick=True)


def run(call: Callable[..., None], **arguments: Any) -> Any:
    """What a function of this module prints last in a new process."""
    return start_quick(call, **arguments).result()


def emit(value: Any) -> None:
    """Prints a line, in one piece."""
    os.write(1, (json.dumps(value) + "\n").encode())


def serve() -> None:
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        if "wait" in request:
            emit({"code": _wait(request["wait"], request["seconds"])})
            continue
        pid = os.fork()
        if pid:
            emit({"pid": pid})
            continue
        _redirect(request["out"], request["err"])
        globals()[request["call"]](**request["arguments"])
        if request["quick"]:
            os._exit(0)
        return


def _wait(pid: int, seconds: float) -> int | None:
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.005)


def _redirect(out: str, err: str) -> None:
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import faulthandler

    faulthandler.register(signal.SIGUSR1)


# --- what other processes do: state ---------------------------------------------------------------------------------


def resume(kind: str, paths: list[str], states: list[dict[str, Any]], passes: int) -> None:
    """From each state, by a loader of its own: the rest of the epoch and those after it."""
    found = []
    dataset = make_dataset(paths)
    for state in states:
        loader = make_loader(kind, paths, dataset)
        loader.load_state_dict(state)
        found.append([epoch_rows(loader) for _ in range(passes)])
    emit(found)


def save_after_each_batch(paths: list[str], path: str, epochs: int) -> None:
    """Goes on where the file says. Before a batch is saved, it is logged with its place."""
    loader = make_loader("shuffle", paths)
    if os.path.exists(path):
        loader.load_state(path)
    while True:
        iterator = iter(loader)
        if iterator.epoch >= epochs:
            return
        for batch in iterator:
            emit([iterator.epoch, iterator.position - 1, rows(batch)])
            loader.save_state(path)
        loader.save_state(path)


def save_to_full_disk(paths: list[str], path: str, on_error: str) -> None:
    """Saves with room for 64 bytes only, in the middle of an epoch."""
    import resource
    import warnings

    loader = make_loader("shuffle", paths, on_error=on_error)
    iterator = iter(loader)
    found = [rows(next(iterator))]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            loader.save_state(path)
            error = None
        except StateError as raised:
            error = str(raised)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    found += epoch_rows(iterator)
    emit({"error": error, "warnings": [str(each.message) for each in caught], "rows": found})


# --- what other processes do: ranks ---------------------------------------------------------------------------------


def _join(store: str, rank: int, world: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


def rank_epochs(store: str, rank: int, world: int, paths: list[str], orders: list[str], batch_size: int) -> None:
    """For each order: an epoch, then one with the state after each batch, with and without the last short batch."""
    _join(store, rank, world)
    found: dict[str, Any] = {}
    for order in orders:
        loader = make_loader(order, paths, distributed=True, batch_size=batch_size)
        first = epoch_rows(loader)
        states, second = [], []
        iterator = iter(loader)
        for batch in iterator:
            second.append(rows(batch))
            states.append(loader.state_dict())
        full = make_loader(order, paths, distributed=True, batch_size=batch_size, drop_last=True)
        found[order] = {
            "first": first,
            "second": second,
            "states": states,
            "end": loader.state_dict(),
            "length": len(loader),
            "full": epoch_rows(full),
            "full_length": len(full),
        }
    torch.distributed.destroy_process_group()
    emit(found)


def rank_resume(
    store: str, rank: int, world: int, paths: list[str], batch_size: int, states: dict[str, list[dict[str, Any]]]
) -> None:
    """For each order and each of its states: the rest of the epoch, or the error."""
    _join(store, rank, world)
    found: dict[str, list[Any]] = {}
    for order, each in states.items():
        found[order] = []
        for state in each:
            loader = make_loader(order, paths, distributed=True, batch_size=batch_size)
            try:
                loader.load_state_dict(state)
                found[order].append(epoch_rows(loader))
            except StateError as error:
                found[order].append(str(error))
    torch.distributed.destroy_process_group()
    emit(found)


# --- what other processes do: lifetimes -----------------------------------------------------------------------------

HELD: list[Any] = []


def _slow_reads(seconds: float) -> None:
    """Each read takes that long; the first is told."""
    original, told = ByteRanges.read, threading.Event()

    def read(self: ByteRanges, numbers: Any) -> Iterator[tuple[int, bytes | memoryview]]:
        if not told.is_set():
            told.set()
            emit("reading")
        time.sleep(seconds)
        return original(self, numbers)

    ByteRanges.read = read  # type: ignore[method-assign]


def iterate_slowly(paths: list[str], seconds: float) -> None:
    """Waits for batches for so long that it can be interrupted meanwhile."""
    _slow_reads(seconds)
    for _ in make_loader("sequential", paths):
        emit("batch")


def exit_with_live_iterator(paths: list[str], repeats: int) -> None:
    """Ends in the middle of decoding."""
    loader = make_loader("shuffle", paths * repeats, batch_size=2, num_threads=4, buffer_length=8)
    HELD.append(iter(loader))
    emit(rows(next(HELD[0])))


def exit_with_two_iterators(paths: list[str], repeats: int) -> None:
    """Ends in the middle of decoding, with one iterator just begun and one half through."""
    loader = make_loader("buffered:16", paths * repeats, num_threads=3)
    HELD.extend([iter(loader), iter(loader)])
    for _ in range(4):
        next(HELD[0])
    emit("end")


def exit_by_exception(paths: list[str], repeats: int) -> None:
    """An error in the middle of the loop goes uncaught."""
    for batch in make_loader("chunked:4", paths * repeats, num_threads=3):
        raise LookupError(f"not what was looked for: {rows(batch)}")


def workers_beside_loader(paths: list[str]) -> None:
    """Forked workers of the same dataset, in the middle of an epoch of the loader, several times."""
    dataset = make_dataset(paths)
    loader = VideoLoader(dataset, 4, order="shuffle", drop_last=False)
    found: dict[str, list[Any]] = {"loader": [], "workers": []}
    for number, batch in enumerate(loader):
        found["loader"] += rows(batch)
        if number in (1, 4):
            workers: DataLoader[Any] = DataLoader(
                cast("Any", dataset), 6, num_workers=2, multiprocessing_context="fork", collate_fn=_as_batch
            )
            found["workers"].append(flat(rows(each) for each in workers))
    emit(found)


def _as_batch(found: list[dict[str, Any]]) -> dict[str, Any]:
    batch: dict[str, Any] = {name: torch.stack([sample[name] for sample in found]) for name in PROCESSING}
    return {**batch, "labels": [sample["labels"] for sample in found]}


def fork_in_mid_epoch(paths: list[str], forks: int) -> None:
    """Children that iterate over the loader too, begun while threads of the parent are at work. The parent goes on."""
    loader = make_loader("shuffle", paths, num_threads=3)
    held = iter(loader)
    found = rows(next(held))
    children = []
    for _ in range(forks):
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(writing, json.dumps(flat(epoch_rows(loader))).encode())
            os._exit(0)  # as workers of torch's and multiprocessing's end
        os.close(writing)
        children.append((pid, reading))
        found += rows(next(held))
    found += flat(epoch_rows(held))
    outcomes = []
    for pid, reading in children:
        code = _wait_or_kill(pid, 6.0)
        with open(reading) as file:
            text = file.read()
        outcomes.append({"code": code, "rows": json.loads(text) if text else None})
    emit({"parent": found, "children": outcomes})


def fork_with_lock_held(paths: list[str], whose: str) -> None:
    """A child is forked at the moment when a thread of the parent's iterator holds a lock, and ends as any program."""
    loader = make_loader("sequential", paths)
    held = iter(loader)
    next(held)
    locks: dict[str, Any] = {"iterator": held._feed._lock, "budget": loader._budget._lock}
    taken, done = threading.Event(), threading.Event()

    def hold(lock: Any) -> None:
        with lock:
            taken.set()
            done.wait()

    threading.Thread(target=hold, args=(locks[whose],), daemon=True).start()
    taken.wait()
    pid = os.fork()
    if not pid:
        emit(flat(epoch_rows(loader)))
        return
    code = _wait_or_kill(pid, 3.0)
    done.set()
    emit({"code": code, "parent": flat(epoch_rows(held))})


def _wait_or_kill(pid: int, seconds: float) -> int | None:
    code = _wait(pid, seconds)
    if code is None:
        os.kill(pid, signal.SIGUSR1)  # says where it is
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return code


def loader_in_forked_child(paths: list[str]) -> None:
    """A loader that was made, and used up, before the fork."""
    loader = make_loader("chunked:4", paths)
    first = epoch_rows(loader)
    pid = os.fork()
    if not pid:
        emit(epoch_rows(loader))
        return
    code = _wait_or_kill(pid, 10.0)
    emit({"code": code, "first": first, "second": epoch_rows(loader)})


# --- what other processes do: packets -------------------------------------------------------------------------------


def _packet_loader(
    decoder: PacketDecoder, dataset: FrameDataset, batches: Any, packets: PacketDataset | None = None, **options: Any
) -> DataLoader[Any]:
    packets = PacketDataset(dataset) if packets is None else packets
    requests: Any = decoder.requests(dataset, batches)
    return DataLoader(packets, batch_sampler=requests, collate_fn=packets.collate, **options)


def _few_batches(dataset: FrameDataset) -> list[list[int]]:
    return [list(range(low, min(low + 4, len(dataset)))) for low in range(0, len(dataset), 4)]


def rank_packets(
    store: str, rank: int, world: int, index: str, kind: Any, state: dict[str, Any] | None, stop: int | None
) -> None:
    """An epoch by way of packets, with workers: its batches, by what is painted, and the state where it stops."""
    _join(store, rank, world)
    dataset = MultiCameraDataset(index, cameras=["front", "rear"], processing={"plain": ProcessDesc(type="byte")})
    sampler = VideoClipSampler(dataset, 2, frame_read_type=kind, seed=3)
    assert (sampler.rank, sampler.world) == (rank, world)
    sampler.set_epoch(1)
    if state is not None:
        sampler.load_state_dict(state)
    decoder = PacketDecoder(dataset)
    found: list[list[int]] = []
    length = len(sampler)
    for batch in decoder(_packet_loader(decoder, dataset, sampler, num_workers=2, multiprocessing_context="fork")):
        pictures = batch["plain"].flatten(0, 2).permute(0, 2, 3, 1).numpy()
        found.append([samples.read_number(picture) for picture in pictures])
        if len(found) == stop:
            break
    torch.distributed.destroy_process_group()
    emit({"batches": found, "length": length, "state": sampler.state_dict(len(found))})


def decode_group(path: str) -> None:
    """Decodes a group that was pickled elsewhere: the numbers that its frames show."""
    group = pickle.loads(Path(path).read_bytes())
    found: dict[int, int] = {}

    def sink(row: int, picture: Any) -> None:
        found[row] = samples.read_number(picture.to_ndarray(format="rgb24"))

    decode_frames(cpu_engine(), group.index, group.source(), range(len(group.frames)), sink, num_threads=1)
    emit([found[row] for row in sorted(found)])


def packets_with_few_open_files(paths: list[str], limit: int) -> None:
    """Packets of more batches are kept than files may be open."""
    import resource

    dataset = make_dataset(paths)
    decoder = PacketDecoder(dataset)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + limit, limit * 100))
    batches = [[number] for number in range(len(dataset))]
    loader = _packet_loader(decoder, dataset, batches, num_workers=1, multiprocessing_context="fork")
    emit(flat(rows(batch) for batch in decoder(loader)))


def packets_slowly(paths: list[str], repeats: int) -> None:
    """Decodes for so long that it can be interrupted meanwhile; each picture takes a while."""
    original = CpuWorkshop.take

    def take_slowly(self: CpuWorkshop, video: OpenVideo, pictures: Sequence[Taken]) -> None:
        time.sleep(0.05)
        original(self, video, pictures)

    CpuWorkshop.take = take_slowly  # type: ignore[method-assign]
    dataset = make_dataset(paths * repeats)
    decoder = PacketDecoder(dataset, num_threads=2)
    HELD.append(decoder(_packet_loader(decoder, dataset, _few_batches(dataset), num_workers=1)))
    for _ in HELD[0]:
        emit("batch")


def exit_with_packets(paths: list[str], repeats: int) -> None:
    """Ends while batches are being decoded."""
    dataset = make_dataset(paths * repeats)
    decoder = PacketDecoder(dataset, num_threads=3)
    HELD.append(decoder(_packet_loader(decoder, dataset, _few_batches(dataset))))
    emit(rows(next(HELD[0])))


def packets_after_fork(paths: list[str]) -> None:
    """A decoder that was used before the fork, and is used on both sides after it."""
    dataset = make_dataset(paths)
    decoder = PacketDecoder(dataset)
    held = decoder(_packet_loader(decoder, dataset, _few_batches(dataset)))
    first = rows(next(held))
    pid = os.fork()
    found = flat(epoch_rows(decoder(_packet_loader(decoder, dataset, _few_batches(dataset)))))
    if not pid:
        emit(found)
        return
    emit({"code": _wait_or_kill(pid, 10.0), "rest": first + flat(epoch_rows(held)), "rows": found})


def packets_with_killed_worker(paths: list[str], sample: int) -> None:
    """A worker is killed in mid-epoch; then an epoch without that, with the same decoder; then the error goes on."""
    dataset = make_dataset(paths)
    batches = _few_batches(dataset)
    decoder = PacketDecoder(dataset)
    packets = Dying(dataset, sample)
    loader = _packet_loader(decoder, dataset, batches, packets, num_workers=2, multiprocessing_context="fork")
    try:
        for batch in decoder(loader):
            emit(rows(batch))
    except (RuntimeError, OSError, EOFError):
        try:
            found = flat(epoch_rows(decoder(_packet_loader(decoder, dataset, batches))))
        except RuntimeError:  # torch may tell of it twice: the second time wherever the main thread happens to be
            found = flat(epoch_rows(decoder(_packet_loader(decoder, dataset, batches))))
        emit({"rows": found, "held": decoder._store.held_bytes})
        raise
