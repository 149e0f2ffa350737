"""``framefeed demo``: generates clips, reads frames at random, and verifies them."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["add_parser"]

RANDOM_FRAMES = 48
SEED = 7
TIMED_RUNS = 5  # their median is stable to a few per cent, and all six clips take about a second

COLUMNS = ("clip", "codec", "GOP", "frames\nread", "all\nequal", "RGB\nframes/s", "packets\ndecoded", "not\ndecoded")


@dataclass(frozen=True)
class ClipResult:
    """Results of one clip.

    Attributes:
        clip: File name.
        codec: FFmpeg's name of the codec.
        frames: Number of frames in the clip.
        group_frames: Median number of frames per random-access point.
        frames_read: Number of frames read at random, in one request.
        equal: True if every picture equalled the linear decode, at random and in order.
        numbers_right: True if the numbers painted into those frames were the requested ones.
        rgb_frames_per_second: Speed of that request with conversion to RGB.
        packets: Number of packets in the file.
        packets_decoded: Number of packets decoded for the request.
        first_problem: The first problem, None if there is none.
    """

    clip: str
    codec: str
    frames: int
    group_frames: float
    frames_read: int
    equal: bool
    numbers_right: bool
    rgb_frames_per_second: float
    packets: int
    packets_decoded: int
    first_problem: str | None

    @property
    def right(self) -> bool:
        """True if there are no problems."""
        return self.equal and self.numbers_right

    @property
    def share_not_decoded(self) -> float:
        """Share of the file's packets that the request did not decode."""
        return 1 - self.packets_decoded / self.packets


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "demo",
        help="generate clips, read frames at random, verify them",
        description="Generates six clips whose frames carry their numbers, reads frames at random from each, and "
        "compares them with a linear decode and with the numbers.",
        allow_abbrev=False,
    )
    parser.add_argument("--folder", metavar="DIR", type=Path, help="keep the clips there (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed.cli import console
    from framefeed.testing import samples

    began = time.perf_counter()
    with _folder(args.folder) as folder, console.progress("six clips", show=not args.json) as report:
        results: list[ClipResult] = []
        paths = samples.write_samples(folder)
        for path in paths:
            report(len(results), len(paths))
            results.append(_check(path))
    right = all(result.right for result in results)
    if args.json:
        console.print_json(
            {
                "right": right,
                "clips": [{**dataclasses.asdict(r), "share_not_decoded": r.share_not_decoded} for r in results],
            }
        )
        return 0 if right else 1
    console.print_table(console.make_table(COLUMNS, [_row(result) for result in results]))
    console.print_lines(*_summary(results, time.perf_counter() - began))
    return 0 if right else 1


@contextmanager
def _folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        yield chosen
        return
    with tempfile.TemporaryDirectory(prefix="framefeed-demo-") as folder:
        yield Path(folder)


def _check(path: Path) -> ClipResult:
    import numpy as np

    from framefeed import VideoDecoder
    from framefeed.cli.facts import group_sizes
    from framefeed.compare.verify import verify_file
    from framefeed.testing import samples

    result = verify_file(path, sample=RANDOM_FRAMES, seed=SEED)
    frames = list(result.random_frames)
    decoder = VideoDecoder(path, dimension_order="NHWC")
    wrong = samples.wrong_number(decoder.get_frames_at(frames).data.numpy(), frames)
    plan = decoder.last_plan
    assert plan is not None
    problems = [str(difference) for difference in result.differences]
    if result.num_frames != result.linear_frames:
        problems.append(f"{result.num_frames} frames by the index, {result.linear_frames} by the linear decode")
    if wrong:
        problems.append(wrong)
    return ClipResult(
        clip=path.name,
        codec=decoder.index.stream.codec,
        frames=len(decoder),
        group_frames=float(np.median(group_sizes(decoder.index.packets))),
        frames_read=len(frames),
        equal=result.equal,
        numbers_right=not wrong,
        rgb_frames_per_second=len(frames) / _median_seconds(decoder, frames),
        packets=len(decoder.index.packets),
        packets_decoded=plan.num_packets,
        first_problem=problems[0] if problems else None,
    )


def _median_seconds(decoder: Any, frames: list[int]) -> float:
    seconds = []
    for _ in range(TIMED_RUNS):
        began = time.perf_counter()
        decoder.get_frames_at(frames)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _row(result: ClipResult) -> tuple[object, ...]:
    return (
        result.clip,
        result.codec,
        round(result.group_frames),
        f"{result.frames_read} of {result.frames}",
        result.right,
        round(result.rgb_frames_per_second),
        f"{result.packets_decoded} of {result.packets}",
        f"{result.share_not_decoded:.0%}",
    )


def _summary(results: list[ClipResult], seconds: float) -> list[str]:
    problems = [f"{result.clip}: {result.first_problem}" for result in results if result.first_problem is not None]
    if problems:
        return ["NOT equal to a linear decode:", *problems]
    at_random, in_order = sum(result.frames_read for result in results), sum(result.frames for result in results)
    return [
        f"{at_random} frames at random and {in_order:,} in order: each bit equal to a linear decode,",
        f"and every number painted into the random ones is right. {seconds:.1f} s in all.",
    ]
