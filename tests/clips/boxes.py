"""Editing the boxes of an MP4 file: what no muxer writes is patched in."""

import struct
from collections.abc import Callable
from typing import Any

HEADER = 8  # 32-bit size and four characters
_CONTAINERS = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts")


def find_box(data: bytes | bytearray, path: str, track: int = 0) -> tuple[int, int]:
    """Start and end of a box such as ``"moov/trak/mdia/mdhd"``; ``track`` chooses among the ``trak`` boxes."""
    start, end = 0, len(data)
    for name in path.split("/"):
        start, end = _child(data, start, end, name.encode(), track if name == "trak" else 0)
        if name.encode() in _CONTAINERS and not path.endswith(name):
            start += HEADER
    return start, end


def _child(data: bytes | bytearray, start: int, end: int, name: bytes, nth: int) -> tuple[int, int]:
    while start + HEADER <= end:
        size, kind = struct.unpack_from(">I4s", data, start)
        size = size or end - start
        if kind == name:
            if nth == 0:
                return start, start + size
            nth -= 1
        start += size
    raise ValueError(f"no box {name!r} here")


def box(name: str, payload: bytes) -> bytes:
    """A box with its header."""
    return struct.pack(">I4s", HEADER + len(payload), name.encode()) + payload


def edit_box(data: bytes, path: str, edit: Callable[[bytes], bytes], track: int = 0) -> bytes:
    """Replaces a box's payload and corrects the sizes of the boxes around it.

    The index must lie behind the media data (as it does without faststart), or its offsets would become wrong.
    """
    start, end = find_box(data, path, track)
    payload = edit(data[start + HEADER : end])
    changed = bytearray(data[:start] + box(path.rsplit("/", 1)[-1], payload) + data[end:])
    growth = len(payload) - (end - start - HEADER)
    steps = path.split("/")
    for depth in range(1, len(steps)):
        outer, _ = find_box(data, "/".join(steps[:depth]), track)
        (size,) = struct.unpack_from(">I", changed, outer)
        struct.pack_into(">I", changed, outer, size + growth)
    return bytes(changed)


def edit_list(*edits: tuple[int, int]) -> bytes:
    """Payload of an ``elst`` box: (duration in the movie's time scale, media time or -1 for an empty edit)."""
    rows = (struct.pack(">IiHH", duration, media_time, 1, 0) for duration, media_time in edits)
    return struct.pack(">II", 0, len(edits)) + b"".join(rows)


Tree = list[list[Any]]
"""Boxes as pairs of kind and content, which is bytes or a tree."""

_TREES = frozenset((b"moov", b"trak", b"mdia", b"minf", b"stbl", b"dinf", b"edts", b"mvex", b"moof", b"traf", b"udta"))


def parse(data: bytes) -> Tree:
    """The boxes of a file."""
    found: Tree = []
    at = 0
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + HEADER : at + size]
        found.append([kind, parse(content) if kind in _TREES else content])
        at += size
    return found


def build(tree: Tree) -> bytes:
    """The file of these boxes."""
    contents = ((kind, build(content) if isinstance(content, list) else content) for kind, content in tree)
    return b"".join(struct.pack(">I4s", HEADER + len(content), kind) + content for kind, content in contents)


def find(tree: Tree, *path: bytes) -> list[Any]:
    """The first box on a path."""
    box = next(box for box in tree if box[0] == path[0])
    return find(box[1], *path[1:]) if len(path) > 1 else box
