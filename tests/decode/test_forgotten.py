"""Engines that nobody uses any more: nothing of them stays behind."""

from __future__ import annotations

import gc
import os
import weakref
from pathlib import Path

import clips
from framefeed import VideoIndex
from framefeed.decode.cpu.session_cpu import CpuFactory
from framefeed.decode.engine import Engine
from framefeed.media.media import open_media
from framefeed.request import decode_frames
from framefeed.source import open_source


def _num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def test_engines_and_their_decoders_go(clip_folder: Path) -> None:
    index = VideoIndex.scan(clips.make("h264_bframes", clip_folder))
    source = open_source(index, open_media(index.path))
    before = _num_threads()
    gone = []
    for _ in range(4):
        engine = Engine(CpuFactory(), 2)
        decode_frames(
            engine, index, source, [5, 20], lambda row, picture: None, num_threads=2, read_on=True, long_groups=True
        )
        assert engine.pool.created
        gone.append(weakref.ref(engine))
        del engine
    gc.collect()
    assert [each() for each in gone] == [None] * 4
    assert _num_threads() <= before + 2
