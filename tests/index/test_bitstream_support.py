"""What the bitstream tests share: tiny encoded streams, decoding of chosen packets, classification in chunks."""

import functools
import hashlib
import io
from collections.abc import Iterable
from typing import Any, NamedTuple, cast

import av
import numpy as np
from numpy.typing import NDArray

from framefeed._util.encoders import usual_priority
from framefeed.index.bitstream import HEAD, PacketKind, make_classifier

DECODERS = {"av1": "libdav1d"}


class Stream(NamedTuple):
    """A demuxed stream: packets in decode order with their presentation times."""

    codec: str
    extradata: bytes
    packets: tuple[bytes, ...]
    pts: tuple[int, ...]


class Recipe(NamedTuple):
    """How to encode a tiny clip."""

    encoder: str
    container: str
    options: tuple[tuple[str, str], ...] = ()
    frames: int = 48
    pix_fmt: str = "yuv420p"
    width: int = 96
    height: int = 64


def _picture(number: int, width: int, height: int, pix_fmt: str) -> av.VideoFrame:
    """A soft texture that moves under a little noise: something for all prediction modes to do."""
    coarse = np.random.default_rng(7).integers(0, 200, (height // 8 + 8, width // 8 + 8, 3))
    texture = np.kron(coarse, np.ones((8, 8, 1), np.int64))
    noise = np.random.default_rng(number).integers(0, 12, (height, width, 3))
    image = texture[number : number + height, number // 2 : number // 2 + width] + noise
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(image, np.uint8), format="rgb24").reformat(format=pix_fmt)


@functools.cache
def encode(recipe: Recipe) -> Stream:
    """Encode, multiplex and demultiplex a clip."""
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=recipe.container) as output:
        stream = cast(Any, output.add_stream(recipe.encoder, rate=25, options=dict(recipe.options)))
        stream.width, stream.height, stream.pix_fmt = recipe.width, recipe.height, recipe.pix_fmt
        stream.codec_context.thread_count = 1
        with usual_priority():
            stream.codec_context.open(strict=False)
        for number in range(recipe.frames):
            output.mux(stream.encode(_picture(number, recipe.width, recipe.height, recipe.pix_fmt)))
        output.mux(stream.encode(None))
    return demux(buffer.getvalue())


def demux(data: bytes) -> Stream:
    """Packets of the first video stream of a file."""
    with cast(Any, av.open(io.BytesIO(data))) as source:
        video = source.streams.video[0]
        packets = [packet for packet in source.demux(video) if packet.size]
        return Stream(
            {"libdav1d": "av1"}.get(video.codec_context.name, video.codec_context.name),
            bytes(video.codec_context.extradata or b""),
            tuple(bytes(packet) for packet in packets),
            tuple(-1 if packet.pts is None else packet.pts for packet in packets),
        )


def decode(stream: Stream, numbers: Iterable[int]) -> dict[int, list[str]]:
    """Decode only these packets: digests of the frames that each packet's number came out with."""
    context = cast(Any, av.CodecContext.create(DECODERS.get(stream.codec, stream.codec), "r"))
    context.extradata = stream.extradata or None
    context.thread_type = "NONE"
    context.thread_count = 1
    frames: dict[int, list[str]] = {}

    def keep(decoded: list[av.VideoFrame]) -> None:
        for frame in decoded:
            assert frame.pts is not None
            frames.setdefault(frame.pts, []).append(hashlib.md5(frame.to_ndarray().tobytes()).hexdigest())

    for number in numbers:
        # Not av.Packet(data): that has no zero bytes behind the data, and decoders look there (MPEG-4 visibly).
        packet = av.Packet(len(stream.packets[number]))
        packet.update(stream.packets[number])
        packet.pts = packet.dts = number
        keep(context.decode(packet))
    keep(context.decode(None))
    return frames


def classify(stream: Stream, chunk: int = 1 << 30) -> NDArray[np.uint16]:
    """Flags of all packets, handed over ``chunk`` at a time."""
    return classify_packets(stream.codec, stream.extradata, stream.packets, chunk)[0]


def classify_packets(
    codec: str, extradata: bytes, packets: Iterable[bytes], chunk: int = 1 << 30
) -> tuple[NDArray[np.uint16], NDArray[np.int32]]:
    """Flags and recovery counts of packets, handed over ``chunk`` at a time."""
    classifier = make_classifier(codec, extradata)
    assert classifier is not None
    rest = list(packets)
    kinds: list[NDArray[np.uint16]] = [np.zeros(0, np.uint16)]
    recovery: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    while rest:
        part, rest = rest[:chunk], rest[chunk:]
        heads = np.zeros((len(part), HEAD), np.uint8)
        for row, packet in enumerate(part):
            heads[row, : len(packet[:HEAD])] = np.frombuffer(packet[:HEAD], np.uint8)

        def read(index: int, offset: int, length: int, part: list[bytes] = part) -> bytes:
            assert offset >= 0 and length >= 0
            return part[index][offset : offset + length]

        result = classifier.classify(heads, np.array([len(packet) for packet in part], np.int64), read)
        assert result.kinds.dtype == np.uint16 and result.recovery.dtype == np.int32
        kinds.append(result.kinds)
        recovery.append(result.recovery)
    return np.concatenate(kinds), np.concatenate(recovery)


def having(kinds: NDArray[np.uint16], kind: PacketKind) -> list[int]:
    """Numbers of the packets that have a flag."""
    return [int(number) for number in np.flatnonzero(kinds & kind)]
