"""What NVIDIA's parser reads of parameter sets, of streams as x264 and x265 write them."""

from __future__ import annotations

from framefeed.index.bitstream.bits import BitReader, unescape
from framefeed.index.bitstream.hevc import headers as hevc_headers
from framefeed.index.bitstream.nal import split_annex_b


def _h264_references(unit: bytes) -> int:
    """``max_num_ref_frames`` of a sequence parameter set as x264 writes them."""
    bits = BitReader(unescape(unit[1:]))
    high = bits.u(8) >= 100
    bits.skip(16)
    bits.ue()
    if high:
        if bits.ue() == 3:
            bits.skip(1)
        bits.ue()
        bits.ue()
        bits.skip(1)
        assert not bits.flag(), "scaling matrices"
    bits.ue()
    if bits.ue() == 0:
        bits.ue()
    return bits.ue()


def _hevc_references(unit: bytes) -> int:
    """``sps_max_dec_pic_buffering`` of a sequence parameter set as x265 writes them."""
    bits = BitReader(unescape(unit[2:]))
    bits.skip(4)
    sub_layers = bits.u(3)
    bits.skip(1)
    hevc_headers.skip_profile(bits, sub_layers)
    bits.ue()
    if bits.ue() == 3:
        bits.skip(1)
    bits.ue()
    bits.ue()
    if bits.flag():
        for _ in range(4):
            bits.ue()
    for _ in range(3):
        bits.ue()
    bits.skip(1)
    return bits.ue() + 1


def surfaces(codec: str, sps: bytes) -> int:
    """How many pictures a decoder must be able to keep: about what NVIDIA's parser was seen to say."""
    if codec == "h264":
        return max(5, _h264_references(sps) + 1)
    return max(8, _hevc_references(sps) + 3) if codec == "hevc" else 12


def _units(codec: str, content: bytes) -> list[tuple[int, bytes]]:
    """The units of a picture's data with their types."""
    return [(unit[0] & 31 if codec == "h264" else unit[0] >> 1 & 63, unit) for unit in split_annex_b(content)]


def sps(codec: str, content: bytes) -> bytes:
    """The sequence parameter set at the beginning of a picture's data; nothing where there is none."""
    if codec not in ("h264", "hevc"):
        return b""
    wanted = 7 if codec == "h264" else hevc_headers.SPS
    return next((unit for type_, unit in _units(codec, content[:2048]) if type_ == wanted), b"")


def has_picture(codec: str, content: bytes) -> bool:
    """Whether a slice is among the data."""
    if codec not in ("h264", "hevc"):
        return True
    slices = (1, 5) if codec == "h264" else range(22)
    return any(type_ in slices for type_, _ in _units(codec, content))
