"""Which of the idle sessions is taken."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import clips
from framefeed import VideoDecoder
from framefeed.decode.pool import SessionPool
from framefeed.decode.session import Running
from framefeed.testing.fake_decoder import FakeFactory
from framefeed.types import StreamInfo


class _Shaped(FakeFactory):
    def shape(self, stream: StreamInfo) -> object:
        return stream.width


def test_soonest_the_one_that_needs_no_change(clip_folder: Path) -> None:
    index = VideoDecoder(clips.make("h264_closed_no_b", clip_folder)).index

    def of_width(width: int) -> Any:
        return dataclasses.replace(index, stream=dataclasses.replace(index.stream, width=width))

    pool = SessionPool(_Shaped((), ()), max_idle=8)
    taken = {width: pool.take(of_width(width), 0, 1) for width in (100, 200, 300)}
    for running in taken.values():
        pool.give_back(running)
    for width in (200, 100, 300, 200):
        again = pool.take(of_width(width), 0, 1)
        assert again is taken[width]
        pool.give_back(again)
    assert pool.created == 3
    # None has had it: the one that was used longest ago changes.
    other = pool.take(of_width(400), 0, 1)
    assert other is taken[100]
    pool.give_back(other)
    assert pool.take(of_width(400), 0, 1) is other
    assert pool.created == 3


def test_sessions_of_a_video_that_is_no_longer_read_make_room(clip_folder: Path) -> None:
    """Otherwise those of the one that is read would be taken from each other for ever."""
    before, now = (VideoDecoder(clips.make(kind, clip_folder)).index for kind in ("h264_closed_no_b", "mpeg4_mp4"))
    pool = SessionPool(FakeFactory((), ()), max_idle=3)
    for index in (before, before, before):
        pool.keep_running(index, Running(pool._factory.create(index.stream, 1, closed_start=True), "before", None, 1))
    for start in range(3):
        running = pool.take(now, 0, 1)
        running.restart(start)
        pool.keep_running(now, running)
    assert sorted(pool.take_running(now)[0]) == [0, 1, 2]
    assert pool.created == 3
    assert pool.take_running(before) == ({}, False)


def test_a_full_pool_takes_the_session_that_it_would_drop(clip_folder: Path) -> None:
    index = VideoDecoder(clips.make("h264_closed_no_b", clip_folder)).index
    pool = SessionPool(FakeFactory((), ()), max_idle=2)
    taken = []
    for start in range(4):
        taken.append(pool.take(index, 0, 1))
        taken[-1].restart(start)
        pool.keep_running(index, taken[-1])
    assert pool.created == 2
    assert taken[2] is taken[0]
    assert taken[3] is taken[1]
