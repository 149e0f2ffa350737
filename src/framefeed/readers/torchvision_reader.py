"""Reader: torchvision, in the releases that read videos."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from framefeed.errors import DecodeError, MissingBackend
from framefeed.readers.base import AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["TorchvisionReader"]


class TorchvisionReader(AbstractVideoReader):
    """``torchvision.io.read_video``, with the timestamps of ``read_video_timestamps``.

    Each call opens the file again. Packets without a frame are counted as frames.
    """

    name = "torchvision"
    package = "torchvision"
    install = "pip install 'torchvision<0.26' av"
    distributions = ("torchvision",)
    exact = False
    remarks = "numbers packets in order of time: hidden ones, as edit lists make them, are counted"

    @classmethod
    def _check_library(cls, library: Any) -> None:
        if not hasattr(getattr(library, "io", None), "read_video"):
            release = getattr(library, "__version__", "that is installed")
            reason = f"release {release} cannot read videos (removed in 0.26 to 0.28): {cls.install}"
            raise MissingBackend(cls.package, reason)

    def _open(self) -> int:
        pts, _ = self._call("read_video_timestamps", pts_unit="pts")
        self._pts: list[int] = sorted(pts)
        return len(self._pts)

    def _call(self, function: str, **arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecation warnings
            return getattr(self._library.io, function)(self.path, **arguments)

    def _seek(self, number: int) -> torch.Tensor:
        return self._range(number, number)[0]

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        first = numbers[0]
        return self._range(first, numbers[-1])[[number - first for number in numbers]]

    def _range(self, first: int, last: int) -> torch.Tensor:
        """Reads frames first..last, inclusive."""
        frames: torch.Tensor = self._call(
            "read_video", start_pts=self._pts[first], end_pts=self._pts[last], pts_unit="pts", output_format="THWC"
        )[0]
        if len(frames) != last - first + 1:
            reason = f"torchvision returned {len(frames)} frames for {first}..{last}"
            raise DecodeError(self.path, reason, first)
        return frames
