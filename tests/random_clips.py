"""Clips of any kind, drawn at random, compared with a linear decode plane by plane until the time is up.

    python tests/random_clips.py --minutes 10 --device cuda

``cpu`` and ``cuda`` are what they are elsewhere; ``emulated`` is PyNvVideoCodec on an emulated driver. A clip with
wrong frames is kept, and its settings are printed; ``--seed`` and ``--first`` make it again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np

import clips
from framefeed import FramefeedError, UnsupportedCodec, VideoDecoder
from framefeed._util.versions import source_digest
from framefeed.media.native import NativeFrame
from framefeed.testing import samples

Read = Callable[[Path, list[int]], list[NativeFrame]]
"""Frames of a file; raises ``UnsupportedCodec`` where they cannot be had."""

SIZES = [(96, 64), (90, 58), (160, 96), (162, 98), (176, 112), (64, 64), (130, 74), (128, 80), (178, 146)]
FRAMES = [1, 2, 3, 7, 20, 33, 50, 75]
GOPS = [1, 2, 5, 8, 12, 25, 60, 250]
CONTAINERS = {
    "libx264": ["mp4", "mp4", "mkv", "ts", "mov", "avi", "flv", "m4v"],
    "libx265": ["mp4", "mp4", "mkv", "ts", "mov"],
    "libvpx": ["mkv", "webm"],
    "libvpx-vp9": ["mkv", "webm", "mp4"],
}


def _x264(rng: random.Random) -> dict[str, Any]:
    refresh = rng.random() < 0.2
    values = {
        "ref": rng.choice([1, 2, 3, 4, 6, 9, 16]),
        "b-pyramid": rng.choice([0, 1, 2]),
        "open-gop": 0 if refresh else rng.choice([0, 0, 1]),
        "bframes": 0 if refresh else rng.choice([0, 0, 1, 2, 3, 5, 8]),
        "scenecut": rng.choice([0, 40]),
        "weightp": rng.choice([0, 1, 2]),
        "slices": rng.choice([1, 1, 2, 4]),
        "intra-refresh": int(refresh),
    }
    preset = rng.choice(["ultrafast", "medium", "veryfast"])
    return {"pix_fmt": "yuv420p", "options": {"x264-params": _joined(values), "preset": preset}}


def _x265(rng: random.Random) -> dict[str, Any]:
    values = {
        "ref": rng.choice([1, 2, 3, 5]),
        "b-pyramid": rng.choice([0, 1]),
        "open-gop": rng.choice([0, 1, 1]),
        "bframes": rng.choice([0, 0, 2, 4, 6]),
        "scenecut": rng.choice([0, 40]),
        "repeat-headers": rng.choice([0, 1]),
        "min-cu-size": rng.choice([8, 16]),
        "radl": rng.choice([0, 0, 1, 2]),
        "log-level": "none",
    }
    formats = ["yuv420p", "yuv420p", "yuv420p", "yuv420p10le", "yuv420p12le", "yuv444p"]
    preset = rng.choice(["ultrafast", "veryfast"])
    return {"pix_fmt": rng.choice(formats), "options": {"x265-params": _joined(values), "preset": preset}}


def _vpx(rng: random.Random) -> dict[str, Any]:
    options = {"auto-alt-ref": rng.choice("01"), "lag-in-frames": rng.choice(["0", "16"]), "deadline": "realtime"}
    return {"pix_fmt": "yuv420p", "options": options | {"cpu-used": "8"}}


def _joined(values: dict[str, Any]) -> str:
    return ":".join(f"{name}={value}" for name, value in values.items())


SETTINGS = {"libx264": _x264, "libx265": _x265, "libvpx": _vpx, "libvpx-vp9": _vpx}


def make(folder: Path, rng: random.Random, larger: int = 0) -> tuple[Path, dict[str, Any]]:
    """Writes a clip; returns it with what was drawn.

    Args:
        folder: Where to.
        rng: Draws.
        larger: How much larger its sides are than those of ``SIZES``.
    """
    codec = rng.choices(list(SETTINGS), [4, 4, 1, 2])[0]
    container = rng.choice(CONTAINERS[codec])
    width, height = (side + larger for side in rng.choice(SIZES))
    odd = int(codec == "libvpx-vp9" and rng.random() < 0.3)
    drawn: dict[str, Any] = {
        "codec": codec,
        "frames": rng.choice(FRAMES),
        "gop": rng.choice(GOPS),
        "width": width + odd,
        "height": height + odd,
        "seed": rng.randrange(1000),
        **SETTINGS[codec](rng),
    }
    if container == "mp4" and rng.random() < 0.3:
        flags = ["frag_keyframe+empty_moov", "faststart", "frag_keyframe+default_base_moof+delay_moov"]
        drawn["container_options"] = {"movflags": rng.choice(flags)}
    steps = [rng.choice([1, 1, 1, 2, 5]) for _ in range(drawn["frames"] + 1)]
    times = rng.choice([0, 5, 900]) + np.cumsum(steps)
    uneven = container != "avi" and rng.random() < 0.2
    path = folder / f"clip.{container}"
    samples.write_clip(path, **drawn, pts=(lambda place: int(times[place])) if uneven else None)
    joined = container == "ts" and rng.random() < 0.4
    if joined:
        other = samples.write_clip(folder / "more.ts", **drawn | {"frames": 20, "seed": drawn["seed"] + 1})
        path.write_bytes(path.read_bytes() + other.read_bytes())
    return path, drawn | {"container": container, "uneven": uneven, "joined": joined}


# --- what is compared -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def reading(device: str) -> Iterator[Read]:
    """What reads frames on a device."""
    if device != "emulated":
        yield lambda path, wanted: VideoDecoder(path, device=device).get_native_frames_at(wanted)
        return
    os.environ["FRAMEFEED_TEST_LIBRARY"] = "PyNvVideoCodec"
    import pytest

    import standin
    from framefeed.decode.nvdec.capabilities import check_supported

    with pytest.MonkeyPatch.context() as patch, standin.installed(patch) as gpu:

        def read(path: Path, wanted: list[int]) -> list[NativeFrame]:
            decoder = VideoDecoder(path)
            check_supported(decoder.index, 0)
            found = gpu.natives(decoder, wanted)
            assert gpu.order.found() == []
            return found

        yield read


def same(one: NativeFrame, other: NativeFrame) -> bool:
    """Whether the planes are equal; full and limited range are the same format to a decoder."""
    sizes = (one.width, one.height) == (other.width, other.height)
    return sizes and all(np.array_equal(a, b) for a, b in zip(one.planes, other.planes, strict=True))


def wrong_frames(path: Path, read: Read, rng: random.Random) -> list[int]:
    """Frames that are not those of a linear decode."""
    try:
        truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(path)]
    except av.EOFError:
        truth = []
    if not truth:
        return []  # its container has dropped the only packet
    wrong: set[int] = set()
    for count in (1, 2, 5, len(truth)):
        wanted = [rng.randrange(len(truth)) for _ in range(count)] if rng.random() < 0.6 else list(range(len(truth)))
        pictures = read(path, wanted)
        wrong |= {frame for frame, picture in zip(wanted, pictures, strict=True) if not same(picture, truth[frame])}
    return sorted(wrong)


def compare(device: str, *, seed: int, first: int, minutes: float, most: int, folder: Path) -> Counter[str]:
    """Makes clips and compares them, until the time is up or there were enough; returns what became of them."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60 * minutes
    with reading(device) as read:
        for number in range(first, first + most):
            if time.monotonic() > end:
                break
            rng = random.Random(f"{seed} {number}")
            place = folder / f"{seed}_{number}"
            place.mkdir(parents=True)
            try:
                path, drawn = make(place, rng, larger=96 if device == "cuda" else 0)
            except (av.FFmpegError, ValueError):
                counts["not encoded"] += 1  # what was drawn does not go together
                shutil.rmtree(place)
                continue
            try:
                wrong = wrong_frames(path, read, rng)
                what = f"wrong: {wrong}" if wrong else ""
            except UnsupportedCodec as error:
                what = ""
                counts[f"refused: {error.reason.partition(';')[0]}"] += 1
            except FramefeedError as error:
                what = f"{type(error).__name__}: {error}"
            if what:
                counts["bad"] += 1
                print(f"{path}: {what}\n    {drawn}", flush=True)
            else:
                counts["good"] += 1
                shutil.rmtree(place)
    return counts


def note(what: str, seed: int, counts: Counter[str]) -> None:
    """Adds a line to the file that FRAMEFEED_TEST_LINES names, where it does."""
    if lines := os.environ.get("FRAMEFEED_TEST_LINES"):
        line = {"random": what, "seed": seed, "counts": counts, "source": source_digest()}
        with open(lines, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda", "emulated"], default="cpu")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first clip")
    parser.add_argument("--most", type=int, default=1 << 30, help="how many clips at the most")
    parser.add_argument("--folder", type=Path, help="for clips; those that are bad stay there")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="random_clips"))
    counts = compare(
        given.device, seed=given.seed, first=given.first, minutes=given.minutes, most=given.most, folder=folder
    )
    for what, count in counts.most_common():
        print(f"{count:6} {what}")
    note("clips", given.seed, counts)
    return 1 if counts["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
