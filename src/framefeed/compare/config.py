"""What is measured: which frames are asked for in each case, the same for every reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CASES", "MODES", "Config", "requests"]

CASES = {
    "random": "batches of frames anywhere in the video",
    "single": "one frame anywhere, request by request",
    "in-order": "batches of frames one after the other, from the start",
    "clips": "runs of frames that begin anywhere",
    "every": "every n-th frame from the start, in batches",
}
MODES = ("best", "seek", "stream")

# A single frame is a small request, and reading in order is about the long run, so there are more of them.
MORE = {"single": 4, "in-order": 4}


@dataclass(frozen=True)
class Config:
    """What to measure.

    Attributes:
        readers: Names of readers, or ``module:Class``.
        cases: Names of cases.
        batch_sizes: Frames of a request; clips and single frames have their own.
        devices: Where frames are to be.
        mode: How readers look for frames; ``"best"`` tries both, and takes what is right and faster.
        repeat: Timings of each.
        max_batches: Requests of a timing; four times as many of single frames and in order.
        least_seconds: They are made again until a timing has taken that long: short ones are not to be trusted.
        frame_skip: The n of every n-th frame.
        clip_length: Frames of a clip.
        seed: Chooses the random frames.
        timeout: Seconds that a timing may take.
    """

    readers: tuple[str, ...]
    cases: tuple[str, ...] = tuple(CASES)
    batch_sizes: tuple[int, ...] = (32,)
    devices: tuple[str, ...] = ("cpu",)
    mode: str = "best"
    repeat: int = 11
    max_batches: int = 4
    least_seconds: float = 0.5
    frame_skip: int = 25
    clip_length: int = 16
    seed: int = 0
    timeout: float = 120.0

    def __post_init__(self) -> None:
        for name, values, possible in (
            ("cases", self.cases, CASES),
            ("mode", (self.mode,), MODES),
            ("devices", self.devices, ("cpu", "cuda")),
        ):
            unknown = [value for value in values if value not in possible]
            if unknown:
                raise ValueError(f"{name}: {unknown[0]!r} is not known; possible: {', '.join(possible)}")
        for name in ("repeat", "max_batches", "frame_skip", "clip_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, got {getattr(self, name)}")
        if not 0 <= self.least_seconds <= self.timeout:
            raise ValueError(f"least_seconds is in 0..timeout, got {self.least_seconds}")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ValueError(f"batch sizes are at least 1, got {self.batch_sizes}")
        for name in ("readers", "cases", "devices"):
            if not getattr(self, name):
                raise ValueError(f"{name}: give at least one")

    def sizes(self, case: str) -> tuple[int, ...]:
        """The batch sizes that a case is measured with."""
        if case == "single":
            return (1,)
        return (self.clip_length,) if case == "clips" else self.batch_sizes

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def requests(case: str, num_frames: int, size: int, config: Config) -> list[list[int]]:
    """The frames of each request of a case, the same whenever this is asked.

    Args:
        case: Its name.
        num_frames: Of the video.
        size: Frames of a request, as far as there are so many.
        config: The rest.
    """
    if num_frames < 1:
        return []
    count = MORE.get(case, 1) * config.max_batches
    rng = np.random.default_rng((config.seed, list(CASES).index(case), num_frames, size))
    if case == "single":
        return [[int(number)] for number in rng.integers(0, num_frames, count)]
    if case == "random":
        chosen = min(size, num_frames)
        return [rng.choice(num_frames, chosen, replace=False).tolist() for _ in range(count)]
    if case == "clips":
        length = min(size, num_frames)
        starts = rng.integers(0, num_frames - length + 1, count)
        return [list(range(start, start + length)) for start in starts.tolist()]
    frames = list(range(0, num_frames, config.frame_skip if case == "every" else 1))
    batches = [frames[low : low + size] for low in range(0, len(frames), size)]
    return batches[:count]
