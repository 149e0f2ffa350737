"""TensorBoard's curves and pictures, where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


class Board:
    """Writes what TensorBoard shows; without it, says once how to have it, and writes nothing.

    Args:
        folder: Where to.
        step: Where a run goes on: what was written for later steps is taken back.
    """

    def __init__(self, folder: Path, step: int) -> None:
        self._writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            print(f'no TensorBoard ({error}), so no curves and pictures: pip install "framefeed[examples]"')
            return
        self._writer = SummaryWriter(str(folder), purge_step=step)

    def curves(self, step: int, **values: float) -> None:
        """Adds a point to each curve."""
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)

    def pictures(self, step: int, **pictures: torch.Tensor) -> None:
        """Shows pictures (3, height, width), with values in 0..1."""
        if self._writer is not None:
            for name, picture in pictures.items():
                self._writer.add_image(name, picture.clamp(0, 1).cpu(), step)

    def close(self) -> None:
        """Writes what is left."""
        if self._writer is not None:
            self._writer.close()
