"""Hand-made packets for what encoders at hand do not write."""

import numpy as np
import pytest

from framefeed.index.bitstream import PacketKind as K
from framefeed.index.bitstream import make_classifier

from .test_bitstream_support import Recipe, classify, classify_packets, decode, encode, having


class Bits:
    """Writes bits, most significant first."""

    def __init__(self, text: str = "") -> None:
        self.text = text.replace(" ", "")

    def u(self, count: int, value: int) -> "Bits":
        self.text += format(value, f"0{count}b") if count else ""
        return self

    def ue(self, *values: int) -> "Bits":
        for value in values:
            code = format(value + 1, "b")
            self.text += "0" * (len(code) - 1) + code
        return self

    def done(self) -> bytes:
        text = self.text + "1"
        text += "0" * (-len(text) % 8)
        return int(text, 2).to_bytes(len(text) // 8, "big")


def counted(*units: bytes) -> bytes:
    return b"".join(len(unit).to_bytes(4, "big") + unit for unit in units)


def annex_b(*units: bytes) -> bytes:
    return b"".join(b"\0\0\0\1" + unit for unit in units)


def kinds_of(codec: str, extradata: bytes, packets: list[bytes]) -> list[K]:
    return [K(int(kind)) for kind in classify_packets(codec, extradata, packets)[0]]


# H.264 ---------------------------------------------------------------------------------------------------------------


def sps(frame_mbs_only: int = 1, level: int = 30, sps_id: int = 0) -> bytes:
    bits = Bits().u(8, 77).u(8, 0).u(8, level).ue(sps_id, 0, 2, 1).u(1, 0).ue(5, 3).u(1, frame_mbs_only)
    return b"\x67" + bits.u(8, 0).done()


def pps(pps_id: int = 0, tail: int = 0) -> bytes:
    return b"\x68" + Bits().ue(pps_id, 0).u(6, tail).done()


def avcc(*sets: bytes) -> bytes:
    first, *rest = sets
    data = bytes((1, 77, 0, 30, 0xFF, 0xE1)) + len(first).to_bytes(2, "big") + first + bytes((len(rest),))
    return data + b"".join(len(unit).to_bytes(2, "big") + unit for unit in rest)


def h264_slice(header: int, slice_type: int = 5, first_mb: int = 0, frame_num: int = 3, field: str = "") -> bytes:
    bits = Bits().ue(first_mb, slice_type, 0).u(4, frame_num)
    bits.text += field
    return bytes((header,)) + bits.u(16, 0xABCD).done() + b"\x55" * 100


def recovery_sei(count: int, exact: int = 1, before: bytes = b"") -> bytes:
    payload = Bits().ue(count).u(1, exact).u(3, 0).done()
    return b"\x06" + before + bytes((6, len(payload))) + payload + b"\x80"


FRAME, FIELD = avcc(sps(), pps()), avcc(sps(0), pps())
IDR, P, B, INTRA = h264_slice(0x65, 7), h264_slice(0x41), h264_slice(0x01, 6), h264_slice(0x41, 7)
START = K.RAP | K.CLOSED | K.INTRA
TOP, BOTTOM = "10", "11"


def test_h264_types() -> None:
    packets = [IDR, P, B, INTRA, b"\x09\xf0"]
    expected = [START, K(0), K.NONREF, K.INTRA, K.HIDDEN]
    assert kinds_of("h264", FRAME, [counted(unit) for unit in packets]) == expected
    assert kinds_of("h264", annex_b(sps(), pps()), [annex_b(b"\x09\xf0", unit) for unit in packets]) == expected


@pytest.mark.parametrize("pack", [counted, annex_b])
def test_h264_recovery_points(pack: object) -> None:
    assert callable(pack)
    extradata = FRAME if pack is counted else annex_b(sps(), pps())
    long_message = b"\x05\x50" + b"\x06\x01" * 40
    escaped = b"\x01\x05\x00\x00\x03\x00\x00\x03\x01"  # five bytes, two of them behind emulation prevention
    packets = [
        pack(recovery_sei(0), INTRA),
        pack(recovery_sei(0), P),
        pack(recovery_sei(0, exact=0), INTRA),
        pack(recovery_sei(7), P),
        pack(recovery_sei(0, before=long_message), INTRA),
        pack(recovery_sei(0, before=escaped), INTRA),
        pack(b"\x06\x01\x02\x06\x01\x80", B),
    ]
    kinds, recovery = classify_packets("h264", extradata, packets)
    open_point = K.RAP | K.INTRA
    assert [K(int(k)) for k in kinds] == [open_point, K(0), K.INTRA, K.GRADUAL, open_point, open_point, K.NONREF]
    assert recovery.tolist() == [0, 0, 0, 7, 0, 0, 0]


def test_h264_idr_is_no_start_when_headers_changed_before() -> None:
    other = pps(tail=9)
    packets = [counted(IDR), counted(other, IDR), counted(IDR), counted(pps(), IDR), counted(other, B), counted(IDR)]
    kinds = kinds_of("h264", FRAME, packets)
    assert kinds[:4] == [START, START | K.NEW_HEADERS, K.INTRA, START | K.NEW_HEADERS]
    assert kinds[4:] == [K.NEW_HEADERS, K.INTRA], "a packet with headers of its own must not be left out"
    assert kinds_of("h264", FRAME, [counted(sps(), pps(), IDR)]) == [START], "repeated headers are not new"
    padded = avcc(sps(), pps() + b"\0")
    assert kinds_of("h264", padded, [counted(sps(), pps(), IDR)]) == [START], "nor is padding a difference"


def test_h264_fields_in_packets_of_their_own() -> None:
    def field(header: int, parity: str, frame_num: int, slice_type: int = 5) -> bytes:
        return h264_slice(header, slice_type, 0, frame_num, parity)

    packets = [
        counted(field(0x65, TOP, 0, 7)),
        counted(field(0x41, BOTTOM, 0)),
        counted(field(0x01, TOP, 1)),
        counted(field(0x01, BOTTOM, 1)),
        counted(field(0x01, TOP, 1)),
        counted(field(0x41, BOTTOM, 1)),  # a reference field does not complete a non-reference one
        counted(field(0x41, TOP, 2)),  # other frame_num
        counted(field(0x41, TOP, 2)),  # same parity
        counted(field(0x01, TOP, 3), field(0x01, BOTTOM, 3)),
        counted(field(0x01, TOP, 3), field(0x41, BOTTOM, 3)),
        counted(h264_slice(0x01, 6, 0, 3, "0")),
    ]
    second = K.SECOND_FIELD
    expected = [START, second, K(0), second, K(0), K(0), K(0), K(0), K.NONREF, K(0), K.NONREF]
    assert kinds_of("h264", FIELD, packets) == expected
    # The same when the stream only turns out to have fields while the chunk is being read.
    late = kinds_of("h264", FRAME, [counted(B), counted(sps(0), pps(), IDR + b""), *packets])
    assert late[0] == K.NONREF
    assert [kind & ~(K.RAP | K.CLOSED) for kind in late[2:]] == [kind & ~(K.RAP | K.CLOSED) for kind in expected]


def test_h264_doubtful_packets_have_no_flags() -> None:
    rest_of_picture = counted(h264_slice(0x01, 6, first_mb=5))
    too_long = (5000).to_bytes(4, "big") + B
    partition = counted(h264_slice(0x02, 6))
    idr_not_referred = counted(h264_slice(0x05, 7))
    packets = [rest_of_picture, too_long, partition, b"", b"\0", counted(b"\x81" + B[1:])]
    assert kinds_of("h264", FRAME, packets) == [K(0)] * len(packets)
    assert not kinds_of("h264", FRAME, [idr_not_referred])[0] & K.RAP
    assert kinds_of("h264", b"", [annex_b(IDR), annex_b(B)]) == [K(0), K(0)], "no parameter sets at all"


def test_h264_annex_b_brings_its_own_headers() -> None:
    packets = [annex_b(sps(), pps(), IDR), annex_b(B), annex_b(IDR), annex_b(sps(), pps(), IDR)]
    assert kinds_of("h264", b"", packets) == [START | K.NEW_HEADERS, K.NONREF, K.INTRA, START]


# HEVC ----------------------------------------------------------------------------------------------------------------


def hevc_unit(nal_type: int, body: bytes = b"\xd5" * 30, temporal_id: int = 0) -> bytes:
    return bytes((nal_type << 1, temporal_id + 1)) + body


def hvcc(sub_layers: int = 0, output_flag: int = 0) -> bytes:
    profile = Bits().u(4, 0).u(3, sub_layers).u(1, 1).u(96, 1 << 90)
    if sub_layers:
        profile.u(16, 0)
    sets = [
        hevc_unit(32, b"\x0c\x01"),
        hevc_unit(33, profile.ue(0, 1, 64, 64).u(1, 0).ue(0, 0, 4).u(1, 0).ue(4, 0, 0, 0, 3, 0, 3).done()),
        hevc_unit(34, Bits().ue(0, 0).u(1, 0).u(1, output_flag).u(3, 0).done()),
    ]
    arrays = b"".join(bytes((unit[0] >> 1, 0, 1)) + len(unit).to_bytes(2, "big") + unit for unit in sets)
    return b"\1" + bytes(20) + b"\x03\x03" + arrays


CRA, RASL_N, RASL_R, TRAIL_N, TRAIL_R, BLA = (hevc_unit(kind) for kind in (21, 8, 9, 0, 1, 16))
END = hevc_unit(36, b"")


def test_hevc_skipped_leading_pictures_are_hidden() -> None:
    units = [
        (CRA,), (RASL_R,), (TRAIL_R,),  # the first CRA
        (CRA,), (RASL_R,), (RASL_N, END),  # a CRA in the middle
        (CRA,), (RASL_R,),  # behind an end of sequence
        (BLA,), (RASL_R,),
        (CRA,), (RASL_R,),
    ]  # fmt: skip
    for chunk in (1, 2, 5, 100):
        kinds, _ = classify_packets("hevc", hvcc(), [counted(*packet) for packet in units], chunk)
        assert having(kinds, K.HIDDEN) == [1, 7, 9]
        assert having(kinds, K.RASL) == [1, 4, 5, 7, 9, 11]
        assert having(kinds, K.CLOSED) == [8]
        assert having(kinds, K.NONREF) == [5]


def test_hevc_end_of_sequence_in_annex_b() -> None:
    extradata = annex_b(hevc_unit(32, b"\x0c\x01"), *_sets_of(hvcc())[1:])
    packets = [annex_b(CRA), annex_b(CRA), annex_b(RASL_R), annex_b(TRAIL_R, END), annex_b(CRA), annex_b(RASL_R)]
    assert having(classify_packets("hevc", extradata, packets)[0], K.HIDDEN) == [5]


def _sets_of(box: bytes) -> list[bytes]:
    at, sets = 23, []
    while at < len(box):
        length = int.from_bytes(box[at + 3 : at + 5], "big")
        sets.append(box[at + 5 : at + 5 + length])
        at += 5 + length
    return sets


def test_hevc_only_the_highest_sub_layer_is_without_dependents() -> None:
    packets = [counted(hevc_unit(0, temporal_id=layer)) for layer in (0, 1, 2, 1)]
    assert having(classify_packets("hevc", hvcc(1), packets)[0], K.NONREF) == [1]
    assert having(classify_packets("hevc", hvcc(2), packets)[0], K.NONREF) == [2]
    assert having(classify_packets("hevc", b"", [annex_b(TRAIL_N)])[0], K.NONREF) == []


def test_hevc_pictures_without_output_are_hidden() -> None:
    def trail(output: int) -> bytes:
        return counted(hevc_unit(0, Bits("1").ue(0, 1).u(1, output).u(20, 77).done()))

    assert kinds_of("hevc", hvcc(output_flag=1), [trail(1), trail(0)]) == [K(0), K.HIDDEN]


def test_hevc_enhancement_layers_and_later_slices_have_no_flags() -> None:
    other_layer = bytes((0, 1 << 3 | 1)) + b"\xd5" * 30
    later_slice = hevc_unit(0, b"\x55" * 30)
    kinds = kinds_of("hevc", hvcc(), [counted(other_layer), counted(later_slice), counted(other_layer, TRAIL_N)])
    assert kinds == [K(0), K(0), K(0)]


# VP8, VP9 ------------------------------------------------------------------------------------------------------------


def test_vp8_hidden_frames() -> None:
    stream = encode(Recipe("libvpx", "webm", (("g", "20"), ("deadline", "realtime"), ("lag-in-frames", "0"))))
    hidden = [3, 9, 20, 21]  # 20 is a key frame
    packets = [bytes((p[0] & ~0x10, *p[1:])) if n in hidden else p for n, p in enumerate(stream.packets)]
    stream = stream._replace(packets=tuple(packets))
    assert having(classify(stream), K.HIDDEN) == hidden
    truth = decode(stream, range(len(packets)))
    assert having(classify(stream), K.RAP) == [0, 20, 40]
    assert decode(stream, range(20, 48)) == {n: frames for n, frames in truth.items() if n >= 20}
    assert sorted(truth) == [n for n in range(len(packets)) if n not in hidden]


def test_vp9_superframes_and_shown_existing_frames() -> None:
    stream = encode(Recipe("libvpx-vp9", "webm", (("g", "20"), ("deadline", "realtime"), ("lag-in-frames", "0"))))
    first, second = stream.packets[4:6]
    marker = 0xC0 | 1 << 3 | 1
    sizes = len(first).to_bytes(2, "little") + len(second).to_bytes(2, "little")
    both = first + second + bytes((marker,)) + sizes + bytes((marker,))
    show_slot_0 = bytes((0b10001000,))
    stream = stream._replace(packets=(*stream.packets[:4], both, show_slot_0, *stream.packets[6:]))
    kinds = classify(stream)
    assert K(int(kinds[4])) == K.MULTIPLE
    assert K(int(kinds[5])) == K(0)
    frames = decode(stream, range(len(stream.packets)))
    assert len(frames[4]) == 2 and frames[5] == frames[4][1:]
    broken = both[:-6] + bytes((marker, 255, 255, 255, 255, marker))
    assert kinds_of("vp9", b"", [broken]) == [K(0)]


# AV1 -----------------------------------------------------------------------------------------------------------------


def obu(kind: int, payload: bytes, layer: int | None = None) -> bytes:
    head = bytes((kind << 3 | 2,)) if layer is None else bytes((kind << 3 | 6, layer))
    return head + bytes((len(payload),)) + payload


def av1_sequence(film_grain: int = 0) -> bytes:
    bits = Bits().u(3, 0).u(2, 0).u(1, 0).u(1, 0).u(5, 0).u(12, 0).u(5, 0)  # one operating point
    bits.u(4, 5).u(4, 5).u(6, 63).u(6, 63).u(1, 0).u(3, 0)  # 64x64, no frame ids
    bits.u(4, 0).u(1, 1).u(2, 0).u(1, 0).u(1, 0).u(3, 6)  # order hints of 7 bits, no screen content tools
    bits.u(3, 0).u(1, 0).u(1, 0).u(1, 0).u(1, 0).u(2, 0).u(1, 0)  # 8 bit 4:2:0
    return bits.u(1, film_grain).done()


def av1_frame(frame_type: int, shown: int = 1, refresh: int = 0) -> bytes:
    bits = Bits().u(1, 0).u(2, frame_type).u(1, shown)
    if not shown:
        bits.u(1, 1)
    if not (frame_type == 0 and shown):
        bits.u(1, 0).u(1, 0).u(1, 0).u(7, 9)
        if frame_type == 1:
            bits.u(3, 0)
        bits.u(8, refresh)
    return bits.u(24, 0x123456).done()


def show_existing(slot: int) -> bytes:
    return obu(3, Bits().u(1, 1).u(3, slot).done())


def test_av1_references_live_in_slots() -> None:
    sequence = obu(1, av1_sequence())
    delimiter = obu(2, b"")
    packets = [
        delimiter + sequence + obu(6, av1_frame(0)),
        delimiter + obu(6, av1_frame(1)),
        delimiter + obu(6, av1_frame(1, refresh=2)),
        delimiter + obu(6, av1_frame(1, shown=0, refresh=4)),
        delimiter + obu(6, av1_frame(1, shown=0, refresh=8)) + obu(6, av1_frame(1)),
        delimiter + show_existing(2),
        delimiter + show_existing(0),  # the key frame: refreshes all slots
        delimiter + obu(6, av1_frame(1)) + show_existing(2),
        delimiter + obu(6, av1_frame(1), layer=1 << 5),
        delimiter + obu(6, av1_frame(0)),
        delimiter,
    ]
    expected = [
        START, K.NONREF, K(0), K.HIDDEN, K(0), K.NONREF, K(0), K.MULTIPLE, K(0), START, K.HIDDEN,
    ]  # fmt: skip
    assert kinds_of("av1", b"\x81\0\0\0" + sequence, packets) == expected
    alone = kinds_of("av1", b"", packets)
    assert alone[0] == START | K.NEW_HEADERS
    assert alone[9] == K.INTRA, "without a sequence header, in extradata or here, decoding cannot start"
    grain = kinds_of("av1", b"\x81\0\0\0" + obu(1, av1_sequence(film_grain=1)), packets[1:2])
    assert grain == [K(0)]


# MPEG ----------------------------------------------------------------------------------------------------------------

SEQUENCE = b"\0\0\1\xb3" + bytes.fromhex("0600403300c80000") + b"\0\0\1\xb5" + bytes.fromhex("148a00010000")
SLICE = b"\0\0\1\1" + b"\x55" * 90


def mpeg2(coding_type: int, structure: int = 3, reference: int = 5, extra: bytes = b"") -> bytes:
    picture = b"\0\0\1\0" + Bits().u(10, reference).u(3, coding_type).u(16, 0xFFFF).u(9, 0).done()
    coding = b"\0\0\1\xb5" + Bits().u(4, 8).u(16, 0xFFFF).u(2, 0).u(2, structure).u(10, 0).done()
    return picture + coding + extra + SLICE


def group(closed: int) -> bytes:
    return b"\0\0\1\xb8" + Bits().u(25, 1 << 12).u(1, closed).u(1, 0).done()


def test_mpeg2_pictures() -> None:
    matrix = b"\0\0\1\xb5\x3f" + b"\x55" * 64
    packets = [
        SEQUENCE + group(1) + mpeg2(1),
        mpeg2(2),
        mpeg2(3),
        group(0) + mpeg2(1),
        mpeg2(3, extra=matrix),  # changes what later pictures are decoded with
        group(1) + mpeg2(1),
        SEQUENCE + group(0) + mpeg2(1),
        b"\0\0\1\xb7",
    ]
    expected = [START, K(0), K.NONREF, K.RAP | K.INTRA, K(0), K.INTRA, K.RAP | K.INTRA, K.HIDDEN]
    kinds = kinds_of("mpeg2video", SEQUENCE, packets)
    assert [kind & ~K.NEW_HEADERS for kind in kinds] == expected
    assert kinds_of("mpeg2video", b"", packets[3:4]) == [K.INTRA]


def test_mpeg2_fields() -> None:
    packets = [
        SEQUENCE + group(1) + mpeg2(1, structure=1),
        mpeg2(2, structure=2),
        mpeg2(3, structure=1),
        mpeg2(3, structure=2),
        mpeg2(3, structure=1) + mpeg2(3, structure=2),
        mpeg2(3, structure=1, reference=6),
        mpeg2(3, structure=1, reference=6),
    ]
    kinds = kinds_of("mpeg2video", SEQUENCE, packets)
    assert kinds == [START, K.SECOND_FIELD, K(0), K.SECOND_FIELD, K.NONREF, K(0), K(0)]


def mpeg4_vop(coding_type: int, coded: int = 1, size: int = 100) -> bytes:
    bits = Bits().u(2, coding_type).u(1, 0).u(1, 1).u(5, 7).u(1, 1).u(1, coded)
    return (b"\0\0\1\xb6" + bits.u(6, 0x2A).done()).ljust(size, b"\x55")


def mpeg4_layer(*, interlaced: int = 0, low_delay: int | None = None) -> bytes:
    bits = Bits().u(9, 1).u(1, 0).u(4, 1)
    bits = bits.u(1, 0) if low_delay is None else bits.u(1, 1).u(2, 1).u(1, low_delay).u(1, 0)
    bits = bits.u(2, 0).u(1, 1).u(16, 25).u(1, 1).u(1, 0)
    return b"\0\0\1\x20" + bits.u(1, 1).u(13, 96).u(1, 1).u(13, 64).u(1, 1).u(1, interlaced).u(9, 0).done()


def test_mpeg4_interlaced_b_vops_depend_on_each_other() -> None:
    i, p, b = (mpeg4_vop(kind) for kind in range(3))
    for layer in (mpeg4_layer(interlaced=1), mpeg4_layer(interlaced=1, low_delay=0)):
        assert kinds_of("mpeg4", layer, [i, p, b, i]) == [K.INTRA, K(0), K(0), K.INTRA]
    for layer in (mpeg4_layer(low_delay=0), mpeg4_layer(interlaced=1, low_delay=1)):
        assert kinds_of("mpeg4", layer, [i, p, b]) == [K.RAP | K.INTRA, K(0), K.NONREF]


def test_mpeg4_vops() -> None:
    layer = mpeg4_layer()
    i, p, b, s = (mpeg4_vop(kind) for kind in range(4))
    closed_group = b"\0\0\1\xb3" + Bits().u(18, 64).u(1, 1).u(1, 0).done()
    packets = [i, p, b, s, closed_group + i, mpeg4_vop(1, coded=0, size=7), mpeg4_vop(1, coded=0), layer]
    start = K.RAP | K.INTRA
    expected = [start, K(0), K.NONREF, K(0), start | K.CLOSED, K.HIDDEN, K(0), K.HIDDEN]
    assert kinds_of("mpeg4", layer, packets) == expected
    assert kinds_of("mpeg4", b"", [i, b]) == [K(0), K(0)]
    assert kinds_of("mpeg4", layer, [p + b, b]) == [K.MULTIPLE, K(0)], "packed B-VOPs are shown a packet late"
    packed = layer + b"\0\0\1\xb2DivX503b1393p"
    assert kinds_of("mpeg4", packed, [i, p, b]) == [start, K(0), K(0)]


def test_unknown_codecs_have_no_classifier() -> None:
    assert make_classifier("prores", b"") is None


def test_no_packets() -> None:
    for codec in ("h264", "hevc", "vp8", "vp9", "av1", "mpeg1video", "mpeg2video", "mpeg4"):
        classifier = make_classifier(codec, b"")
        assert classifier is not None
        result = classifier.classify(np.zeros((0, 64), np.uint8), np.zeros(0, np.int64), lambda *_: b"")
        assert len(result.kinds) == len(result.recovery) == 0
