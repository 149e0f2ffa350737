"""Capabilities of a GPU's decoders, from PyNvVideoCodec and the driver, compared with a video."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from framefeed.decode.nvdec.annexb import framing
from framefeed.errors import MissingBackend, UnsupportedCodec
from framefeed.index.bitstream import PacketKind
from framefeed.index.bitstream.bits import OutOfData, Part
from framefeed.index.bitstream.h264 import headers as h264_headers
from framefeed.index.bitstream.hevc import headers as hevc_headers
from framefeed.index.bitstream.nal import split_annex_b
from framefeed.index.video_index import VideoIndex
from framefeed.types import NO_PTS, StreamInfo

__all__ = [
    "CODECS",
    "EXACT_CODECS",
    "NO_VIDEO_LIBRARY",
    "PixelFormat",
    "capabilities",
    "check_supported",
    "library",
    "num_units",
    "pixel_format",
]

# What FFmpeg calls a codec, and PyNvVideoCodec.
CODECS = {"h264": "H264", "hevc": "HEVC", "vp8": "VP8", "vp9": "VP9", "av1": "AV1", "mpeg2video": "MPEG2",
          "mpeg1video": "MPEG1", "mpeg4": "MPEG4", "mjpeg": "JPEG"}  # fmt: skip

# Those whose pictures have been shown to be the CPU's, bit for bit.
EXACT_CODECS = ("h264", "hevc", "vp8", "vp9")

NO_VIDEO_LIBRARY = (
    "the driver's part for video seems to be missing: start containers with "
    "-e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility"
)

_SPS = 7
_HEVC_SPS = 33
_H264_PROFILES = (66, 77, 100)  # baseline, main, high


@functools.cache
def library() -> Any:
    """PyNvVideoCodec."""
    try:
        import PyNvVideoCodec
    except ImportError as error:
        raise MissingBackend(
            "PyNvVideoCodec", f"cannot be loaded ({error}); decoding on a GPU needs it: pip install framefeed[cuda]"
        ) from error
    except RuntimeError as error:  # it looks for the driver's part for video, with advice of a page
        why = str(error).partition("===")[0].strip()
        raise MissingBackend("PyNvVideoCodec", f"cannot be loaded ({why}); {NO_VIDEO_LIBRARY}") from error
    return PyNvVideoCodec


@dataclass(frozen=True)
class PixelFormat:
    """Facts about one of FFmpeg's pixel formats.

    Attributes:
        chroma: ``"400"``, ``"420"``, ``"422"`` or ``"444"``.
        bits: Of each sample.
    """

    chroma: str
    bits: int


def pixel_format(name: str | None) -> PixelFormat | None:
    """The format by FFmpeg's name; None for others than planar YUV and gray."""
    plain = (name or "").replace("yuvj", "yuv")
    if plain.startswith("gray"):
        return PixelFormat("400", 8 if plain == "gray" else int(plain[4:6]))
    if not plain.startswith("yuv4") or "p" not in plain[6:7]:
        return None
    depth = plain[7:9]
    return PixelFormat(plain[3:6], int(depth) if depth.isdigit() else 8)


@functools.cache
def capabilities(device: int, codec: str, chroma: str, bits: int) -> dict[str, int]:
    """Returns the driver's facts about a codec; empty if it does not know the codec."""
    nvc = library()
    name = CODECS.get(codec)
    chroma_format = getattr(nvc.cudaVideoChromaFormat, chroma, None)
    if name is None or chroma_format is None or not hasattr(nvc.cudaVideoCodec, name):
        return {}
    try:
        found: dict[str, int] = nvc.GetDecoderCaps(
            gpuid=device, codec=getattr(nvc.cudaVideoCodec, name), chromaformat=chroma_format, bitdepth=bits
        )
    except Exception as error:  # PyNvVideoCodec has its own; what cannot be decoded is an answer, not an error
        raise MissingBackend("PyNvVideoCodec", f"the driver does not say what it can decode: {error}") from error
    return found


def num_units(device: int) -> int:
    """Returns the number of decoding units of the GPU, at least 1."""
    return max(1, int(capabilities(device, "h264", "420", 8).get("num_decoder_engines", 1)))


def check_supported(index: VideoIndex, device: int) -> None:
    """Raises where the GPU cannot decode a video exactly.

    Raises:
        UnsupportedCodec: It cannot; the error says what is possible.
    """
    what, why = _obstacle(index, device)
    if why:
        raise UnsupportedCodec(what, f'{why}; use device="cpu", or fallback="cpu" to decode there and upload')


def _obstacle(index: VideoIndex, device: int) -> tuple[str, str]:
    """Returns the reason why the GPU cannot decode a video; empty if it can."""
    stream = index.stream
    if stream.codec not in EXACT_CODECS:
        return stream.codec, f"is not decoded on a GPU (possible: {', '.join(EXACT_CODECS)})"
    what = f"{stream.codec} {stream.pix_fmt}"
    format_ = pixel_format(stream.pix_fmt)
    found = capabilities(device, stream.codec, format_.chroma, format_.bits) if format_ is not None else {}
    if not found.get("supported", 0) or format_ is None or format_.chroma == "400":
        return what, "this GPU's decoder does not support it"
    width, height = stream.width, stream.height
    if not (found["width_min"] <= width <= found["width_max"] and found["height_min"] <= height <= found["height_max"]):
        sizes = f"{found['width_min']}x{found['height_min']} to {found['width_max']}x{found['height_max']}"
        return f"{stream.codec} {width}x{height}", f"this GPU's decoder takes {sizes}"
    if (index.packets.pts == NO_PTS).any():
        return what, "it has packets without time stamps, whose pictures a GPU's decoder may mix up"
    if index.packets.has(PacketKind.MULTIPLE).any():
        return what, "it has packets with several pictures"
    if index.packets.has(PacketKind.NEW_HEADERS)[1:].any():
        return what, "its headers change in mid-stream, which a GPU's decoder does not tell"
    if index.packets.has(PacketKind.INCOMPLETE).any():
        return what, "packets are missing in mid-stream, which a GPU's decoder hides"
    if stream.codec == "h264":
        return what, _h264_obstacle(stream)
    if stream.codec == "hevc":
        return what, _hevc_obstacle(stream)
    return "", ""


def _h264_obstacle(stream: StreamInfo) -> str:
    """Hardware decodes the usual profiles only, and takes fields apart for display."""
    units = [unit for unit in split_annex_b(framing("h264", stream.extradata).headers) if unit[0] & 31 == _SPS]
    for unit in units:
        if len(unit) < 4 or unit[1] not in _H264_PROFILES:
            return f"its profile {unit[1] if len(unit) > 1 else '?'} is not decoded by hardware"
        try:
            sps = h264_headers.parse_sps(unit)
            part = h264_headers.shown_part(unit)
        except OutOfData:
            return "its headers cannot be read"
        if not sps.frame_mbs_only:
            return "it is interlaced, and a GPU's decoder changes such pictures"
        if sps.chroma_format == 0:
            return "it has no colour, which a GPU's decoder does not support"
        if obstacle := _part_obstacle(part, stream):
            return obstacle
    return "" if units else "its headers are not told before its pictures"


def _hevc_obstacle(stream: StreamInfo) -> str:
    headers = framing("hevc", stream.extradata).headers
    units = [unit for unit in split_annex_b(headers) if unit[0] >> 1 & 63 == _HEVC_SPS]
    try:
        obstacles = [_part_obstacle(hevc_headers.parse_sps(unit).shown, stream) for unit in units]
    except OutOfData:
        return "its headers cannot be read"
    return next(filter(None, obstacles), "")


def _part_obstacle(part: Part, stream: StreamInfo) -> str:
    """Checks that the shown picture begins at the left and at the top, and has the size of the headers."""
    if part.left or part.top:
        return "its pictures are cut off at the left or at the top, where a GPU's decoder cuts them off elsewhere"
    if (part.width, part.height) != (stream.width, stream.height):
        return (
            f"its container says {stream.width}x{stream.height} and its own headers {part.width}x{part.height}, "
            "which a GPU's decoder would scale"
        )
    return ""
