"""MSB-first bit readers, of one header and of many at once, and the removal of emulation prevention bytes."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WORD = 8
"""Bytes read of each header."""


# Length of the Exp-Golomb code at the start of each byte; 0 if it is longer than the byte.
_LENGTHS = np.array([code if (code := 2 * (8 - byte.bit_length()) + 1) <= 8 else 0 for byte in range(256)], np.uint64)

# Subtracting 1 sets the highest bit of a zero byte, which was clear before: this detects exactly whether there is one.
_ONES, _HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)


class Part(NamedTuple):
    """The visible part of coded pictures, in pixels."""

    left: int
    top: int
    width: int
    height: int


class OutOfData(ValueError):
    """The bytes end too early or contradict the syntax; the packet then gets no flags."""


class BitReader:
    """Reads bits of a short byte string, most significant bit first.

    The string is kept as one integer: for the few dozen bytes of a header that is faster in Python than bookkeeping by
    bytes.
    """

    __slots__ = ("_left", "_value")

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = 8 * len(data)

    def u(self, count: int) -> int:
        """Returns the next ``count`` bits as an unsigned number."""
        self._left -= count
        if self._left < 0:
            raise OutOfData("out of bits")
        return (self._value >> self._left) & ((1 << count) - 1)

    def ahead(self, count: int) -> int:
        """Returns the next ``count`` bits without consuming them; zeros behind the end."""
        return (self._value << count >> self._left) & ((1 << count) - 1)

    def flag(self) -> bool:
        """Returns the next bit."""
        return self.u(1) == 1

    def skip(self, count: int) -> None:
        """Skips ``count`` bits."""
        self._left -= count
        if self._left < 0:
            raise OutOfData("out of bits")

    def ue(self) -> int:
        """Returns an unsigned Exp-Golomb code."""
        rest = self._value & ((1 << self._left) - 1)
        zeros = self._left - rest.bit_length()
        if zeros > 32:
            raise OutOfData("Exp-Golomb code too long")
        self._left -= 2 * zeros + 1
        if self._left < 0:
            raise OutOfData("out of bits")
        return (rest >> self._left) - 1

    def se(self) -> int:
        """Returns a signed Exp-Golomb code."""
        code = self.ue()
        return (code + 1) // 2 if code & 1 else -(code // 2)

    def at_stop_bit(self) -> bool:
        """Returns whether only the stop bit of a parameter set and its zero padding are left."""
        return 1 <= self._left <= 8 and self._value & ((1 << self._left) - 1) == 1 << (self._left - 1)


def unescape(data: bytes) -> bytes:
    """Removes the emulation prevention bytes of an H.264 or HEVC NAL unit (``00 00 03`` -> ``00 00``)."""
    return data.replace(b"\0\0\3", b"\0\0")


class BitColumns:
    """Reads the same fields of many headers, most significant bit first.

    Args:
        data: Bytes that hold the headers, in one piece.
        at: Offset of each header.

    Attributes:
        unclear: Headers to read one by one: a code is too long, there is an emulation prevention byte among the first
            bytes, or the data ends there.
    """

    def __init__(self, data: NDArray[np.uint8], at: NDArray[np.int64]) -> None:
        last = len(data) - WORD
        words: NDArray[np.uint64] = np.ndarray(last + 1, ">u8", data, strides=(1,))
        self._left = words[np.minimum(at, last)].astype(np.uint64)
        self.unclear = at > last
        with_zeros = ((self._left - _ONES) & ~self._left & _HIGH_BITS).nonzero()[0]
        words = self._left[with_zeros]
        for shift in range(0, 8 * (WORD - 2), 8):
            self.unclear[with_zeros] |= (words >> np.uint64(shift) & np.uint64(0xFFFFFF)) == 3

    @property
    def left(self) -> NDArray[np.uint64]:
        """Remaining bytes, padded with zeros."""
        return self._left

    def skip(self, count: int | NDArray[np.uint64]) -> None:
        """Skips ``count`` bits."""
        self._left <<= np.asarray(count, np.uint64)

    def u(self, count: int) -> NDArray[np.int64]:
        """Returns the next ``count`` bits as unsigned numbers; at least one."""
        value = (self._left >> np.uint64(64 - count)).astype(np.int64)
        self.skip(count)
        return value

    def skip_ue(self) -> None:
        """Skips an unsigned Exp-Golomb code."""
        length = _LENGTHS[(self._left >> np.uint64(56)).astype(np.intp)]
        self.unclear |= length == 0
        self.skip(length)
