"""Reads plain MP4 and MOV files, with one HEVC track and sound, and boxes that have only one interpretation.

For such files the boxes alone determine what FFmpeg reports after opening them. A file with any box that is not known
to be harmless is left to FFmpeg.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.index.containers.mp4 import (
    BoxError,
    Boxes,
    Read,
    SampleTable,
    chunk_offsets,
    place_samples,
    samples_per_chunk,
    spread,
    table,
)

__all__ = ["PlainTrack", "read_plain_track"]

_FIRST_READ = 4096
_MAX_MOOV = 1 << 28
_MAX_TIME = 1 << 40
_MAX_32 = (1 << 31) - 1

_BRANDS = frozenset((b"isom", *(b"iso%d" % number for number in range(2, 10)), b"mp41", b"mp42", b"M4V ", b"qt  "))
_TOP_LEVEL = frozenset((b"ftyp", b"free", b"skip", b"wide", b"mdat", b"moov"))
_MOVIE = frozenset((b"mvhd", b"trak", b"udta", b"iods"))
_TRACK = (frozenset((b"tkhd", b"mdia")), frozenset((b"edts",)))
_MEDIA = (frozenset((b"mdhd", b"hdlr", b"minf")), frozenset[bytes]())
_MEDIA_INFORMATION = (frozenset((b"vmhd", b"dinf", b"stbl")), frozenset((b"hdlr",)))
_SAMPLES = (frozenset((b"stsd", b"stts", b"stsc", b"stsz")), frozenset((b"stss", b"ctts", b"sdtp", b"stco", b"co64")))
_SOUND_INFORMATION = (frozenset((b"smhd", b"dinf", b"stbl")), frozenset((b"hdlr",)))
_SOUND_SAMPLES = (_SAMPLES[0], frozenset((b"sgpd", b"sbgp", b"stco", b"co64")))
_ENTRY = (frozenset((b"hvcC",)), frozenset((b"colr", b"pasp", b"btrt")))
_UPRIGHT = struct.pack(">9i", 1 << 16, 0, 0, 0, 1 << 16, 0, 0, 0, 1 << 30)
_DREF = struct.pack(">III4sI", 0, 1, 12, b"url ", 1)  # the data is in this file
_ONE_ENTRY = struct.pack(">II", 0, 1)
_BOX = struct.Struct(">I4s")
_pair = struct.Struct(">II").unpack_from


class NotPlain(Exception):
    """The file is left to FFmpeg."""


@dataclass
class PlainTrack:
    """The video track of a plain file.

    Attributes:
        stream_index: Index of the track among all.
        codec_tag: Name of its sample entry.
        extradata: Content of the ``hvcC`` box.
        width, height: Size in the sample entry, which is also the size in the track header unless ``aspect`` is set.
        aspect: Width and height of a pixel, or None if the container does not say.
        time_scale: Ticks a second.
        duration: Duration of the media in ticks, from its header.
        edit: First presentation time and length in ticks that the edit list shows, or None without edit list.
        samples: The samples, sync flags included.
    """

    stream_index: int
    codec_tag: str
    extradata: bytes
    width: int
    height: int
    aspect: tuple[int, int] | None
    time_scale: int
    duration: int
    edit: tuple[int, int] | None
    samples: SampleTable


def read_plain_track(read: Read, file_size: int) -> PlainTrack | None:
    """Returns the video track of a plain file; None for any other file."""
    try:
        moov = _read_moov(read, file_size)
        return _read_movie(moov, file_size)
    except (NotPlain, BoxError, IndexError, struct.error):
        return None


def _need(condition: object) -> None:
    if not condition:
        raise NotPlain


def _read_moov(read: Read, file_size: int) -> bytes:
    head = read(0, _FIRST_READ)
    found: dict[bytes, bytes] = {}
    at, boxes = 0, 0
    while at < file_size:
        start = head[at : at + 16] if at + 16 <= len(head) else read(at, 16)
        _need(len(start) >= 8 and boxes < 16)
        size, kind = _BOX.unpack_from(start)
        header = 8
        if size == 1:
            header, size = 16, int.from_bytes(start[8:16], "big")
        _need(header <= size <= file_size - at and kind in _TOP_LEVEL and kind not in found)
        if kind in (b"ftyp", b"moov"):
            _need(header == 8 and size <= _MAX_MOOV and (kind == b"ftyp") == (at == 0))
            end = at + size
            found[kind] = head[at + 8 : end] if end <= len(head) else read(at + 8, size - 8)
            _need(len(found[kind]) == size - 8)
        at += size
        boxes += 1
    _need(len(found) == 2 and found[b"ftyp"][:4] in _BRANDS)
    return found[b"moov"]


def _boxes(data: bytes, start: int, end: int) -> list[tuple[bytes, int, int]]:
    """Yields kind, body start and end of boxes that fill a range to its last byte."""
    found = []
    while start < end:
        size, kind = _BOX.unpack_from(data, start)
        if not 8 <= size <= end - start:
            raise NotPlain
        found.append((kind, start + 8, start + size))
        start += size
    return found


def _children(data: bytes, place: tuple[int, int], kinds: tuple[frozenset[bytes], frozenset[bytes]]) -> Boxes:
    """Returns the boxes in a range: each at most once, all required ones, and only allowed ones."""
    found = _boxes(data, *place)
    boxes = {kind: (start, end) for kind, start, end in found}
    needed, allowed = kinds
    _need(len(boxes) == len(found) and needed <= boxes.keys() <= needed | allowed)
    return boxes


def _read_movie(moov: bytes, file_size: int) -> PlainTrack:
    boxes = _boxes(moov, 0, len(moov))
    _need(boxes and boxes[0][0] == b"mvhd" and all(kind in _MOVIE for kind, _, _ in boxes))
    start = boxes[0][1]
    time_scale, _ = _times(moov, *boxes[0][1:])
    matrix = start + (48 if moov[start] else 36)
    _need(moov[matrix : matrix + 36] == _UPRIGHT)
    _need(all(moov.find(b"covr", start, end) < 0 for kind, start, end in boxes if kind == b"udta"))
    video: PlainTrack | None = None
    tracks = [(start, end) for kind, start, end in boxes if kind == b"trak"]
    for number, place in enumerate(tracks):
        track = _children(moov, place, _TRACK)
        media = _children(moov, track[b"mdia"], _MEDIA)
        handler = media[b"hdlr"][0] + 8
        if moov[handler : handler + 4] == b"soun":
            _times(moov, *media[b"mdhd"])
            _check_sound(moov, media[b"minf"], file_size)
        else:
            _need(video is None and moov[handler : handler + 4] == b"vide")
            video = _read_track(moov, track, media, number, time_scale, file_size)
    if video is None:
        raise NotPlain
    return video


def _times(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Returns time scale and duration of an ``mvhd`` or ``mdhd`` box."""
    _need(data[start] in (0, 1) and end - start >= (36 if data[start] else 24))
    scale, duration = struct.unpack_from(">IQ", data, start + 20) if data[start] else _pair(data, start + 12)
    _need(0 < scale <= _MAX_32)
    return scale, duration


def _check_sound(moov: bytes, place: tuple[int, int], file_size: int) -> None:
    """Validates a sound track: one without samples changes FFmpeg's edit lists, a damaged one may change anything."""
    information = _children(moov, place, _SOUND_INFORMATION)
    _check_reference(moov, *information[b"dinf"])
    tables = _children(moov, information[b"stbl"], _SOUND_SAMPLES)
    start, end = tables[b"stsd"]
    _need(end - start > 44 and moov[start : start + 8] == _ONE_ENTRY)
    size, tag = _BOX.unpack_from(moov, start + 8)
    _need(size == end - start - 8 and tag == b"mp4a")
    _samples(moov, tables, file_size)


def _check_reference(moov: bytes, start: int, end: int) -> None:
    _need(end - start == 28 and moov[start + 4 : start + 8] == b"dref" and moov[start + 8 : end] == _DREF)


def _read_track(moov: bytes, boxes: Boxes, media: Boxes, number: int, movie_scale: int, file_size: int) -> PlainTrack:
    information = _children(moov, media[b"minf"], _MEDIA_INFORMATION)
    tables = _children(moov, information[b"stbl"], _SAMPLES)
    _need(media[b"mdhd"][0] < media[b"minf"][0])
    _check_reference(moov, *information[b"dinf"])
    time_scale, duration = _times(moov, *media[b"mdhd"])
    _need(0 < duration <= _MAX_32)
    tag, width, height, entry = _sample_entry(moov, *tables[b"stsd"])
    aspect = _aspect(moov, entry)
    shown = _track_size(moov, *boxes[b"tkhd"])
    _need(aspect is not None or shown == (width, height))
    return PlainTrack(
        stream_index=number,
        codec_tag=tag,
        extradata=moov[slice(*entry[b"hvcC"])],
        width=width,
        height=height,
        aspect=aspect,
        time_scale=time_scale,
        duration=duration,
        edit=_edit(moov, boxes[b"edts"], movie_scale, time_scale) if b"edts" in boxes else None,
        samples=_samples(moov, tables, file_size),
    )


def _track_size(moov: bytes, start: int, end: int) -> tuple[int, int]:
    """Returns width and height of an enabled, upright track."""
    wide = moov[start]
    _need(wide in (0, 1) and end - start == (96 if wide else 84) and moov[start + 3] & 1)
    _need(moov[end - 44 : end - 8] == _UPRIGHT)
    width, height = _pair(moov, end - 8)
    return width >> 16, height >> 16


def _sample_entry(moov: bytes, start: int, end: int) -> tuple[str, int, int, Boxes]:
    """Returns name, size and boxes of the only entry of an ``stsd`` box."""
    _need(end - start > 94 and moov[start : start + 8] == _ONE_ENTRY)
    size, tag = _BOX.unpack_from(moov, start + 8)
    _need(size == end - start - 8 and tag in (b"hvc1", b"hev1"))
    at = start + 16
    _need(moov[at + 6 : at + 10] == b"\0\1\0\0")  # data reference 1, version 0
    width, height = struct.unpack_from(">HH", moov, at + 24)
    _need(moov[at + 74 : at + 76] == b"\0\x18")  # 24 bits of colour
    return tag.decode(), width, height, _children(moov, (at + 78, end), _ENTRY)


def _aspect(moov: bytes, entry: Boxes) -> tuple[int, int] | None:
    if b"pasp" not in entry:
        return None
    start, end = entry[b"pasp"]
    _need(end - start == 8)
    across, down = _pair(moov, start)
    _need(0 < across <= _MAX_32 and 0 < down <= _MAX_32)
    return across, down


def _edit(moov: bytes, place: tuple[int, int], movie_scale: int, time_scale: int) -> tuple[int, int]:
    """Returns first time and length, in ticks, of an edit list with one entry at normal speed."""
    boxes = _boxes(moov, *place)
    _need(len(boxes) == 1)
    kind, start, end = boxes[0]
    _need(kind == b"elst" and end - start in (20, 28) and moov[start + 4 : start + 8] == b"\0\0\0\1")
    _need(moov[start] == (end - start == 28) and moov[end - 4 : end] == b"\0\1\0\0")
    length, first = struct.unpack_from(">Qq" if moov[start] else ">Ii", moov, start + 8)
    _need(0 <= first <= _MAX_TIME and length <= _MAX_TIME)
    return first, (length * time_scale + movie_scale // 2) // movie_scale


def _samples(moov: bytes, tables: Boxes, file_size: int) -> SampleTable:
    """Returns the samples of tables with equal sample counts."""
    start, _ = tables[b"stsz"]
    _need(moov[start + 4 : start + 8] == b"\0\0\0\0")  # one size per sample
    sizes = table(moov, tables, b"stsz", header=12)[:, 0]
    count = len(sizes)
    durations = table(moov, tables, b"stts", ">i4", columns=2)
    _need(count and len(durations) and int(durations[:, 0].sum()) == count and durations.min() > 0)
    duration = spread(durations, count)
    pos = _positions(moov, tables, sizes)
    ends = pos + sizes
    _need(sizes.min() > 0 and pos[0] >= 0 and (pos[1:] >= ends[:-1]).all() and ends[-1] <= file_size)
    return SampleTable(
        pos=pos,
        size=sizes,
        offset=_offsets(moov, tables, count),
        duration=duration,
        dts=duration.cumsum() - duration,
        key=_sync_flags(moov, tables, count),
    )


def _positions(moov: bytes, tables: Boxes, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the positions of samples in chunks that hold exactly these."""
    _need((b"stco" in tables) != (b"co64" in tables))
    chunks, runs = chunk_offsets(moov, tables), table(moov, tables, b"stsc", columns=3)
    _need(len(chunks) and len(runs) and runs[0, 0] == 1 and runs.min() > 0 and runs[:, 2].max() == 1)
    per_chunk = samples_per_chunk(len(chunks), runs)
    _need(len(per_chunk) == len(chunks) and int(per_chunk.sum()) == len(sizes))
    return place_samples(chunks, per_chunk, sizes)


def _offsets(moov: bytes, tables: Boxes, count: int) -> NDArray[np.int64]:
    """Returns presentation minus decoding times, none of them negative."""
    if b"ctts" not in tables:
        return np.zeros(count, np.int64)
    runs = table(moov, tables, b"ctts", ">i4", columns=2)
    _need(len(runs) and runs.min() >= 0 and runs[:, 0].min() > 0 and int(runs[:, 0].sum()) == count)
    return spread(runs, count)


def _sync_flags(moov: bytes, tables: Boxes, count: int) -> NDArray[np.bool_]:
    if b"stss" not in tables:
        return np.ones(count, np.bool_)
    numbers = table(moov, tables, b"stss")[:, 0]
    _need(len(numbers) and numbers[0] == 1 and numbers[-1] <= count and (numbers[1:] > numbers[:-1]).all())
    flags = np.zeros(count, np.bool_)
    flags[numbers - 1] = True
    return flags
