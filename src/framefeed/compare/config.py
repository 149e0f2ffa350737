"""Configuration of a comparison, and the frames requested in each case, equal for all readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CASES", "MODES", "Config", "requests"]

CASES = {
    "random": "batches of frames anywhere in the video",
    "single": "one frame anywhere per request",
    "in-order": "batches of frames one after the other, from the start",
    "clips": "runs of frames that start anywhere",
    "every": "every n-th frame from the start, in batches",
}
MODES = ("best", "seek", "stream")

# Single frames are small requests, and sequential reading is about long runs, so both make more requests.
MORE = {"single": 4, "in-order": 4}


@dataclass(frozen=True)
class Config:
    """Configuration of a comparison.

    Attributes:
        readers: Names of readers, or ``module:Class``.
        cases: Names of cases.
        batch_sizes: Frames in a request; clips and single frames have their own.
        devices: Devices of the frames.
        mode: Access mode of readers; ``"best"`` tries both, and uses the faster one with right frames.
        repeat: Number of timings of each.
        max_batches: Requests in a timing; four times as many for single frames and in order.
        least_seconds: Requests are repeated until a timing takes that long: short timings are unreliable.
        frame_skip: The n of every n-th frame.
        clip_length: Frames in a clip.
        seed: Seed of the random frames.
        timeout: Time limit of a timing, in seconds.
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
                raise ValueError(f"{name}: unknown {unknown[0]!r}; expected {', '.join(possible)}")
        for name in ("repeat", "max_batches", "frame_skip", "clip_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.least_seconds <= self.timeout:
            raise ValueError(f"least_seconds must be in 0..timeout, got {self.least_seconds}")
        if not self.batch_sizes or min(self.batch_sizes) < 1:
            raise ValueError(f"batch sizes must be at least 1, got {self.batch_sizes}")
        for name in ("readers", "cases", "devices"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: name at least one")

    def sizes(self, case: str) -> tuple[int, ...]:
        """Returns the batch sizes of a case."""
        if case == "single":
            return (1,)
        return (self.clip_length,) if case == "clips" else self.batch_sizes

    def as_json(self) -> dict[str, Any]:
        """Returns the configuration as plain values."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


def requests(case: str, num_frames: int, size: int, config: Config) -> list[list[int]]:
    """Returns the frames of each request of a case; deterministic.

    Args:
        case: Name of the case.
        num_frames: Number of frames in the video.
        size: Frames in a request, if the video has as many.
        config: The configuration.
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
