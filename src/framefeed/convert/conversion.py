"""What a GPU makes of decoded pictures, as numbers for its kernels.

It is what `rgb.py` and `base.py` do on the CPU, with libswscale's coefficients and filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal

from framefeed.convert.desc import BaseKind, Crop, Size
from framefeed.convert.filters import bicubic
from framefeed.types import Orientation, StreamInfo

__all__ = ["ColorMode", "Conversion", "Layout", "SurfaceFormat", "color_mode", "conversion_table", "way_back"]

Layout = Literal["CHW", "HWC"]

FULL_RANGE = 2

# libswscale's coefficients by ISO matrix number: red of Cr, blue of Cb, green of Cb, green of Cr, times 65536.
BT601 = (104597, 132201, 25675, 53279)
BT709 = (117489, 138438, 13975, 34925)
BT2020 = (110013, 140363, 12277, 42626)
MATRICES = {
    0: BT709,
    1: BT709,
    4: (104448, 132798, 24759, 53109),  # FCC
    7: (117579, 136230, 16907, 35559),  # SMPTE 240M
    9: BT2020,
    10: BT2020,
}


class ColorMode(IntEnum):
    """How colours are computed."""

    FAST = 0
    """RGB by the 16-bit arithmetic of libswscale's fast converter."""
    ACCURATE = 1
    """RGB by that of its general path."""
    KEEP = 2
    """YCbCr."""
    TABLES = 3
    """RGB by the tables of its path to packed RGB."""


# Where the size of a picture stays the same, chroma is interpolated in these, and repeated in others.
MIXED_MODES = (ColorMode.ACCURATE, ColorMode.TABLES)


class SurfaceFormat(Enum):
    """How a decoder lays out a picture in memory; the lines of all planes are equally far apart.

    NV12: 8 bits, 4:2:0: luma, then a plane of Cb and Cr side by side.
    P016: The same in 16-bit words, whose upper bits hold the sample.
    YUV444: 8 bits, three planes of full size.
    YUV444_16: The same in 16-bit words, whose upper bits hold the sample.
    """

    NV12 = "NV12"
    P016 = "P016"
    YUV444 = "YUV444"
    YUV444_16 = "YUV444_16"

    @property
    def wide(self) -> bool:
        """Whether a sample takes two bytes."""
        return self in (SurfaceFormat.P016, SurfaceFormat.YUV444_16)

    @property
    def planar(self) -> bool:
        """Whether there are three planes of full size."""
        return self in (SurfaceFormat.YUV444, SurfaceFormat.YUV444_16)


@dataclass(frozen=True)
class Conversion:
    """All that is the same for the pictures of a stream that are kept in the same way.

    Attributes:
        surface: Layout of the decoder's pictures.
        bit_depth: Bits of a sample.
        source_size: (height, width) of the stored picture, without the decoder's padding.
        matrix: Matrix coefficients by ISO number; 2 (unspecified) and unknown ones are taken for BT.601.
        full_range: Whether samples use the full range of values.
        orientation: How to turn the picture for display.
        resize: (height, width) that the upright picture is scaled to; None to leave it.
        crop: (top, left, height, width) of what is kept of that; None for all.
        color_space: ``"RGB"`` or ``"YCbCr"``.
        layout: Order of the dimensions of the result.

    Raises:
        ValueError: These do not go together.
    """

    surface: SurfaceFormat
    bit_depth: int
    source_size: Size
    matrix: int = 2
    full_range: bool = False
    orientation: Orientation = field(default_factory=Orientation)
    resize: Size | None = None
    crop: Crop | None = None
    color_space: Literal["RGB", "YCbCr"] = "RGB"
    layout: Layout = "CHW"

    def __post_init__(self) -> None:
        if not 8 <= self.bit_depth <= (16 if self.surface.wide else 8):
            raise ValueError(f"{self.surface.name} surfaces do not have samples of {self.bit_depth} bits")
        if self.matrix == 0 and self.surface.planar:
            raise ValueError("this stream stores RGB, which is not converted on the GPU; decode it on the CPU")
        if self.crop is not None:
            top, left, height, width = self.crop
            whole = self.upright_size
            if min(top, left) < 0 or min(height, width) < 1 or top + height > whole[0] or left + width > whole[1]:
                raise ValueError(f"the crop {self.crop} does not lie within {whole}")

    @classmethod
    def of(
        cls, stream: StreamInfo, kind: BaseKind, surface: SurfaceFormat, bit_depth: int, layout: Layout = "CHW"
    ) -> Conversion:
        """What makes bases of that kind of a stream's surfaces."""
        jpeg = stream.pix_fmt is not None and stream.pix_fmt.startswith("yuvj")
        return cls(
            surface,
            bit_depth,
            (stream.height, stream.width),
            stream.color_space,
            jpeg or stream.color_range == FULL_RANGE,
            stream.orientation,
            kind.resize,
            kind.crop,
            kind.color_space,
            layout,
        )

    @property
    def upright_size(self) -> Size:
        """(height, width) of the upright picture after scaling, before the crop."""
        return self.resize or self._turned(self.source_size)

    @property
    def lying_size(self) -> Size:
        """(height, width) of the picture after scaling, before it is turned."""
        return self._turned(self.upright_size)

    @property
    def output_size(self) -> Size:
        """(height, width) of the result."""
        return self.crop[2:] if self.crop is not None else self.upright_size

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Shape of the result."""
        return (3, *self.output_size) if self.layout == "CHW" else (*self.output_size, 3)

    @property
    def scales(self) -> bool:
        """Whether the size changes."""
        return self.lying_size != self.source_size

    def _turned(self, size: Size) -> Size:
        return (size[1], size[0]) if self.orientation.swaps_sides else size


def conversion_table(conversion: Conversion) -> list[int]:
    """What kernels know of a conversion; `kernels.py` names the places."""
    height, width = conversion.source_size
    lying = conversion.lying_size
    chroma = (height, width) if conversion.surface.planar else (-(-height // 2), -(-width // 2))
    table = [*_geometry(conversion), 16 - conversion.bit_depth if conversion.surface.wide else 0]
    table += _color_factors(conversion)
    for samples in ((height, width), chroma):
        table += [*_axis(samples[0], lying[0]), *_axis(samples[1], lying[1])]
    if not (conversion.scales or conversion.surface.planar) and color_mode(conversion) in MIXED_MODES:
        table += _chroma_weights(conversion.source_size)
    return table


def _chroma_weights(size: Size) -> list[int]:
    """First sample and weights for each line, and for each column where these are odd."""
    height, width = size
    rows = bicubic(-(-height // 2), height, 1 << 12)
    if width % 2:
        rows += bicubic(-(-width // 2), width, 1 << 14)
    return [number for first, weights in rows for number in (first, *weights)]


def _geometry(conversion: Conversion) -> tuple[int, ...]:
    """Lines, columns, top, left, first, per line, per column, per channel."""
    top, left, height, width = conversion.crop or (0, 0, *conversion.upright_size)
    (origin, origin_column), by_line, by_column = _turning(conversion)
    corners = [
        tuple((down - origin) * step[0] + (across - origin_column) * step[1] for step in (by_line, by_column))
        for down, across in ((top, left), (top + height - 1, left + width - 1))
    ]
    first = tuple(min(pair) for pair in zip(*corners, strict=True))
    lines, columns = (abs(one - other) + 1 for one, other in zip(*corners, strict=True))
    down, across = _upright((first[0], first[1]), conversion.orientation, conversion.lying_size)
    pixel = 1 if conversion.layout == "CHW" else 3

    def offset(down: int, across: int) -> int:
        return (down * width + across) * pixel

    channel = height * width if conversion.layout == "CHW" else 1
    return lines, columns, *first, offset(down - top, across - left), offset(*by_line), offset(*by_column), channel


def way_back(conversion: Conversion) -> tuple[int, int, int, int]:
    """Where the pixels of a result lie in the picture that is scaled but not turned: of which line, of which column.

    Each is told by the first one and by what a step adds to it. Lines of the result lie in columns of the picture where
    it is turned on its side.
    """
    top, left, *_ = conversion.crop or (0, 0)
    (origin, origin_column), *ways = _turning(conversion)
    down, across = ((top - origin) * way[0] + (left - origin_column) * way[1] for way in ways)
    return down, sum(ways[0]), across, sum(ways[1])  # one of the two is 0


def _turning(conversion: Conversion) -> tuple[Size, Size, Size]:
    """Where the first pixel of a lying picture comes to lie, and how far from it the next line and column do.

    That is linear, and as every step is one line or one column, so is the way back.
    """
    (origin, origin_column), next_line, next_column = (
        _upright(place, conversion.orientation, conversion.lying_size) for place in ((0, 0), (1, 0), (0, 1))
    )
    by_line = (next_line[0] - origin, next_line[1] - origin_column)
    by_column = (next_column[0] - origin, next_column[1] - origin_column)
    return (origin, origin_column), by_line, by_column


def _upright(place: Size, orientation: Orientation, size: Size) -> Size:
    """Where a pixel of a lying picture of that size is in the upright one."""
    line, column = place
    height, width = size
    if orientation.mirrored:
        column = width - 1 - column
    return (
        (line, column),
        (width - 1 - column, line),
        (height - 1 - line, width - 1 - column),
        (column, height - 1 - line),
    )[orientation.quarter_turns % 4]


def color_mode(conversion: Conversion) -> ColorMode:
    """How its colours are computed: as libswscale would do it."""
    if conversion.color_space == "YCbCr":
        return ColorMode.KEEP
    if conversion.scales or conversion.surface.planar:
        return ColorMode.ACCURATE
    height, width = conversion.source_size
    if conversion.surface is SurfaceFormat.NV12 and height % 2 == 0:
        return ColorMode.FAST
    return ColorMode.TABLES if width % 2 == 0 else ColorMode.ACCURATE


def _color_factors(conversion: Conversion) -> list[int]:
    """Offset and factor of Y; factors of red of Cr, blue of Cb, green of Cb and green of Cr; as libswscale has them."""
    red, blue, green_cb, green_cr = MATRICES.get(conversion.matrix, BT601)
    luma, black = 1 << 16, 0
    if conversion.full_range:
        red, blue, green_cb, green_cr = (factor * 224 // 255 for factor in (red, blue, green_cb, green_cr))
    else:
        luma, black = luma * 255 // 219, 16
    factors = (red, blue, -green_cb, -green_cr)
    mode = color_mode(conversion)
    if mode is ColorMode.TABLES:
        # Where its tables begin; half a level is added, as they are rounded.
        offset = (384 if conversion.full_range else 326) * luma - ((384 + black) << 16) + 0x8000
        return [offset, luma, *(_in_lumas(factor, luma) for factor in factors)]
    unit = 8 if mode is ColorMode.FAST else 512
    return [black * unit, *(_to_13_bits(factor) for factor in (luma, *factors))]


def _in_lumas(factor: int, luma: int) -> int:
    """A factor as one of Y's, times 65536. C rounds quotients towards zero."""
    scaled = (factor << 16) + 0x8000
    return scaled // luma if scaled >= 0 else -(-scaled // luma)


def _to_13_bits(factor: int) -> int:
    return min(max(((factor << 13) + (1 << 15)) >> 16, -0x7FFF), 0x7FFF)


def _axis(samples: int, results: int) -> tuple[int, int, int, int]:
    """How libswscale's bilinear filter scales: samples, results, samples a result in 1/65536, taps."""
    step = ((samples << 16) + (results >> 1)) // results
    if abs(step - 0x10000) < 10:
        return samples, samples, 0x10000, 1
    taps = 3 if step <= 0x10000 else 1 + -(-2 * samples // results)
    return samples, results, step, max(1, min(taps, samples - 2))
