"""Values shared by all classifiers: packet flags, their container, and the protocol."""

import enum
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream.gaps import Gaps

HEAD = 64
"""Bytes of each packet passed up front: one cache line, enough for nearly all packets."""

Read: TypeAlias = Callable[[int, int, int], bytes]
"""``read(i, offset, length)``: further bytes of packet ``i`` of the current call; fewer at the packet's end."""


class PacketKind(enum.IntFlag):
    """Flags of a packet. A missing flag means "unknown", never "known to be false"."""

    RAP = 1
    """Decoding may start here: all frames presented at or after it and decoded after it are exact."""
    CLOSED = 2
    """No packet behind it in decode order refers to anything before it."""
    NONREF = 4
    """No other packet depends on this one: leaving it out changes no bit of any other frame."""
    HIDDEN = 8
    """The packet shows no picture at all."""
    RASL = 16
    """HEVC random-access skipped leading picture: lost if decoding starts at the IRAP before it."""
    RADL = 32
    """HEVC random-access decodable leading picture."""
    SECOND_FIELD = 64
    """Second field of a picture whose first field is the packet before."""
    INTRA = 128
    """Only intra slices, judging by the first slice."""
    GRADUAL = 256
    """H.264 recovery point that needs more than one frame (intra refresh)."""
    MULTIPLE = 512
    """The packet shows more than one picture."""
    NEW_HEADERS = 1024
    """Carries parameter sets or a sequence header other than those active before."""
    INCOMPLETE = 2048
    """Packets near it are missing from the stream; its picture was compared with a linear decode."""
    LOST = 4096
    """Its picture cannot be decoded from the random-access point before it, because packets are missing."""


class Classification(NamedTuple):
    """Flags of the packets of one call.

    Attributes:
        kinds: `PacketKind` bits, one a packet.
        recovery: H.264 ``recovery_frame_cnt`` where `PacketKind.GRADUAL` is set, else 0.
    """

    kinds: NDArray[np.uint16]
    recovery: NDArray[np.int32]


class Classifier(Protocol):
    """Classifies the packets of one stream, chunk after chunk in decode order."""

    def classify(self, heads: NDArray[np.uint8], sizes: NDArray[np.int64], read: Read) -> Classification:
        """Classifies the next packets of the stream.

        Args:
            heads: ``(n, HEAD)``: the first bytes of each packet, zero padded.
            sizes: The packets' real sizes in bytes.
            read: Gives further bytes of a packet of this call.
        """
        ...

    def gaps(self) -> Gaps:
        """Returns the gaps between all packets so far, by the numbers in their headers."""
        ...
