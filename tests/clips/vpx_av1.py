"""VP8, VP9 and AV1: packets that hold no shown frame, or several frames."""

from functools import partial
from pathlib import Path
from typing import Any

from clips.base import DATA, EVERY, FRAMES, ClipKind, clip, copy_committed, new_packet, read_packets, remux, source_clip

QUICK = {"deadline": "realtime", "cpu-used": "8", "b": "300k"}
SVT = {"preset": "8", "crf": "35"}
AV1: dict[str, Any] = {"codec": "libsvtav1", "gop": 16, "options": SVT}


def _vp9_new_size(folder: Path) -> Path:
    """A keyframe of VP9 brings its own size, so the packets of two clips make one."""
    half = len(EVERY) // 2
    settings: dict[str, Any] = {"codec": "libvpx-vp9", "frames": half, "options": QUICK}
    with (
        source_clip(".webm", **settings) as small,
        source_clip(".webm", **{**settings, "width": 128, "height": 96, "first_number": half}) as large,
    ):
        first, second = read_packets(small), read_packets(large)
        later = round(half * 1000 / 30)  # WebM counts milliseconds
        shifted = [new_packet(bytes(p), p, pts=(p.pts or 0) + later, dts=(p.dts or 0) + later) for p in second]
        return remux(small, folder / "vp9_size_change.webm", first + shifted)


def _vp9_mp4(folder: Path) -> Path:
    return remux(DATA / "vp9_alt_ref.webm", folder / "vp9_mp4.mp4")


def _committed(name: str, frames: int, notes: str) -> ClipKind:
    return ClipKind(name, partial(copy_committed, name=f"{name}.webm"), tuple(range(frames)), notes)


KINDS = (
    _committed("vp8_alt_ref", FRAMES, "hidden frames are packets that show nothing: 50 packets, 48 frames"),
    clip("vp8_plain", ".webm", "no hidden frames", codec="libvpx", options=QUICK),
    _committed("vp9_alt_ref", FRAMES, "a hidden frame shares its packet with a shown one"),
    ClipKind("vp9_mp4", _vp9_mp4, EVERY, "hidden frames and a sample table"),
    clip("vp9_444", ".webm", "profile 1", codec="libvpx-vp9", pix_fmt="yuv444p", options=QUICK),
    clip(
        "vp9_error_resilient",
        ".webm",
        "contexts are reset",
        codec="libvpx-vp9",
        options={**QUICK, "error-resilient": "1"},
    ),
    clip(
        "vp9_odd_size", ".webm", "161x97: chroma is rounded up", codec="libvpx-vp9", width=161, height=97, options=QUICK
    ),
    ClipKind("vp9_size_change", _vp9_new_size, EVERY, "96x64, then 128x96 from frame 24 on"),
    _committed("vp9_10bit", 24, "profile 2"),
    clip("av1_mp4", ".mp4", "hidden frames; a shown one may be 3 bytes that name an older", **AV1),
    clip("av1_webm", ".webm", "the same in Matroska", **AV1),
    clip("av1_ivf", ".ivf", "the barest container", **AV1),
    clip("av1_obu", ".obu", "no container: frames are told apart by delimiters", **AV1),
    clip("av1_10bit", ".mp4", "16-bit words that hold 10 bits", pix_fmt="yuv420p10le", **AV1),
    clip(
        "av1_fragmented",
        ".mp4",
        "with an index of fragments",
        container_options={"movflags": "dash+frag_keyframe"},
        **AV1,
    ),
)
