"""Decoding on NVIDIA GPUs with PyNvVideoCodec."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from framefeed.decode.annexb import Framing, framing
from framefeed.decode.session import PacketError, Session
from framefeed.errors import MissingBackend, UnsupportedCodec
from framefeed.types import StreamInfo

__all__ = ["NvdecFactory", "Surface", "capabilities", "check_supported", "num_units"]

# What FFmpeg calls a codec, and PyNvVideoCodec.
_CODECS = {"h264": "H264", "hevc": "HEVC", "vp8": "VP8", "vp9": "VP9", "av1": "AV1", "mpeg2video": "MPEG2",
           "mpeg1video": "MPEG1", "mpeg4": "MPEG4", "mjpeg": "JPEG"}  # fmt: skip

# Those whose pictures have been shown to be the CPU's, bit for bit.
EXACT_CODECS = ("h264", "hevc", "vp8", "vp9", "av1")

# Pictures of the sizes up to here share decoders; larger ones make the decoders grow, once.
LEAST_SIZE = (1920, 1088)


@functools.cache
def _library() -> Any:
    try:
        import PyNvVideoCodec
    except ImportError as error:
        raise MissingBackend(
            "PyNvVideoCodec", f"cannot be loaded ({error}); decoding on a GPU needs it: pip install framefeed[cuda]"
        ) from error
    return PyNvVideoCodec


@dataclass(frozen=True)
class PixelFormat:
    """What a decoder has to know of FFmpeg's pixel formats.

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
    """What the driver says of a codec; empty where it does not know it."""
    library = _library()
    name = _CODECS.get(codec)
    chroma_format = getattr(library.cudaVideoChromaFormat, chroma, None)
    if name is None or chroma_format is None or not hasattr(library.cudaVideoCodec, name):
        return {}
    try:
        found: dict[str, int] = library.GetDecoderCaps(
            gpuid=device, codec=getattr(library.cudaVideoCodec, name), chromaformat=chroma_format, bitdepth=bits
        )
    except Exception:  # PyNvVideoCodec has its own exceptions, and says little in them
        return {}
    return found


def num_units(device: int) -> int:
    """How many decoding units the GPU has; at least 1."""
    return max(1, int(capabilities(device, "h264", "420", 8).get("num_decoder_engines", 1)))


def check_supported(stream: StreamInfo, device: int) -> None:
    """Raises where the GPU cannot decode a stream exactly.

    Raises:
        UnsupportedCodec: It cannot; the error says what is possible.
    """
    remedy = 'use device="cpu", or fallback="cpu" to decode there and upload'
    if stream.codec not in EXACT_CODECS:
        raise UnsupportedCodec(stream.codec, f"is not decoded on a GPU (possible: {', '.join(EXACT_CODECS)}); {remedy}")
    format_ = pixel_format(stream.pix_fmt)
    found = capabilities(device, stream.codec, format_.chroma, format_.bits) if format_ is not None else {}
    if not found.get("is_supported", 0):
        raise UnsupportedCodec(f"{stream.codec} {stream.pix_fmt}", f"this GPU's decoder does not support it; {remedy}")
    width, height = stream.width, stream.height
    if not (found["min_width"] <= width <= found["max_width"] and found["min_height"] <= height <= found["max_height"]):
        sizes = f"{found['min_width']}x{found['min_height']} to {found['max_width']}x{found['max_height']}"
        raise UnsupportedCodec(f"{stream.codec} {width}x{height}", f"this GPU's decoder takes {sizes}; {remedy}")


@dataclass(frozen=True, slots=True)
class Surface:
    """A decoded picture in device memory, valid until its session is fed again.

    What reads it has to be queued on the session's ``stream`` before that.

    Attributes:
        planes: Device addresses: luma, chroma, and the second chroma plane of 4:4:4 formats or 0.
        pitch: Bytes from one line to the next.
        num_bytes: Of all planes, which lie one behind the other.
        width, height: Of the picture.
        format: PyNvVideoCodec's name of the format.
        stream: The CUDA stream that it is written on.
    """

    planes: tuple[int, int, int]
    pitch: int
    num_bytes: int
    width: int
    height: int
    format: str
    stream: Any


class NvdecSession:
    """A hardware decoder on a CUDA stream of its own.

    It is begun anywhere, in any stream of its codec, with the parameter sets in band.
    """

    delayed = True
    strict = False

    def __init__(self, factory: NvdecFactory, stream: StreamInfo) -> None:
        import torch

        self._factory = factory
        self._device = factory.device
        self._cuda_stream = torch.cuda.Stream(factory.device)  # type: ignore[no-untyped-call]
        self._decoder: Any = None
        self._max_size = (0, 0)
        self._packet = _library().PacketData()
        self.assign(stream)

    def assign(self, stream: StreamInfo) -> None:
        """Makes it ready for a stream; a decoder is made anew only for pictures larger than any before."""
        self._framing: Framing = framing(stream.codec, stream.extradata)
        self._size = (stream.width, stream.height)
        self._first = True
        if self._decoder is None or stream.width > self._max_size[0] or stream.height > self._max_size[1]:
            self._decoder, self._max_size = self._factory.make_decoder(stream, self._cuda_stream)

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        """Decodes a packet."""
        content = np.frombuffer(self._framing.convert(data, self._first), np.uint8)
        self._first = False
        packet = self._packet
        packet.bsl_data = content.ctypes.data
        packet.bsl = len(content)
        packet.pts = number
        return self._pictures(packet)

    def drain(self) -> list[tuple[int, Any]]:
        """Gets the pictures out that wait to be put into order."""
        packet = _library().PacketData()
        packet.bsl = 0
        self._first = True
        return self._pictures(packet)

    def reset(self) -> None:
        """Forgets what has not come out."""
        if not self._first:
            self.drain()

    def _pictures(self, packet: Any) -> list[tuple[int, Any]]:
        try:
            frames = self._decoder.Decode(packet)
        except Exception as error:  # PyNvVideoCodec's own; the decoder is of no use afterwards
            self._decoder = None
            self._max_size = (0, 0)
            raise PacketError(str(error).strip().replace("\n", " ")) from error
        return [(frame.getPTS(), self._surface(frame)) for frame in frames]

    def _surface(self, frame: Any) -> Surface:
        rows, columns = frame.shape[:2]
        pitch = frame.strides[0]
        luma = frame.GetPtrToPlane(0)
        name = str(frame.format).rsplit(".", 1)[-1]
        separate = name.startswith("YUV444")
        height = rows // 3 if separate else rows * 2 // 3
        width = columns
        if (width + (width & 1), height + (height & 1)) == tuple(side + (side & 1) for side in self._size):
            width, height = self._size  # sizes are rounded up to even ones
        plane = pitch * (rows // 3 if separate else rows * 2 // 3)
        planes = (luma, luma + plane, luma + 2 * plane if separate else 0)
        return Surface(planes, pitch, pitch * rows, width, height, name, self._cuda_stream)


class NvdecFactory:
    """Makes hardware decoders for one GPU; streams of the same codec and sample format share them.

    Attributes:
        device: The GPU's number.
        created: How many decoders have been made.
    """

    hardware = True

    def __init__(self, device: int) -> None:
        self.device = device
        self.created = 0
        self._lock = threading.Lock()
        self._sizes: dict[object, tuple[int, int]] = {}

    def key(self, stream: StreamInfo, *, closed_start: bool) -> object:
        """Codec and sample format."""
        return stream.codec, pixel_format(stream.pix_fmt)

    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        """A decoder."""
        return NvdecSession(self, stream)

    def make_decoder(self, stream: StreamInfo, cuda_stream: Any) -> tuple[Any, tuple[int, int]]:
        """A decoder for pictures up to the largest size that has been asked for, and that size."""
        library = _library()
        key = self.key(stream, closed_start=True)
        limits = capabilities(self.device, stream.codec, *_format_key(stream))
        with self._lock:
            width, height = self._sizes.get(key, LEAST_SIZE)
            size = (
                min(max(width, _even(stream.width)), limits.get("max_width", 1 << 16)),
                min(max(height, _even(stream.height)), limits.get("max_height", 1 << 16)),
            )
            self._sizes[key] = size
            self.created += 1
        decoder = library.CreateDecoder(
            gpuid=self.device,
            codec=getattr(library.cudaVideoCodec, _CODECS[stream.codec]),
            cudacontext=0,
            cudastream=cuda_stream.cuda_stream,
            usedevicememory=1,
            maxwidth=size[0],
            maxheight=size[1],
            outputColorType=library.OutputColorType.NATIVE,
        )
        return decoder, size


def _even(side: int) -> int:
    return side + (side & 1)


def _format_key(stream: StreamInfo) -> tuple[str, int]:
    found = pixel_format(stream.pix_fmt) or PixelFormat("420", 8)
    return found.chroma, found.bits
