"""Sample tables of MP4 and MOV files, read from the boxes alone.

FFmpeg's own index has the position, size and decoding time of samples, after edit lists, but no presentation times;
demuxing has them, but reads every byte of media. So the composition offsets are read here and joined with FFmpeg's
index by byte position. Fragmented files, which FFmpeg indexes only while reading them, are read entirely from their
``moof`` boxes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Read = Callable[[int, int], bytes]
"""``read(offset, length)``: reads bytes of the file; fewer only at its end."""

Table = NDArray[np.int64]
"""Numbers of a box, one row per entry."""

Boxes = dict[bytes, tuple[int, int]]
"""Start and end of the bodies of boxes, by kind."""

MAX_BOX = 1 << 30  # a moov of a gigabyte holds a hundred million samples; a larger one is damaged
MAX_SAMPLES = 1 << 28


class BoxError(ValueError):
    """The boxes contradict themselves or the file's size."""


@dataclass
class SampleTable:
    """Samples of one track in file order, before edit lists.

    Attributes:
        pos, size: Position and size of each sample.
        offset: Presentation minus decoding time.
        duration: Duration of each sample in decoding time.
        dts: Decoding time as written in the file.
        key: Sync sample flags (only filled for fragments).
    """

    pos: NDArray[np.int64]
    size: NDArray[np.int64]
    offset: NDArray[np.int64]
    duration: NDArray[np.int64]
    dts: NDArray[np.int64]
    key: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.pos)


@dataclass
class Track:
    """A track of a file: its samples, its display matrix, and whether it continues in fragments."""

    track_id: int
    matrix: tuple[int, ...]
    samples: SampleTable
    fragmented: bool


@dataclass
class _Defaults:
    """``trex`` values: defaults of a fragment."""

    duration: int = 0
    size: int = 0
    flags: int = 0


@dataclass
class _Fragments:
    """Runs of samples gathered from ``moof`` boxes."""

    pos: list[NDArray[np.int64]] = field(default_factory=list)
    size: list[NDArray[np.int64]] = field(default_factory=list)
    offset: list[NDArray[np.int64]] = field(default_factory=list)
    duration: list[NDArray[np.int64]] = field(default_factory=list)
    dts: list[NDArray[np.int64]] = field(default_factory=list)
    key: list[NDArray[np.bool_]] = field(default_factory=list)


def read_track(read: Read, file_size: int, track_id: int) -> Track | None:
    """Returns the track with that id, or None if the file is not an MP4 or MOV with such boxes.

    Args:
        read: Reads bytes of the file.
        file_size: Length of the file in bytes.
        track_id: FFmpeg's ``stream.id``.

    Raises:
        BoxError: The boxes are damaged.
    """
    moov: bytes | None = None
    moofs: list[tuple[int, int]] = []
    for kind, start, body, end in _top_level(read, file_size):
        if kind == b"moov" and moov is None:
            if end - body > MAX_BOX:
                raise BoxError(f"moov box of {end - body} bytes")
            moov = read(body, end - body)
        elif kind == b"moof":
            moofs.append((start, end - start))
    if moov is None:
        return None
    trak = _find_track(moov, track_id)
    if trak is None:
        return None
    matrix, stbl = trak
    samples = _sample_table(stbl, _children(stbl))
    defaults = _defaults(moov, track_id)
    if defaults is None and not moofs:
        return Track(track_id, matrix, samples, fragmented=False)
    fragments = _Fragments()
    next_dts = 0
    for start, length in moofs:
        if length > MAX_BOX:
            raise BoxError(f"moof box of {length} bytes")
        next_dts = _read_moof(read(start, length), start, track_id, defaults or _Defaults(), fragments, next_dts)
    return Track(track_id, matrix, _join(samples, fragments), fragmented=True)


def _join(samples: SampleTable, fragments: _Fragments) -> SampleTable:
    empty = np.empty(0, np.int64)
    return SampleTable(
        pos=np.concatenate([samples.pos, *fragments.pos, empty]),
        size=np.concatenate([samples.size, *fragments.size, empty]),
        offset=np.concatenate([samples.offset, *fragments.offset, empty]),
        duration=np.concatenate([samples.duration, *fragments.duration, empty]),
        dts=np.concatenate([samples.dts, *fragments.dts, empty]),
        key=np.concatenate([samples.key, *fragments.key, np.empty(0, np.bool_)]),
    )


def _top_level(read: Read, file_size: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Yields (kind, start, body start, end) of the top-level boxes."""
    position = 0
    while position + 8 <= file_size:
        head = read(position, 16)
        if len(head) < 8:
            return
        size, kind = struct.unpack_from(">I4s", head)
        body = position + 8
        if size == 1 and len(head) == 16:
            size = struct.unpack_from(">Q", head, 8)[0]
            body = position + 16
        elif size == 0:
            size = file_size - position
        if size < body - position:
            return
        yield kind, position, body, min(position + size, file_size)
        position += size


def _boxes(data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[bytes, int, int]]:
    """Yields (kind, body start, end) of the boxes inside a box that is in memory."""
    end = len(data) if end is None else end
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        body = start + 8
        if size == 1 and start + 16 <= end:
            size = struct.unpack_from(">Q", data, start + 8)[0]
            body = start + 16
        elif size == 0:
            size = end - start
        if size < body - start or start + size > end:
            return
        yield kind, body, start + size
        start += size


def _child(data: bytes, kind: bytes, start: int, end: int) -> tuple[int, int] | None:
    return next(((a, b) for name, a, b in _boxes(data, start, end) if name == kind), None)


def _children(data: bytes) -> Boxes:
    """Returns boxes in a range by kind; the first one of each kind."""
    found: Boxes = {}
    for kind, body, end in _boxes(data):
        found.setdefault(kind, (body, end))
    return found


def _find_track(moov: bytes, track_id: int) -> tuple[tuple[int, ...], bytes] | None:
    for kind, start, end in _boxes(moov):
        if kind != b"trak":
            continue
        tkhd = _child(moov, b"tkhd", start, end)
        if tkhd is None or tkhd[1] - tkhd[0] < 84:
            continue
        at = tkhd[0]
        wide = moov[at] == 1
        if struct.unpack_from(">I", moov, at + (20 if wide else 12))[0] != track_id:
            continue
        matrix_at = at + (52 if wide else 40)
        if matrix_at + 36 > tkhd[1]:
            continue
        matrix = struct.unpack_from(">9i", moov, matrix_at)
        box: tuple[int, int] | None = (start, end)
        for name in (b"mdia", b"minf", b"stbl"):
            box = _child(moov, name, *box) if box else None
        if box is None:
            return None
        return matrix, moov[box[0] : box[1]]
    return None


def table(data: bytes, boxes: Boxes, kind: bytes, entry: str = ">u4", *, columns: int = 1, header: int = 8) -> Table:
    """Returns the entries of a full box, one row each, starting at their 32-bit count; empty if there is no such box.

    Args:
        data: Bytes that hold the boxes.
        boxes: Positions of the boxes.
        kind: Kind of the box.
        entry: NumPy type of each number.
        columns: Numbers per entry.
        header: Bytes before the entries.

    Raises:
        BoxError: The box claims more entries than it holds.
    """
    start, end = boxes.get(kind, (0, 0))
    if end - start < header:
        return np.empty((0, columns), np.int64)
    count = int.from_bytes(data[start + header - 4 : start + header], "big")
    dtype = np.dtype(entry)
    if count * columns * dtype.itemsize > end - start - header:
        raise BoxError(f"{kind.decode()} box claims {count} entries and holds fewer")
    entries = np.frombuffer(data, dtype, count * columns, start + header)
    return entries.astype(np.int64).reshape(count, columns)


def _sample_table(data: bytes, boxes: Boxes) -> SampleTable:
    """Returns the samples of an ``stbl`` box; positions are -1 if it has none."""
    sizes = _sample_sizes(data, boxes)
    count = len(sizes)
    chunks, runs = chunk_offsets(data, boxes), table(data, boxes, b"stsc", columns=3)
    pos: NDArray[np.int64] = np.full(count, -1, np.int64)
    if len(chunks) and len(runs) and count:
        pos = place_samples(chunks, samples_per_chunk(len(chunks), runs), sizes)
    duration = spread(table(data, boxes, b"stts", columns=2), count)
    return SampleTable(
        pos=pos,
        size=sizes,
        offset=spread(table(data, boxes, b"ctts", ">i4", columns=2), count),
        duration=duration,
        dts=duration.cumsum() - duration,
        key=np.ones(count, np.bool_),
    )


def _sample_sizes(data: bytes, boxes: Boxes) -> NDArray[np.int64]:
    start, end = boxes.get(b"stsz", (0, 0))
    if end - start < 12:
        return np.empty(0, np.int64)  # stz2 is for audio in practice; leave it to FFmpeg's index
    fixed, count = struct.unpack_from(">II", data, start + 4)
    if count > MAX_SAMPLES:
        raise BoxError(f"stsz box claims {count} samples")
    if fixed:
        return np.full(count, fixed, np.int64)
    return table(data, boxes, b"stsz", header=12)[:, 0]


def chunk_offsets(data: bytes, boxes: Boxes) -> NDArray[np.int64]:
    """Returns the positions of the chunks of an ``stbl`` box."""
    return (table(data, boxes, b"co64", ">u8") if b"co64" in boxes else table(data, boxes, b"stco"))[:, 0]


def samples_per_chunk(chunk_count: int, runs: Table) -> NDArray[np.int64]:
    """Returns the entries of ``stsc``, expanded to one per chunk."""
    first = runs[:, 0]
    lengths = np.append(first[1:], chunk_count + 1) - first
    if lengths.min() < 0:
        raise BoxError("stsc box is out of order")
    return np.repeat(runs[:, 1], lengths)


def place_samples(
    chunks: NDArray[np.int64], per_chunk: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the positions of samples with these sizes."""
    behind = per_chunk.cumsum()
    placed, count = int(behind[-1]) if len(behind) else 0, len(sizes)
    if placed < count:
        raise BoxError(f"stsc box places {placed} samples of {count}")
    before = sizes.cumsum() - sizes
    first = np.minimum(behind - per_chunk, count - 1)
    lengths = np.clip(count - first, 0, per_chunk) if placed > count else per_chunk  # limited before they are expanded
    position: NDArray[np.int64] = before + np.repeat(chunks[: len(per_chunk)] - before[first], lengths)[:count]
    return position


def spread(runs: Table, count: int) -> NDArray[np.int64]:
    """Expands run-length coded values of ``stts`` and ``ctts`` to one per sample."""
    if len(runs) == 1 and runs[0, 0] == count:
        return np.full(count, runs[0, 1])
    lengths = np.minimum(runs[:, 0], count)
    total = int(lengths.sum())
    # damaged run lengths may add up to far more than there are samples: limit them before they are expanded
    if total > count:
        lengths = np.clip(count - (np.cumsum(lengths) - lengths), 0, lengths)
    values = np.repeat(runs[:, 1], lengths)
    return values if total >= count else np.concatenate([values, np.zeros(count - total, np.int64)])


def _defaults(moov: bytes, track_id: int) -> _Defaults | None:
    mvex = _child(moov, b"mvex", 0, len(moov))
    if mvex is None:
        return None
    for kind, start, end in _boxes(moov, *mvex):
        if kind == b"trex" and end - start >= 24:
            track, _, duration, size, flags = struct.unpack_from(">5I", moov, start + 4)
            if track == track_id:
                return _Defaults(duration, size, flags)
    return _Defaults()


def _read_moof(moof: bytes, moof_start: int, track_id: int, trex: _Defaults, out: _Fragments, next_dts: int) -> int:
    """Adds a fragment's samples of one track to ``out``; returns the decoding time behind them."""
    body = next(((a, b) for name, a, b in _boxes(moof) if name == b"moof"), None)
    if body is None:
        raise BoxError(f"moof box at byte {moof_start} is cut")
    data_end = moof_start
    for kind, start, end in _boxes(moof, *body):
        if kind != b"traf":
            continue
        tfhd = _child(moof, b"tfhd", start, end)
        if tfhd is None or tfhd[1] - tfhd[0] < 8:
            raise BoxError(f"moof box at byte {moof_start} lacks a tfhd box")
        defaults, track, base = _track_header(moof, tfhd[0], trex, moof_start)
        if base is None:
            base = data_end  # the old rule: directly behind the previous track's data of this fragment
        position = base
        tfdt = _child(moof, b"tfdt", start, end)
        if track == track_id and tfdt is not None:
            next_dts = struct.unpack_from(">Q" if moof[tfdt[0]] == 1 else ">I", moof, tfdt[0] + 4)[0]
        for name, run, run_end in _boxes(moof, start, end):
            if name != b"trun":
                continue
            samples, position = _track_run(moof, run, run_end, defaults, base, position, next_dts)
            if track == track_id and len(samples):
                for values, column in zip(
                    (samples.pos, samples.size, samples.offset, samples.duration, samples.dts),
                    (out.pos, out.size, out.offset, out.duration, out.dts),
                    strict=True,
                ):
                    column.append(values)
                out.key.append(samples.key)
                next_dts = int(samples.dts[-1] + samples.duration[-1])
        data_end = position
    return next_dts


def _track_header(moof: bytes, at: int, trex: _Defaults, moof_start: int) -> tuple[_Defaults, int, int | None]:
    """Reads a ``tfhd``: the fragment's defaults, the track, and the base of its data offsets."""
    flags = struct.unpack_from(">I", moof, at)[0] & 0xFFFFFF
    track = struct.unpack_from(">I", moof, at + 4)[0]
    at += 8
    base: int | None = moof_start if flags & 0x20000 else None
    if flags & 0x1:
        base = struct.unpack_from(">Q", moof, at)[0]
        at += 8
    at += 4 if flags & 0x2 else 0
    values = [trex.duration, trex.size, trex.flags]
    for number, bit in enumerate((0x8, 0x10, 0x20)):
        if flags & bit:
            values[number] = struct.unpack_from(">I", moof, at)[0]
            at += 4
    return _Defaults(*values), track, base


def _track_run(
    moof: bytes, at: int, end: int, defaults: _Defaults, base: int, position: int, dts: int
) -> tuple[SampleTable, int]:
    """Reads a ``trun``: the samples of one run, and the position behind the last one."""
    flags = struct.unpack_from(">I", moof, at)[0] & 0xFFFFFF
    count = struct.unpack_from(">I", moof, at + 4)[0]
    at += 8
    if flags & 0x1:
        position = base + struct.unpack_from(">i", moof, at)[0]
        at += 4
    first_flags: int | None = None
    if flags & 0x4:
        first_flags = struct.unpack_from(">I", moof, at)[0]
        at += 4
    columns = [name for name, bit in (("d", 0x100), ("s", 0x200), ("f", 0x400), ("o", 0x800)) if flags & bit]
    if count > MAX_SAMPLES or count * 4 * len(columns) > end - at:
        raise BoxError(f"trun box claims {count} samples and holds fewer")
    rows = np.frombuffer(moof, ">i4", count * len(columns), at).reshape(count, len(columns)).astype(np.int64)
    row = {name: rows[:, number] for number, name in enumerate(columns)}
    size = row.get("s", np.full(count, defaults.size, np.int64)) & 0xFFFFFFFF
    duration = row.get("d", np.full(count, defaults.duration, np.int64)) & 0xFFFFFFFF
    sample_flags = row.get("f", np.full(count, defaults.flags, np.int64)).copy()
    if first_flags is not None and count:
        sample_flags[0] = first_flags
    ends = position + np.cumsum(size)
    times = dts + np.concatenate([[0], np.cumsum(duration)])[:count]
    # 0x10000 is "not a sync sample", 0x1000000 "depends on others": either rules out a key frame.
    key = (sample_flags & 0x01010000) == 0
    samples = SampleTable(ends - size, size, row.get("o", np.zeros(count, np.int64)), duration, times, key)
    return samples, int(ends[-1]) if count else position
