"""Missing pictures, found by the numbers in headers."""

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import clips
from clips.base import read_packets, remux
from framefeed import VideoIndex
from framefeed.index.bitstream.bits import BitReader, unescape
from framefeed.index.bitstream.columns import WORD, BitColumns
from framefeed.index.bitstream.gaps import in_read_sequences, open_ends, order_gaps
from framefeed.index.scan import scan
from framefeed.media.media import open_media
from framefeed.testing import samples


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


def test_ends_that_lack_the_picture_shown_last() -> None:
    whole = [0, 4, 2, 1, 3, 8, 6, 5, 7, 12, 10, 9, 11]
    counts = np.array(whole + whole)
    begins = np.isin(np.arange(len(counts)), (0, len(whole)))
    droppable = counts % 2 == 1
    assert not len(open_ends(counts, 8, begins, droppable))
    kept = np.arange(len(counts)) != 9  # the picture shown last in the first sequence
    assert open_ends(counts[kept], 8, begins[kept], droppable[kept]).tolist() == [11]
    for few in range(4):
        assert not len(open_ends(counts[:few], 8, begins[:few], droppable[:few]))
    in_order = np.arange(20)
    assert not len(open_ends(in_order, 8, in_order == 0, in_order % 2 == 1))


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
