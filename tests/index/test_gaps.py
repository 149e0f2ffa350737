"""Missing pictures, found by the numbers in headers."""

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import clips
from clips.base import read_packets, remux
from framefeed import VideoIndex
from framefeed.index.bitstream import PacketKind
from framefeed.index.bitstream.bits import WORD, BitColumns, BitReader, OutOfData, unescape
from framefeed.index.bitstream.gaps import in_read_sequences, last_shown, order_gaps
from framefeed.index.bitstream.hevc.headers import parse_reference_sets, parse_references, refers_ahead
from framefeed.index.scan import scan
from framefeed.media.media import open_media
from framefeed.testing import samples
from random_damage import linear_truth

from .test_bitstream_bytes import Bits


def _bits(rng: random.Random, count: int) -> list[bytes]:
    heads = []
    for _ in range(count):
        head = bytearray(rng.randbytes(WORD))
        for place in rng.sample(range(WORD), rng.choice([0, 0, 2, 5])):
            head[place] = rng.choice([0, 0, 1, 3])
        heads.append(bytes(head))
    return heads


def test_columns_read_what_a_bit_reader_reads() -> None:
    rng = random.Random(5)
    heads = _bits(rng, 2000)
    data = np.frombuffer(b"".join(heads), np.uint8)
    columns = BitColumns(data, np.arange(len(heads)) * WORD)
    columns.skip(1)
    columns.skip_ue()
    columns.skip_ue()
    values = columns.u(9)
    clear = ~columns.unclear
    assert 500 < clear.sum() < 1900
    for head, value, is_clear in zip(heads, values.tolist(), clear.tolist(), strict=True):
        assert not is_clear or b"\0\0\3" not in head
        if is_clear:
            reader = BitReader(unescape(head))
            reader.skip(1)
            reader.ue()
            reader.ue()
            assert reader.u(9) == value


def test_columns_at_the_end_of_the_data_are_unclear() -> None:
    data = np.full(WORD + 3, 0xFF, np.uint8)
    assert BitColumns(data, np.arange(8)).unclear.tolist() == [False] * 4 + [True] * 4


def _stream(rng: random.Random, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Counts and beginnings of some sequences in decode order."""
    counts: list[int] = []
    begins: list[bool] = []
    for _ in range(rng.randint(1, 4)):
        length = rng.randint(1, 60)
        order = list(range(length))
        at = 1
        while at < length:
            size = rng.choice([1, 2, 3, 4])
            order[at : at + size] = [*order[at : at + size][-1:], *order[at : at + size][:-1]]
            at += size
        counts += [step * place for place in order]
        begins += [place == 0 for place in range(length)]
    return np.array(counts), np.array(begins)


@pytest.mark.parametrize("bits", [6, 8, 16])
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("fields", [False, True])
def test_lost_pictures_leave_gaps_and_whole_streams_have_none(bits: int, step: int, fields: bool) -> None:
    rng = random.Random(bits * step)
    found = 0
    for _ in range(200):
        counts, begins = _stream(rng, step)
        anchors = np.ones(len(counts), np.bool_)
        mask = (1 << bits) - 1
        assert not len(order_gaps(counts & mask, bits, begins, anchors, fields=fields)[0])
        lost = rng.randrange(len(counts))
        sequences = begins.cumsum()
        inside = (sequences == sequences[lost]).nonzero()[0]
        is_at_an_edge = counts[lost] in (counts[inside].min(), counts[inside].max())
        kept = np.arange(len(counts)) != lost
        gaps, _ = order_gaps(counts[kept] & mask, bits, begins[kept], anchors[kept], fields=fields)
        if not is_at_an_edge and len(inside) > 4:
            near = np.flatnonzero(kept)[gaps]
            assert {int(counts[lost]) - step, int(counts[lost]) + step} <= set(counts[near].tolist())
            found += 1
    assert found > 100


def test_gaps_all_over_are_found_where_counts_rise_evenly() -> None:
    counts = np.array([0, 5, 1, 4, 8, 7, 13, 9, 12])
    begins = np.arange(len(counts)) == 0
    anchors = np.ones(len(counts), np.bool_)
    assert len(order_gaps(counts, 8, begins, anchors, fields=False)[0])
    assert not len(order_gaps(np.array([0, 2, 5, 7, 8, 10]), 8, begins[:6], anchors[:6], fields=True)[0])


def test_counts_that_rise_by_two_have_gaps_where_they_should_rise_by_one() -> None:
    counts = np.array([0, 2, 4, 8, 6, 10])
    begins = np.arange(6) == 0
    anchors = np.ones(6, np.bool_)
    assert not len(order_gaps(counts, 8, begins, anchors, fields=False, step=2)[0])
    assert len(order_gaps(counts, 8, begins, anchors, fields=False, step=1)[0]) == 6


def test_the_picture_of_each_sequence_that_is_shown_last() -> None:
    whole = [0, 4, 2, 1, 3, 8, 6, 5, 7]
    for step in (1, 2):
        counts = step * np.array([*whole, *whole[:4], 0])
        begins = counts == 0
        _, places = order_gaps(counts, 8, begins, begins, fields=False)
        assert last_shown(places, begins).tolist() == [5, 10, 13]
    assert last_shown(np.full(3, -1), begins[:3]).tolist() == []
    assert last_shown(np.zeros(0, np.int64), begins[:0]).tolist() == []


def _sps(sets: Bits, *, scaling_lists: bool) -> bytes:
    """A sequence parameter set up to its sets of references."""
    bits = Bits().u(8, 1).u(96, 0).ue(0, 1, 64, 64).u(1, 0).ue(0, 0, 4).u(1, 1).ue(4, 2, 0, 0, 3, 0, 3, 1, 1)
    bits.u(1, scaling_lists)
    if scaling_lists:
        bits.u(1, 1)
        for size in range(4):
            for matrix in range(6 if size < 3 else 2):
                bits.u(1, matrix & 1).ue(*([5] * (min(64, 16 << 2 * size) + (size > 1)) if matrix & 1 else [0]))
    bits.u(2, 0).u(1, 1).u(8, 0x77).ue(0, 1).u(1, 0)
    bits.text += sets.text
    return b"\x42\1" + bits.done()


@pytest.mark.parametrize("scaling_lists", [False, True])
def test_references_by_which_hevc_slices_name_them(scaling_lists: bool) -> None:
    sets = Bits().ue(3).ue(1, 2, 3).u(1, 1).ue(0).u(1, 1).ue(2).u(1, 0)  # -4; 1, 4
    sets.u(1, 0).ue(2, 0, 0).u(1, 1).ue(1).u(1, 1)  # -1, -3
    sets.u(1, 1).u(1, 0).ue(1).u(1, 1).u(2, 0).u(2, 1)  # 2 ahead of them: 1, nothing, and 2 that is kept
    listed = parse_reference_sets(_sps(sets, scaling_lists=scaling_lists))
    assert listed == [[-4, 1, 4], [-1, -3], [1, 2]]
    slices = {
        Bits().u(1, 1).u(2, 0): listed[0],
        Bits().u(1, 1).u(2, 1): listed[1],
        Bits().u(2, 0).ue(1, 0, 2).u(1, 1): [-3],
        Bits().u(2, 0).ue(0, 1, 2).u(1, 1): [3],
        Bits().u(1, 0).u(1, 1).ue(2).u(1, 1).ue(0).u(4, 15): [-5, 3, -1],  # 1 behind the first one
    }
    for written, references in slices.items():
        rest = int(written.text.ljust(64, "0"), 2)
        assert sorted(parse_references(rest, listed)) == sorted(references)
        assert refers_ahead(rest >> 32, listed) == (max(references) > 0)
    explicit = int(Bits().u(1, 0).ue(0, 1, 2).u(1, 1).text.ljust(64, "0"), 2)
    assert parse_references(explicit, []) == [3]
    for wrong in ("111", "01" + "00001", "00" + Bits().ue(9, 9).text):
        rest = int(wrong.ljust(64, "0"), 2)
        with pytest.raises(OutOfData):
            parse_references(rest, listed)


_PLAIN = "bframes=4:b-pyramid=0:ref=3"
_PYRAMID = "bframes=3:b-pyramid=1:ref=3"


@pytest.mark.parametrize("suffix", [".mp4", ".ts", ".mkv"])
@pytest.mark.parametrize(
    ("params", "lost"),
    [
        pytest.param(_PLAIN, {17}, id="last-reference"),
        pytest.param(_PLAIN, {6}, id="reference-before-a-keyframe"),
        pytest.param(f"{_PLAIN}:radl=2:min-keyint=8", {6}, id="keyframe-with-leading-pictures"),
        pytest.param(f"{_PLAIN}:radl=2:min-keyint=8", {17}, id="reference-behind-leading-pictures"),
        pytest.param("bframes=16:rc-lookahead=30:b-pyramid=0", {1}, id="long-run"),
        pytest.param(_PYRAMID, {17, 20}, id="pyramid-without-its-ends"),
        pytest.param(f"{_PYRAMID}:temporal-layers=3", {17, 20}, id="temporal-layers"),
        pytest.param("bframes=0:ref=1", set(range(1, 21, 2)), id="every-other"),
    ],
)
def test_pictures_that_hevc_does_not_show_for_want_of_references_have_no_number(
    params: str, lost: set[int], suffix: str, tmp_path: Path
) -> None:
    source = tmp_path / f"whole{suffix}"
    gop, frames = (8, 21) if "16" not in params else (40, 17)
    options = {"x265-params": f"{params}:open-gop=0:scenecut=0:b-adapt=0:repeat-headers=1:log-level=none"}
    samples.write_clip(source, codec="libx265", frames=frames, gop=gop, options=options)
    assert not len(scan(open_media(source)).gaps.packets)
    lossy = tmp_path / f"lossy{suffix}"
    remux(source, lossy, [packet for number, packet in enumerate(read_packets(source)) if number not in lost])
    shown = linear_truth(lossy).shown
    assert len(shown) < frames - len(lost)
    assert VideoIndex.scan(lossy).packets.frames.tolist() == shown


def test_hevc_of_which_unneeded_pictures_were_taken_is_not_decoded(tmp_path: Path) -> None:
    source, thinned = tmp_path / "whole.mp4", tmp_path / "thinned.mp4"
    options = {"x265-params": "bframes=1:b-pyramid=0:ref=2:open-gop=0:scenecut=0:b-adapt=0:log-level=none"}
    samples.write_clip(source, codec="libx265", frames=54, gop=9, options=options)
    needed = ~VideoIndex.scan(source).packets.has(PacketKind.NONREF)
    remux(source, thinned, [packet for packet, keep in zip(read_packets(source), needed, strict=True) if keep])
    assert not len(scan(open_media(thinned)).gaps.packets)
    assert VideoIndex.scan(thinned).packets.frames.tolist() == linear_truth(thinned).shown


def test_a_sequence_with_a_header_that_was_not_read_is_not_judged() -> None:
    begins = np.array([True, False, True, False, False, True])
    unread = np.array([False, False, False, True, False, False])
    assert in_read_sequences(begins, unread).tolist() == [True, True, False, False, False, True]
    assert in_read_sequences(begins, np.zeros(6, np.bool_)).all()


@pytest.mark.parametrize("suffix", [".mp4", ".ts", ".mkv"])
@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_containers_tell_the_same_gaps(codec: str, suffix: str, tmp_path: Path) -> None:
    params = {"libx264": "x264-params", "libx265": "x265-params"}[codec]
    source = tmp_path / f"whole{suffix}"
    samples.write_clip(source, codec=codec, frames=90, gop=30, options={params: "bframes=2:log-level=none"})
    assert not len(scan(open_media(source)).gaps.packets)
    packets = read_packets(source)
    lossy = tmp_path / f"lossy{suffix}"
    remux(source, lossy, packets[:40] + packets[43:])
    gaps = scan(open_media(lossy)).gaps.packets
    assert len(gaps)
    assert all(35 <= gap <= 48 for gap in gaps.tolist())


def test_headers_of_zeros_do_not_keep_a_file_from_being_indexed(clip_folder: Path, tmp_path: Path) -> None:
    whole = clips.make("h264_bframes", clip_folder)
    table = VideoIndex.scan(whole).packets
    data = bytearray(whole.read_bytes())
    place, size = int(table.pos[7]), int(table.size[7])
    data[place + 6 : place + size] = bytes(size - 6)
    damaged = tmp_path / whole.name
    damaged.write_bytes(data)
    assert len(VideoIndex.scan(damaged)) == len(VideoIndex.scan(whole))
