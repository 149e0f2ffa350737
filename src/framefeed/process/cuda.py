"""Pictures in a GPU's memory -> what is kept of them -> their place in a batch. The only module that knows Triton.

Everything here imitates what `rgb.py`, `base.py` and `finish.py` do on the CPU, many frames a launch: without scaling
the results are the same bit for bit, with scaling they differ by rounding alone.

Frames come and go as device addresses, because decoders lend their surfaces for a short time only. All that stays the
same for a stream lies in a small table on the device, so a launch has few arguments, and kernels are not compiled again
for every size.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, NamedTuple

import torch

from framefeed.errors import MissingBackend
from framefeed.process.desc import BaseKind, BoundDesc, Crop, Draw, Size
from framefeed.process.finish import DTYPES, value_tables
from framefeed.process.tables import on_stream
from framefeed.types import Orientation, StreamInfo

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise MissingBackend("Triton", "frames on a GPU are converted with it; install it: pip install triton") from error

__all__ = [
    "BatchLayout",
    "Conversion",
    "SurfaceFormat",
    "batch_layout",
    "convert",
    "copy_pictures",
    "finish",
    "placement",
]

Layout = Literal["CHW", "HWC"]

_jit: Callable[[Callable[..., None]], Any] = triton.jit
_jit_part: Callable[[Callable[..., Any]], Any] = triton.jit

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

# A program's share of a picture, in lines and columns.
PLAIN_TILE = (8, 128)
SCALED_TILE = (8, 32)
FINISH_TILE = (8, 128)
COPY_TILE = (8, 256)


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


# --- kernels --------------------------------------------------------------------------------------------------------

# How colours are computed.
FAST: Any = tl.constexpr(0)  # RGB by the 16-bit arithmetic of libswscale's fast converter
ACCURATE: Any = tl.constexpr(1)  # RGB by that of its general path
KEEP: Any = tl.constexpr(2)  # YCbCr

# Places in a conversion's table. Lines and columns are those of the part that is kept, before it is turned.
LINES: Any = tl.constexpr(0)
COLUMNS: Any = tl.constexpr(1)
TOP: Any = tl.constexpr(2)  # where that part lies in the scaled picture
LEFT: Any = tl.constexpr(3)
FIRST: Any = tl.constexpr(4)  # offset of its first pixel in the result
PER_LINE: Any = tl.constexpr(5)  # what the next line, column and channel add to it
PER_COLUMN: Any = tl.constexpr(6)
PER_CHANNEL: Any = tl.constexpr(7)
UNUSED_BITS: Any = tl.constexpr(8)  # of a wide sample
COLORS: Any = tl.constexpr(9)  # offset and factor of Y; factors of red of Cr, blue of Cb, green of Cb, green of Cr
LUMA: Any = tl.constexpr(15)  # how planes are scaled down and across: samples, results, step, taps; each
CHROMA: Any = tl.constexpr(23)


@_jit_part
def _plane(addresses: tl.tensor, frame: tl.tensor, number: tl.tensor, wide: tl.constexpr) -> tl.tensor:
    """Pointer to a plane of a frame."""
    address = tl.load(addresses + frame * 3 + number)
    return address.to(tl.pointer_type(tl.uint16)) if wide else address.to(tl.pointer_type(tl.uint8))


@_jit_part
def _clip(value: tl.tensor) -> tl.tensor:
    return tl.minimum(tl.maximum(value, 0), 255)


@_jit_part
def _upper_byte(value: tl.tensor) -> tl.tensor:
    """16 bits to 8, rounded."""
    return _clip((value + 128) >> 8)


@_jit_part
def _fast_rgb(table: tl.tensor, y: tl.tensor, cb: tl.tensor, cr: tl.tensor) -> tl.tensor:
    """RGB of 8-bit samples."""
    y = ((y * 8 - tl.load(table + COLORS)) * tl.load(table + COLORS + 1)) >> 16
    cb = cb * 8 - 1024
    cr = cr * 8 - 1024
    red = y + ((cr * tl.load(table + COLORS + 2)) >> 16)
    green = y + ((cb * tl.load(table + COLORS + 4)) >> 16) + ((cr * tl.load(table + COLORS + 5)) >> 16)
    blue = y + ((cb * tl.load(table + COLORS + 3)) >> 16)
    return _clip(red), _clip(green), _clip(blue)


@_jit_part
def _to_byte(value: tl.tensor) -> tl.tensor:
    """30 bits to 8."""
    return tl.minimum(tl.maximum(value, 0), 0x3FFFFFFF) >> 22


@_jit_part
def _accurate_rgb(table: tl.tensor, y: tl.tensor, cb: tl.tensor, cr: tl.tensor) -> tl.tensor:
    """RGB of samples in units of 1/512 of an 8-bit level. Sums overflow where libswscale's do."""
    y = (y - tl.load(table + COLORS)) * tl.load(table + COLORS + 1) + 0x200000
    cb = cb - 0x10000
    cr = cr - 0x10000
    red = y + cr * tl.load(table + COLORS + 2)
    green = y + cr * tl.load(table + COLORS + 5) + cb * tl.load(table + COLORS + 4)
    blue = y + cb * tl.load(table + COLORS + 3)
    return _to_byte(red), _to_byte(green), _to_byte(blue)


@_jit_part
def _store(
    targets: tl.tensor,
    frame: tl.tensor,
    table: tl.tensor,
    line: tl.tensor,
    column: tl.tensor,
    one: tl.tensor,
    two: tl.tensor,
    three: tl.tensor,
) -> None:
    """Writes the three channels of pixels."""
    kept = (line < tl.load(table + LINES)) & (column < tl.load(table + COLUMNS))
    target = tl.load(targets + frame).to(tl.pointer_type(tl.uint8))
    offset = tl.load(table + FIRST) + line * tl.load(table + PER_LINE) + column * tl.load(table + PER_COLUMN)
    step = tl.load(table + PER_CHANNEL)
    tl.store(target + offset, one.to(tl.uint8), mask=kept)
    tl.store(target + offset + step, two.to(tl.uint8), mask=kept)
    tl.store(target + offset + 2 * step, three.to(tl.uint8), mask=kept)


@_jit
def _plain_kernel(
    table: tl.tensor,
    sources: tl.tensor,
    targets: tl.tensor,
    pitch: tl.tensor,
    wide: tl.constexpr,
    planar: tl.constexpr,
    colors: tl.constexpr,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Converts pictures of the size that they have. ``pitch`` is in samples."""
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < tl.load(table + LINES)) & (column < tl.load(table + COLUMNS))
    down = line + tl.load(table + TOP)
    across = column + tl.load(table + LEFT)
    luma = _plane(sources, frame, 0, wide)
    chroma = _plane(sources, frame, 1, wide)
    y = tl.load(luma + down * pitch + across, mask=kept, other=0).to(tl.int32)
    if planar:
        place = down * pitch + across
        cb = tl.load(chroma + place, mask=kept, other=0).to(tl.int32)
        cr = tl.load(_plane(sources, frame, 2, wide) + place, mask=kept, other=0).to(tl.int32)
    else:
        place = (down >> 1) * pitch + (across >> 1) * 2
        cb = tl.load(chroma + place, mask=kept, other=0).to(tl.int32)
        cr = tl.load(chroma + place + 1, mask=kept, other=0).to(tl.int32)
    if wide:
        unused = tl.load(table + UNUSED_BITS)
        y = (y >> unused) << unused
        cb = (cb >> unused) << unused
        cr = (cr >> unused) << unused
    if colors == FAST:
        y, cb, cr = _fast_rgb(table, y, cb, cr)
    elif colors == ACCURATE:
        unit: tl.constexpr = 2 if wide else 512
        y, cb, cr = _accurate_rgb(table, y * unit, cb * unit, cr * unit)
    elif wide:
        y, cb, cr = _upper_byte(y), _upper_byte(cb), _upper_byte(cr)
    _store(targets, frame, table, line, column, y, cb, cr)


@_jit_part
def _taps(axis: tl.tensor, number: tl.tensor) -> tl.tensor:
    """The first sample that counts for a result, how far it is from the middle, and what a sample's distance costs."""
    samples = tl.load(axis)
    results = tl.load(axis + 1)
    step = tl.load(axis + 2).to(tl.int64)  # in 1/65536
    taps = tl.load(axis + 3)
    middle = (2 * number.to(tl.int64) + 1) * step - 65536  # in 1/131072
    start = middle - (taps.to(tl.int64) - 2) * 65536
    first = tl.where(start < 0, -((-start) >> 17), start >> 17)
    distance = (first * 131072 - middle).to(tl.float32) / 131072.0
    cost = tl.minimum(results.to(tl.float32) / samples.to(tl.float32), 1.0)
    return first.to(tl.int32), distance, cost


@_jit_part
def _weight(distance: tl.tensor, cost: tl.tensor) -> tl.tensor:
    return tl.maximum(1.0 - tl.abs(distance) * cost, 0.0)


@_jit_part
def _sum_of_weights(distance: tl.tensor, cost: tl.tensor, taps: tl.tensor) -> tl.tensor:
    total = distance * 0.0
    for tap in range(taps):
        total += _weight(distance + tap, cost)
    return total


@_jit_part
def _scaled(
    plane: tl.tensor,
    pitch: tl.tensor,
    step: tl.constexpr,
    axes: tl.tensor,
    unused: tl.tensor,
    line: tl.tensor,
    column: tl.tensor,
) -> tl.tensor:
    """Results of a plane: a triangle filter that is as wide as the samples that become one. The edge is repeated."""
    last_down = tl.load(axes) - 1
    last_across = tl.load(axes + 4) - 1
    taps_down = tl.load(axes + 3)
    taps_across = tl.load(axes + 7)
    first_down, from_line, cost_down = _taps(axes, line)
    first_across, from_column, cost_across = _taps(axes + 4, column)
    total = from_line * from_column * 0.0
    for down in range(taps_down):
        samples = plane + tl.minimum(tl.maximum(first_down + down, 0), last_down) * pitch
        along = total * 0.0
        for across in range(taps_across):
            place = tl.minimum(tl.maximum(first_across + across, 0), last_across) * step
            value = ((tl.load(samples + place).to(tl.int32) >> unused) << unused).to(tl.float32)
            along += value * _weight(from_column + across, cost_across)
        total += along * _weight(from_line + down, cost_down)
    sum_down = _sum_of_weights(from_line, cost_down, taps_down)
    sum_across = _sum_of_weights(from_column, cost_across, taps_across)
    return total / (sum_down * sum_across)


@_jit_part
def _round(value: tl.tensor, unit: tl.constexpr) -> tl.tensor:
    return (value * unit + 0.5).to(tl.int32)


@_jit
def _scaled_kernel(
    table: tl.tensor,
    sources: tl.tensor,
    targets: tl.tensor,
    pitch: tl.tensor,
    wide: tl.constexpr,
    planar: tl.constexpr,
    colors: tl.constexpr,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Scales pictures plane by plane, then converts colours. ``pitch`` is in samples."""
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    down = line + tl.load(table + TOP)
    across = column + tl.load(table + LEFT)
    unused = tl.load(table + UNUSED_BITS)
    step: tl.constexpr = 1 if planar else 2
    luma = _plane(sources, frame, 0, wide)
    blue = _plane(sources, frame, 1, wide)
    red = _plane(sources, frame, 2, wide) if planar else blue + 1
    y = _scaled(luma, pitch, 1, table + LUMA, unused, down, across)
    cb = _scaled(blue, pitch, step, table + CHROMA, unused, down, across)
    cr = _scaled(red, pitch, step, table + CHROMA, unused, down, across)
    if colors == KEEP:
        one, two, three = _round(y, 1.0), _round(cb, 1.0), _round(cr, 1.0)
        if wide:
            one, two, three = _upper_byte(one), _upper_byte(two), _upper_byte(three)
    else:
        unit: tl.constexpr = 2.0 if wide else 512.0
        one, two, three = _accurate_rgb(table, _round(y, unit), _round(cb, unit), _round(cr, unit))
    _store(targets, frame, table, line, column, one, two, three)


@_jit
def _finish_kernel(
    table: tl.tensor,
    values: tl.tensor,
    bases: tl.tensor,
    targets: tl.tensor,
    placements: tl.tensor,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Looks pixels of bases up and writes what they become."""
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < tl.load(table)) & (column < tl.load(table + 1))
    height = tl.load(table + 2)
    width = tl.load(table + 3)
    down = line + tl.load(placements + frame * 3)
    across = column + tl.load(placements + frame * 3 + 1)
    across = tl.where(tl.load(placements + frame * 3 + 2) != 0, width - 1 - across, across)
    base = tl.load(bases + frame).to(tl.pointer_type(tl.uint8)) + down * width + across
    target = tl.load(targets + frame).to(tl.pointer_type(values.dtype.element_ty))
    target = target + line * tl.load(table + 5) + column * tl.load(table + 6)
    for channel in tl.static_range(3):
        pixel = tl.load(base + channel * height * width, mask=kept, other=0).to(tl.int32)
        tl.store(target + channel * tl.load(table + 4), tl.load(values + channel * 256 + pixel), mask=kept)


@_jit
def _copy_kernel(
    sources: tl.tensor,
    targets: tl.tensor,
    pitch: tl.tensor,
    lines: tl.tensor,
    columns: tl.tensor,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Copies bytes, and leaves out what lies between lines."""
    picture = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < lines) & (column < columns)
    source = tl.load(sources + picture).to(tl.pointer_type(tl.uint8))
    target = tl.load(targets + picture).to(tl.pointer_type(tl.uint8))
    tl.store(target + line * columns + column, tl.load(source + line * pitch + column, mask=kept, other=0), mask=kept)


# --- tables ---------------------------------------------------------------------------------------------------------


def _table(conversion: Conversion) -> list[int]:
    """What kernels know of a conversion, in the order of the places above."""
    height, width = conversion.source_size
    lying = conversion.lying_size
    chroma = (height, width) if conversion.surface.planar else (-(-height // 2), -(-width // 2))
    table = [*_geometry(conversion), 16 - conversion.bit_depth if conversion.surface.wide else 0]
    table += _color_factors(conversion)
    for samples in ((height, width), chroma):
        table += [*_axis(samples[0], lying[0]), *_axis(samples[1], lying[1])]
    return table


def _geometry(conversion: Conversion) -> tuple[int, ...]:
    """Lines, columns, top, left, first, per line, per column, per channel."""
    top, left, height, width = conversion.crop or (0, 0, *conversion.upright_size)
    # Where lying pixels come to lie is linear, and as every step is one line or one column, so is the way back.
    (origin, origin_column), next_line, next_column = (
        _upright(place, conversion.orientation, conversion.lying_size) for place in ((0, 0), (1, 0), (0, 1))
    )
    by_line = (next_line[0] - origin, next_line[1] - origin_column)
    by_column = (next_column[0] - origin, next_column[1] - origin_column)
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


def _color_mode(conversion: Conversion) -> Any:
    if conversion.color_space == "YCbCr":
        return KEEP
    return FAST if conversion.surface is SurfaceFormat.NV12 and not conversion.scales else ACCURATE


def _color_factors(conversion: Conversion) -> list[int]:
    """Offset and factor of Y; factors of red of Cr, blue of Cb, green of Cb and green of Cr; as libswscale has them."""
    red, blue, green_cb, green_cr = MATRICES.get(conversion.matrix, BT601)
    luma, black = 1 << 16, 0
    if conversion.full_range:
        red, blue, green_cb, green_cr = (factor * 224 // 255 for factor in (red, blue, green_cb, green_cr))
    else:
        luma, black = luma * 255 // 219, 16
    unit = 8 if _color_mode(conversion) is FAST else 512
    return [black * unit, *(_to_13_bits(factor) for factor in (luma, red, blue, -green_cb, -green_cr))]


def _to_13_bits(factor: int) -> int:
    return min(max(((factor << 13) + (1 << 15)) >> 16, -0x7FFF), 0x7FFF)


def _axis(samples: int, results: int) -> tuple[int, int, int, int]:
    """How libswscale's bilinear filter scales: samples, results, samples a result in 1/65536, taps."""
    step = ((samples << 16) + (results >> 1)) // results
    if abs(step - 0x10000) < 10:
        return samples, samples, 0x10000, 1
    taps = 3 if step <= 0x10000 else 1 + -(-2 * samples // results)
    return samples, results, step, max(1, min(taps, samples - 2))


class _Kept:
    """Small things on devices that are made once and never given up, so that no kernel in flight can lose them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What was made for the key."""
        found = self._kept.get(key)
        if found is None:
            with self._lock:
                found = self._kept.get(key)
                if found is None:
                    found = self._kept[key] = make()
        return found


_KEPT = _Kept()


# --- launches -------------------------------------------------------------------------------------------------------

_compiled: set[Hashable] = set()
_compiling = threading.Lock()


def _run(kernel: Any, grid: tuple[int, ...], variant: tuple[Hashable, ...], arguments: tuple[Any, ...]) -> None:
    """Launches a kernel. The first time it is compiled, and by one thread alone.

    Others would do the same work, and Triton imports parts of itself for it, which may fail in several threads at once.
    """
    key = (id(kernel), variant)
    if key in _compiled:
        kernel[grid](*arguments)
        return
    with _compiling:
        kernel[grid](*arguments)
        _compiled.add(key)


@dataclass(frozen=True)
class _Launch:
    """A conversion that is ready for a device."""

    kernel: Any
    table: torch.Tensor
    grid: tuple[int, int]
    constants: tuple[Any, ...]


def convert(
    conversion: Conversion,
    sources: torch.Tensor,
    pitch: int,
    targets: torch.Tensor,
    stream: torch.cuda.Stream | None = None,
    count: int | None = None,
) -> None:
    """Converts decoded pictures, all in one launch; does not wait for it.

    Args:
        conversion: What the pictures are, and what is to be made of them.
        sources: int64 (n, 3) on the device: addresses of luma, of Cb (or of Cb and Cr together), and of Cr (or 0).
        pitch: Bytes from one line to the next, in all planes of all these pictures.
        targets: int64 (n,) on the device: addresses of arrays of bytes of ``conversion.output_shape``.
        stream: Where to launch; None for the current stream.
        count: How many of them there are, where the tables have room for more.
    """
    count = _count({"targets": (targets, 1), "sources": (sources, 3)}, count)
    if conversion.surface.wide and pitch % 2:
        raise ValueError(f"the pitch of 16-bit samples must be even, got {pitch}")
    if count == 0:
        return
    launch: _Launch = _KEPT.get((conversion, sources.device), lambda: _prepare(conversion, sources.device))
    samples = pitch // 2 if conversion.surface.wide else pitch
    with on_stream(stream, sources.device):
        arguments = (launch.table, sources, targets, samples, *launch.constants)
        _run(launch.kernel, (*launch.grid, count), (sources.device, samples % 16, *launch.constants), arguments)


def _prepare(conversion: Conversion, device: torch.device) -> _Launch:
    table = _table(conversion)
    tile = SCALED_TILE if conversion.scales else PLAIN_TILE
    return _Launch(
        _scaled_kernel if conversion.scales else _plain_kernel,
        torch.tensor(table, dtype=torch.int32).to(device),
        _grid((table[LINES.value], table[COLUMNS.value]), tile),
        (conversion.surface.wide, conversion.surface.planar, _color_mode(conversion).value, *tile),
    )


class BatchLayout(NamedTuple):
    """Where the frames of a batch lie.

    Attributes:
        begin: The address of the first frame of the first sample.
        sample, frame: Bytes from one sample to the next, and from one frame of a sample to the next.
        steps: Values from one channel to the next, from one line to the next, and from one column to the next.
    """

    begin: int
    sample: int
    frame: int
    steps: tuple[int, int, int]

    def address(self, row: int, place: int) -> int:
        """Where a frame of a sample begins."""
        return self.begin + row * self.sample + place * self.frame


def batch_layout(bound: BoundDesc, batch: torch.Tensor) -> BatchLayout:
    """That of a batch of the shape (samples, *bound.shape(frames)).

    Raises:
        ValueError: It has another size or type than the description says.
    """
    order = bound.desc.dimension_order
    lengths = dict(zip("n" + order, batch.shape, strict=True))
    if tuple(lengths[letter] for letter in "chw") != (3, *bound.output_size):
        raise ValueError(f"the description needs a batch of frames of {bound.output_size}, got {tuple(batch.shape)}")
    if batch.dtype != DTYPES[bound.desc.type][0]:
        raise ValueError(f"the description is for {DTYPES[bound.desc.type][0]}, got a batch of {batch.dtype}")
    step = dict(zip("n" + order, batch.stride(), strict=True))
    size = batch.element_size()
    return BatchLayout(batch.data_ptr(), step["n"] * size, step["f"] * size, (step["c"], step["h"], step["w"]))


def finish(
    bound: BoundDesc,
    steps: tuple[int, int, int],
    bases: torch.Tensor,
    targets: torch.Tensor,
    placements: torch.Tensor,
    stream: torch.cuda.Stream | None = None,
    count: int | None = None,
) -> None:
    """Writes kept frames into batches, all in one launch, with the bits that ``Finisher`` gives; does not wait for it.

    Args:
        bound: The description.
        steps: Those of the batches' layout; the same for all of them.
        bases: int64 (n,) on the device: addresses of arrays of bytes (3, height, width) of ``bound.base_size``.
        targets: int64 (n,) on the device: where the frames begin in their batches.
        placements: int64 (n, 3) on the device: what ``placement`` gives for the sample.
        stream: Where to launch; None for the current stream.
        count: How many of them there are, where the tables have room for more.
    """
    count = _count({"bases": (bases, 1), "targets": (targets, 1), "placements": (placements, 3)}, count)
    if count == 0:
        return
    device = bases.device
    values = _KEPT.get((bound.desc, device), lambda: _values_on(bound, device))
    table = _KEPT.get((bound, steps, device), lambda: _finish_table(bound, steps).to(device))
    with on_stream(stream, device):
        arguments = (table, values, bases, targets, placements, *FINISH_TILE)
        _run(_finish_kernel, (*_grid(bound.output_size, FINISH_TILE), count), (device, values.dtype), arguments)


def copy_pictures(
    sources: torch.Tensor,
    pitch: int,
    targets: torch.Tensor,
    size: Size,
    stream: torch.cuda.Stream | None = None,
    count: int | None = None,
) -> None:
    """Copies decoded pictures as they are, all in one launch; does not wait for it.

    Args:
        sources: int64 (n,) on the device: where they begin.
        pitch: Bytes from one of their lines to the next.
        targets: int64 (n,) on the device: where they go, one line directly behind the other.
        size: Lines, those of all planes, and bytes of a line.
        stream: Where to launch; None for the current stream.
        count: How many of them there are, where the tables have room for more.
    """
    count = _count({"sources": (sources, 1), "targets": (targets, 1)}, count)
    if count == 0:
        return
    lines, columns = size
    with on_stream(stream, sources.device):
        arguments = (sources, targets, pitch, lines, columns, *COPY_TILE)
        # Triton compiles for numbers that are one, and for those that can be divided by 16.
        variant = (sources.device, *((number % 16 == 0, number == 1) for number in (pitch, lines, columns)))
        _run(_copy_kernel, (*_grid(size, COPY_TILE), count), variant, arguments)


def _finish_table(bound: BoundDesc, steps: tuple[int, int, int]) -> torch.Tensor:
    """Size of the output and of the base; steps of channel, line and column."""
    return torch.tensor([*bound.output_size, *bound.base_size, *steps], dtype=torch.int64)


def _values_on(bound: BoundDesc, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(value_tables(bound.desc)).view(DTYPES[bound.desc.type][0]).to(device)


def placement(bound: BoundDesc, draw: Draw) -> tuple[int, int, int]:
    """Top, left and flip (0 or 1) of a sample that has drawn these numbers, as they apply to what was kept."""
    changes = bound.changes(draw)
    if bound.base_size == bound.output_size:
        return 0, 0, int(changes.flip)
    return changes.crop[0], changes.crop[1], int(changes.flip)


def _grid(size: Size, tile: Size) -> tuple[int, int]:
    return -(-size[1] // tile[1]), -(-size[0] // tile[0])


def _count(tables: dict[str, tuple[torch.Tensor, int]], count: int | None) -> int:
    """How many rows of tables count; all of one of them unless it is said."""
    if count is None:
        count = len(next(iter(tables.values()))[0])
        exact = True
    else:
        exact = False
    for name, (table, width) in tables.items():
        rows = table.shape[0]
        fits = rows == count if exact else rows >= count
        shape = (rows,) if width == 1 else (rows, width)
        if table.dtype != torch.int64 or not fits or table.shape != shape or not table.is_contiguous():
            wanted = (count,) if width == 1 else (count, width)
            raise ValueError(
                f"{name} must be a contiguous int64 tensor of the shape {wanted}, "
                f"got {table.dtype} and {tuple(table.shape)}"
            )
    return count
