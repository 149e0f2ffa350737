"""Reader: TorchCodec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framefeed.readers.base import AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["TorchcodecReader"]


class TorchcodecReader(AbstractVideoReader):
    """``torchcodec.decoders.VideoDecoder`` with ``seek_mode="exact"``, which scans the file on opening.

    Exact on common MP4, Matroska and WebM files; ``remarks`` lists the others, as found with TorchCodec 0.13 and
    FFmpeg 5.1, with one thread and with several.
    """

    name = "torchcodec"
    package = "torchcodec.decoders"
    install = "pip install torchcodec"
    distributions = ("torchcodec",)
    devices = ("cpu", "cuda")
    exact = False
    remarks = (
        "wrong frames in transport streams, program streams and AVI, behind keyframes that are recovery points, and "
        "where packets show no frame, as at the start of some edit lists and in VP8, or have negative time stamps"
    )

    def _open(self) -> int:
        self._decoder: Any = self._library.VideoDecoder(
            self.path,
            seek_mode="exact",
            dimension_order="NHWC",
            device=str(self.device),
            num_ffmpeg_threads=self.num_threads,
        )
        return len(self._decoder)

    def _seek(self, number: int) -> torch.Tensor:
        frame: torch.Tensor = self._decoder.get_frame_at(number).data
        return frame

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        frames: torch.Tensor = self._decoder.get_frames_at(numbers).data
        return frames

    def _close(self) -> None:
        self._decoder = None
