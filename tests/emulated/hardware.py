"""NVIDIA's parsers and decoders, with PyAV's in their place."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from numpy.typing import NDArray

from emulated import headers
from emulated.structures import Display, Format, Picture, WideArea

if TYPE_CHECKING:
    from emulated.driver import Driver

GARBAGE = 7  # what lies in memory that nobody has written to
PARTS = 512  # memory begins at multiples of this, and so do lines
CODECS = {4: "h264", 8: "hevc", 9: "vp8", 10: "vp9"}  # cudaVideoCodec

_END_OF_STREAM, _HAS_TIME, _END_OF_PICTURE = 1, 2, 8


def whole_parts(size: int) -> int:
    """The next whole number of parts."""
    return -(-size // PARTS) * PARTS


def _context(codec: str, *, crops: bool) -> Any:
    context: Any = av.CodecContext.create(codec, "r")
    context.thread_count = 1
    context.flags2 |= av.codec.context.Flags2.show_all
    if not crops:
        context.flags2 |= av.codec.context.Flags2.ignore_crop
    return context


class Refused(Exception):
    """A parser does not go on."""


_ON_SEQUENCE, _ON_DECODE, _ON_DISPLAY = range(3)

Steps = Iterator[tuple[int, Any]]
"""What is to be called, and what it is told."""


class VideoParser:
    """Splits a byte stream into pictures, and tells when each is to be decoded and shown."""

    def __init__(self, driver: Driver, wanted: Any) -> None:
        self._driver = driver
        self._number = wanted.codec
        self._codec = CODECS[wanted.codec]
        self._joined = self._codec in ("h264", "hevc")
        self._user = wanted.user
        self._surfaces = max(1, wanted.surfaces)
        self._calls = (wanted.on_sequence, wanted.on_decode, wanted.on_display)
        self._steps: Steps = iter(())
        self._answer = 0
        self._told: Any = None
        self._formats: dict[bytes, Any] = {}
        self._place = 0
        self._time = 0
        self._begin()

    def _begin(self) -> None:
        self._context = _context(self._codec, crops=False)
        self._fed = 0
        self._inside: dict[int, tuple[int, int]] = {}  # place in the stream -> its number, and its surface
        self._times: list[int] = []
        self._format: Any = None
        self._size = (0, 0)

    def begin(self, source: Any) -> None:
        """Takes a packet in. What has not been done for the one before never will be."""
        data = ctypes.string_at(source.payload, source.size) if source.size else b""
        ends = bool(source.flags & _END_OF_STREAM) and (not data or self._driver.heeds_ends)
        self._driver.ends += ends and not data
        if data and source.flags & _HAS_TIME:
            self._time = source.time
        self._steps = self._parse(data, ends, ends or bool(source.flags & _END_OF_PICTURE))

    def go_on(self, step: Any) -> None:
        """Says what is to be called next; nothing where all is done."""
        which, what = next(self._steps, (None, None))
        self._told = what  # stays while it is looked at
        step.call, step.user = (self._calls[which], self._user) if which is not None else (None, None)
        step.what = ctypes.addressof(what) if what is not None else None

    def answered(self, answer: int) -> None:
        """What was called said so."""
        self._answer = answer
        if not answer:
            raise Refused

    def _parse(self, data: bytes, ends: bool, whole: bool) -> Steps:
        units = list(self._context.parse(data)) if self._joined and data else [av.Packet(data)] if data else []
        if self._joined and whole:
            units += self._context.parse(None)
        for unit in units:
            yield from self._decode(unit)
        if ends:
            pictures = self._context.decode(None)
            for picture in pictures:
                yield self._show(picture)
            self._begin()

    def _decode(self, unit: Any) -> Steps:
        content = bytes(unit)
        unit.pts, unit.dts = self._fed, None
        self._fed += 1
        try:
            pictures = self._context.decode(unit)
        except av.FFmpegError as error:
            self._begin()
            raise Refused from error
        format_ = self._look(content)
        if format_ is None or not headers.has_picture(self._codec, content):
            for picture in pictures:
                yield self._show(picture)
            return
        if format_ is not self._format:
            self._driver.note("sequence", (format_.width, format_.height), format_.surfaces)
            yield _ON_SEQUENCE, format_
            if self._answer > 1:
                self._surfaces = self._answer
            self._format = format_
        number = self._driver.expect(format_.surfaces)
        taken = {place for _, place in self._inside.values()}
        places = [(self._place + step) % self._surfaces for step in range(self._surfaces)]
        self._place = next((place for place in places if place not in taken), places[0])
        self._inside[unit.pts] = number, self._place
        self._times.append(self._time)
        yield _ON_DECODE, Picture(place=self._place, data=number, length=1, slices=1)
        self._place += 1
        for picture in pictures:
            yield self._show(picture)

    def _show(self, picture: Any) -> tuple[int, Any]:
        """Times come out in rising order."""
        number, place = self._inside.pop(picture.pts)
        self._driver.arrived(number, picture)
        self._times.sort()
        return _ON_DISPLAY, Display(place=place, progressive=1, time=self._times.pop(0))

    def _look(self, content: bytes) -> Any:
        """What is told of a stream, where it changes; None before anything is known."""
        unit = {"vp8": 16, "vp9": 8}.get(self._codec, 1)
        coded = tuple(-(-side // unit) * unit for side in (self._context.coded_width, self._context.coded_height))
        sps = headers.sps(self._codec, content)
        if self._format is not None and (not sps if self._joined else coded == self._size):
            return self._format
        if not coded[0] or (self._joined and not sps):
            return None
        self._size = coded
        key = sps or repr((self._context.width, self._context.height)).encode()
        if key not in self._formats:
            shown = self._shown(content)
            name = self._context.format.name
            depth = 2 if "p10" in name else 4 if "p12" in name else 0
            self._formats[key] = Format(
                codec=self._number, progressive=1, luma_depth=depth, chroma_depth=depth,
                width=coded[0], height=coded[1], surfaces=headers.surfaces(self._codec, sps),
                area=WideArea(0, 0, *shown), chroma=3 if "444" in name else 1,
            )  # fmt: skip
        return self._formats[key]

    def _shown(self, content: bytes) -> tuple[int, int]:
        context = _context(self._codec, crops=True)
        context.decode(av.Packet(content))
        return context.width + context.width % 2, context.height + context.height % 2


class VideoDecoder:
    """Post-processes pictures as it was told last."""

    def __init__(self, driver: Driver, wanted: Any) -> None:
        self._driver = driver
        self.max_size = (wanted.max_width, wanted.max_height)
        self._format = wanted.format
        self.held: dict[int, int] = {}
        self.configure(wanted)

    def configure(self, wanted: Any) -> None:
        self.size = (wanted.width, wanted.height)
        self.surfaces = wanted.surfaces
        self.target = (wanted.target_width, wanted.target_height)
        self.area = wanted.area.sides() if any(wanted.area.sides()) else (0, 0, *self.size)

    def render(self, place: int) -> NDArray[np.uint8]:
        """What is mapped: a plane of luma, and one or two of chroma, with lines of a whole number of parts."""
        picture, needed = self._driver.pictures[self.held[place]]
        type_: Any = np.uint16 if self._format & 1 else np.uint8
        if picture is None:  # another one is being decoded there
            width, height = self.target
            lines = 3 * height if self._format >= 2 else height + -(-height // 2)
            return np.full((lines, whole_parts(width * np.dtype(type_).itemsize)), GARBAGE, np.uint8)
        depth = max(component.bits for component in picture.format.components)
        up = np.dtype(type_).itemsize * 8 - depth  # high bits are those that count
        planes = []
        for plane in picture.planes:
            lines = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size).view(type_)
            step = round(picture.width / plane.width)
            planes.append(self._cut(lines[: plane.height, : plane.width] << up, step))
        if self._format < 2:
            planes[1:] = [np.stack(planes[1:], -1).reshape(len(planes[1]), -1)]
        out = np.full((sum(map(len, planes)), whole_parts(planes[0][0].nbytes)), GARBAGE, np.uint8)
        begin = 0
        for plane in planes:
            out[begin : begin + len(plane), : plane[0].nbytes] = np.ascontiguousarray(plane).view(np.uint8)
            begin += len(plane)
        if self.surfaces < needed:
            out[:] = GARBAGE  # written over before it was shown
        return out

    def _cut(self, plane: NDArray[Any], step: int) -> NDArray[Any]:
        """The part that is shown, scaled to the size that is wanted."""
        coded = [-(-side // step) for side in reversed(self.size)]
        plane = np.pad(plane, [(0, side - now) for side, now in zip(coded, plane.shape, strict=True)], mode="edge")
        left, top, right, bottom = (-(-side // step) for side in self.area)
        width, height = (-(-side // step) for side in self.target)
        part = plane[top:bottom, left:right]
        if part.shape == (height, width):
            return part
        self._driver.note("scaled", part.shape, (height, width))
        rows, columns = np.arange(height) * len(part) // height, np.arange(width) * part.shape[1] // width
        return np.asarray(part[rows][:, columns])
