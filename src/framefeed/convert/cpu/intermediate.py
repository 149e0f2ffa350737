"""Converts decoded pictures to intermediates: 8-bit arrays that descriptions are finished from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed.convert.cpu.rgb import PictureWriter, Pixels, RgbWriter, Source, to_planar
from framefeed.convert.cpu.swscale import ACCURATE, BILINEAR, POINT, scaler_for
from framefeed.convert.desc import IntermediateSpec
from framefeed.convert.transforms import Geometry
from framefeed.types import StreamInfo

__all__ = ["IntermediateWriter", "YCbCrWriter"]

BT601 = 6
YCBCR = (0, 1, 2)


class IntermediateWriter:
    """Writes pictures of a stream as byte arrays (3, height, width). Safe to use from several threads.

    Args:
        stream: The stream.
        spec: The intermediate.
    """

    def __init__(self, stream: StreamInfo, spec: IntermediateSpec) -> None:
        geometry = Geometry(spec.resize, spec.crop)
        writer = RgbWriter if spec.color_space == "RGB" else YCbCrWriter
        self._writer: PictureWriter = writer(stream, "CHW", geometry)
        # A crop is computed for frames of one size.
        self._needed_size = stream.display_size if spec.crop is not None and spec.resize is None else None

    def output_size(self, picture: Any) -> tuple[int, int]:
        """Returns the result's height and width; without resizing, a picture of another size keeps its own."""
        upright = self._writer.upright_size(picture)
        if self._needed_size not in (None, upright):
            return upright
        return self._writer.output_size(picture)

    def write(self, picture: Any, out: NDArray[np.uint8]) -> None:
        """Converts a picture into ``out``, a contiguous array (3, height, width) of ``output_size``.

        Raises:
            ValueError: The crop does not fit, because the picture does not have the stream's size.
        """
        upright = self._writer.upright_size(picture)
        if self._needed_size not in (None, upright):
            raise ValueError(f"cannot crop a picture of {upright}: the crop is for frames of {self._needed_size}")
        self._writer.write(picture, out)


class YCbCrWriter(PictureWriter):
    """Writes pictures of a stream as 8-bit Y, Cb and Cr of full size, with the stream's matrix and range.

    Chroma is repeated if the size stays the same, and scaled like luma otherwise. RGB becomes full-range BT.601.
    """

    def _convert(self, picture: Any, size: tuple[int, int], out: NDArray[np.uint8] | None) -> Pixels:
        source = Source(picture)
        height, width = size
        same_size = size == (picture.height, picture.width)
        if same_size:
            source.pad(across=2, down=2)
            size = (source.height, source.width)
        # libswscale would dither to 8 bits, so `_round` does it.
        deep = any(part.bits > 8 for part in picture.format.components)
        from_rgb = picture.format.is_rgb or picture.format.has_palette
        full_range = from_rgb or self._is_full_range(picture)
        scaler = scaler_for(
            (source.width, source.height, source.format),
            (size[1], size[0], "yuv444p16le" if deep else "yuv444p"),
            BT601 if from_rgb else self._matrix_of(picture),
            full_range,
            (POINT if same_size else BILINEAR) | ACCURATE,
            full_range,
        )
        if deep:
            return _round(to_planar(scaler, source, size, YCBCR, word=np.uint16)[:, :height, :width])
        planar = to_planar(scaler, source, size, YCBCR, out)
        return planar if planar is out else planar[:, :height, :width]


def _round(samples: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Rounds 16 bits to 8, in place."""
    np.minimum(samples, 0xFF7F, out=samples)
    samples += 0x80
    samples >>= 8
    return samples
