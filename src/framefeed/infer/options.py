"""Validated options of a run."""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from framefeed.infer.detection.fit import Resize, parse_size
from framefeed.infer.detection.layouts import LAYOUTS
from framefeed.infer.execution.segments import SEGMENT_FRAMES

__all__ = ["InferOptions"]


@dataclass(frozen=True, kw_only=True)
class InferOptions:
    """Sampling and detection options; see ``framefeed.infer.run``.

    Raises:
        ValueError: An option is invalid.
    """

    batch_size: int = 8
    frame_skip: int = 25
    image_size: tuple[int, int] | None = None
    confidence: float = 0.25
    iou: float = 0.45
    resize: Resize = "letterbox"
    layout: str = "auto"
    max_detections: int = 300
    max_batches: int | None = None
    classes: tuple[str, ...] | None = None
    device: str = "cpu"
    fallback: Literal["cpu"] | None = None
    provider: Literal["cuda", "tensorrt"] = "cuda"
    trust_model: bool = False
    num_threads: int | None = None
    memory_budget: int | str | None = None
    segment_frames: int = SEGMENT_FRAMES

    def __post_init__(self) -> None:
        for name in ("batch_size", "frame_skip", "max_detections", "max_batches", "num_threads", "segment_frames"):
            value = getattr(self, name)
            if value is not None and operator.index(value) < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("confidence", "iou"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0.0 <= value <= 1.0):
                raise ValueError(f"{name} must be from 0 to 1, got {value}")
        for name, possible in (
            ("resize", ("letterbox", "stretch")),
            ("layout", LAYOUTS),
            ("fallback", (None, "cpu")),
            ("provider", ("cuda", "tensorrt")),
        ):
            if getattr(self, name) not in possible:
                raise ValueError(f"{name} must be one of {', '.join(map(str, possible))}, got {getattr(self, name)!r}")
        if self.image_size is not None:
            object.__setattr__(self, "image_size", parse_size(self.image_size))
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))

    def identity(self) -> dict[str, Any]:
        """Returns the options that rows depend on; a run resumes only if all are equal."""
        how = ("trust_model", "num_threads", "memory_budget", "fallback")
        same = {name: value for name, value in asdict(self).items() if name not in how}
        same["device"] = self.device.partition(":")[0]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in same.items()}
