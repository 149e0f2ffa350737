"""Videos to compare readers on: the user's own, or generated and cached clips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from framefeed.compare.truth import DecodedTruth, PaintedTruth, Truth
from framefeed.index.bitstream import PacketKind
from framefeed.index.video_index import VideoIndex
from framefeed.testing.samples import write_clip
from framefeed.testing.scenes import scene_painter
from framefeed.types import Orientation

__all__ = ["REFERENCES", "TINY", "ComparedVideo", "generate", "open_video"]


@dataclass(frozen=True)
class ComparedVideo:
    """A video to compare readers on.

    Attributes:
        name: Name in tables.
        path: The file.
        truth: Detects wrong frames.
        num_frames: Number of frames.
        facts: Other properties, for the results.
    """

    name: str
    path: Path
    truth: Truth
    num_frames: int
    facts: dict[str, Any]


# Ordinary encoder settings; one scene with four group sizes, to show how the cost of a random frame grows.
REFERENCES: dict[str, dict[str, Any]] = {
    "h264_gop12": {"gop": 12, "bframes": 2},
    "h264_gop30": {"gop": 30, "bframes": 2},
    "h264_gop60": {"gop": 60, "bframes": 2},
    "h264_gop250": {"gop": 250, "bframes": 2},
    "hevc_gop30": {"codec": "libx265", "gop": 30, "tag": "hvc1"},
    "vp9_gop128": {"codec": "libvpx-vp9", "gop": 128, "options": {"cpu-used": "4", "crf": "33", "b": "0"}},
}
TINY = ("h264_gop12", "h264_gop60")
_COMMON = {"frames": 500, "width": 640, "height": 360}


def generate(
    folder: Path, names: Sequence[str], report: Callable[[int, int], None], **changes: Any
) -> list[ComparedVideo]:
    """Generates reference clips that do not exist yet.

    Args:
        folder: Folder of the clips.
        names: Some of ``REFERENCES``.
        report: Called with the number of clips done, and their total.
        changes: Arguments of ``write_clip`` that replace the defaults.
    """
    videos = []
    for number, name in enumerate(names):
        report(number, len(names))
        spec = _COMMON | REFERENCES[name] | changes
        suffix = ".webm" if "vp9" in name else ".mp4"
        path = folder / f"{name}_{spec['width']}x{spec['height']}_{spec['frames']}{suffix}"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_clip(path, threads=2, painter=scene_painter(spec["width"], spec["height"]), **spec)
        videos.append(_video(name, path, PaintedTruth(), generated=True))
    report(len(names), len(names))
    return videos


def open_video(path: Path, name: str, last_frame: Callable[[int], int]) -> ComparedVideo:
    """Opens one of the user's videos.

    Args:
        path: The file.
        name: Name in tables.
        last_frame: Returns, for a number of frames, the last frame requested; frames after it are not decoded.
    """
    index = VideoIndex.scan(path)
    turned = index.stream.orientation != Orientation()
    truth = DecodedTruth(path, min(index.num_frames, last_frame(index.num_frames) + 32), turned=turned)
    return _video(name, path, truth, generated=False, index=index)


def _video(name: str, path: Path, truth: Truth, *, generated: bool, index: VideoIndex | None = None) -> ComparedVideo:
    index = index or VideoIndex.scan(path)
    stream, packets = index.stream, index.packets
    _, lengths = np.unique(packets.start[packets.frames], return_counts=True)
    facts = {
        "name": name,
        "codec": stream.codec,
        "width": stream.display_size[1],
        "height": stream.display_size[0],
        "frames": index.num_frames,
        "gop": int(np.median(lengths[:-1] if len(lengths) > 1 else lengths)) if len(lengths) else 0,
        "b_frames": bool((np.diff(packets.frames) < 0).any() or packets.has(PacketKind.NONREF).any()),
        "seconds": round(float(index.duration_seconds), 3),
        "generated": generated,
    }
    return ComparedVideo(name, path, truth, index.num_frames, facts)
