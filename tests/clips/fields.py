"""A tiny H.264 writer for what x264 does not write: pictures that are single fields (PAFF).

Macroblocks are sent as plain samples (I_PCM) or skipped, so there is no transform and no entropy coding to speak of.
"""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from framefeed.testing import samples

WIDTH, HEIGHT, FRAMES, GOP = 64, 64, 24, 8
_PCM_IN_I, _PCM_IN_P = 25, 30  # mb_type of I_PCM in the two sorts of slices


class BitWriter:
    """Bits, most significant first, with the codes of H.264."""

    def __init__(self) -> None:
        self._bits: list[str] = []
        self._length = 0

    def fixed(self, value: int, length: int) -> "BitWriter":
        self._bits.append(f"{value:0{length}b}")
        self._length += length
        return self

    def golomb(self, *values: int) -> "BitWriter":
        """ue(v), and se(v) for the value 0."""
        for value in values:
            self.fixed(value + 1, 2 * (value + 1).bit_length() - 1)
        return self

    def align(self) -> "BitWriter":
        return self.fixed(0, padding) if (padding := -self._length % 8) else self

    def samples(self, values: npt.NDArray[np.uint8]) -> "BitWriter":
        self._bits.extend(f"{value:08b}" for value in values.ravel().tolist())
        self._length += 8 * values.size
        return self

    def unit(self, header: int) -> bytes:
        """The finished NAL unit with start code and emulation prevention."""
        self.fixed(1, 1).align()
        payload = int("".join(self._bits), 2).to_bytes(self._length // 8, "big")
        body = bytearray([header])
        for byte in payload:
            if byte <= 3 and body[-2:] == b"\x00\x00":
                body.append(3)
            body.append(byte)
        return b"\x00\x00\x00\x01" + bytes(body)


def parameter_sets(width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """SPS and PPS; nothing checks that the slices have this size."""
    sequence = BitWriter().fixed(77, 8).fixed(0, 8).fixed(30, 8)  # Main profile, level 3
    sequence.golomb(0, 0, 0, 4, 1).fixed(0, 1)  # id, 4 bits of frame_num, POC type 0 with 8 bits, one reference frame
    sequence.golomb(width // 16 - 1, height // 32 - 1)
    sequence.fixed(0b00100, 5)  # fields allowed, no MBAFF, direct_8x8, no cropping, no VUI
    picture = BitWriter().golomb(0, 0).fixed(0b00, 2).golomb(0, 0, 0).fixed(0b000, 3).golomb(0, 0, 0).fixed(0b100, 3)
    return sequence.unit(0x67) + picture.unit(0x68)


def _slice_header(place: int, bottom: int) -> tuple[BitWriter, bool, bool]:
    """Returns the slice so far, whether it is an IDR picture, and whether its macroblocks are predicted."""
    since_key = place % GOP
    idr = since_key == 0 and not bottom  # the second field of an IDR frame is predicted from the first
    predicted = not idr
    bits = BitWriter().golomb(0, 5 if predicted else 7, 0)
    bits.fixed(since_key, 4).fixed(1, 1).fixed(bottom, 1)
    if idr:
        bits.golomb(place // GOP % 2)
    bits.fixed(2 * since_key + bottom, 8)
    bits.fixed(0b00, 2)  # P: default reference list; IDR: reference marking
    if predicted:
        bits.fixed(0, 1)  # sliding-window marking
    return bits.golomb(0, 1), idr, predicted  # no change of QP, no deblocking


def field_picture(place: int, bottom: int) -> bytes:
    """One field. Predicted ones send the macroblocks of the painted number and skip those below."""
    bits, idr, predicted = _slice_header(place, bottom)
    planes = [plane[bottom::2] for plane in samples.paint(place, WIDTH, HEIGHT)]
    across, down = WIDTH // 16, HEIGHT // 32
    for row, col in np.ndindex(1 if predicted else down, across):
        if predicted:
            bits.golomb(0)  # nothing skipped before this one
        bits.golomb(_PCM_IN_P if predicted else _PCM_IN_I).align()
        for plane, size in zip(planes, (16, 8, 8), strict=True):
            bits.samples(plane[row * size : (row + 1) * size, col * size : (col + 1) * size])
    if predicted:
        bits.golomb(across * (down - 1))
    return bits.unit(0x65 if idr else 0x61)


def write_field_pictures(folder: Path, name: str) -> Path:
    """Writes a raw stream, or one packet a field where the suffix names a container."""
    target = folder / name
    headers = parameter_sets()
    fields = [field_picture(place, bottom) for place in range(FRAMES) for bottom in (0, 1)]
    units = [headers + data if number % (2 * GOP) == 0 else data for number, data in enumerate(fields)]
    raw = target.with_suffix(".h264")
    if raw != target:
        raw = target.with_name(f".{target.stem}.h264")
    raw.write_bytes(b"".join(units))
    if raw != target:
        _mux_fields(raw, target, units)
        raw.unlink()
    return target


def _mux_fields(raw: Path, target: Path, units: list[bytes]) -> None:
    with av.open(raw) as template, av.open(target, "w") as container:
        stream = container.add_stream_from_template(template.streams.video[0])
        for number, unit in enumerate(units):
            packet = av.Packet(unit)
            packet.pts = packet.dts = number
            packet.time_base = Fraction(1, 60)
            packet.is_keyframe = number % (2 * GOP) == 0
            packet.stream = stream
            container.mux(packet)
