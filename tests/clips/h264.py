"""H.264: how groups, references and pictures can be laid out."""

from functools import partial
from pathlib import Path
from typing import Any

from clips.base import EVERY, ClipKind, clip, read_packets, remux, source_clip
from clips.fields import write_field_pictures


def _x264(**params: object) -> dict[str, str]:
    """Options for exactly the wanted structure: no extra keyframes, B-frames wherever they are allowed."""
    chosen = {"scenecut": 0, "b-adapt": 0, **{name.replace("_", "-"): value for name, value in params.items()}}
    return {"x264-params": ":".join(f"{name}={value}" for name, value in chosen.items())}


OPEN_GOP: dict[str, Any] = {"bframes": 3, "gop": 12, "options": _x264(open_gop=1)}


def _cut_open_gop(folder: Path) -> Path:
    with source_clip(**OPEN_GOP) as source:
        packets = read_packets(source)
        second = [place for place, packet in enumerate(packets) if packet.is_keyframe][1]
        return remux(source, folder / "h264_open_gop_cut.mkv", packets[second:])


def _paff(suffix: str) -> ClipKind:
    name = f"h264_paff_{suffix}"
    notes = "each field is a picture and a packet of its own: 48 packets, 24 frames"
    return ClipKind(name, partial(write_field_pictures, name=f"{name}.{suffix}"), tuple(range(24)), notes)


KINDS = (
    clip("h264_closed_no_b", ".mp4", "the plain case: IDR groups, no B-frames", bframes=0, options=_x264()),
    clip("h264_bframes", ".mp4", "decode order differs from presentation order", bframes=2, options=_x264(b_pyramid=0)),
    clip("h264_b_pyramid", ".mp4", "B-frames that are references", bframes=7, gop=24, options=_x264(b_pyramid=2)),
    clip("h264_open_gop", ".mp4", "keyframes that are not IDR; leading pictures need the group before", **OPEN_GOP),
    ClipKind(
        "h264_open_gop_cut",
        _cut_open_gop,
        EVERY[12:],
        "starts with a recovery point whose three leading pictures cannot be decoded: 39 packets, 36 frames",
    ),
    clip(
        "h264_intra_refresh",
        ".mp4",
        "flagged keyframes are recovery points: the picture is whole only a dozen frames later",
        bframes=0,
        options=_x264(intra_refresh=1),
    ),
    clip("h264_all_intra", ".mp4", "every packet is a keyframe", gop=1),
    clip("h264_one_frame", ".mp4", "a whole file of one frame", frames=1),
    clip("h264_two_frames", ".mp4", "the last frames come out at the flush only", frames=2),
    clip("h264_one_group", ".mp4", "one keyframe for the whole file", gop=250, bframes=3, options=_x264()),
    clip(
        "h264_scenecut",
        ".mp4",
        "keyframes at irregular distances",
        gop=40,
        options={"x264-params": "scenecut=80:min-keyint=2"},
    ),
    clip("h264_slices", ".mp4", "four slices a picture", options=_x264(slices=4)),
    clip("h264_10bit", ".mp4", "16-bit words that hold 10 bits", pix_fmt="yuv420p10le"),
    clip("h264_422", ".mp4", "4:2:2", pix_fmt="yuv422p"),
    clip("h264_444", ".mp4", "4:4:4", pix_fmt="yuv444p"),
    clip("h264_gray", ".mp4", "no chroma at all", pix_fmt="gray"),
    clip("h264_lossless", ".mp4", "High 4:4:4 Predictive with transform bypass", options={"qp": "0"}),
    clip("h264_mbaff", ".mp4", "interlaced, fields mixed within a frame", interlaced=True, options=_x264(tff=1)),
    clip("h264_mbaff_ts", ".ts", "the same, timed by a transport stream", interlaced=True, options=_x264(tff=1)),
    clip("h264_ref8", ".mp4", "references far back", gop=24, bframes=3, options=_x264(ref=8)),
    clip(
        "h264_no_delay", ".mp4", "tuned for no latency: no reordering, sliced threads", options={"tune": "zerolatency"}
    ),
    *(_paff(suffix) for suffix in ("h264", "ts", "mkv", "mp4")),
)
