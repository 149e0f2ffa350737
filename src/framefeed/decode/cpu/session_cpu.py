"""Decoding on the CPU with PyAV."""

from __future__ import annotations

import ctypes
import re
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

import av
import av.error
from av.video.codeccontext import VideoCodecContext

from framefeed.decode.cpu.checksums import checksum_of
from framefeed.decode.cpu.jpeg_headers import MissingTables, remembered_of
from framefeed.decode.cpu.unwritten import Blocks, UnwrittenPixels
from framefeed.decode.cpu.vectors import EXPORTED, picture_header, strays_of
from framefeed.decode.session import CorruptPicture, PacketError, Session
from framefeed.index.bitstream import block_size, has_known_faults, has_several_slices, may_have_fields, nal_length_size
from framefeed.index.bitstream.bits import OutOfData
from framefeed.index.bitstream.packet import PacketBytes
from framefeed.index.bitstream.vp9 import split_superframe
from framefeed.index.containers.container import MAX_REORDER, make_context
from framefeed.index.video_index import VideoIndex
from framefeed.media.ffmpeg import quiet
from framefeed.types import StreamInfo

__all__ = ["CpuFactory"]

quiet()

# By default FFmpeg decoders hide damage: they fill the hole from a neighbour and report success. Made to explode, they
# say so at once. The H.264 decoder, though, would call a clean start at an open group damaged: there it is left to mark
# pictures as corrupt, which is told only when they come out.
_EXPLODE = {"err_detect": "crccheck+explode"}
_NEEDS_CLOSED_START = frozenset({"h264"})

# The decoder of MPEG-4 takes bits that are left over for damage only once some pictures have shown that the encoder
# does not leave any; unless it is told that the encoder has no faults.
_STRICT = {"bug": "0"}

# Decoders that call what FFmpeg's own encoders write damaged.
_NEVER_EXPLODE = frozenset({"tiff"})

# Even so, that of H.264 only marks a picture of which one slice cannot be read, and that of MPEG-4 may leave it out.
# Those of MPEG-1 and -2 hand out motion vectors, which tell other damage, with the picture.
_TELLS_LATE = frozenset({"h264", "mpeg4", "mpeg1video", "mpeg2video"})

# Decoders that do the same with damage whatever the number of threads, and tell of it before any picture built on it
# comes out. MPEG-4's does not always notice the same; AV1's (dav1d) has given out a neighbour first.
_FRAME_THREADS = frozenset({"h264", "hevc", "vp8", "vp9"})

# HEVC streams, by their headers, of which a picture has had several slices. A damaged slice may run on into the next,
# whose pixels then are written twice; with threads, another picture may be built on the first.
_SLICED: set[bytes] = set()

_LOOKED_AT = frozenset({"mjpeg", "hevc", "mpeg1video", "mpeg2video"})

# Decoders that a flush rids of everything: references, tables, and what they made of damage. Of the others, some have
# no flush, and would go on from pictures of another video where a stream has lost its first one.
_FLUSHED = frozenset(
    ("h264", "hevc", "vp8", "vp9", "av1", "mpeg1video", "mpeg2video", "vc1", "wmv3", "mjpeg")
    + ("png", "prores", "dnxhd", "jpeg2000", "rawvideo", "dvvideo")
)

# Of these, some keep headers. That does no harm where the first packet brings the same ones; others may be damaged.
_SEQUENCE = re.compile(rb"\x00\x00\x01\xb3.*?(?=\x00\x00\x01[\x00\xb8])", re.DOTALL)  # of MPEG-1 and -2

# Decoders that write every pixel of a picture or fail: dav1d; FFmpeg's for VP9, which has no early end; and those that
# fill what they could not read from other pictures.
_WRITE_ALL = frozenset(
    ("av1", "vp9", "mpeg4", "h263", "h263p", "flv1", "msmpeg4v1", "msmpeg4v2", "msmpeg4v3", "wmv1", "wmv2")
)

_PADDING = 64  # bytes that FFmpeg allocates behind the data of a packet


def _watches(stream: StreamInfo, explodes: bool) -> bool:
    """Returns whether the decoder may leave pixels of a damaged picture unwritten without an error."""
    if stream.codec == "h264":  # of frames it counts the macroblocks, of fields it does not
        return not explodes or may_have_fields(stream.extradata)
    return stream.codec not in _WRITE_ALL


def _blocks(stream: StreamInfo) -> Blocks | None:
    match stream.codec:
        case "hevc":
            return Blocks(block_size(stream.extradata), padded=False)
        case "vp8":
            return Blocks(16, last_column=True)
        case "h264":
            # A frame of which no slice can be decoded is left as it is, unless the decoder is made to fail.
            return Blocks(16, fields=True) if may_have_fields(stream.extradata) else Blocks(16, first_only=True)
        case "mpeg1video" | "mpeg2video":
            return Blocks(16, fields=True, filtered=False)
        case "vc1" | "wmv3":
            return Blocks(8, all_planes=True, fields=True)
        case "mjpeg":
            return Blocks(8, all_planes=True, last_column=True)
        case "prores":
            return Blocks(8, all_planes=True)
        case _:
            return None


class CpuSession:
    """A codec context. Packets are stamped with their own number, which comes back on the picture."""

    lasting = True

    def __init__(self, stream: StreamInfo, num_threads: int, *, explodes: bool) -> None:
        if stream.codec == "h264":
            num_threads = max(1, min(num_threads, MAX_REORDER - stream.reorder_depth))
        self._stream = stream
        self._num_threads = num_threads
        self._reorder_depth = min(stream.reorder_depth, MAX_REORDER)
        self._ends: list[bytes] = []
        if stream.codec == "h264" and num_threads > 1:
            # One thread lets a picture out while another may still be decoding it, and has not marked it as corrupt
            # yet. It has once as many packets have followed as there are threads: "end of sequence" after the last.
            self._reorder_depth += num_threads
            is_avcc = len(stream.extradata) > 4 and stream.extradata[0] == 1
            length = (stream.extradata[4] & 3) + 1 if is_avcc else 4
            self._ends = [b"\x01\x0a".rjust(length + 1, b"\0")] * num_threads
        self._splits = stream.codec == "vp9"
        self._length_size = nal_length_size(stream.extradata) if stream.codec == "hevc" else 0
        self.delayed = num_threads > 1
        self.strict = stream.codec not in _TELLS_LATE
        self._explodes = explodes
        self._is_strict = stream.codec == "mpeg4" and not has_known_faults(stream.extradata)
        self._checksum = checksum_of(stream)
        self._strays = strays_of(stream)
        self._reference: bytes | memoryview = b""  # the last one
        self._of_fields: set[int] = set()  # packets
        self._begins = True
        self._remembered: object = None
        self._fed: deque[int] = deque()
        blocks = _blocks(stream)
        self._has_fields = blocks is not None and blocks.fields
        self._unwritten: UnwrittenPixels | None = None
        self._context = self._make_context()

    def _make_context(self) -> VideoCodecContext:
        stream = self._stream
        context = make_context(stream)
        context.reorder_depth = self._reorder_depth
        context.thread_count = self._num_threads
        context.thread_type = "FRAME" if self._num_threads > 1 else "NONE"
        context.options |= (_EXPLODE if self._explodes else {}) | (_STRICT if self._is_strict else {})
        context.options |= EXPORTED if self._strays is not None else {}
        self._stop_watching()
        if _watches(stream, self._explodes):
            self._unwritten = UnwrittenPixels(context, _blocks(stream))
        return context

    def _stop_watching(self) -> None:
        if self._unwritten is not None:
            self._context.flush_buffers()  # without Python's lock, which its threads need before they end
            self._unwritten.close()
            self._unwritten = None

    def __del__(
        self,
        # Not looked up when the process ends: by then, modules may be empty.
        is_finalizing: Callable[[], bool] = sys.is_finalizing,
        keep: Any = ctypes.pythonapi.Py_IncRef,
        pointer: Any = ctypes.py_object,
    ) -> None:
        if not hasattr(self, "_unwritten"):
            return
        if is_finalizing():
            # Its threads have been ended where they waited for Python's lock, and freeing it would wait for them.
            keep(pointer(self._context))
        else:
            self._stop_watching()

    def assign(self, index: VideoIndex) -> None:
        """Nothing to do: all streams that share a context have the same headers."""

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        """Decodes a packet."""
        if self._checksum is not None and (reason := self._checksum(data)):
            raise PacketError(reason)
        if self._stream.codec in _LOOKED_AT:
            self._look_at(data)
        self._fed.append(number)
        if self._strays is not None:
            header = picture_header(data)
            if header.is_reference:
                self._reference = data
            if header.is_field:
                self._of_fields.add(number)
        if self._splits:
            packets = [_packet(number, part, key, behind) for part, behind in _frames_of(data)]
            return [picture for packet in packets for picture in self._pictures(packet)]
        packet: av.Packet[Any] = av.Packet(len(data))
        packet.update(data)  # type: ignore[arg-type]  # any buffer will do
        packet.pts = packet.dts = number
        packet.is_keyframe = key
        return self._pictures(packet)

    def _look_at(self, data: bytes | memoryview) -> None:
        """Keeps the outcome from depending on what was fed before, or on the other threads."""
        stream = self._stream
        if stream.codec == "mjpeg":
            try:
                remembered = remembered_of(data)
            except MissingTables as error:
                raise PacketError(str(error)) from None
            if self._remembered not in (None, remembered):
                self._context = self._make_context()
            self._remembered = remembered
        elif stream.codec == "hevc":
            if self.delayed and has_several_slices(data, self._length_size):
                _SLICED.add(stream.extradata)
                raise PacketError("its slices may overlap: it needs a decoder of one thread")
        elif self._begins:
            sequence = _SEQUENCE.match(data)
            remembered = sequence.group() if sequence else b""
            if self._remembered is not None and (not remembered or self._remembered != remembered):
                self._context = self._make_context()
            self._remembered = remembered
            self._begins = False

    def drain(self) -> list[tuple[int, Any]]:
        """Gets the pictures out that wait to be put into order."""
        ends = self._ends
        if len(self._reference):  # vectors come with a picture only where another one pushes it out
            ends, self._reference = [bytes(self._reference)], b""
        pictures = [picture for end in ends for picture in self._pictures(_packet(-1, end, False))]
        return pictures + self._pictures(None)

    def reset(self) -> None:
        """Makes the context ready for another group or file."""
        self._fed.clear()
        self._of_fields.clear()
        self._reference = b""
        if self._stream.codec not in _FLUSHED:
            self._context = self._make_context()
            return
        self._context.flush_buffers()
        self._begins = True
        if self._unwritten is not None:
            self._unwritten.forget()

    def _pictures(self, packet: av.Packet[Any] | None) -> list[tuple[int, Any]]:
        try:
            frames = self._context.decode(packet)
        except av.error.EOFError:
            return []
        except (av.error.FFmpegError, ValueError) as error:
            raise PacketError(getattr(error, "strerror", None) or str(error)) from error
        if self._unwritten is not None and self._unwritten.found(self._last_decoded(packet, frames)):
            raise PacketError("its data ends before the picture is complete")
        pictures: list[tuple[int, Any]] = []
        for frame in frames:
            number = frame.pts
            if number is not None and number >= 0:
                damaged = frame.is_corrupt or (
                    self._strays is not None and self._strays(frame, number in self._of_fields)
                )
                pictures.append((number, CorruptPicture() if damaged else frame))
        return pictures

    def _last_decoded(self, packet: av.Packet[Any] | None, frames: list[av.VideoFrame]) -> int:
        """The last packet that no thread is decoding any more, and that has no second field to come."""
        if packet is None:
            return sys.maxsize
        fed = self._fed
        while len(fed) > self._num_threads + self._has_fields:
            fed.popleft()
        done = fed[0] if len(fed) == self._num_threads + self._has_fields else -1
        return max([done, *(frame.pts for frame in frames if frame.pts is not None)]) if self.delayed else done


def _packet(number: int, data: bytes | memoryview, key: bool, behind: bytes | memoryview = b"") -> av.Packet[Any]:
    # A copy, because decoders read a little past the end: a packet of its own is padded with zeros there, a view
    # into the file's bytes would be followed by the next packet.
    packet: av.Packet[Any] = av.Packet(len(data))
    packet.update(data)  # type: ignore[arg-type]  # any buffer will do
    if len(behind):
        ctypes.memmove(packet.buffer_ptr + len(data), bytes(behind[:_PADDING]), min(len(behind), _PADDING))
    packet.pts = packet.dts = number
    packet.is_keyframe = key
    return packet


def _frames_of(data: bytes | memoryview) -> list[tuple[bytes | memoryview, bytes | memoryview]]:
    """The frames of a VP9 packet, each with the bytes behind it: near damage, a decoder reads one of them.

    Fed together, an error of one gets lost in PyAV if a picture came out before.
    """
    if not len(data) or data[-1] & 0xE0 != 0xC0:
        return [(data, b"")]
    try:
        places = split_superframe(PacketBytes(bytes(data), len(data), 0, lambda *_: b""))
    except OutOfData:
        return [(data, b"")]  # it is refused
    return [(data[offset : offset + size], data[offset + size :]) for offset, size in places]


class CpuFactory:
    """Makes CPU sessions; streams with the same headers can share one."""

    def uses_threads(self, stream: StreamInfo) -> bool:
        """Returns whether the outcome is the same for any number of threads."""
        return stream.codec in _FRAME_THREADS and stream.extradata not in _SLICED

    def key(self, stream: StreamInfo, *, closed_start: bool) -> object:
        """Everything that a context is made from."""
        return (
            self._explodes(stream, closed_start),
            self.uses_threads(stream),
            stream.codec,
            stream.codec_tag,
            stream.extradata,
            stream.width,
            stream.height,
            stream.pix_fmt,
            stream.reorder_depth,
            stream.bits_per_coded_sample,
        )

    def shape(self, stream: StreamInfo) -> object:
        """All are alike."""
        return None

    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        """A codec context, opened on its first packet."""
        threads = num_threads if self.uses_threads(stream) else 1
        return CpuSession(stream, threads, explodes=self._explodes(stream, closed_start))

    def _explodes(self, stream: StreamInfo, closed_start: bool) -> bool:
        if stream.codec in _NEVER_EXPLODE:
            return False
        return closed_start or stream.codec not in _NEEDS_CLOSED_START
