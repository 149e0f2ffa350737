"""Checks that encode a clip and decode it, on the CPU and on a GPU."""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from framefeed.doctor.report import REPORT_IT, Finding
from framefeed.doctor.words import milliseconds

if TYPE_CHECKING:
    import torch

__all__ = ["HEIGHT", "REINSTALL_PYAV", "WIDTH", "decode_on_cpu", "decode_on_gpu", "has_codec"]

# Larger than NVDEC's minimum for HEVC, 144x144; three GOPs with B-frames.
FRAMES = 24
WIDTH, HEIGHT = 256, 160
CLIPS: dict[str, dict[str, Any]] = {
    "H.264": {"codec": "libx264", "bframes": 2, "options": {"preset": "veryfast"}},
    "HEVC": {"codec": "libx265", "bframes": 2, "options": {"preset": "ultrafast"}, "tag": "hvc1"},
    "MPEG-4": {"codec": "mpeg4", "bframes": 2, "options": {"b": "800k", "qmin": "5"}},
}
TOLERANCE = 2  # of 255, between the colour conversions of CPU and GPU

REINSTALL_PYAV = "pip install --force-reinstall av   (the wheels bring FFmpeg with all of these)"


def has_codec(name: str, mode: Literal["r", "w"]) -> bool:
    """Returns whether PyAV has a decoder ("r") or an encoder ("w")."""
    from av.codec import Codec
    from av.codec.codec import UnknownCodecError

    try:
        Codec(name, mode)
    except UnknownCodecError:
        return False
    return True


def decode_on_cpu() -> Finding:
    """Reads a clip in random order, and compares the numbers painted into its frames."""
    name = "H.264" if has_codec(CLIPS["H.264"]["codec"], "w") else "MPEG-4"
    with _clip(name) as path:
        pictures, seconds = _read(path, "cpu")
    wrong = _wrong_number(pictures)
    if wrong:
        return Finding("problem", f"{name}: {wrong}", REPORT_IT)
    return Finding("ok", f"{name}, {FRAMES} frames in random order, every number right, {milliseconds(seconds)}")


def decode_on_gpu(name: str) -> Finding:
    """Decodes a clip on the GPU, and compares it with the CPU."""
    encoder = CLIPS[name]["codec"]
    if not has_codec(encoder, "w"):
        return Finding("not available", f"PyAV has no {encoder} to make a clip with", REINSTALL_PYAV)
    from framefeed.errors import UnsupportedCodec

    with _clip(name) as path:
        expected, _ = _read(path, "cpu")
        try:
            pictures, first = _read(path, "cuda")
        except UnsupportedCodec as error:  # an old GPU, which may still decode other codecs
            return Finding("not available", str(error.__cause__ or error))
        _, second = _read(path, "cuda")
    wrong = _wrong_number(pictures)
    if wrong:
        return Finding("problem", wrong, REPORT_IT)
    difference = int((pictures.int() - expected.int()).abs().max())
    if difference > TOLERANCE:
        fact = f"differs from the CPU by {difference}/255; at most {TOLERANCE}/255 is expected"
        return Finding("problem", fact, REPORT_IT)
    times = f"{milliseconds(first)} at first, then {milliseconds(second)}"
    return Finding("ok", f"{FRAMES} frames, every number right, within {difference}/255 of the CPU, {times}")


@contextlib.contextmanager
def _clip(name: str) -> Iterator[Path]:
    from framefeed.testing.samples import write_clip

    with tempfile.TemporaryDirectory(prefix="framefeed-doctor-") as folder:
        path = Path(folder) / "clip.mp4"
        yield write_clip(path, frames=FRAMES, width=WIDTH, height=HEIGHT, gop=8, **CLIPS[name])


def _order() -> list[int]:
    return random.Random(0).sample(range(FRAMES), FRAMES)


def _read(path: Path, device: str) -> tuple[torch.Tensor, float]:
    """Returns the frames in random order, in CPU memory, and the seconds that it took."""
    from framefeed import VideoDecoder

    began = time.perf_counter()
    frames = VideoDecoder(path, device=device, dimension_order="NHWC").get_frames_at(_order()).data.cpu()
    return frames, time.perf_counter() - began


def _wrong_number(pictures: torch.Tensor) -> str:
    """Returns the first frame with a wrong number; empty if there is none."""
    from framefeed.testing.samples import wrong_number

    return wrong_number(pictures.numpy(), _order())
