"""Segments have every sampled frame once, are cut where it costs nothing, and fill their batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clips
from framefeed import VideoIndex
from framefeed.index.table import PacketTable
from framefeed.infer.execution.segments import Piece, Segment, cut_places, cut_segments, limit_batches, sampled_frames
from framefeed.plan import plan_frames
from plan.streams import MadeUpStream, streams


def check_cutting(table: PacketTable, skip: int, batch_size: int, target: int) -> list[Segment]:
    frames = sampled_frames(table.num_frames, skip)
    segments = list(cut_segments([(0, cut_places(table, frames))], batch_size, target))
    pieces = [piece for segment in segments for piece in segment.pieces]
    ends = np.cumsum([piece.count for piece in pieces]).tolist()
    assert [piece.first for piece in pieces] == [0, *ends[:-1]] and ends[-1] == len(frames)
    apart = [plan_frames(table, frames[piece.first : piece.end]).num_packets for piece in pieces]
    assert sum(apart) == plan_frames(table, frames).num_packets
    return segments


@settings(max_examples=150, deadline=None)
@given(streams(), st.integers(1, 9), st.integers(1, 8), st.integers(1, 20))
def test_cutting_costs_no_packet(stream: MadeUpStream, skip: int, batch_size: int, target: int) -> None:
    check_cutting(stream.table(), skip, batch_size, target)


@pytest.mark.parametrize(
    "name", ["h264_open_gop", "hevc_open_gop", "h264_one_group", "edit_negative_pts", "h264_all_intra"]
)
def test_cutting_real_streams(clip_folder: Path, name: str) -> None:
    table = VideoIndex.scan(clips.make(name, clip_folder)).packets
    for skip, target in ((1, 8), (1, 1), (5, 3), (100, 4)):
        check_cutting(table, skip, 4, target)


def test_a_group_that_comes_back_is_not_cut() -> None:
    # As an edit list may have it: frames of the first group are shown again after the second one.
    start = np.array([0, 0, 2, 2, 0, 5], np.int64)
    table = PacketTable(**{**vars(_plain_table(6)), "start": start})
    assert cut_places(table, np.arange(6)).tolist() == [5, 6]
    assert cut_places(table, np.array([0, 1, 2, 3])).tolist() == [2, 4]


def _plain_table(count: int) -> PacketTable:
    numbers = np.arange(count, dtype=np.int64)
    return PacketTable(
        pos=numbers,
        size=numbers,
        pts=numbers,
        dts=numbers,
        duration=np.ones(count, np.int64),
        flags=np.zeros(count, np.uint16),
        start=numbers,
        frames=numbers,
        frame_pts=numbers,
    )


def test_batches_are_full_where_groups_allow_it() -> None:
    # 250 frames a group and every 25th taken: 10 of each group, so every fourth place is a multiple of 8.
    places = np.arange(10, 2001, 10)
    segments = list(cut_segments([(0, places)], 8, 256))
    lengths = [segment.num_frames for segment in segments]
    assert sum(lengths) == 2000
    assert all(length % 8 == 0 for length in lengths)
    assert all(128 <= length <= 384 for length in lengths)
    # A group that is longer than a segment is not cut.
    assert [s.num_frames for s in cut_segments([(0, np.array([1000, 1100, 2500]))], 8, 256)] == [1000, 1500]


def test_short_videos_share_segments() -> None:
    segments = list(cut_segments([(number, np.array([10])) for number in range(60)], 8, 256))
    assert [len(segment.pieces) for segment in segments] == [26, 26, 8]
    assert [piece.video for segment in segments for piece in segment.pieces] == list(range(60))
    mixed = list(cut_segments([(0, np.array([5])), (1, np.arange(10, 1001, 10)), (2, np.array([7]))], 8, 256))
    assert mixed[0] == Segment((Piece(0, 0, 5),)) and mixed[-1] == Segment((Piece(2, 0, 7),))


def test_so_many_batches_and_no_more() -> None:
    segments = [Segment((Piece(0, 0, 20),)), Segment((Piece(1, 0, 5), Piece(2, 0, 30))), Segment((Piece(3, 0, 8),))]
    assert limit_batches(segments, 8, None) == segments
    assert limit_batches(segments, 8, 3) == segments[:1]
    assert limit_batches(segments, 8, 4) == [segments[0], Segment((Piece(1, 0, 5), Piece(2, 0, 3)))]
    assert limit_batches(segments, 8, 100) == segments


def test_sampled_frames() -> None:
    assert sampled_frames(60, 25).tolist() == [0, 25, 50]
    assert sampled_frames(51, 25).tolist() == [0, 25, 50]
    assert sampled_frames(50, 25).tolist() == [0, 25]
    assert sampled_frames(3, 1).tolist() == [0, 1, 2]
