"""The older codecs and those without prediction between frames."""

from pathlib import Path
from typing import Any

from clips.base import EVERY, ClipKind, clip, new_packet, read_packets, remux, source_clip

# Quantisers are bounded on both sides: rate control starves a clip as small as this, and below 5 the coefficients of
# the black and white blocks are clipped.
GOOD = {"b": "400k", "qmin": "5", "qmax": "8"}
CLOSED = {**GOOD, "flags": "+cgop", "sc_threshold": "1000000000"}  # these encoders want it without scene cuts
OLD: dict[str, Any] = {"gop": 12, "options": GOOD}


def _not_coded(place: int) -> bytes:
    """A P-VOP that says "no change": what Xvid puts where a packed B-frame was (30 ticks a second: 5 bits)."""
    bits = "01" + "0" + "1" + f"{place % 30:05b}" + "1" + "0"
    bits += "0" + "1" * (-(len(bits) + 1) % 8)
    return b"\x00\x00\x01\xb6" + int(bits, 2).to_bytes(len(bits) // 8, "big")


def _pack_b_frames(folder: Path) -> Path:
    """Puts each B-frame behind the P-frame it follows in decode order, into the same packet."""
    with source_clip(".avi", codec="mpeg4", bframes=1, **OLD) as source:
        packed: list[bytes] = []
        for packet in (packets := read_packets(source)):
            data = bytes(packet)
            start = data.index(b"\x00\x00\x01\xb6")
            if data[start + 4] >> 6 == 2:  # a B-VOP
                packed[-1] += data
                packed.append(_not_coded(len(packed)))
            else:
                packed.append(data)
        # The mark by which players know a packed stream, in the first packet and before its first group.
        packed[0] = b"\x00\x00\x01\xb2DivX503b1393p" + packed[0]
        rewritten = [
            new_packet(data, packet, pts=place, dts=place)
            for place, (data, packet) in enumerate(zip(packed, packets, strict=True))
        ]
        return remux(source, folder / "mpeg4_packed_b.avi", rewritten)


KINDS = (
    clip(
        "mpeg1_ps",
        ".mpg",
        "program stream: packets cross its packs, times are rare",
        codec="mpeg1video",
        bframes=2,
        **OLD,
    ),
    clip("mpeg2_ts", ".ts", "open groups with B-frames", codec="mpeg2video", bframes=2, **OLD),
    clip("mpeg2_closed", ".ts", "closed groups", codec="mpeg2video", bframes=2, gop=12, options=CLOSED),
    clip("mpeg2_ps", ".mpg", "open groups in a program stream", codec="mpeg2video", format="vob", bframes=2, **OLD),
    clip("mpeg2_interlaced", ".ts", "top field first", codec="mpeg2video", bframes=2, interlaced=True, **OLD),
    clip("mpeg2_422", ".mkv", "4:2:2", codec="mpeg2video", pix_fmt="yuv422p", **OLD),
    clip("mpeg4_avi", ".avi", "B-frames in a container that knows decode times only", codec="mpeg4", bframes=2, **OLD),
    clip("mpeg4_mp4", ".mp4", "B-frames with both times", codec="mpeg4", bframes=2, **OLD),
    clip("mpeg4_odd_size", ".mkv", "161x97 in 4:2:0", codec="mpeg4", width=161, height=97, **OLD),
    ClipKind("mpeg4_packed_b", _pack_b_frames, EVERY, "two frames in one packet, then a packet that holds none"),
    clip("h263_avi", ".avi", "a codec of fixed sizes", codec="h263", width=128, height=96, **OLD),
    clip("wmv2_asf", ".asf", "a container in packets of fixed size", codec="wmv2", **OLD),
    clip("mjpeg_avi", ".avi", "all keyframes, full range", codec="mjpeg", pix_fmt="yuvj420p", options=GOOD),
    clip("mjpeg_mov", ".mov", "the same in QuickTime", codec="mjpeg", pix_fmt="yuvj420p", options=GOOD),
    clip("prores_mov", ".mov", "10 bits, 4:2:2", codec="prores_ks", pix_fmt="yuv422p10le"),
    clip("ffv1_mkv", ".mkv", "lossless, with keyframes", codec="ffv1"),
    clip("ffv1_16bit", ".mkv", "all 16 bits used", codec="ffv1", pix_fmt="yuv420p16le"),
    clip("huffyuv_avi", ".avi", "lossless, 4:2:2", codec="huffyuv", pix_fmt="yuv422p"),
    clip("rawvideo_avi", ".avi", "not coded at all", codec="rawvideo"),
    clip("png_mov", ".mov", "RGB", codec="png", pix_fmt="rgb24"),
    clip("gif", ".gif", "a palette, and frames that change a part of the one before", codec="gif", pix_fmt="rgb8"),
)
