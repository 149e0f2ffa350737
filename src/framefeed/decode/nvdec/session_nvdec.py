"""Decoding on NVIDIA GPUs with PyNvVideoCodec."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed._util.nvtx import DECODE, READ
from framefeed.cuda.driver import copy_on_device, new_stream, use_context
from framefeed.decode.nvdec import nvcuvid
from framefeed.decode.nvdec.annexb import Framing, framing
from framefeed.decode.nvdec.capabilities import CODECS, PixelFormat, capabilities, library, pixel_format
from framefeed.decode.nvdec.detours import find_detour
from framefeed.decode.session import PacketError, Session, TakeRun
from framefeed.decode.surface import Surface, SurfaceLayout, even, layout_of
from framefeed.index.bitstream import PacketKind
from framefeed.index.video_index import VideoIndex
from framefeed.types import StreamInfo

__all__ = ["NvdecFactory"]

# How many packets are fed at once, and what their pictures may take: a decoder keeps them all until the next time.
MAX_RUN = 128
MAX_RUN_BYTES = 256 << 20
MAX_ASIDE = 16

# Codecs whose packets can be put one behind the other, because they begin with start codes.
_JOINED = ("h264", "hevc")

_OUT_OF_MEMORY = re.compile(r"OUT_OF_MEMORY|\b(?:returned error|Error code *:) *2\b")

_UNSEEN = np.uint16(PacketKind.HIDDEN | PacketKind.SECOND_FIELD)

# Pictures of the sizes up to here share decoders; larger ones make the decoders grow, once.
LEAST_SIZE = (1920, 1088)


MAX_SEQUENCES = 1 << 16  # streams that are remembered


class NvdecSession:
    """A hardware decoder on a CUDA stream of its own.

    It is begun anywhere, in any stream of its codec, with the parameter sets in band.
    """

    delayed = True
    strict = False
    lasting = False

    def __init__(self, factory: NvdecFactory) -> None:
        self._factory = factory
        self._cuda_stream = factory.borrow_stream()
        weakref.finalize(self, factory.streams.append, self._cuda_stream).atexit = False
        self._decoder: Any = None
        self._max_size = (0, 0)
        self._size = (0, 0)
        self._fresh = False  # whether the decoder has not been fed yet
        self._sequence: nvcuvid.Sequence | None = None  # what it is made for; None where that is not known
        self._coming: nvcuvid.Sequence | None = None  # the same as soon as it has been fed
        self._room = (0, 0)  # what it gives of a coded picture
        self._told = False  # whether it has been told a size that the next packets may change to
        self._pix_fmt: str | None = None
        self._layout: SurfaceLayout | None = None  # asking a picture for it takes a millisecond
        self._packet = library().PacketData()
        self._whole = library().PacketData()  # one picture, which is decoded before the next comes
        self._whole.decode_flag = library().VideoPacketFlag.ENDOFPICTURE
        self._ending = library().PacketData()
        self._ending.decode_flag = library().VideoPacketFlag.ENDOFSTREAM
        self._flush = library().PacketData()
        self._flush.bsl = 0
        self._first = True
        self._aside: Any = None
        # Decoders put the times of pictures into rising order, so packets are stamped with their place in it.
        self._fed: dict[int, int] = {}

    @property
    def numbers_pictures(self) -> bool:
        """Not for codecs with hidden frames: pictures come out under the time of a neighbour."""
        return self._joins

    def assign(self, index: VideoIndex) -> None:
        """Makes it ready for a video, in the thread that uses it.

        A decoder is made anew only for pictures larger than any before.
        """
        use_context(self._factory.device)
        stream = index.stream
        self._path = index.path
        self._stream = stream
        self._table = index.packets
        self._ranks = index.packets.display_rank
        self._framing: Framing = framing(stream.codec, stream.extradata)
        self._known_as = self._framing.headers or index.path
        size = (stream.width, stream.height)
        self._first = True
        self._fed.clear()
        too_large = stream.width > self._max_size[0] or stream.height > self._max_size[1]
        if self._decoder is None or too_large or (size != self._size and self._scales()):
            self._make_decoder()
        elif size != self._size:
            # Without this it would go on giving pictures of the old size, scaled.
            self._decoder.setReconfigParams(even(stream.width), even(stream.height))
            self._told = True
        if size != self._size or stream.pix_fmt != self._pix_fmt:
            self._layout = None
        self._size, self._pix_fmt = size, stream.pix_fmt
        self._joins = stream.codec in _JOINED
        self._layout_changes = not self._joins

    def _scales(self) -> bool:
        """Returns whether a change to the stream's size would scale its pictures: sizes to change to must be even."""
        stream = self._stream
        return stream.codec != "vp8" and (stream.width & 1 or stream.height & 1) == 1

    def _make_decoder(self) -> None:
        try:
            self._decoder, self._max_size = self._factory.make_decoder(self._stream, self._cuda_stream)
        except Exception as error:
            if not _is_out_of_memory(error):
                raise
            raise _out_of_memory(self._path, error) from error
        self._fresh, self._told = True, False
        self._layout = None

    def _make_ready(self, data: bytes | memoryview) -> None:
        """Sees to it that the decoder is what a stream needs that begins with a packet.

        PyNvVideoCodec leaves it as it is where the coded size does not change: with too few surfaces it would overwrite
        pictures that others still refer to, and of larger pictures it would give a part, both without a word.
        """
        now = self._sequence
        needed = self._factory.sequence(self._stream.codec, self._known_as, self._framing, data)
        if needed is None and not self._joins:
            self._sequence = self._coming = None
            return  # it is not known for other codecs in all versions of the driver
        if not self._fresh:
            if now is None or needed is None or needed.progressive != now.progressive:
                self._make_decoder()
            elif needed.size != now.size:
                if self._scales():
                    self._make_decoder()
            elif needed.surfaces > now.surfaces or self._is_too_large():
                now = self._take_detour(now)
        self._coming = needed
        if self._fresh or now is None or needed is None:
            self._room = needed.size if needed is not None else (0, 0)
        elif needed.size != now.size:
            # Even where the size that is shown stays: without this it would go on giving the old part, scaled.
            self._room = (even(self._size[0]), even(self._size[1]))
            if not self._told:
                self._decoder.setReconfigParams(*self._room)
        else:
            self._coming = now
        self._sequence = None  # until it has been fed
        self._fresh = False

    def _is_too_large(self) -> bool:
        """Returns whether the shown pictures are larger than the decoder's output of the coded ones."""
        return self._size[0] > self._room[0] or self._size[1] > self._room[1]

    def _take_detour(self, now: nvcuvid.Sequence) -> nvcuvid.Sequence:
        """Makes the decoder change its size, so that it will have to change back; a new one where that fails."""
        detour = find_detour(self._stream.codec, *_format_key(self._stream), now.size)
        if detour is not None:
            side = detour.side
            with contextlib.suppress(PacketError):
                self._decoder.setReconfigParams(side, side)
                if not self._decode(bytearray(detour.content), ends=True):
                    self._end()
                self._first = True
                self._layout = None
                return nvcuvid.Sequence((side, side), 0, now.progressive)
        self._make_decoder()
        return now

    def feed(self, number: int, data: bytes | memoryview, key: bool) -> list[tuple[int, Any]]:
        """Decodes a packet."""
        if self._first:
            self._make_ready(data)
        content = self._framing.convert(data, self._first)
        self._first = False
        packet = self._whole
        packet.bsl_data = ctypes.addressof(ctypes.c_char.from_buffer(content))
        packet.bsl = len(content)
        rank = int(self._ranks[number])
        self._fed.setdefault(rank, number)
        packet.pts = rank
        return self._pictures(packet)

    def drain(self) -> list[tuple[int, Any]]:
        """Gets the pictures out that wait to be put into order."""
        self._first = True
        try:
            return self._pictures(self._flush)
        finally:
            self._fed.clear()

    def reset(self) -> None:
        """Forgets what has not come out."""
        if not self._first:
            with contextlib.suppress(PacketError):  # it is made anew then
                self.drain()

    def run(
        self,
        numbers: NDArray[np.int64],
        packets: Iterable[tuple[int, bytes | memoryview]],
        rows: Mapping[int, int],
        take: TakeRun,
    ) -> bool:
        """Decodes a whole run of packets, and ends the stream.

        Pictures are told apart by their order alone, which is right if as many come out as are shown.
        """
        seen = numbers[(self._table.flags[numbers] & _UNSEEN) == 0]
        order = seen[np.argsort(self._ranks[seen], kind="stable")].tolist()
        try:
            decode = self._joined if self._joins else self._one_by_one
            return decode(packets, order, rows, take) == len(order)
        except PacketError:
            return False

    def _joined(
        self,
        packets: Iterable[tuple[int, bytes | memoryview]],
        order: Sequence[int],
        rows: Mapping[int, int],
        take: TakeRun,
    ) -> int:
        """Feeds packets many at a time; returns how many pictures came."""
        pieces = self._pieces(packets)
        piece = next(pieces, [])
        came = 0
        if piece and self._first:
            self._make_ready(piece[0])
        while piece:
            following = next(pieces, [])
            with DECODE:
                frames = self._decode(self._framing.join(piece, self._first), ends=not following)
            came += self._hand_on(frames, order[came:], rows, take)
            piece = following
        if came < len(order):
            with DECODE:
                frames = self._end()
            came += self._hand_on(frames, order[came:], rows, take)
        self._first = True
        return came

    def _pieces(self, packets: Iterable[tuple[int, bytes | memoryview]]) -> Iterator[list[bytes | memoryview]]:
        """As many packets at a time as the decoder has memory for their pictures."""
        width, height = self._size
        wide = 1 if self._layout is not None and self._layout.format == "NV12" else 2
        most = max(4, min(MAX_RUN, MAX_RUN_BYTES // max(1, wide * width * height * 3 // 2)))
        source = iter(packets)
        while True:
            with READ:
                piece = [data for _, data in itertools.islice(source, most)]
            if not piece:
                return
            yield piece

    def _hand_on(self, frames: Sequence[Any], order: Sequence[int], rows: Mapping[int, int], take: TakeRun) -> int:
        """Hands the wanted ones of some pictures on; returns how many there are."""
        if len(frames) > len(order):
            raise PacketError("more pictures came out than went in")
        taken, surfaces = [], []
        for number, frame in zip(order, frames, strict=False):
            if number in rows:
                taken.append(rows[number])
                surfaces.append(self._surface(frame))
        if taken:
            take(taken, surfaces)
        return len(frames)

    def _one_by_one(
        self,
        packets: Iterable[tuple[int, bytes | memoryview]],
        order: Sequence[int],
        rows: Mapping[int, int],
        take: TakeRun,
    ) -> int:
        """Feeds packets one at a time; wanted pictures are copied aside, so that many can be handed on at once."""
        came = 0
        taken: list[int] = []
        surfaces: list[Surface] = []

        def hand_on() -> None:
            if taken:
                take(taken, surfaces)
                taken.clear()
                surfaces.clear()

        def keep(frames: Sequence[Any], came: int) -> int:
            if came + len(frames) > len(order):
                raise PacketError("more pictures came out than went in")
            for frame in frames:
                row = rows.get(order[came])
                came += 1
                if row is None:
                    continue
                surface = self._surface(frame)
                if surfaces and (len(surfaces) == MAX_ASIDE or surfaces[0].layout is not surface.layout):
                    hand_on()
                taken.append(row)
                surfaces.append(self._copy(surface, len(surfaces)))
            return came

        with DECODE:
            for _, data in packets:
                if self._first:
                    self._make_ready(data)
                came = keep(self._decode(self._framing.convert(data, self._first)), came)
            came = keep(self._end(), came)
        hand_on()
        return came

    def _copy(self, surface: Surface, slot: int) -> Surface:
        import torch

        size = surface.layout.num_bytes
        if self._aside is None or self._aside.shape[1] < size:
            with torch.cuda.stream(self._cuda_stream):
                self._aside = torch.empty((MAX_ASIDE, size), dtype=torch.uint8, device=self._cuda_stream.device)
        address = self._aside.data_ptr() + slot * self._aside.shape[1]
        copy_on_device(address, surface.address, size, self._cuda_stream.cuda_stream)
        return Surface(address, surface.layout, self._cuda_stream)

    def _decode(self, content: bytearray, *, ends: bool = False) -> Sequence[Any]:
        """Feeds it. All pictures come at once where the stream ends with it; else the last ones wait for more."""
        packet = self._ending if ends else self._packet
        packet.bsl_data = ctypes.addressof(ctypes.c_char.from_buffer(content))
        packet.bsl = len(content)
        packet.pts = 0
        self._first = False  # until all its pictures have come
        return self._frames(packet)

    def _end(self) -> Sequence[Any]:
        self._first = True
        return self._frames(self._flush)

    def _frames(self, packet: Any) -> Sequence[Any]:
        try:
            frames: Sequence[Any] = self._decoder.Decode(packet)
        except Exception as error:  # PyNvVideoCodec's own; the decoder is of no use afterwards
            self._decoder = None
            self._max_size = (0, 0)
            if _is_out_of_memory(error):  # the file is not to blame
                raise _out_of_memory(self._path, error) from error
            raise PacketError(str(error).strip().replace("\n", " ")) from error
        self._told = False
        if self._coming is not None:
            self._sequence, self._coming = self._coming, None
        return frames

    def _pictures(self, packet: Any) -> list[tuple[int, Any]]:
        pictures: list[tuple[int, Any]] = []
        for frame in self._frames(packet):
            number = self._fed.pop(frame.getPTS(), None)
            if number is not None:
                pictures.append((number, self._surface(frame)))
        return pictures

    def _surface(self, frame: Any) -> Surface:
        if self._layout is None or self._layout_changes:
            layout = layout_of(frame, self._size)
            self._layout = layout if layout != self._layout else self._layout
        return Surface(frame.GetPtrToPlane(0), self._layout, self._cuda_stream)


class NvdecFactory:
    """Makes hardware decoders for one GPU; streams of the same codec and sample format share them.

    Attributes:
        device: The GPU's number.
        created: How many decoders have been made.
        streams: Those of decoders that are gone. What belongs to a stream stays, so it is used again.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.created = 0
        self.streams: list[Any] = []
        self._lock = threading.Lock()
        self._sizes: dict[object, tuple[int, int]] = {}
        self._sequences: dict[tuple[str, object], nvcuvid.Sequence] = {}

    def uses_threads(self, stream: StreamInfo) -> bool:
        """Hardware has none."""
        return False

    def key(self, stream: StreamInfo, *, closed_start: bool) -> object:
        """Codec and sample format."""
        return stream.codec, pixel_format(stream.pix_fmt)

    def shape(self, stream: StreamInfo) -> object:
        """Size and headers: changing these takes a decoder some milliseconds, and its memory is allocated anew."""
        return stream.width, stream.height, framing(stream.codec, stream.extradata).headers

    def create(self, stream: StreamInfo, num_threads: int, *, closed_start: bool) -> Session:
        """A decoder."""
        return NvdecSession(self)

    def borrow_stream(self) -> Any:
        """A stream that no other decoder uses."""
        try:
            return self.streams.pop()
        except IndexError:
            return new_stream(self.device)

    def sequence(self, codec: str, known_as: object, how: Framing, data: bytes | memoryview) -> nvcuvid.Sequence | None:
        """Returns the decoder parameters of the stream that a packet belongs to; None if the packet does not have them.

        Args:
            codec: Of the stream.
            known_as: The same for streams with the same parameter sets; each is looked at once.
            how: Makes a byte stream of packets.
            data: The packet.
        """
        found = self._sequences.get((codec, known_as))
        if found is None:
            found = nvcuvid.parse_sequence(codec, bytes(how.convert(data, True)))
            if found is not None:
                if len(self._sequences) >= MAX_SEQUENCES:
                    self._sequences.clear()
                self._sequences[codec, known_as] = found
        return found

    def make_decoder(self, stream: StreamInfo, cuda_stream: Any) -> tuple[Any, tuple[int, int]]:
        """A decoder for pictures up to the largest size that has been asked for, and that size."""
        nvc = library()
        key = self.key(stream, closed_start=True)
        limits = capabilities(self.device, stream.codec, *_format_key(stream))
        with self._lock:
            width, height = self._sizes.get(key, LEAST_SIZE)
            size = (
                min(max(width, even(stream.width)), limits.get("width_max", 1 << 16)),
                min(max(height, even(stream.height)), limits.get("height_max", 1 << 16)),
            )
            self._sizes[key] = size
            self.created += 1
        decoder = nvc.CreateDecoder(
            gpuid=self.device,
            codec=getattr(nvc.cudaVideoCodec, CODECS[stream.codec]),
            cudacontext=0,
            cudastream=cuda_stream.cuda_stream,
            usedevicememory=1,
            maxwidth=size[0],
            maxheight=size[1],
            outputColorType=nvc.OutputColorType.NATIVE,
        )
        return decoder, size


def _is_out_of_memory(error: Exception) -> bool:
    """PyNvVideoCodec names errors of CUDA; those of decoders come as numbers."""
    return _OUT_OF_MEMORY.search(str(error)) is not None


def _out_of_memory(path: str, error: Exception) -> Exception:
    import torch

    why = str(error).strip().splitlines()[0]
    return torch.cuda.OutOfMemoryError(
        f"{path}: the GPU's memory is full, none is left for decoding ({why}); less memory_budget, or smaller batches"
    )


def _format_key(stream: StreamInfo) -> tuple[str, int]:
    found = pixel_format(stream.pix_fmt) or PixelFormat("420", 8)
    return found.chroma, found.bits
