"""Which of the idle sessions is taken."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import clips
from framefeed import VideoDecoder
from framefeed.decode.fake import FakeFactory
from framefeed.decode.pool import SessionPool
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
