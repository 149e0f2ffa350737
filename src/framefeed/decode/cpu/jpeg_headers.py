"""Headers of JPEG packets: whether a picture has its own tables, and what a decoder remembers of it.

FFmpeg keeps the tables of a packet for those that follow. Where damage hides a table, a linear decode takes that of
the packet before, and a decoder that begins there takes none.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["MissingTables", "remembered_of"]

_DHT, _DQT, _SOS, _EOI = 0xC4, 0xDB, 0xDA, 0xD9
_WITH_TABLES = frozenset((0xC0, 0xC1, 0xC2))  # baseline, extended and progressive pictures
_WITHOUT_LENGTH = frozenset((0x01, 0xD8, *range(0xD0, 0xD8)))
_INTERVAL = 0xDD  # of restarts; forgotten at the beginning of a picture


class MissingTables(Exception):
    """A picture needs tables that its packet does not define."""


class _Found(NamedTuple):
    quantisers: set[int]
    codes: set[int]
    """Huffman tables: class and number."""
    other: list[bytes]
    """Segments that define no table."""


def remembered_of(data: bytes | memoryview) -> object:
    """Returns what a decoder remembers of a packet besides its tables, and whether it has Huffman tables of its own.

    Cameras may leave out Huffman tables, which then are the usual ones: those that a new decoder has.

    Raises:
        MissingTables: The picture needs others.
    """
    packet = bytes(data)
    found = _Found(set(), set(), [])
    used: list[int] = []
    at = max(0, packet.find(b"\xff\xd8"))
    in_one_piece = True
    while True:
        begin = at
        at = packet.find(b"\xff", at)
        if at < 0 or at + 4 > len(packet):
            break
        in_one_piece &= at == begin
        marker = packet[at + 1]
        at += 1 if marker == 0xFF else 2
        if marker in _WITHOUT_LENGTH or marker in (0, 0xFF):
            continue
        if marker == _EOI:
            break
        end = at + int.from_bytes(packet[at : at + 2], "big")
        body = packet[at + 2 : end]
        if marker == _SOS:
            if used:
                _check(found, used, body, in_one_piece)
            break
        if marker == _DQT:
            found.quantisers.update(_quantisers(body))
        elif marker == _DHT:
            found.codes.update(_codes(body) or ())
        elif marker in _WITH_TABLES:
            used = list(body[8 : 6 + 3 * body[5] : 3]) if len(body) > 5 else []
        elif marker != _INTERVAL:
            found.other.append(packet[at - 1 : end])
        at = end
    return bool(found.codes), tuple(found.other)


def _check(found: _Found, used: list[int], scan: bytes, in_one_piece: bool) -> None:
    if not found.quantisers.issuperset(used):
        raise MissingTables("it lacks its quantisation tables")
    needed = {code for pair in scan[2 : 1 + 2 * scan[0] : 2] for code in (pair >> 4, 16 | pair & 15)} if scan else set()
    if found.codes:
        lacks = not found.codes & {code for code in needed if code < 16}
    else:
        lacks = not in_one_piece or any(_codes(segment[3:]) for segment in found.other)
    if lacks:
        raise MissingTables("it lacks its Huffman tables")


def _quantisers(body: bytes) -> list[int]:
    """The numbers of the tables that a segment defines."""
    found, at = [], 0
    while at < len(body):
        found.append(body[at] & 15)
        at += 65 if body[at] < 16 else 129
    return found if at == len(body) else found[:-1]


def _codes(body: bytes) -> list[int] | None:
    """Class and number of the Huffman tables that a segment defines; None where it does not read like one."""
    found, at = [], 0
    while at + 17 <= len(body):
        found.append(body[at])
        at += 17 + sum(body[at + 1 : at + 17])
    return found if found and at == len(body) else None
