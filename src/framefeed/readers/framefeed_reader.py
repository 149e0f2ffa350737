"""Reader: framefeed itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framefeed.readers.base import AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["FramefeedReader"]


class FramefeedReader(AbstractVideoReader):
    """``framefeed.VideoDecoder``. Exact; damaged frames are errors."""

    name = "framefeed"
    package = "framefeed"
    install = "pip install framefeed"
    distributions = ("framefeed",)
    devices = ("cpu", "cuda")

    @classmethod
    def check_device(cls, device: str | torch.device) -> torch.device:
        """Also checks the requirements of decoding on a GPU."""
        from framefeed.device import resolve_device

        return resolve_device(super().check_device(device))

    def _open(self) -> int:
        self._decoder: Any = self._library.VideoDecoder(
            self.path, dimension_order="NHWC", device=self.device, num_ffmpeg_threads=self.num_threads
        )
        self._plan: Any = None
        self._packets = 0
        return len(self._decoder)

    def _seek(self, number: int) -> torch.Tensor:
        return self._read([number])[0]

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        return self._read(numbers)

    def _read(self, numbers: list[int]) -> torch.Tensor:
        frames: torch.Tensor = self._decoder.get_frames_at(numbers).data
        plan = self._decoder.last_plan
        if plan is not None and plan is not self._plan:  # otherwise these frames had been read ahead
            self._packets += plan.num_packets
            self._plan = plan
        return frames

    @property
    def frames_decoded(self) -> int | None:
        """Packets decoded so far."""
        return self._packets

    def _close(self) -> None:
        self._decoder = None
