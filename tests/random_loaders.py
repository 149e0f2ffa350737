"""Loaders of any kind, drawn at random, on a GPU compared with the CPU until the time is up.

    python tests/random_loaders.py --minutes 10 --device cuda

``emulated`` is all that runs on a GPU, without one: PyNvVideoCodec on an emulated driver, and kernels by Triton's
interpreter, which takes seconds for each loader. Where batches are not those of the CPU, the loader's settings are
printed; ``--seed`` and ``--first`` make it again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import clips
from framefeed import FrameSizeError, ProcessDesc, UnsupportedCodec, VideoDataset, VideoDecoder, VideoLoader
from random_clips import note

Batches = list[dict[str, Any]]
Read = Callable[[dict[str, Any]], Batches]
"""All batches of a loader that was drawn."""

# How far values may be from the CPU's, in levels of 255: one of them, and on average.
PLAIN, SCALED = (2.01, 0.5), (12.0, 1.0)


def supported_clips(folder: Path, is_supported: Callable[[Path], bool]) -> dict[tuple[int, int], list[Path]]:
    """All clips of the other tests that a GPU can decode, by the size that they are shown in."""
    found: dict[tuple[int, int], list[Path]] = {}
    for name in sorted(clips.KINDS):
        path = clips.make(name, folder)
        if is_supported(path):
            found.setdefault(VideoDecoder(path).index.stream.display_size, []).append(path)
    return found


# --- what is drawn --------------------------------------------------------------------------------------------------


def draw(rng: random.Random, by_size: dict[tuple[int, int], list[Path]], number: int) -> dict[str, Any]:
    """A loader: its videos, what is made of them, and the order."""
    size = rng.choice(sorted(by_size))
    mixed = rng.random() < 0.3  # videos of several sizes: these are scaled
    chosen = sorted(path for paths in by_size.values() for path in paths) if mixed else by_size[size]
    length = rng.choice([1, 1, 2, 3])
    return {
        "seed": number,
        "paths": [str(rng.choice(chosen)) for _ in range(rng.randint(1, 3))],
        "length": length,
        "stride": rng.choice([1, 1, 2]),
        "processing": {f"{place}": _draw_desc(rng, length, size, mixed) for place in range(rng.choice([1, 1, 2, 3]))},
        "batch_size": rng.choice([1, 3, 4, 8]),
        "order": rng.choice(["sequential", "shuffle", "shuffle", "chunked:4", "buffered:16"]),
        "memory_budget": rng.choice([0, 1, 20_000, 200_000, "64MB"]),
        "num_epochs": rng.choice([1, 1, 2]),
        "buffer_length": rng.choice([1, 3]),
        "most": rng.choice([4, 12, 30]),  # samples of an epoch, after which it is left
    }


def _draw_desc(rng: random.Random, length: int, size: tuple[int, int], mixed: bool) -> dict[str, Any]:
    height, width = size
    type_ = rng.choice(["float", "half", "byte", "bfloat16"])
    drawn: dict[str, Any] = {"type": type_, "random_flip": rng.random() < 0.5}
    if mixed:
        drawn |= {"scale_width": 72, "scale_height": 50}
    elif rng.random() < 0.5:  # not much smaller: for all that becomes one pixel, the interpreter takes long
        wide = rng.choice([0, rng.randint(width // 3, width * 3 // 2)])
        drawn |= {"scale_width": wide, "scale_height": rng.randint(height // 3, height * 3 // 2)}
    if "scale_height" in drawn:
        height = drawn["scale_height"]
        width = drawn["scale_width"] or round(size[1] * height / size[0])
    if rng.random() < 0.5 and min(height, width) > 4:
        drawn |= {"width": rng.choice([0, rng.randint(1, width - 2)]), "height": rng.randint(1, height - 2)}
        where = rng.choice(["random_crop", "center_crop", None])
        drawn |= {where: True} if where else {}
    if type_ != "byte":
        drawn["normalized"] = rng.random() < 0.5
        drawn |= {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.25, 0.3]} if rng.random() < 0.4 else {}
    drawn["color_space"] = rng.choice(["RGB", "RGB", "YCbCr"])
    drawn["dimension_order"] = rng.choice(["fchw", "fhwc", "".join(rng.sample("fchw", 4))])
    if length > 1 and rng.random() < 0.4:
        kept = rng.randint(1, length)
        drawn["index_map"] = rng.sample([*range(kept), *[-1] * (length - kept)], length)
    return drawn


# --- what is compared -----------------------------------------------------------------------------------------------


def read(drawn: dict[str, Any], device: str) -> Batches:
    """All batches of a loader that was drawn, in the CPU's memory."""
    dataset = VideoDataset(
        drawn["paths"],
        drawn["length"],
        frame_stride=drawn["stride"],
        processing={name: ProcessDesc(**desc) for name, desc in drawn["processing"].items()},
        get_label=lambda *told: told,
        seed=drawn["seed"],
        device=device,
    )
    how = {name: drawn[name] for name in ("order", "memory_budget", "num_epochs", "buffer_length")}
    loader = VideoLoader(dataset, drawn["batch_size"], drop_last=False, **how)
    found = []
    for _ in range(drawn["num_epochs"]):
        for number, batch in enumerate(loader):
            found.append({name: value.clone().cpu() if name != "labels" else value for name, value in batch.items()})
            if (number + 1) * drawn["batch_size"] >= drawn["most"]:
                break
    return found


@contextlib.contextmanager
def reading(device: str) -> Iterator[tuple[Read, Callable[[Path], bool]]]:
    """What reads batches on a device, and says whether it can."""
    if device == "cuda":

        def decodes(path: Path) -> bool:
            return not VideoDecoder(path, device="cuda", fallback="cpu").cpu_fallback

        yield lambda drawn: read(drawn, "cuda"), decodes
        return
    os.environ |= {"FRAMEFEED_TEST_LIBRARY": "PyNvVideoCodec", "TRITON_INTERPRET": "1"}
    import pytest

    import standin
    from framefeed.decode.nvdec.capabilities import check_supported

    def read_here(drawn: dict[str, Any]) -> Batches:
        with pytest.MonkeyPatch.context() as patch, standin.installed(patch, kernels=True):
            return read(drawn, "cpu")

    def is_supported(path: Path) -> bool:
        with pytest.MonkeyPatch.context() as patch, standin.installed(patch, kernels=True):
            try:
                check_supported(VideoDecoder(path).index, 0)
            except UnsupportedCodec:
                return False
            return True

    yield read_here, is_supported


def difference(drawn: dict[str, Any], truth: Batches, found: Batches) -> str:
    """What is not as it should be; empty where all is."""
    if [batch["labels"] for batch in truth] != [batch["labels"] for batch in found]:
        return "other samples"
    for number, (one, other) in enumerate(zip(truth, found, strict=True)):
        for name, desc in drawn["processing"].items():
            a, b = one[name], other[name]
            if (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
                return (
                    f"batch {number}: {name}: {tuple(b.shape)} of {b.dtype} in place of {tuple(a.shape)} of {a.dtype}"
                )
            level = (1 / 255 if desc.get("normalized") else 1) / min(desc.get("std", [1]))
            apart = (a.double() - b.double()).abs() / level
            most, mean = SCALED if desc.get("scale_height") else PLAIN
            if not (apart.max() <= most and apart.mean() <= mean):
                return f"batch {number}: {name}: apart by up to {apart.max():.2f}, on average by {apart.mean():.2f}"
    return ""


def compare(device: str, *, seed: int, first: int, minutes: float, most: int, folder: Path) -> Counter[str]:
    """Makes loaders and compares them, until the time is up or there were enough; returns what became of them."""
    counts: Counter[str] = Counter()
    with reading(device) as (read_there, is_supported):
        by_size = supported_clips(folder, is_supported)
        end = time.monotonic() + 60 * minutes
        for number in range(first, first + most):
            if time.monotonic() > end:
                break
            drawn = draw(random.Random(f"{seed} {number}"), by_size, number)
            try:
                truth = read(drawn, "cpu")
            except (FrameSizeError, ValueError):
                counts["not possible"] += 1  # what was drawn does not go together
                continue
            try:
                what = difference(drawn, truth, read_there(drawn))
            except Exception:  # whatever it is, the other loaders are to be tried
                what = traceback.format_exc()
            counts["bad" if what else "good"] += 1
            if what:
                print(f"{number}: {what}\n    {drawn}", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "emulated"], default="emulated")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first loader")
    parser.add_argument("--most", type=int, default=1 << 30, help="how many loaders at the most")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        counts = compare(
            given.device,
            seed=given.seed,
            first=given.first,
            minutes=given.minutes,
            most=given.most,
            folder=Path(folder),
        )
    for what, count in counts.most_common():
        print(f"{count:6} {what}")
    note("loaders", given.seed, counts)
    return 1 if counts["bad"] or not counts["good"] else 0


if __name__ == "__main__":
    sys.exit(main())
