"""Times that no decoder can keep to, and streams whose beginning is missing: only decoding tells what is shown."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

from clips.base import EVERY, SIZE, ClipKind, clip, read_packets, remux, source_clip
from clips.boxes import edit_box, edit_list
from clips.mpeg import GOOD, OLD
from framefeed.testing import samples

B_FRAMES: dict[str, Any] = {"bframes": 3, "gop": 12, "options": {"x264-params": "scenecut=0:b-adapt=0"}}
OPEN = {"x264-params": "open-gop=1:scenecut=0:b-adapt=0"}
LATER = 100  # numbers of a second part


def _joined(folder: Path, name: str, parts: Sequence[dict[str, Any]]) -> Path:
    """Files one behind the other, byte by byte."""
    target = folder / name
    data = b""
    for part in parts:
        with source_clip(target.suffix, **part) as source:
            data += source.read_bytes()
    target.write_bytes(data)
    return target


def _join(name: str, suffix: str, notes: str, *parts: dict[str, Any], numbers: Sequence[int] | None = None) -> ClipKind:
    if numbers is None:
        numbers = [part.get("first_number", 0) + place for part in parts for place in range(part["frames"])]
    return ClipKind(name, partial(_joined, name=name + suffix, parts=parts), tuple(numbers), notes)


def _cut(folder: Path, name: str, **spec: Any) -> Path:
    """Packets from the middle of a group on."""
    quick = {"deadline": "realtime", "cpu-used": "8", "b": "300k", "lag-in-frames": "0"}
    with source_clip(".webm", gop=12, options=quick, **spec) as source:
        return remux(source, folder / name, read_packets(source)[5:])


def _cut_open(folder: Path) -> Path:
    """Packets from a keyframe on; the two that follow it are shown before it."""
    with source_clip(".mkv", codec="mpeg4", bframes=2, **OLD) as source:
        packets = read_packets(source)
        second_key = [place for place, packet in enumerate(packets) if packet.is_keyframe][1]
        return remux(source, folder / "mpeg4_starts_open.mkv", packets[second_key:])


def _late_video(folder: Path) -> Path:
    """Ten seconds of sound before the first picture."""
    target = folder / "ts_late_video.ts"
    rate, size = 44100, 1152
    with av.open(target, "w") as container:
        video = container.add_stream("libx264", rate=24)
        video.width, video.height = SIZE["width"], SIZE["height"]
        video.codec_context.time_base = Fraction(1, 24)
        audio = container.add_stream("mp2", rate=rate)
        audio.layout = "mono"
        for place in range(400):
            sound = av.AudioFrame.from_ndarray(np.zeros((1, size), np.int16), format="s16", layout="mono")
            sound.sample_rate, sound.pts, sound.time_base = rate, place * size, Fraction(1, rate)
            container.mux(audio.encode(sound))
        for place in EVERY:
            frame = samples.painted_frame(place, video.width, video.height)
            frame.pts, frame.time_base = place + 240, Fraction(1, 24)
            container.mux(video.encode(frame))
        container.mux(video.encode(None))
        container.mux(audio.encode(None))
    return target


def _edited(folder: Path, name: str, edits: Sequence[tuple[int, int]], **spec: Any) -> Path:
    target = folder / name
    with source_clip(target.suffix, **spec) as source:
        target.write_bytes(edit_box(source.read_bytes(), "moov/trak/edts/elst", lambda _: edit_list(*edits)))
    return target


_PARTS_OF_GROUPS: dict[str, Any] = {
    "frames": 30,
    "gop": 40,
    "bframes": 3,
    "fps": 60,
    "options": {"x264-params": "b-adapt=0:b-pyramid=none:scenecut=0"},
}
_SMALL, _LARGE = ({"width": width, "height": height} for width, height in ((96, 64), (128, 96)))

KINDS = (
    clip("h264_asf", ".asf", "decoding times in place of presentation times", **B_FRAMES),
    clip("h264_mxf", ".mxf", "the same", **B_FRAMES),
    clip("mpeg2_asf", ".asf", "the same", codec="mpeg2video", bframes=2, **OLD),
    clip(
        "mpeg2_asf_late",
        ".asf",
        "times twice, in open groups",
        codec="mpeg2video",
        bframes=2,
        pts=lambda n: n + 1000,
        **OLD,
    ),
    clip("h264_avi_open", ".avi", "no presentation times, and open groups", bframes=3, gop=8, options=OPEN),
    clip("mpeg4_avi_open", ".avi", "the same", codec="mpeg4", bframes=2, gop=8, options=GOOD),
    _join(
        "ts_joined",
        ".ts",
        "times begin again with the second file, between those of the first",
        {"frames": 12, "gop": 6, "bframes": 0},
        {
            "frames": 12,
            "gop": 6,
            "bframes": 0,
            "first_number": LATER,
            "time_base": Fraction(1, 60),
            "pts": lambda place: 2 * place + 1,
        },
    ),
    _join(
        "ts_joined_reorder",
        ".ts",
        "by their times, more pictures are put into order than a decoder can hold",
        {"frames": 40, "gop": 60, "bframes": 8, "options": {"x264-params": "b-adapt=0:b-pyramid=none"}},
        {"frames": 3, "gop": 60, "bframes": 1, "first_number": LATER, "fps": 7},
    ),
    _join(
        "mpeg2_new_headers",
        ".m2v",
        "with the new size, a picture is dropped that was held back: 20 packets are 19 frames",
        {"codec": "mpeg2video", "frames": 10, "gop": 5, "bframes": 0, "options": GOOD, **_LARGE},
        {"codec": "mpeg2video", "frames": 10, "gop": 5, "bframes": 0, "options": GOOD, "first_number": LATER, **_SMALL},
        numbers=[*range(9), *range(LATER, LATER + 10)],
    ),
    replace(
        clip(
            "mpeg4_interlaced",
            ".avi",
            "interlaced B-frames: whether one comes out depends on those before it; numbers suffer",
            codec="mpeg4",
            bframes=2,
            gop=12,
            interlaced=True,
            options={**GOOD, "flags": "+ildct+ilme"},
        ),
        numbers=None,
    ),
    clip(
        "mpeg4_interlaced_low_delay",
        ".avi",
        "the same without B-frames",
        codec="mpeg4",
        gop=12,
        interlaced=True,
        options={**GOOD, "flags": "+ildct+ilme"},
    ),
    *(
        ClipKind(name, partial(_cut, name=f"{name}.webm", codec=codec), EVERY[12:], "seven packets before a key")
        for name, codec in (("vp8_starts_in_group", "libvpx"), ("vp9_starts_in_group", "libvpx-vp9"))
    ),
    ClipKind("mpeg4_starts_open", _cut_open, EVERY[12:], "the first pictures refer to a group that is not there"),
    ClipKind("ts_late_video", _late_video, EVERY, "sound for ten seconds, then the first picture"),
    ClipKind(
        "edit_parts_of_groups",
        partial(_edited, name="edit_parts_of_groups.mp4", edits=[(217, 1969), (31, 0), (178, 0)], **_PARTS_OF_GROUPS),
        None,
        "times of one part's first pictures lie before those of the last of the part before",
    ),
    ClipKind(
        "mpeg1_edit",
        partial(
            _edited,
            name="mpeg1_edit.mov",
            edits=[(600, 512 * 6)],
            codec="mpeg1video",
            frames=30,
            gop=5,
            bframes=2,
            fps=25,
            options=GOOD,
        ),
        None,
        "the mark of a hidden packet comes out on the packet before it",
    ),
    clip("tiff_mov", ".mov", "tags that its decoder objects to", codec="tiff", pix_fmt="rgb24", gop=None, frames=6),
)
