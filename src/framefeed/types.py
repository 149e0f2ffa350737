"""Plain values that packages pass to each other. Without I/O; torch is imported for type checking only."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["NO_PTS", "DecodeJob", "Frame", "FrameBatch", "Orientation", "StreamInfo", "VideoStreamMetadata"]

NO_PTS = np.iinfo(np.int64).min
"""Marks a packet without a time stamp, as FFmpeg does."""


@dataclass(frozen=True)
class Orientation:
    """Rotation and mirroring that display a stored picture upright: mirror first, then quarter turns.

    Attributes:
        quarter_turns: Counter-clockwise quarter turns, 0 to 3.
        mirrored: Whether the picture is mirrored left to right before it is turned.
    """

    quarter_turns: int = 0
    mirrored: bool = False

    def __bool__(self) -> bool:
        return self.quarter_turns != 0 or self.mirrored

    @property
    def swaps_sides(self) -> bool:
        """True if width and height change places."""
        return self.quarter_turns % 2 == 1


@dataclass(frozen=True)
class StreamInfo:
    """Facts about a video stream, known without decoding.

    Attributes:
        codec: FFmpeg's name of the codec, such as ``h264``.
        codec_tag: Four-character code of the container; some MPEG-4 decoders behave differently by it.
        extradata: The codec's out-of-band headers (parameter sets), empty where they are in band.
        width, height: Size of the stored picture in pixels, before orientation.
        pix_fmt: FFmpeg's name of the decoder's pixel format, such as ``yuv420p``.
        color_space: Matrix coefficients as FFmpeg's (and ISO 23091-2's) number; 2 is unspecified.
        color_range: 0 unspecified, 1 limited, 2 full.
        color_primaries, color_transfer: ISO 23091-2 numbers; 2 is unspecified.
        sample_aspect_ratio: Width of a pixel over its height, or None where the file does not say.
        orientation: How to turn the picture for display.
        time_base: Seconds of one unit of pts, dts and duration.
        stream_index: Place of the stream among all streams of the file.
        reorder_depth: Frames that the decoder may hold back to put them into presentation order.
        average_rate: Frame rate that the header claims, or None. Not believed, only reported.
        header_frames: Number of frames that the header claims, or None. Not believed, only reported.
        bit_rate: Bits a second that the header claims, or None.
        header_duration, header_start: What the header claims, in ``time_base``, or None.
        bits_per_coded_sample: Needed by some raw codecs.
        container: FFmpeg's name of the container format.
    """

    codec: str
    codec_tag: str
    extradata: bytes
    width: int
    height: int
    pix_fmt: str | None
    color_space: int
    color_range: int
    color_primaries: int
    color_transfer: int
    sample_aspect_ratio: Fraction | None
    orientation: Orientation
    time_base: Fraction
    stream_index: int
    reorder_depth: int
    average_rate: Fraction | None
    header_frames: int | None
    bit_rate: int | None
    header_duration: int | None
    header_start: int | None
    bits_per_coded_sample: int
    container: str

    @property
    def display_size(self) -> tuple[int, int]:
        """Height and width of delivered frames."""
        if self.orientation.swaps_sides:
            return self.width, self.height
        return self.height, self.width


@dataclass(frozen=True, eq=False)
class DecodeJob:
    """One run of a decoder: the packets to feed, and the pictures to keep.

    Attributes:
        start: The random-access packet that decoding starts from; names the group.
        packets: Numbers of the packets to feed, rising (decode order).
        wanted: Numbers of the packets whose pictures are wanted, rising.
        slots: For each of ``wanted``, where its picture goes (the caller's numbering).
        resume: Packets up to this number have been fed to a decoder that is still at that place; -1 for a fresh start.
    """

    start: int
    packets: NDArray[np.int64]
    wanted: NDArray[np.int64]
    slots: NDArray[np.int64]
    resume: int = -1

    @property
    def cost(self) -> int:
        """Number of packets that are fed."""
        return len(self.packets)


def _shape_repr(value: Any) -> str:
    lines = [f"{type(value).__name__}:"]
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if field.name == "data":
            lines.append(f"  data (shape): {tuple(content.shape)}")
        else:
            lines.append(f"  {field.name}: {content}")
    return "\n".join(lines) + "\n"


@dataclass(repr=False, eq=False)
class Frame:
    """One frame.

    Attributes:
        data: uint8 tensor of three dimensions, (C, H, W) or (H, W, C).
        pts_seconds: Presentation time.
        duration_seconds: Display duration.
    """

    data: Tensor
    pts_seconds: float
    duration_seconds: float

    def __post_init__(self) -> None:
        if self.data.ndim != 3:
            raise ValueError(f"a frame has 3 dimensions, got the shape {tuple(self.data.shape)}")
        self.pts_seconds = float(self.pts_seconds)
        self.duration_seconds = float(self.duration_seconds)

    def __iter__(self) -> Iterator[Tensor | float]:
        yield self.data
        yield self.pts_seconds
        yield self.duration_seconds

    def __repr__(self) -> str:
        return _shape_repr(self)


@dataclass(repr=False, eq=False)
class FrameBatch:
    """Several frames.

    Attributes:
        data: uint8 tensor of four dimensions, (N, C, H, W) or (N, H, W, C).
        pts_seconds, duration_seconds: float64 tensors of length N, on the CPU.
    """

    data: Tensor
    pts_seconds: Tensor
    duration_seconds: Tensor

    def __post_init__(self) -> None:
        if self.data.ndim < 3:
            raise ValueError(f"frames have at least 3 dimensions, got the shape {tuple(self.data.shape)}")
        leading = self.data.shape[:-3]
        if not (leading == self.pts_seconds.shape == self.duration_seconds.shape):
            raise ValueError(
                f"{tuple(self.data.shape)} frames need times of the shape {tuple(leading)}, got "
                f"{tuple(self.pts_seconds.shape)} and {tuple(self.duration_seconds.shape)}"
            )

    def __iter__(self) -> Iterator[FrameBatch]:
        for data, pts, duration in zip(self.data, self.pts_seconds, self.duration_seconds, strict=True):
            yield FrameBatch(data, pts, duration)

    def __getitem__(self, key: Any) -> FrameBatch:
        return FrameBatch(self.data[key], self.pts_seconds[key], self.duration_seconds[key])

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return _shape_repr(self)


@dataclass
class VideoStreamMetadata:
    """Metadata of a video stream under TorchCodec's names.

    ``*_from_header`` are claims of the file, ``*_from_content`` come from its packets; use the plain names.
    """

    duration_seconds_from_header: float | None
    begin_stream_seconds_from_header: float | None
    bit_rate: float | None
    codec: str | None
    stream_index: int
    duration_seconds: float | None
    begin_stream_seconds: float | None
    begin_stream_seconds_from_content: float | None
    end_stream_seconds_from_content: float | None
    width: int | None
    height: int | None
    num_frames_from_header: int | None
    num_frames_from_content: int | None
    average_fps_from_header: float | None
    pixel_aspect_ratio: Fraction | None
    rotation: float | None
    color_primaries: str | None
    color_space: str | None
    color_transfer_characteristic: str | None
    pixel_format: str | None
    end_stream_seconds: float | None
    num_frames: int | None
    average_fps: float | None

    def __repr__(self) -> str:
        return _shape_repr(self)
