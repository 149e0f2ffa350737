"""Encoders, and their options for keyframes exactly every N frames and reproducible bytes.

Every keyframe starts a closed GOP: decoding can start there, and nothing after it refers to anything before it.
Scene-cut detection, which would add keyframes, is disabled.
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
        name: FFmpeg's name.
        crf: Default quality of the encoder.
        max_crf: Lowest quality.
        preset: Default preset.
        presets: Available presets, fastest first for words, slowest first for numbers.
        tag: Four characters that name the codec in MP4; None leaves them to the muxer.
        deep: True if hardware decoders usually support more than 8 bits, and the encoder does too.
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
    """Returns the encoder's private options."""
    threads, gop, crf, preset = options.threads, options.gop, str(options.crf), str(options.preset)
    # The same for x264 and x265. Captions and other side data of the source are not copied.
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
            quiet = f"log-level=error:pools={threads}:frame-threads=1"  # x265 ignores both of FFmpeg's options
            if options.b_frames > 4:
                quiet += f":rc-lookahead={4 * options.b_frames}"  # fast presets look less far ahead
            return {"preset": preset, "crf": crf, "a53cc": "0", "x265-params": f"{groups}:{quiet}"}
        case "vp9":
            return {
                "deadline": "good",
                "cpu-used": preset,
                "crf": crf,
                "b": "0",  # constant quality
                "threads": str(threads),
                "row-mt": "0",
                "keyint_min": str(gop),
                # Disables hidden alternate reference frames and their look-ahead. One-pass libvpx makes none anyway.
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
