"""The encoders, and how each is told to put a keyframe exactly every so many frames and to write the same bytes again.

A keyframe is one that decoding can start from, with nothing after it that refers to anything before it: groups are
closed. Encoders that look for scene cuts, to put keyframes there, are told not to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from framefeed._util.encoders import exact_x264

if TYPE_CHECKING:
    from framefeed.prepare.options import PrepareOptions

__all__ = ["ENCODERS", "CodecName", "Encoder", "encoder_options"]

CodecName = Literal["h264", "hevc", "vp9", "av1"]

_WORDS = ("ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow", "placebo")


@dataclass(frozen=True)
class Encoder:
    """One encoder.

    Attributes:
        name: FFmpeg's name of it.
        crf: Quality where none is asked for, the encoder's own.
        max_crf: The worst.
        preset: How much time it takes where nothing is asked for.
        presets: What is possible, quickest first for words, slowest first for numbers.
        tag: Four characters that name the codec in MP4; None leaves them to the muxer.
        deep: Whether decoders in hardware take more than 8 bits of it, as a rule, and the encoder gives them.
    """

    name: str
    crf: int
    max_crf: int
    preset: str
    presets: tuple[str, ...]
    tag: str | None = None
    deep: bool = False


ENCODERS: dict[str, Encoder] = {
    "h264": Encoder("libx264", 23, 51, "medium", _WORDS),
    "hevc": Encoder("libx265", 28, 51, "medium", _WORDS, tag="hvc1", deep=True),
    "vp9": Encoder("libvpx-vp9", 31, 63, "4", tuple(map(str, range(9)))),
    "av1": Encoder("libsvtav1", 35, 63, "8", tuple(map(str, range(14))), deep=True),
}


def encoder_options(options: PrepareOptions) -> dict[str, str]:
    """The encoder's private options."""
    threads, gop, crf, preset = options.threads, options.gop, str(options.crf), str(options.preset)
    # The same for x264 and x265. Captions and other data of the source's are not put into the new stream.
    groups = f"keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:bframes={options.b_frames}"
    match options.codec:
        case "h264":
            return {
                "preset": preset,
                "crf": crf,
                "threads": str(threads),
                "a53cc": "0",
                "x264-params": ":".join(filter(None, (groups, exact_x264()))),
            }
        case "hevc":
            quiet = f"log-level=error:pools={threads}:frame-threads=1"  # x265 goes by neither of FFmpeg's switches
            if options.b_frames > 4:
                quiet += f":rc-lookahead={4 * options.b_frames}"  # quick presets do not look ahead as far as that
            return {"preset": preset, "crf": crf, "a53cc": "0", "x265-params": f"{groups}:{quiet}"}
        case "vp9":
            return {
                "deadline": "good",
                "cpu-used": preset,
                "crf": crf,
                "b": "0",  # quality alone decides
                "threads": str(threads),
                "row-mt": "0",
                "keyint_min": str(gop),
                # Hidden alternate reference frames, and looking ahead for them. In one pass libvpx makes none anyway.
                "auto-alt-ref": "0",
                "lag-in-frames": "0",
            }
        case _:
            order = 2 if options.b_frames else 1  # random access, or low delay
            return {
                "preset": preset,
                "crf": crf,
                "svtav1-params": f"lp={threads}:scd=0:keyint={gop}:pred-struct={order}",
            }
