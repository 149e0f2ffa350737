"""Flags of compressed packets: random access, references, hidden pictures.

Pure functions of bytes. One file or folder per codec; `make_classifier` chooses. Packets that cannot be parsed get no
flags: a missing flag costs time, a wrong flag costs a wrong frame.
"""

from framefeed.index.bitstream.av1 import Av1Classifier
from framefeed.index.bitstream.gaps import NO_GAPS, Gaps
from framefeed.index.bitstream.h264.classifier import H264Classifier, may_have_fields
from framefeed.index.bitstream.hevc.classifier import HevcClassifier, block_size, has_several_slices, nal_length_size
from framefeed.index.bitstream.kinds import HEAD, Classification, Classifier, PacketKind, Read
from framefeed.index.bitstream.mpeg4 import Mpeg4Classifier, has_known_faults
from framefeed.index.bitstream.mpeg12 import Mpeg12Classifier
from framefeed.index.bitstream.vp8 import Vp8Classifier
from framefeed.index.bitstream.vp9 import Vp9Classifier

__all__ = [
    "HEAD",
    "NO_GAPS",
    "Classification",
    "Classifier",
    "Gaps",
    "PacketKind",
    "Read",
    "block_size",
    "has_known_faults",
    "has_several_slices",
    "make_classifier",
    "may_have_fields",
    "nal_length_size",
]


def make_classifier(codec: str, extradata: bytes) -> Classifier | None:
    """Returns a new classifier for one stream.

    Args:
        codec: FFmpeg's name of the codec, e.g. ``"h264"``.
        extradata: The stream's codec configuration as FFmpeg gives it; may be empty.

    Returns:
        The classifier, or None for a codec without one.
    """
    match codec:
        case "h264":
            return H264Classifier(extradata)
        case "hevc":
            return HevcClassifier(extradata)
        case "vp8":
            return Vp8Classifier()
        case "vp9":
            return Vp9Classifier()
        case "av1":
            return Av1Classifier(extradata)
        case "mpeg1video" | "mpeg2video":
            return Mpeg12Classifier(extradata)
        case "mpeg4":
            return Mpeg4Classifier(extradata)
        case _:
            return None
