"""Reader: decord or decord2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framefeed.readers.base import AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["DecordReader"]


THREADS = 2  # with its default, 0, decord2 fails on VP9: its decoder does not accept packets that fast


class DecordReader(AbstractVideoReader):
    """``decord.VideoReader`` with ``get_batch``, on the CPU (its GPU part must be built by hand).

    In open GOPs, as x265 writes them, it mistakes frames before a keyframe for frames after it. decord2 fails with an
    error where x265 uses B-frames as references.
    """

    name = "decord"
    package = "decord"
    install = "pip install decord2"
    distributions = ("decord2", "decord")
    exact = False
    remarks = (
        "wrong frames in open groups (x265's default), transport streams and AVI, behind keyframes that are recovery "
        "points, and where packets show no frame, as with edit lists; errors on small pictures and on HEVC with "
        "B-frames that are references"
    )

    def _open(self) -> int:
        decord = self._library
        self._reader: Any = decord.VideoReader(self.path, ctx=decord.cpu(0), num_threads=self.num_threads or THREADS)
        return len(self._reader)

    def _seek(self, number: int) -> torch.Tensor:
        return self._stream([number])[0]

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        import torch

        batch = self._reader.get_batch(numbers)
        # A bridge, which is global to the process, may have made a tensor of it already.
        return batch if isinstance(batch, torch.Tensor) else torch.from_numpy(batch.asnumpy())

    def _close(self) -> None:
        self._reader = None
