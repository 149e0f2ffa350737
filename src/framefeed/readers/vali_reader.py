"""Reader: VALI."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from framefeed.errors import DecodeError
from framefeed.readers.base import GO_ON, AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["ValiReader"]


class ValiReader(AbstractVideoReader):
    """``python_vali.PyDecoder`` on an NVIDIA GPU, with ``SeekContext`` and VALI's colour converter.

    VALI converts a frame number to a time with the average frame rate, so it does not find frames by number in videos
    of variable frame rate. The number of frames is from the header.
    """

    name = "vali"
    package = "python_vali"
    install = "pip install python_vali"
    distributions = ("python_vali", "python-vali")
    devices = ("cuda",)
    exact = False
    remarks = "seeks by average frame rate: not exact where the frame rate varies; counts frames by the header"

    def _open(self) -> int:
        vali = self._library
        self._gpu = self.device.index or 0
        self._decoder: Any = vali.PyDecoder(input=self.path, opts={}, gpu_id=self._gpu)
        self._converter: Any = vali.PySurfaceConverter(gpu_id=self._gpu)
        self._size = int(self._decoder.Width), int(self._decoder.Height)
        self._decoded_surface: Any = vali.Surface.Make(self._decoder.Format, *self._size, gpu_id=self._gpu)
        self._rgb: Any = vali.Surface.Make(vali.PixelFormat.RGB, *self._size, gpu_id=self._gpu)
        self._next = 0
        return int(self._decoder.NumFrames)

    def _seek(self, number: int) -> torch.Tensor:
        self._decode(number, seek=True)
        return self._picture(number)

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        import torch

        wanted = set(numbers)
        frames = []
        seek = not self._next <= numbers[0] <= self._next + GO_ON
        for number in range(numbers[0] if seek else self._next, numbers[-1] + 1):
            self._decode(number, seek=seek and number == numbers[0])
            if number in wanted:
                frames.append(self._picture(number))
        return torch.stack(frames)

    def _decode(self, number: int, *, seek: bool) -> None:
        context = {"seek_ctx": self._library.SeekContext(seek_frame=number)} if seek else {}
        good, info = self._decoder.DecodeSingleSurface(self._decoded_surface, **context)
        self._next = number + 1 if good else sys.maxsize  # otherwise the position is unknown
        if not good:
            raise DecodeError(self.path, f"VALI cannot decode frame {number}: {info}", number)

    def _picture(self, number: int) -> torch.Tensor:
        from torch.utils.dlpack import from_dlpack

        good, info = self._converter.Run(self._decoded_surface, self._rgb)
        if not good:
            raise DecodeError(self.path, f"VALI cannot convert frame {number} to RGB: {info}", number)
        width, height = self._size
        # The surface is reused for the next frame. Its lines are (width, 3) or 3 * width long.
        return from_dlpack(self._rgb).clone().reshape(height, width, 3)

    def _close(self) -> None:
        self._decoder = self._converter = self._decoded_surface = self._rgb = None
