"""Validates the sizes declared in the boxes of an MP4 or MOV file against the size of the file.

FFmpeg and the index allocate memory for what is declared, and some tables declare much in a few bytes: a constant
sample size, run lengths, fragments without per-sample values, edits that repeat the whole track. This check walks the
boxes as FFmpeg does, reading headers only, before anything else reads the file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from framefeed.errors import InvalidFile
from framefeed.media.media import Media, reading

__all__ = ["check_declared"]

# Entries that are always allowed: they cost a few megabytes, and a truncated file may declare more than it has.
FREE = 1 << 16
SAMPLE = 4  # bytes that a sample takes at least: its entry in a size table, or its data
MAX_DEPTH = 10  # nesting of boxes, as in FFmpeg
_WINDOW = 1 << 14  # bytes read at once
_SAMPLES_PER_ENTRY = 160  # least samples of uncompressed sound for one entry of FFmpeg's index

_CONTAINERS = frozenset(
    (b"moov", b"hoov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts", b"mvex", b"moof", b"traf", b"udta")
    + (b"tref", b"wave", b"sinf", b"schi", b"iprp", b"ipco", b"mfra", b"ilst")
)
# Position of the entry count in a box, and the least bytes of each entry.
_TABLES = {
    b"stts": (4, 8),
    b"ctts": (4, 8),
    b"stsc": (4, 12),
    b"stco": (4, 4),
    b"co64": (4, 8),
    b"stss": (4, 4),
    b"stps": (4, 4),
    b"elst": (4, 12),
    b"dref": (4, 8),
    b"keys": (4, 8),
    b"tfra": (12, 11),
}
_BOX = struct.Struct(">I4s")
_Read = Callable[[int, int], bytes]


@dataclass
class _Track:
    """The state of one track: positions of its boxes, and the numbers that some of them begin with."""

    boxes: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    handlers: set[bytes] = field(default_factory=set)
    samples: int = 0
    constant: int = 0


def check_declared(media: Media) -> None:
    """Raises if the boxes of a file declare more than the file can hold.

    Raises:
        InvalidFile: The boxes declare too much.
    """
    with reading(media) as read:
        size = media.fingerprint[0]
        _Walk(_windowed(read), size, media.name).boxes(0, size, 0)


def _windowed(read: _Read) -> _Read:
    """Returns a reader that serves many small reads from a few large ones."""
    begin, window = 0, b""

    def get(offset: int, length: int) -> bytes:
        nonlocal begin, window
        if not begin <= offset <= offset + length <= begin + len(window):
            begin, window = offset, read(offset, max(length, _WINDOW))
        return window[offset - begin : offset - begin + length]

    return get


class _Walk:
    """A walk through the boxes of a file, or through the decompressed boxes of a ``cmov``."""

    def __init__(self, read: _Read, file_size: int, name: str) -> None:
        self._read = read
        self._file_size = file_size
        self._name = name
        self._track = _Track()
        self._sounds: set[int] = set()
        self._time_scale = 1
        self._weight = 0

    def boxes(self, start: int, end: int, depth: int) -> None:
        """Checks all boxes in a range."""
        for kind, body, stop in self._children(start, end):
            if kind == b"trak" and depth < MAX_DEPTH:
                self._track = _Track()
                self.boxes(body, stop, depth + 1)
                self._add_track(self._track)
            elif kind in _CONTAINERS and depth < MAX_DEPTH:
                self.boxes(body, stop, depth + 1)
            elif kind == b"meta" and depth < MAX_DEPTH:
                at = self._read(body, min(stop - body, _WINDOW)).find(b"hdlr")  # the version is optional
                self.boxes(body + max(0, at - 4), stop, depth + 1)
            elif kind == b"cmov":
                self._compressed(body, stop, depth)
            else:
                self._table(kind, body, stop)

    def _children(self, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
        while start + 8 <= end:
            head = self._read(start, 16)
            if len(head) < 8:
                return
            size, kind = _BOX.unpack_from(head)
            body = start + 8
            if size == 1 and len(head) == 16:
                size, body = int.from_bytes(head[8:], "big"), start + 16
            elif size == 0:
                size = end - start
            if size < body - start:
                return
            yield kind, body, min(start + size, end)
            start += size

    def _number(self, at: int, length: int = 4) -> int:
        return int.from_bytes(self._read(at, length), "big")

    def _table(self, kind: bytes, body: int, stop: int) -> None:
        if kind in _TABLES:
            at, entry = _TABLES[kind]
            self._check_room(kind, self._number(body + at), entry, stop - body - at - 4)
            known = self._track.boxes.get(kind, (0, 0))
            self._track.boxes[kind] = max(known, (body, stop), key=lambda place: place[1] - place[0])
        elif kind in (b"stsz", b"stz2"):
            self._sizes(kind, body, stop)
        elif kind == b"trun":
            self._run(body, stop)
        elif kind == b"hdlr":
            self._track.handlers.add(self._read(body + 8, 4))
        elif kind in (b"mdhd", b"tkhd", b"tfhd"):
            self._track.boxes[kind] = (body, stop)
        elif kind == b"mvhd":
            self._time_scale = max(1, self._number(body + (20 if self._read(body, 1) == b"\1" else 12)))
        elif kind in (b"iloc", b"iinf", b"sgpd", b"sbgp"):
            version = self._number(body, 1)
            at = {b"iloc": 6, b"iinf": 4, b"sgpd": 12 if version == 1 else 8, b"sbgp": 12 if version == 1 else 8}[kind]
            if version >= 2 or kind in (b"sgpd", b"sbgp") or (kind == b"iinf" and version):
                self._check_room(kind, self._number(body + at), 1 if kind == b"sgpd" else 8, stop - body - at - 4)

    def _check_room(self, kind: bytes, count: int, entry: int, room: int) -> None:
        if count > FREE and count * entry > room:
            what = f"its {kind.decode()} box declares {count:,} entries and has room for {max(0, room) // entry:,}"
            raise InvalidFile(self._name, f"{what}: damaged, or made to use up memory")

    def _sizes(self, kind: bytes, body: int, stop: int) -> None:
        constant, count = self._number(body + 4), self._number(body + 8)
        if kind == b"stz2":
            bits, constant = constant & 255, 0
            self._check_room(kind, count * max(4, bits) // 8, 1, stop - body - 12)
        elif not constant:
            self._check_room(kind, count, 4, stop - body - 12)
        self._track.samples, self._track.constant = max(self._track.samples, count), constant

    def _run(self, body: int, stop: int) -> None:
        """Checks a ``trun``: without per-sample values it can declare any number of samples."""
        flags, count = self._number(body) & 0xFFFFFF, self._number(body + 4)
        header = 8 + 4 * (flags & 1) + (flags & 4)
        if columns := (flags & 0xF00).bit_count():
            self._check_room(b"trun", count, 4 * columns, stop - body - header)
        else:
            at = self._track.boxes.get(b"tfhd", (body, body))[0]
            self._add(count, 1 if self._number(at + 4) in self._sounds else SAMPLE)

    def _add(self, count: int, unit: int) -> None:
        """Adds samples of at least that many bytes each to the count."""
        self._weight += count * unit
        if self._weight > self._file_size + FREE * SAMPLE:
            most = FREE + self._file_size // unit
            what = f"declares {count:,} samples, and a file of {self._file_size:,} bytes can hold {most:,} at most"
            raise InvalidFile(self._name, f"{what}: damaged, or made to use up memory")

    def _add_track(self, track: _Track) -> None:
        is_sound = track.handlers == {b"soun"}
        if is_sound and b"tkhd" in track.boxes:
            at = track.boxes[b"tkhd"][0]
            self._sounds.add(self._number(at + (20 if self._number(at, 1) == 1 else 12)))
        times = self._entries(track, b"stts", ">u4", 2)
        if is_sound and len(times) == 1 and times[0, 1] == 1:
            self._add(max(track.samples, self._placed(track)) // _SAMPLES_PER_ENTRY, SAMPLE)
            return
        self._add(track.samples, min(track.constant or SAMPLE, SAMPLE) if is_sound else SAMPLE)
        edits = self._number(track.boxes[b"elst"][0] + 4) if b"elst" in track.boxes else 0
        if edits > 1 and edits * track.samples > FREE:
            self._add(self._copies(track, times), SAMPLE)

    def _entries(self, track: _Track, kind: bytes, number: str, columns: int) -> NDArray[np.int64]:
        """Returns the entries of a table, one row each."""
        body, stop = track.boxes.get(kind, (0, 0))
        row = np.dtype(number).itemsize * columns
        count = min(self._number(body + 4), max(0, stop - body - 8) // row) if stop else 0
        data = self._read(body + 8, count * row)
        return np.frombuffer(data, number, len(data) // row * columns).astype(np.int64).reshape(-1, columns)

    def _placed(self, track: _Track) -> int:
        """Returns the number of samples in all chunks."""
        chunks = max((self._number(track.boxes[k][0] + 4) for k in (b"stco", b"co64") if k in track.boxes), default=0)
        runs = self._entries(track, b"stsc", ">u4", 3)
        lengths = np.append(runs[1:, 0], chunks + 1) - runs[:, 0] if len(runs) else np.empty(0, np.int64)
        return int((lengths.clip(0, chunks) * runs[:, 1]).sum())

    def _copies(self, track: _Track, times: NDArray[np.int64]) -> int:
        """Returns the number of samples that a track's edits show, repeats included, each from its sync sample on."""
        lengths = np.minimum(times[:, 0], track.samples)
        lengths = np.clip(track.samples - (lengths.cumsum() - lengths), 0, lengths)
        decoded = np.repeat(times[:, 1], lengths).cumsum()
        body = track.boxes[b"elst"][0]
        wide = self._number(body, 1) == 1
        rows = self._entries(track, b"elst", ">i8" if wide else ">i4", 2 if wide else 3)
        if wide:  # 20 bytes each
            data = self._read(body + 8, min(self._number(body + 4), FREE + self._file_size // 20) * 20)
            fields = np.dtype([("length", ">i8"), ("first", ">i8"), ("rate", ">i4")])
            found = np.frombuffer(data, fields, len(data) // 20)
            rows = np.stack([found["length"], found["first"]], axis=1).astype(np.int64)
        body = track.boxes.get(b"mdhd", (0, 0))[0]
        scale = self._number(body + (20 if self._number(body, 1) == 1 else 12)) / self._time_scale
        ends = rows[:, 1] + np.where(rows[:, 0] == 0, decoded[-1:].sum(), rows[:, 0] * scale)
        sync = self._entries(track, b"stss", ">u4", 1)[:, 0] - 1
        begins = decoded.searchsorted(rows[:, 1])
        if len(sync):
            begins = np.append(0, sync)[sync.searchsorted(begins, "right")]
        shown = decoded.searchsorted(ends) + 1 - begins
        return int(shown[rows[:, 1] >= 0].clip(0).sum())

    def _compressed(self, body: int, stop: int, depth: int) -> None:
        """Checks boxes that QuickTime has compressed with zlib."""
        for kind, start, end in self._children(body, stop):
            if kind == b"cmvd":
                packed = self._read(start + 4, end - start - 4)
                self._walk_inside(packed, 16 * (len(packed) + FREE), depth)

    def _walk_inside(self, packed: bytes, most: int, depth: int) -> None:
        try:
            data = zlib.decompressobj().decompress(packed, most)
        except zlib.error:
            return  # FFmpeg's limit
        if len(data) == most:
            raise InvalidFile(self._name, "its compressed header is far larger than the file: made to use up memory")
        inner = _Walk(lambda at, length: data[at : at + length], self._file_size, self._name)
        inner.boxes(0, len(data), depth)
