"""Picture format of outputs: size, pixel aspect ratio, pixel format, colours. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import av
import av.error

from framefeed.errors import InvalidFile, UnsupportedCodec
from framefeed.prepare.codecs import ENCODERS
from framefeed.prepare.options import PrepareOptions
from framefeed.types import Orientation, StreamInfo

__all__ = [
    "FULL_RANGE",
    "UNSPECIFIED",
    "PictureFormat",
    "bits_of",
    "check_pixel_format",
    "is_rgb",
    "plain_name",
    "plan_format",
]

UNSPECIFIED, BT709, LIMITED_RANGE, FULL_RANGE = 2, 1, 1, 2
MAX_RATIO = 0xFFFF  # largest number in H.264's pixel aspect ratio


@dataclass(frozen=True)
class PictureFormat:
    """Picture format of a video's outputs.

    Attributes:
        width, height: In pixels, even.
        cut_width, cut_height: Used part of the stored source picture: all but an odd column or line.
        scaled_width, scaled_height: Size after scaling, before rotation.
        orientation: Rotation to apply: outputs are stored upright.
        pix_fmt: FFmpeg's name of the pixel format.
        sample_aspect_ratio: Width of a pixel over its height, None if unspecified.
        color_space, color_range, color_primaries, color_transfer: As in ``StreamInfo``.
    """

    width: int
    height: int
    cut_width: int
    cut_height: int
    scaled_width: int
    scaled_height: int
    orientation: Orientation
    pix_fmt: str
    sample_aspect_ratio: Fraction | None
    color_space: int
    color_range: int
    color_primaries: int
    color_transfer: int


def plan_format(path: str, stream: StreamInfo, options: PrepareOptions) -> PictureFormat:
    """Plans the picture format of a stream's outputs.

    Raises:
        InvalidFile: The picture is too small.
        UnsupportedCodec: The source's pixel format is to be kept, and the encoder does not support it.
    """
    cut_width, cut_height = stream.width & ~1, stream.height & ~1
    if not cut_width or not cut_height:
        raise InvalidFile(path, f"pictures of {stream.width}x{stream.height} pixels are too small to encode")
    turned = stream.orientation.swaps_sides
    width, height = (cut_height, cut_width) if turned else (cut_width, cut_height)
    ratio = stream.sample_aspect_ratio
    if ratio is not None and turned:
        ratio = 1 / ratio
    (width, height), ratio = _shape(width, height, ratio, options)
    pix_fmt = _pixel_format(path, stream.pix_fmt or "yuv420p", options)
    space, extent = stream.color_space, stream.color_range
    if is_rgb(stream.pix_fmt) and not is_rgb(pix_fmt):
        space, extent = BT709, LIMITED_RANGE
    elif (stream.pix_fmt or "").startswith("yuvj"):
        extent = FULL_RANGE
    return PictureFormat(
        width=width,
        height=height,
        cut_width=cut_width,
        cut_height=cut_height,
        scaled_width=height if turned else width,
        scaled_height=width if turned else height,
        orientation=stream.orientation,
        pix_fmt=pix_fmt,
        sample_aspect_ratio=ratio,
        color_space=space,
        color_range=extent,
        color_primaries=stream.color_primaries,
        color_transfer=stream.color_transfer,
    )


def _shape(
    width: int, height: int, ratio: Fraction | None, options: PrepareOptions
) -> tuple[tuple[int, int], Fraction | None]:
    """Returns size and pixel aspect ratio of an upright picture."""
    shape = Fraction(width, height) * (ratio or 1)
    if options.short_side is not None:
        side = options.short_side
        longer = 2 * max(1, round(side * max(shape, 1 / shape) / 2))
        return (longer, side) if shape >= 1 else (side, longer), None if ratio is None else Fraction(1)
    if options.size is None or options.size == (width, height):
        return (width, height), ratio
    across, down = options.size
    # An even size next to the exact one is the best possible, and square pixels are meant.
    if abs(across - down * shape) <= 1 or abs(down - across / shape) <= 1:
        return options.size, None if ratio is None else Fraction(1)
    return options.size, _writable(shape * down / across)


def _writable(ratio: Fraction) -> Fraction:
    """Returns the nearest ratio that all formats can store."""
    if ratio.numerator <= MAX_RATIO and ratio.denominator <= MAX_RATIO:
        return ratio
    if ratio > 1:
        return 1 / (1 / ratio).limit_denominator(MAX_RATIO)
    return ratio.limit_denominator(MAX_RATIO)


def plain_name(pix_fmt: str) -> str:
    """Returns ``yuv420p`` for ``yuvj420p``: the same samples; full range is stored elsewhere."""
    return pix_fmt.replace("yuvj", "yuv")


def is_rgb(pix_fmt: str | None) -> bool:
    """Returns True for RGB and palette formats."""
    return pix_fmt is not None and (pix_fmt == "pal8" or av.VideoFormat(pix_fmt).is_rgb)


def bits_of(pix_fmt: str) -> int:
    """Returns the bits per sample."""
    return max(component.bits for component in av.VideoFormat(pix_fmt).components)


def _formats(codec: str) -> list[str]:
    try:
        found = av.Codec(ENCODERS[codec].name, "w").video_formats or []
    except (av.error.FFmpegError, ValueError) as error:
        raise UnsupportedCodec(
            codec, f"PyAV's FFmpeg lacks the encoder {ENCODERS[codec].name}; PyAV's own wheel has it: pip install av"
        ) from error
    return [each.name for each in found]


def check_pixel_format(options: PrepareOptions) -> None:
    """Checks that the encoder exists and supports the pixel format.

    Raises:
        UnsupportedCodec: It does not.
    """
    formats = _formats(options.codec)
    if options.pixel_format not in ("auto", "keep", *formats):
        raise UnsupportedCodec(
            options.codec,
            f"its encoder does not support the pixel format {options.pixel_format}; use auto, keep or one of "
            f"{', '.join(formats)}",
        )


def _pixel_format(path: str, source: str, options: PrepareOptions) -> str:
    if options.pixel_format == "keep":
        name = plain_name(source)
        if name not in _formats(options.codec):
            raise UnsupportedCodec(
                path, f"the {options.codec} encoder does not support its pixel format {source}; use --pixel-format auto"
            )
        return name
    if options.pixel_format != "auto":
        return plain_name(options.pixel_format)
    deep = ENCODERS[options.codec].deep and source != "pal8" and bits_of(source) > 8
    return "yuv420p10le" if deep else "yuv420p"
