"""Random frames over a slow disk, from videos and from a packet store.

The disk is simulated: each call that stats, opens or reads a file of it takes a fixed time longer. What FFmpeg reads
by itself goes through such calls too, in blocks as large as the kernel reads ahead. A catalog, which is mapped into
memory and has no calls, is charged as if it were read from start to end when it is opened.

There are two such disks. For one, every call counts. The other has a cache: what was read or asked for during the same
request is not waited for again, and nothing is left of it for the next request, as with more videos than memory.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import av
import numpy as np
from rich.table import Table

from benchmarks import harness
from benchmarks.harness import Contender, Entry, Run
from framefeed import Catalog, VideoDecoder
from framefeed.media import media
from framefeed.media.media import PathMedia
from framefeed.source import shards
from framefeed.store.store import pack
from framefeed.testing.samples import write_clip
from framefeed.testing.scenes import read_strip, scene_painter

CONTAINERS = (".mp4", ".mkv", ".ts")
WAYS = ("videos", "videos with a catalog", "store")
DISKS = ("every call", "cached")
READ_AHEAD = 128 << 10  # bytes, Linux' default
NUM_CONTENTS = 4
CLIP: dict[str, Any] = {"width": 640, "height": 360, "gop": 30, "bframes": 3}


class SlowDisk:
    """Makes calls on files of a folder take longer, while it is in use.

    Args:
        folder: Where the slow files are.
        latency_seconds: For each call.
        cached: Whether what is known already is not waited for.

    Attributes:
        calls: How many were waited for.
    """

    def __init__(self, folder: Path, latency_seconds: float, *, cached: bool) -> None:
        self._prefix = str(folder.resolve()) + os.sep
        self._latency = latency_seconds
        self._cached = cached
        self._paths: dict[int, str] = {}  # of open descriptors
        self._seen: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self.calls = 0

    @contextmanager
    def in_use(self) -> Iterator[SlowDisk]:
        """Wraps the calls of this process."""
        with (
            mock.patch.object(os, "stat", self._stat(os.stat)),
            mock.patch.object(os, "open", self._open(os.open)),
            mock.patch.object(os, "pread", self._read(os.pread)),
            mock.patch.object(os, "preadv", self._read(os.preadv)),
            mock.patch.object(PathMedia, "for_demuxer", lambda media: io.BufferedReader(_File(media.path), READ_AHEAD)),
        ):
            yield self

    def forget(self) -> None:
        """Empties the cache."""
        self._seen.clear()

    def open_catalog(self, path: Path) -> Catalog:
        """Opens a catalog, as if it were read from start to end."""
        self._wait(2 + -(-os.path.getsize(path) // READ_AHEAD))
        return Catalog.open(path)

    def _wait(self, calls: int = 1) -> None:
        with self._lock:
            self.calls += calls
        if self._latency:
            time.sleep(calls * self._latency)

    def _wait_for(self, path: str, blocks: range) -> None:
        """Waits once, unless all blocks of the file are known."""
        wanted = {(path, block) for block in blocks}
        if not (self._cached and wanted <= self._seen):
            self._seen |= wanted
            self._wait()

    def _is_slow(self, path: Any) -> bool:
        return isinstance(path, str) and path.startswith(self._prefix)

    def _stat(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(path: Any, *arguments: Any, **options: Any) -> Any:
            if self._is_slow(path):
                self._wait_for(path, range(-1, 0))
            return call(path, *arguments, **options)

        return slow

    def _open(self, call: Callable[..., int]) -> Callable[..., int]:
        def slow(path: Any, *arguments: Any, **options: Any) -> int:
            descriptor = call(path, *arguments, **options)
            self._paths.pop(descriptor, None)
            if self._is_slow(path):
                self._paths[descriptor] = path
                self._wait()
            return descriptor

        return slow

    def _read(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(descriptor: int, what: Any, offset: int) -> Any:
            path = self._paths.get(descriptor)
            if path is not None:
                length = what if isinstance(what, int) else sum(map(len, what))
                self._wait_for(path, range(offset // READ_AHEAD, max(0, offset + length - 1) // READ_AHEAD + 1))
            return call(descriptor, what, offset)

        return slow


class _File(io.RawIOBase):
    """A file that is read by the calls that a slow disk wraps."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: os.fstat(self._descriptor).st_size}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        data = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all frames were right."""
    parser = harness.make_parser("store", (__doc__ or "").split("\n\n")[0], repeat=3)
    parser.add_argument("--files", type=int, default=128, help="videos of each container (default: 128)")
    parser.add_argument("--frames", type=int, default=300, help="frames of each (default: 300)")
    parser.add_argument("--requests", type=int, default=100, help="frames that are read (default: 100)")
    parser.add_argument("--latency-ms", type=float, default=2.0, help="of each call (default: 2)")
    arguments = parser.parse_args(argv)
    console = harness.make_console()
    setup = {
        "latency_ms": arguments.latency_ms,
        "files": arguments.files,
        "frames_a_file": arguments.frames,
        "requests": arguments.requests,
        "request": "VideoDecoder(path)[frame] of a random file, opened again each time",
        "clips": "H.264 640x360, groups of 30, three B-frames",
        "read_ahead_bytes": READ_AHEAD,
    }
    document = harness.begin("store", argv, setup=setup)
    results = document["results"]
    with tempfile.TemporaryDirectory() as folder:
        with console.status("making the clips"):
            contents = _write_contents(Path(folder), min(NUM_CONTENTS, arguments.files), arguments.frames)
        for suffix in CONTAINERS:
            with console.status(f"reading {suffix} files"):
                results += map(harness.stamped, _measure(suffix, contents, Path(folder) / suffix[1:], arguments))
            harness.save(arguments.output, document)
    console.print(_table(results))
    return 1 if any(way["wrong"] for result in results for way in result["ways"].values()) else 0


def _write_contents(folder: Path, count: int, frames: int) -> list[Path]:
    paths = [folder / f"content_{seed}.mp4" for seed in range(count)]
    for seed, path in enumerate(paths):
        painter = scene_painter(CLIP["width"], CLIP["height"], seed=seed + 1)
        write_clip(path, frames=frames, threads=2, painter=painter, **CLIP)
    return paths


def _remux(source: Path, target: Path) -> None:
    """The same packets in another container."""
    with av.open(source) as template, av.open(target, "w") as container:
        stream = container.add_stream_from_template(template.streams.video[0])
        for packet in template.demux(template.streams.video[0]):
            if packet.size:
                packet.stream = stream
                container.mux(packet)


def _measure(suffix: str, contents: list[Path], folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Reads the same frames in each way, from each disk."""
    folder.mkdir()
    videos = [folder / f"{number:04d}{suffix}" for number in range(arguments.files)]
    for number, path in enumerate(videos):
        if number < len(contents):
            _remux(contents[number], path)
        else:
            shutil.copyfile(videos[number % len(contents)], path)
    catalog = folder / "catalog.arrow"
    packed = pack(Catalog.build(videos, catalog, progress=False), folder / "store", progress=False)
    random = np.random.default_rng(0)
    files = random.integers(len(videos), size=arguments.requests).tolist()
    frames = random.integers(arguments.frames, size=arguments.requests).tolist()
    requests = [(videos[file], frame) for file, frame in zip(files, frames, strict=True)]
    catalogs = {"videos": None, "videos with a catalog": catalog, "store": folder / "store" / "catalog.arrow"}
    sizes = {"video_bytes": packed.video_bytes, "store_bytes": packed.store_bytes}
    return [
        {"container": suffix[1:], "disk": kind, **_time(folder, catalogs, requests, kind, arguments), **sizes}
        for kind in DISKS
    ]


@dataclass
class Way(Contender):
    """A contender: requests for frames, each opened again.

    Attributes:
        disk: Makes a disk for the files that has seen nothing.
        catalog: The catalog to read by.
        requests: Videos and frames.
        calls: Calls of the last timing that were waited for.
        wrong: Wrong frames so far.
    """

    disk: Callable[[], SlowDisk]
    catalog: Path | None
    requests: list[tuple[Path, int]]
    calls: int = 0
    wrong: int = 0

    def check(self) -> int:
        """Returns the number of wrong frames in all timings."""
        return self.wrong

    def run(self, seconds: float) -> Run:
        """Times all requests; files that an earlier turn has opened are not used again."""
        media._POOL.forget()
        shards._known.clear()
        pictures = []
        with self.disk().in_use() as disk:
            start = time.perf_counter()
            index = None if self.catalog is None else disk.open_catalog(self.catalog)
            for path, frame in self.requests:
                disk.forget()
                pictures.append(VideoDecoder(path, index=index, dimension_order="NHWC")[frame])
            took = time.perf_counter() - start
        self.calls = disk.calls
        for picture, (_, frame) in zip(pictures, self.requests, strict=True):
            self.wrong += read_strip(picture.numpy()) != frame
        return Run(len(pictures), took, len(pictures) / took)


def _time(
    folder: Path,
    catalogs: dict[str, Path | None],
    requests: list[tuple[Path, int]],
    kind: str,
    arguments: argparse.Namespace,
) -> dict[str, Any]:
    """Times each way in turn, again and again."""
    disk = partial(SlowDisk, folder, arguments.latency_ms / 1000, cached=kind == "cached")
    ways = {way: Way(disk, catalogs[way], requests) for way in WAYS}
    entries = {name: Entry(name, way) for name, way in ways.items()}
    for _ in harness.in_turns(list(entries.values()), arguments.repeat):
        pass
    found = {
        name: {
            "seconds": [round(run.seconds, 4) for run in entry.runs],
            "calls_per_frame": round(ways[name].calls / len(requests), 2),
            "wrong": ways[name].wrong,
            "frames_per_second": round(entry.median, 1),
        }
        for name, entry in entries.items()
    }
    rate = {way: entry.median for way, entry in entries.items()}
    return {
        "ways": found,
        "store_vs_videos": round(rate["store"] / rate["videos"], 2),
        "store_vs_catalog": round(rate["store"] / rate["videos with a catalog"], 2),
    }


def _table(results: list[dict[str, Any]]) -> Table:
    rows = []
    for result in results:
        cells = [
            f"{found['frames_per_second']:,.1f} ({found['calls_per_frame']:g})" for found in result["ways"].values()
        ]
        ratios = (f"{result['store_vs_videos']:.1f}x", f"{result['store_vs_catalog']:.1f}x")
        rows.append((result["container"], result["disk"], *cells, *ratios))
    title = "random frames over a slow disk, frames/s (calls a frame)"
    return harness.table(title, ["container", "disk"], [*WAYS, "vs videos", "vs catalog"], rows)


if __name__ == "__main__":
    sys.exit(main())
