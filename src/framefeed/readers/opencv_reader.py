"""Reader: OpenCV."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from framefeed.errors import DecodeError, InvalidFile, UnsupportedStream
from framefeed.readers.base import GO_ON, AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["OpencvReader"]


class OpencvReader(AbstractVideoReader):
    """``cv2.VideoCapture`` with FFmpeg.

    After a seek, the position that OpenCV reports is compared with the requested one; if they differ, the file is read
    from its start. However, OpenCV computes positions from timestamps and the average frame rate: with a variable frame
    rate it reports the right number for the wrong frame. The number of frames is from the header and may be too large;
    reading a missing frame is an error.
    """

    name = "opencv"
    package = "cv2"
    install = "pip install opencv-python-headless"
    distributions = (
        "opencv-python-headless",
        "opencv-python",
        "opencv-contrib-python-headless",
        "opencv-contrib-python",
    )
    exact = False
    remarks = (
        "wrong frames where the frame rate varies, and in transport and program streams, although the position is "
        "checked after each seek; counts frames by the header"
    )

    def _open(self) -> int:
        self._start()
        count = int(self._capture.get(self._library.CAP_PROP_FRAME_COUNT))
        if count <= 0:
            raise UnsupportedStream(self.path, "OpenCV does not report the number of frames")
        return count

    def _start(self) -> None:
        cv2 = self._library
        options = [cv2.CAP_PROP_N_THREADS, self.num_threads] if self.num_threads else []
        self._capture: Any = cv2.VideoCapture(self.path, cv2.CAP_FFMPEG, options)
        if not self._capture.isOpened():
            raise InvalidFile(self.path, "OpenCV cannot open it, and gives no reason")
        self._next = 0

    def _seek(self, number: int) -> torch.Tensor:
        self._go_to(number)
        self._grab(number)
        return self._picture(number)

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        import torch

        wanted = set(numbers)
        frames = []
        if not self._next <= numbers[0] <= self._next + GO_ON:
            self._go_to(numbers[0])
        for number in range(self._next, numbers[-1] + 1):
            self._grab(number)
            if number in wanted:
                frames.append(self._picture(number))
        return torch.stack(frames)

    def _go_to(self, number: int) -> None:
        position = self._library.CAP_PROP_POS_FRAMES
        if self._capture.set(position, number) and self._capture.get(position) == number:
            self._next = number
            return
        self._capture.release()
        self._start()
        for earlier in range(number):
            self._grab(earlier)

    def _grab(self, number: int) -> None:
        self._next = number + 1
        if not self._capture.grab():
            self._next = sys.maxsize  # unknown position
            raise DecodeError(self.path, f"OpenCV stops before frame {number} of {self.num_frames}", number)

    def _picture(self, number: int) -> torch.Tensor:
        import torch

        good, picture = self._capture.retrieve()
        if not good:
            raise DecodeError(self.path, f"OpenCV returned no picture for frame {number}", number)
        return torch.from_numpy(self._library.cvtColor(picture, self._library.COLOR_BGR2RGB))

    def _close(self) -> None:
        self._capture.release()
