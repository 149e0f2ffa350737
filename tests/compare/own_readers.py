"""Readers that do what they should not."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from framefeed.readers.framefeed_reader import FramefeedReader


class OffByOne(FramefeedReader):
    """Gives the frame behind the one that was asked for."""

    name = "off by one"

    def read_frames(self, indices: Any) -> Any:
        return super().read_frames([min(index + 1, self.num_frames - 1) for index in indices])


class Dies(FramefeedReader):
    """Takes its process down."""

    name = "dies"

    def read_frames(self, indices: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(FramefeedReader):
    """Never comes back."""

    name = "hangs"

    def read_frames(self, indices: Any) -> Any:
        time.sleep(600)


class Raises(FramefeedReader):
    """Cannot read anything."""

    name = "raises"

    def read_frames(self, indices: Any) -> Any:
        raise RuntimeError("no frames\ntoday")


class OneTooFew(FramefeedReader):
    """Leaves a frame out."""

    name = "one too few"

    def read_frames(self, indices: Any) -> Any:
        return super().read_frames(indices)[1:]


class Slow(FramefeedReader):
    """Takes its time."""

    name = "slow"

    def read_frames(self, indices: Any) -> Any:
        time.sleep(0.3)
        return super().read_frames(indices)


class SlowSeek(FramefeedReader):
    """Finds each frame very slowly."""

    name = "slow seek"

    def _seek(self, number: int) -> Any:
        time.sleep(0.4)
        return super()._seek(number)


class SlowStart(FramefeedReader):
    """Gets ready for many frames at once when they are first asked for, which takes long."""

    name = "slow start"
    _ready = False

    def _seek(self, number: int) -> Any:
        time.sleep(0.03)
        return super()._seek(number)

    def _stream(self, numbers: list[int]) -> Any:
        if len(numbers) <= 4:
            time.sleep(0.3)
        elif not SlowStart._ready:
            SlowStart._ready = True
            time.sleep(2)
        return super()._stream(numbers)


class NoReader:
    """Is none."""
