"""An MSB-first bit reader with Exp-Golomb codes, and the removal of emulation prevention bytes."""

from typing import NamedTuple


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
