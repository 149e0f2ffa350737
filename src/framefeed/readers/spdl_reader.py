"""Reader: SPDL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framefeed.readers.base import AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["SpdlReader"]


class SpdlReader(AbstractVideoReader):
    """``spdl.io.sample_decode_video`` on the CPU; the file's packets are read once and stay in memory.

    Numbers count packets: where some packets show no frame, as with edit lists, later frames are wrong.
    """

    name = "spdl"
    package = "spdl.io"
    install = "pip install spdl-io"
    distributions = ("spdl-io",)
    exact = False
    remarks = (
        "wrong frames where packets show no frame (edit lists, VP8, fields, groups that were cut open), behind "
        "keyframes that are recovery points or that RADL pictures lead to, and without time stamps"
    )

    @classmethod
    def _check_library(cls, library: Any) -> None:
        library.demux_config()  # loads the native part, and FFmpeg

    def _open(self) -> int:
        io = self._library
        self._packets: Any = io.demux_video(self.path)
        self._config: Any = io.decode_config(decoder_options={"threads": str(self.num_threads)})
        return len(self._packets)

    def _seek(self, number: int) -> torch.Tensor:
        return self._stream([number])[0]

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        io = self._library
        # Decoding consumes packets; a clone refers to the same bytes.
        frames = io.sample_decode_video(self._packets.clone(), numbers, decode_config=self._config)
        batch: torch.Tensor = io.to_torch(io.convert_frames(frames))
        return batch

    def _close(self) -> None:
        self._packets = None
