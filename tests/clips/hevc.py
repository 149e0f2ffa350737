"""HEVC: leading pictures, and the sorts of random-access points that x265 writes."""

from functools import partial
from pathlib import Path
from typing import Any

from clips.base import EVERY, ClipKind, clip, read_packets, remux, source_clip


def _x265(**params: object) -> dict[str, Any]:
    chosen = {"scenecut": 0, "b-adapt": 0, **{name.replace("_", "-"): value for name, value in params.items()}}
    joined = ":".join(f"{name}={value}" for name, value in chosen.items())
    return {"codec": "libx265", "gop": 12, "options": {"preset": "ultrafast", "x265-params": joined}}


OPEN = _x265(open_gop=1, bframes=3)


def _cut_first_group(folder: Path, suffix: str) -> Path:
    with source_clip(".mkv", **OPEN) as source:
        packets = read_packets(source)
        second = [place for place, packet in enumerate(packets) if packet.is_keyframe][1]
        return remux(source, folder / f"hevc_rasl_at_start_{suffix}.{suffix}", packets[second:])


def _rasl(suffix: str) -> ClipKind:
    return ClipKind(
        f"hevc_rasl_at_start_{suffix}",
        partial(_cut_first_group, suffix=suffix),
        EVERY[12:],
        "starts with a CRA whose RASL pictures are dropped: 39 packets, 36 frames",
    )


KINDS = (
    clip("hevc_closed", ".mp4", "IDR groups, no B-frames", **_x265(open_gop=0, bframes=0)),
    clip("hevc_closed_bframes", ".mp4", "IDR groups with B-frames", **_x265(open_gop=0, bframes=3, b_pyramid=0)),
    clip("hevc_open_gop", ".mp4", "CRA with RASL pictures, as x265 does by default", **OPEN),
    clip("hevc_defaults", ".mp4", "x265 with nothing chosen but the keyframe distance", codec="libx265", gop=24),
    _rasl("mkv"),
    _rasl("mp4"),
    clip(
        "hevc_radl",
        ".mp4",
        "IDR with leading pictures that can be decoded",
        **_x265(open_gop=0, radl=2, bframes=3, min_keyint=12),
    ),
    clip(
        "hevc_b_pyramid",
        ".mp4",
        "B-frames that are references",
        **_x265(open_gop=0, bframes=5, b_pyramid=1, rc_lookahead=12),
    ),
    clip(
        "hevc_temporal_layers",
        ".mp4",
        "sub-layers, non-reference pictures named so",
        **_x265(temporal_layers=3, bframes=3),
    ),
    clip("hevc_10bit", ".mp4", "Main 10", pix_fmt="yuv420p10le", **_x265(open_gop=0)),
    clip("hevc_fields", ".mp4", "pictures that are said to be fields", **_x265(open_gop=0, bframes=2, interlace="tff")),
    clip("hevc_12bit_444", ".mp4", "12 bits, 4:4:4", pix_fmt="yuv444p12le", **_x265(open_gop=0)),
    clip("hevc_ts", ".ts", "in-band parameter sets and a start that is not 0", **OPEN),
    clip("hevc_raw", ".hevc", "no timestamps at all", **OPEN),
    clip("hevc_hev1", ".mp4", "parameter sets allowed in band", tag="hev1", **_x265(repeat_headers=1, bframes=2)),
    clip("hevc_hvc1", ".mp4", "parameter sets only in the header", tag="hvc1", **OPEN),
    clip(
        "hevc_fragmented",
        ".mp4",
        "a fragment each group, and leading pictures across the border",
        container_options={"movflags": "frag_keyframe+empty_moov+default_base_moof"},
        **OPEN,
    ),
)
