"""Bits of many headers at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.bits import BitReader, OutOfData

WORD = 8
"""Bytes of each header that are looked at."""


def _codes() -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Value and length of the Exp-Golomb code that each byte begins with; length 0 where it is longer than the byte."""
    values, lengths = np.zeros(256, np.int64), np.zeros(256, np.uint64)
    for byte in range(256):
        try:
            values[byte] = BitReader(bytes((byte,))).ue()
            lengths[byte] = 2 * (8 - byte.bit_length()) + 1
        except OutOfData:
            continue
    return values, lengths


_VALUES, _LENGTHS = _codes()


class BitColumns:
    """Reads the same fields of many headers, most significant bit first.

    Args:
        data: Bytes that hold the headers, in one piece.
        at: Where each header begins.

    Attributes:
        unclear: Headers that have to be read one by one: a code is too long, a byte of emulation prevention is among
            the first bytes, or the data ends there.
    """

    def __init__(self, data: NDArray[np.uint8], at: NDArray[np.int64]) -> None:
        last = len(data) - WORD
        words: NDArray[np.uint64] = np.ndarray(last + 1, ">u8", data, strides=(1,))
        self._left = words[np.minimum(at, last)].astype(np.uint64)
        self.unclear = at > last
        for shift in range(0, 8 * (WORD - 2), 8):
            self.unclear |= (self._left >> np.uint64(shift) & np.uint64(0xFFFFFF)) == 3

    def skip(self, count: int | NDArray[np.uint64]) -> None:
        """Pass over ``count`` bits."""
        self._left <<= np.asarray(count, np.uint64)

    def u(self, count: int) -> NDArray[np.int64]:
        """The next ``count`` bits as unsigned numbers; at least one."""
        value = (self._left >> np.uint64(64 - count)).astype(np.int64)
        self.skip(count)
        return value

    def ue(self) -> NDArray[np.int64]:
        """Unsigned Exp-Golomb codes."""
        byte = (self._left >> np.uint64(56)).astype(np.intp)
        length = _LENGTHS[byte]
        self.unclear |= length == 0
        self.skip(length)
        return _VALUES[byte]
