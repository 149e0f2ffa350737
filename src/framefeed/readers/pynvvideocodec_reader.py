"""Reader: PyNvVideoCodec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framefeed.errors import DecodeError
from framefeed.readers.base import AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["PynvvideocodecReader"]


class PynvvideocodecReader(AbstractVideoReader):
    """``PyNvVideoCodec.SimpleDecoder`` on an NVIDIA GPU. The number of frames is the container's."""

    name = "pynvvideocodec"
    package = "PyNvVideoCodec"
    install = "pip install PyNvVideoCodec"
    distributions = ("PyNvVideoCodec",)
    devices = ("cuda",)
    exact = False
    remarks = "counts frames by the header, so that hidden ones are counted; no elementary streams"

    def _open(self) -> int:
        nvc = self._library
        self._decoder: Any = nvc.SimpleDecoder(
            self.path,
            gpu_id=self.device.index or 0,
            use_device_memory=True,
            output_color_type=nvc.OutputColorType.RGB,
        )
        return len(self._decoder)

    def _seek(self, number: int) -> torch.Tensor:
        return self._copy([self._decoder[number]])[0]

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        frames = self._decoder.get_batch_frames_by_index(numbers)
        if len(frames) != len(numbers):
            raise DecodeError(self.path, f"PyNvVideoCodec returned {len(frames)} frames of {len(numbers)}")
        return self._copy(frames)

    def _copy(self, frames: list[Any]) -> torch.Tensor:
        """Copies frames to own memory: the decoder reuses its memory, and writes on a stream of its own."""
        import torch
        from torch.utils.dlpack import from_dlpack

        torch.cuda.synchronize(self.device)
        copied = torch.stack([from_dlpack(frame) for frame in frames])
        torch.cuda.synchronize(self.device)
        return copied

    def _close(self) -> None:
        self._decoder = None
