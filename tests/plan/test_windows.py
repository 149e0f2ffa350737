"""How far is read at once where whole groups are decoded, each from its beginning."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import clips
from framefeed import VideoDecoder
from framefeed.plan.windows import group_ends, window_end


@pytest.mark.parametrize(
    ("start", "length", "reach", "max_groups", "stop"),
    [
        (0, 10, 60, 9, 60),  # two groups
        (0, 10, 70, 9, 60),  # not into the third
        (0, 25, 500, 2, 75),  # to the end of the request in which the second ends
        (0, 25, 60, 9, 50),  # no further than it may
        (0, 7, 20, 9, 14),  # a group that is longer than that: whole requests of it
        (28, 7, 20, 9, 35),  # a group ends in the first request, and there is no room for the next
        (80, 16, 500, 9, 100),  # the last request is short
        (95, 50, 500, 9, 100),
        (0, 40, 30, 9, 40),  # at least a request
    ],
)
def test_where_windows_end(start: int, length: int, reach: int, max_groups: int, stop: int) -> None:
    assert window_end([30, 60, 90, 100], start, length, reach, max_groups) == stop


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(1, 8),
    st.integers(1, 6),
)
def test_windows_of_any_groups(sizes: list[int], length: int, requests: int, max_groups: int) -> None:
    """All frames come, a whole number of requests at a time, and no more than there is room for."""
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    start, reach = 0, length * requests
    while start < ends[-1]:
        stop = window_end(ends, start, length, reach, max_groups)
        assert start < stop <= min(start + reach, ends[-1])
        assert (stop - start) % length == 0 or stop == ends[-1]
        inside = [end for end in ends if start < end <= stop]
        assert len(inside) <= max_groups + length
        start = stop


def test_group_ends(clip_folder: Path) -> None:
    packets = VideoDecoder(clips.make("h264_closed_no_b", clip_folder)).index.packets
    ends = group_ends(packets)
    assert ends[-1] == len(packets.frames) and len(ends) > 1
    starts = packets.start[packets.frames]
    assert all(starts[end] != starts[end - 1] for end in ends[:-1])
