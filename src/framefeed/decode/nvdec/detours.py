"""Pictures that make a hardware decoder change its size.

PyNvVideoCodec configures a decoder anew only where the coded size changes. Where something else has to change, a
picture of another size in between does it, in a small part of the time that a new decoder takes.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Detour", "find_detour"]


class Detour(NamedTuple):
    """A stream of one gray picture.

    Attributes:
        side: Its width and its height, as it is coded and as it is shown.
        content: With start codes and parameter sets.
    """

    side: int
    content: bytes


# Two of each kind, should a video have the same size. The sides are more than the least that hardware takes, which is
# 144 for HEVC. Encoded by x264 (profile baseline) and x265 (main, main 10) with a quantiser of 51, one reference frame
# and no B-frames; without the encoders' own messages.
_DETOURS = {
    ("h264", "420", 8): (
        Detour(
            160,
            bytes.fromhex(
                "0000016742c01eda0a15a1000003000100000300320f162ea000000168ce0194b20000016588843f27272727272727272727"
                "5d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75"
                "d75d75d75d75d75d75d75d75d75d75d75d78"
            ),
        ),
        Detour(
            176,
            bytes.fromhex(
                "0000016742c01eda0b17a1000003000100000300320f162ea000000168ce0194b20000016588843f27272727272727272727"
                "275d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d"
                "75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d75d78"
            ),
        ),
    ),
    ("hevc", "420", 8): (
        Detour(
            160,
            bytes.fromhex(
                "00000140010c01ffff01600000030090000003000003003cba024000000142010101600000030090000003000003003ca014"
                "2028596ea4930b9a0200000300020000030032100000014401c171a3120000012801ac165bb6b23db809969000000300b580"
                "0048c0"
            ),
        ),
        Detour(
            176,
            bytes.fromhex(
                "00000140010c01ffff01600000030090000003000003003cba024000000142010101600000030090000003000003003ca016"
                "202c596ea4930b9a0200000300020000030032100000014401c171a3120000012801ac165bdab23db80980071c0000030000"
                "f180000003000232"
            ),
        ),
    ),
    ("hevc", "420", 10): (
        Detour(
            160,
            bytes.fromhex(
                "00000140010c01ffff02200000030090000003000003003cba024000000142010102200000030090000003000003003ca014"
                "20284d96ea4930b9a020000003002000000303210000014401c171a3120000012801ac165bb6b23db809969000000300b580"
                "0048c0"
            ),
        ),
        Detour(
            176,
            bytes.fromhex(
                "00000140010c01ffff02200000030090000003000003003cba024000000142010102200000030090000003000003003ca016"
                "202c4d96ea4930b9a020000003002000000303210000014401c171a3120000012801ac165bdab23db80980071c0000030000"
                "f180000003000232"
            ),
        ),
    ),
}


def find_detour(codec: str, chroma: str, bits: int, size: tuple[int, int]) -> Detour | None:
    """A picture that is not coded in a given size; None where there is none of that kind.

    Args:
        codec: FFmpeg's name of it.
        chroma: ``"420"``, for example.
        bits: Of each sample.
        size: Width and height.
    """
    detours = _DETOURS.get((codec, chroma, bits), ())
    return next((detour for detour in detours if (detour.side, detour.side) != size), None)
