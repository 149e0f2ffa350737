"""Parameters of the GPU kernels that convert decoded pictures.

The kernels compute what `rgb.py` and `intermediate.py` compute on the CPU, with libswscale's coefficients and filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Literal

from framefeed.convert.desc import Crop, IntermediateSpec, Size
from framefeed.convert.filters import bicubic
from framefeed.types import Orientation, StreamInfo

__all__ = ["ColorMode", "Conversion", "Layout", "SurfaceFormat", "color_mode", "conversion_table", "inverse_affine"]

Layout = Literal["CHW", "HWC"]

FULL_RANGE = 2

# libswscale's coefficients by ISO matrix number, times 65536: Cr to red, Cb to blue, Cb to green, Cr to green.
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
    """The arithmetic that computes colours."""

    FAST = 0
    """RGB by libswscale's fast converter, in 16-bit arithmetic."""
    ACCURATE = 1
    """RGB by libswscale's general path."""
    KEEP = 2
    """YCbCr, unchanged."""
    TABLES = 3
    """RGB by the lookup tables of libswscale's path to packed RGB."""


# Without scaling, these modes interpolate chroma, and the others repeat it.
MIXED_MODES = (ColorMode.ACCURATE, ColorMode.TABLES)


class SurfaceFormat(Enum):
    """Memory layouts of decoded pictures; all planes have the same pitch.

    NV12: 8 bits, 4:2:0: luma, then a plane of interleaved Cb and Cr.
    P016: As NV12 in 16-bit words, with the sample in the upper bits.
    YUV444: 8 bits, three planes of full size.
    YUV444_16: As YUV444 in 16-bit words, with the sample in the upper bits.
    """

    NV12 = "NV12"
    P016 = "P016"
    YUV444 = "YUV444"
    YUV444_16 = "YUV444_16"

    @property
    def wide(self) -> bool:
        """True if a sample takes two bytes."""
        return self in (SurfaceFormat.P016, SurfaceFormat.YUV444_16)

    @property
    def planar(self) -> bool:
        """True if there are three planes of full size."""
        return self in (SurfaceFormat.YUV444, SurfaceFormat.YUV444_16)


@dataclass(frozen=True)
class Conversion:
    """Conversion of the pictures of one stream to one intermediate.

    Attributes:
        surface: Layout of the decoder's pictures.
        bit_depth: Bits of a sample.
        source_size: (height, width) of the stored picture, without the decoder's padding.
        matrix: Matrix coefficients by ISO number; BT.601 for 2 (unspecified) and unknown numbers.
        full_range: Whether samples use the full range of values.
        orientation: Rotation for display.
        resize: (height, width) to scale the upright picture to; None for no scaling.
        crop: (top, left, height, width) of the part to keep after scaling; None for all.
        color_space: ``"RGB"`` or ``"YCbCr"``.
        layout: Order of the dimensions of the result.

    Raises:
        ValueError: The values do not go together.
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
            raise ValueError(f"{self.surface.name} surfaces cannot have {self.bit_depth}-bit samples")
        if self.matrix == 0 and self.surface.planar:
            raise ValueError("streams that store RGB cannot be converted on the GPU; decode them on the CPU")
        if self.crop is not None:
            top, left, height, width = self.crop
            whole = self.upright_size
            if min(top, left) < 0 or min(height, width) < 1 or top + height > whole[0] or left + width > whole[1]:
                raise ValueError(f"the crop {self.crop} is not inside {whole}")

    @classmethod
    def of(
        cls, stream: StreamInfo, spec: IntermediateSpec, surface: SurfaceFormat, bit_depth: int, layout: Layout = "CHW"
    ) -> Conversion:
        """Returns the conversion of a stream's surfaces to an intermediate."""
        jpeg = stream.pix_fmt is not None and stream.pix_fmt.startswith("yuvj")
        return cls(
            surface,
            bit_depth,
            (stream.height, stream.width),
            stream.color_space,
            jpeg or stream.color_range == FULL_RANGE,
            stream.orientation,
            spec.resize,
            spec.crop,
            spec.color_space,
            layout,
        )

    @property
    def upright_size(self) -> Size:
        """(height, width) of the upright picture after scaling, before the crop."""
        return self.resize or self._turned(self.source_size)

    @property
    def pre_rotation_size(self) -> Size:
        """(height, width) of the scaled picture before it is rotated."""
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
        """True if the size changes."""
        return self.pre_rotation_size != self.source_size

    def _turned(self, size: Size) -> Size:
        return (size[1], size[0]) if self.orientation.swaps_sides else size


def conversion_table(conversion: Conversion) -> list[int]:
    """Returns the table of a conversion for the kernels; `kernels.py` names its entries."""
    height, width = conversion.source_size
    lying = conversion.pre_rotation_size
    chroma = (height, width) if conversion.surface.planar else (-(-height // 2), -(-width // 2))
    table = [*_geometry(conversion), 16 - conversion.bit_depth if conversion.surface.wide else 0]
    table += _color_factors(conversion)
    for samples in ((height, width), chroma):
        table += [*_axis(samples[0], lying[0]), *_axis(samples[1], lying[1])]
    if not (conversion.scales or conversion.surface.planar) and color_mode(conversion) in MIXED_MODES:
        table += _chroma_weights(conversion.source_size)
    return table


def _chroma_weights(size: Size) -> list[int]:
    """Returns the first sample and weights of each line, and of each column if their number is odd."""
    height, width = size
    rows = bicubic(-(-height // 2), height, 1 << 12)
    if width % 2:
        rows += bicubic(-(-width // 2), width, 1 << 14)
    return [number for first, weights in rows for number in (first, *weights)]


def _geometry(conversion: Conversion) -> tuple[int, ...]:
    """Returns lines, columns, top, left, first offset, and steps per line, column and channel."""
    top, left, height, width = conversion.crop or (0, 0, *conversion.upright_size)
    (origin, origin_column), by_line, by_column = _turning(conversion)
    corners = [
        tuple((down - origin) * step[0] + (across - origin_column) * step[1] for step in (by_line, by_column))
        for down, across in ((top, left), (top + height - 1, left + width - 1))
    ]
    first = tuple(min(pair) for pair in zip(*corners, strict=True))
    lines, columns = (abs(one - other) + 1 for one, other in zip(*corners, strict=True))
    down, across = _upright((first[0], first[1]), conversion.orientation, conversion.pre_rotation_size)
    pixel = 1 if conversion.layout == "CHW" else 3

    def offset(down: int, across: int) -> int:
        return (down * width + across) * pixel

    channel = height * width if conversion.layout == "CHW" else 1
    return lines, columns, *first, offset(down - top, across - left), offset(*by_line), offset(*by_column), channel


def inverse_affine(conversion: Conversion) -> tuple[int, int, int, int]:
    """Returns the inverse of the rotation: the source line and column of each output pixel, before it is rotated.

    The values are first line, line step, first column, column step. For quarter turns, output lines run along source
    columns.
    """
    top, left, *_ = conversion.crop or (0, 0)
    (origin, origin_column), *ways = _turning(conversion)
    down, across = ((top - origin) * way[0] + (left - origin_column) * way[1] for way in ways)
    return down, sum(ways[0]), across, sum(ways[1])  # one of the two is 0


def _turning(conversion: Conversion) -> tuple[Size, Size, Size]:
    """Returns the upright position of the first pixel of an unrotated picture, and the steps of its next line and
    column.

    The map is linear, and every step is one line or one column, so its inverse has the same form.
    """
    (origin, origin_column), next_line, next_column = (
        _upright(place, conversion.orientation, conversion.pre_rotation_size) for place in ((0, 0), (1, 0), (0, 1))
    )
    by_line = (next_line[0] - origin, next_line[1] - origin_column)
    by_column = (next_column[0] - origin, next_column[1] - origin_column)
    return (origin, origin_column), by_line, by_column


def _upright(place: Size, orientation: Orientation, size: Size) -> Size:
    """Returns the upright position of a pixel of an unrotated picture of that size."""
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
    """Returns the arithmetic that libswscale would use."""
    if conversion.color_space == "YCbCr":
        return ColorMode.KEEP
    if conversion.scales or conversion.surface.planar:
        return ColorMode.ACCURATE
    height, width = conversion.source_size
    if conversion.surface is SurfaceFormat.NV12 and height % 2 == 0:
        return ColorMode.FAST
    return ColorMode.TABLES if width % 2 == 0 else ColorMode.ACCURATE


def _color_factors(conversion: Conversion) -> list[int]:
    """Returns libswscale's offset and factor of Y, and factors Cr to red, Cb to blue, Cb to green, Cr to green."""
    red, blue, green_cb, green_cr = MATRICES.get(conversion.matrix, BT601)
    luma, black = 1 << 16, 0
    if conversion.full_range:
        red, blue, green_cb, green_cr = (factor * 224 // 255 for factor in (red, blue, green_cb, green_cr))
    else:
        luma, black = luma * 255 // 219, 16
    factors = (red, blue, -green_cb, -green_cr)
    mode = color_mode(conversion)
    if mode is ColorMode.TABLES:
        # Start of its tables, plus half a level, as they are rounded.
        offset = (384 if conversion.full_range else 326) * luma - ((384 + black) << 16) + 0x8000
        return [offset, luma, *(_in_lumas(factor, luma) for factor in factors)]
    unit = 8 if mode is ColorMode.FAST else 512
    return [black * unit, *(_to_13_bits(factor) for factor in (luma, *factors))]


def _in_lumas(factor: int, luma: int) -> int:
    """Expresses a factor in units of Y's factor, times 65536. C rounds quotients towards zero."""
    scaled = (factor << 16) + 0x8000
    return scaled // luma if scaled >= 0 else -(-scaled // luma)


def _to_13_bits(factor: int) -> int:
    return min(max(((factor << 13) + (1 << 15)) >> 16, -0x7FFF), 0x7FFF)


def _axis(samples: int, results: int) -> tuple[int, int, int, int]:
    """Returns parameters of libswscale's bilinear filter: samples, results, samples per result in 1/65536, taps."""
    step = ((samples << 16) + (results >> 1)) // results
    if abs(step - 0x10000) < 10:
        return samples, samples, 0x10000, 1
    taps = 3 if step <= 0x10000 else 1 + -(-2 * samples // results)
    return samples, results, step, max(1, min(taps, samples - 2))
