"""Golden run: everything that a change of the inside must not change, as one JSON file.

    python tests/golden.py record before.json
    python tests/golden.py compare before.json

``record`` reads all clips of the zoo and all damaged files in many ways and notes digests of pictures, plans, counters,
files and errors; ``compare`` does the same again and lists what differs. Both take about ten minutes on two cores, and
``--parts`` chooses. Clips are made in ``--folder`` once, so both runs read the same bytes. Messages are not compared.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import DataLoader

import clips
import damaged
from framefeed import (
    Catalog,
    PacketDataset,
    PacketDecoder,
    ProcessDesc,
    VideoClipSampler,
    VideoDataset,
    VideoDecoder,
    VideoIndex,
    VideoLoader,
    cli,
    infer,
)
from framefeed.media.native import NativeFrame
from framefeed.plan import plan_frames

Facts = Iterator[tuple[str, Any]]

LOADED = ["h264_bframes", "hevc_open_gop", "vp9_mp4", "mpeg4_avi"]
"""Kinds of clips that are loaded in batches."""

COUNTERS = ("batches", "samples_delivered", "frames_delivered", "packets_decoded", "hits", "misses", "bytes_read")

TIMED = "rows.csv.run.json"
"""A file that holds the time of the run."""

STAMP = 1_700_000_000
"""Modification time of all clips: catalogs hold it."""


def digest(*parts: Any) -> str:
    """A short digest of arrays, bytes and anything with a ``repr``."""
    value = hashlib.blake2b(digest_size=8)
    for part in parts:
        if isinstance(part, NativeFrame):
            value.update(f"{part.pix_fmt} {part.width}x{part.height}".encode())
            for plane in part.planes:
                value.update(np.ascontiguousarray(plane).data)
        elif hasattr(part, "numpy"):
            value.update(f"{part.dtype} {tuple(part.shape)}".encode() + part.contiguous().numpy().tobytes())
        else:
            value.update(part if isinstance(part, bytes) else repr(part).encode())
    return value.hexdigest()


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the error's class and attributes."""
    try:
        return function(*arguments)
    except Exception as error:
        frame = getattr(error, "frame", None)
        return {"error": type(error).__name__, "frame": frame, "frames": sorted(getattr(error, "reasons", ()))}


# --- parts ------------------------------------------------------------------------------------------------------------


def pictures(folder: Path) -> Facts:
    """Native planes and RGB of a fixed list of requests, and what the index says."""
    for name in sorted(clips.KINDS):
        path = clips.make(name, folder)
        index = VideoIndex.scan(path)
        table = index.packets
        yield f"{name} index", digest(index.stream, *(np.asarray(column) for column in (table.frames, table.start)))
        count = len(index)
        rng = random.Random(name)
        requests = {
            "all": list(range(count)),
            "shuffled": rng.sample(range(count), count),
            "some": [rng.randrange(count) for _ in range(9)],
            "one": [rng.randrange(count)],
        }
        for (request, frames), threads in itertools.product(requests.items(), (1, 2)):
            decoder = VideoDecoder(path, index=index, num_ffmpeg_threads=threads)
            yield f"{name} {request} {threads} planes", outcome(_planes, decoder, frames)
            yield f"{name} {request} {threads} rgb", outcome(_rgb, decoder, frames)
        times = [rng.uniform(-0.1, count / 20) for _ in range(6)]
        yield f"{name} times", [outcome(_played, decoder, time) for time in times]


def _planes(decoder: VideoDecoder, frames: list[int]) -> str:
    return digest(*decoder.get_native_frames_at(frames))


def _rgb(decoder: VideoDecoder, frames: list[int]) -> str:
    return digest(decoder.get_frames_at(frames).data)


def _played(decoder: VideoDecoder, time: float) -> str:
    return digest(decoder.get_frame_played_at(time).data)


def plans(folder: Path) -> Facts:
    """Packets, wanted frames and order of the jobs of requests."""
    for name in sorted(clips.KINDS):
        table = VideoIndex.scan(clips.make(name, folder)).packets
        count = len(table.frames)
        rng = random.Random(name)
        for size in sorted({1, min(7, count), count}):
            plan = plan_frames(table, rng.sample(range(count), size))
            jobs = [(job.start, np.asarray(job.packets).tolist(), np.asarray(job.wanted).tolist()) for job in plan.jobs]
            yield f"{name} {size}", jobs


def bright_box(images: torch.Tensor) -> torch.Tensor:
    """A model: one box for each image, as wide as the image is bright."""
    size = images.shape[-1]
    wide = images.mean((1, 2, 3)) * size
    zero = torch.zeros_like(wide)
    return torch.stack([zero, zero, wide, wide + 1, zero + 0.9, zero], 1)[:, None]


def _dataset(folder: Path, length: int) -> VideoDataset:
    files = [clips.make(name, folder) for name in LOADED]
    desc = ProcessDesc(type="float", scale_width=64, scale_height=48, normalized=True)
    return VideoDataset(files, sequence_length=length, processing={"x": desc})


def batches(folder: Path) -> Facts:
    """Batches of all orders x budgets x threads x seeds, and counters with one thread."""
    orders = ["sequential", "shuffle", "chunked:4", "buffered:32"]
    budgets: tuple[int | str, ...] = (0, 200_000, "1GiB")
    for length, order, budget, threads, seed in itertools.product((1, 4), orders, budgets, (1, 2), (0, 5)):
        loader = VideoLoader(
            _dataset(folder, length), batch_size=8, order=order, seed=seed, memory_budget=budget, num_threads=threads
        )
        found = [digest(*(batch["x"] for batch in loader)) for _ in range(2)]
        name = f"{length} {order} {budget} {threads} {seed}"
        yield name, found
        if threads == 1:
            stats = loader.stats()
            yield f"{name} stats", {each: getattr(stats, each) for each in COUNTERS}


def separated(folder: Path) -> Facts:
    """Batches that separated workers read, with and without worker processes."""
    names = ["h264_bframes", "hevc_open_gop"]
    ways: tuple[Literal["random", "stream"], ...] = ("random", "stream")
    for how, workers in itertools.product(ways, (0, 1)):
        dataset = VideoDataset([clips.make(name, folder) for name in names], sequence_length=1)
        sampler = VideoClipSampler(dataset, group_num=2, frame_read_type=how, seed=3)
        packets = PacketDataset(dataset)
        loader = DataLoader(packets, batch_sampler=sampler, num_workers=workers, collate_fn=packets.collate)
        with contextlib.closing(PacketDecoder(dataset)) as decoder:
            yield f"{how} {workers}", [digest(batch["default"]) for batch in decoder(loader)]


def files(folder: Path) -> Facts:
    """Bytes of a catalog, a packet store and prepared videos, and rows of an inference."""
    place = folder / "out"
    place.mkdir(exist_ok=True)
    names = [clips.make(name, folder).name for name in LOADED]
    before = Path.cwd()
    os.chdir(folder)
    try:
        Catalog.build(names, "out/catalog.arrow", progress=False)
        assert run(["pack", "out/catalog.arrow", "out/store", "--quiet"])[0] == 0
        assert run(["prepare", *names[:2], "out/prepared", "--gop", "8", "--quiet"])[0] == 0
        options: dict[str, Any] = {"frame_skip": 3, "image_size": 64, "device": "cpu", "progress": False}
        for path in Path("out/prepared").rglob("*.arrow"):
            path.unlink()  # holds the times of the files beside it
        infer.run(names[:2], bright_box, output="out/rows.csv", **options)
    finally:
        os.chdir(before)
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.name.startswith(".") and path.name != TIMED:
            yield path.relative_to(place).as_posix(), digest(path.read_bytes())


def errors(folder: Path) -> Facts:
    """Class and attributes of the errors of damaged files."""
    for name, maker in damaged.DAMAGED.items():
        path = maker(folder / "damaged")
        yield name, outcome(_frames, path)


def _frames(path: Path) -> list[Any]:
    """The outcome of each frame that is asked for by itself."""
    decoder = VideoDecoder(path)
    return [outcome(_planes, decoder, [frame]) for frame in range(len(decoder))]


def commands(folder: Path) -> Facts:
    """``--json`` of commands."""
    paths = [str(clips.make(name, folder)) for name in LOADED]
    catalog = str(folder / "commands.arrow")
    calls = {
        "index": ["index", *paths, "-o", catalog, "--json", "--quiet"],
        "sampling": ["sampling", catalog, "--json", "--steps", "2", "--memory", "1MB"],
        **{f"info {Path(path).name}": ["info", path, "--json"] for path in paths},
        **{f"verify {Path(path).name}": ["verify", path, "--json"] for path in paths},
        "frames": ["frames", paths[0], "0", "5", "-o", str(folder / "frames"), "--json"],
    }
    for name, call in calls.items():
        code, printed = run(call)
        yield name, [code, _without_times(json.loads(printed)) if printed.strip() else printed]


def run(command: list[str]) -> tuple[int, str]:
    """Exit code and standard output of a command."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = cli.main(command)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, said.getvalue()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(one) for key, one in value.items() if not re.search("elapsed|took|per_second", key)}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


PARTS: dict[str, Callable[[Path], Facts]] = {
    part.__name__: part for part in (pictures, plans, batches, separated, files, errors, commands)
}


def record(parts: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Everything, by part and name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in clips.KINDS:
        for path in folder.glob(f"{name}.*"):  # of an earlier run: some encoders write other bytes each time
            clips.use(name, path)
        os.utime(clips.make(name, folder), (STAMP, STAMP))
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        found[part] = json.loads(json.dumps(dict(PARTS[part](folder))))
        print(f"{part}: {len(found[part])} facts", flush=True)
    return found


def main() -> int:
    """Record or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, default=Path(".golden"), help="of clips (default: .golden)")
    arguments = parser.parse_args()
    now = record(arguments.parts, arguments.folder)
    if arguments.what == "record":
        arguments.file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return 0
    before = json.loads(arguments.file.read_text())
    differing = 0
    for part in arguments.parts:
        for name in sorted(before[part].keys() | now[part].keys()):
            old, new = (facts[part].get(name, "nothing") for facts in (before, now))
            if old != new:
                differing += 1
                print(f"{part}: {name}: {str(old)[:200]} -> {str(new)[:200]}")
    print(f"{differing} facts differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
