"""Triton kernels. The only module that imports Triton.

Parameters of a stream are in a small table on the device, so a launch has few arguments, and kernels are not recompiled
for every size. Pictures are passed as tables of device addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framefeed.convert.conversion import ColorMode
from framefeed.convert.filters import TAPS
from framefeed.errors import MissingBackend

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise MissingBackend("Triton", "needed to convert frames on a GPU; install it: pip install triton") from error

__all__ = ["COLUMNS", "LINES", "copy_kernel", "finish_kernel", "picture_kernel", "plain_kernel", "scaled_kernel"]

_jit: Callable[[Callable[..., None]], Any] = triton.jit
_jit_part: Callable[[Callable[..., Any]], Any] = triton.jit

FAST: Any = tl.constexpr(ColorMode.FAST.value)
ACCURATE: Any = tl.constexpr(ColorMode.ACCURATE.value)
KEEP: Any = tl.constexpr(ColorMode.KEEP.value)
TABLES: Any = tl.constexpr(ColorMode.TABLES.value)

# Entries of a conversion's table. Lines and columns are those of the kept part, before it is rotated.
LINES: Any = tl.constexpr(0)
COLUMNS: Any = tl.constexpr(1)
TOP: Any = tl.constexpr(2)  # position of that part in the scaled picture
LEFT: Any = tl.constexpr(3)
FIRST: Any = tl.constexpr(4)  # offset of its first pixel in the result
PER_LINE: Any = tl.constexpr(5)  # added to it by the next line, column and channel
PER_COLUMN: Any = tl.constexpr(6)
PER_CHANNEL: Any = tl.constexpr(7)
UNUSED_BITS: Any = tl.constexpr(8)  # for samples wider than a byte
COLORS: Any = tl.constexpr(9)  # offset and factor of Y; factors Cr to red, Cb to blue, Cb to green, Cr to green
LUMA: Any = tl.constexpr(15)  # scaling of each plane down and across: samples, results, step, taps
CHROMA: Any = tl.constexpr(23)
# For filtered chroma: first sample and weights of each line of the picture, then of each column.
MIXED: Any = tl.constexpr(31)
PER_MIXED: Any = tl.constexpr(1 + TAPS)
MIXED_TAPS: Any = tl.constexpr(TAPS)


@_jit_part
def _plane(addresses: tl.tensor, frame: tl.tensor, number: tl.tensor, wide: tl.constexpr) -> tl.tensor:
    """Returns a pointer to a plane of a frame."""
    address = tl.load(addresses + frame * 3 + number)
    return address.to(tl.pointer_type(tl.uint16)) if wide else address.to(tl.pointer_type(tl.uint8))


@_jit_part
def _clip(value: tl.tensor) -> tl.tensor:
    return tl.minimum(tl.maximum(value, 0), 255)


@_jit_part
def _upper_byte(value: tl.tensor) -> tl.tensor:
    """Rounds 16 bits to 8."""
    return _clip((value + 128) >> 8)


@_jit_part
def _fast_rgb(table: tl.tensor, y: tl.tensor, cb: tl.tensor, cr: tl.tensor) -> tl.tensor:
    """Returns RGB of 8-bit samples."""
    y = ((y * 8 - tl.load(table + COLORS)) * tl.load(table + COLORS + 1)) >> 16
    cb = cb * 8 - 1024
    cr = cr * 8 - 1024
    red = y + ((cr * tl.load(table + COLORS + 2)) >> 16)
    green = y + ((cb * tl.load(table + COLORS + 4)) >> 16) + ((cr * tl.load(table + COLORS + 5)) >> 16)
    blue = y + ((cb * tl.load(table + COLORS + 3)) >> 16)
    return _clip(red), _clip(green), _clip(blue)


@_jit_part
def _to_byte(value: tl.tensor) -> tl.tensor:
    """Rounds 30 bits to 8."""
    return tl.minimum(tl.maximum(value, 0), 0x3FFFFFFF) >> 22


@_jit_part
def _accurate_rgb(table: tl.tensor, y: tl.tensor, cb: tl.tensor, cr: tl.tensor) -> tl.tensor:
    """Returns RGB of samples in units of 1/512 of an 8-bit level. Sums overflow as in libswscale."""
    y = (y - tl.load(table + COLORS)) * tl.load(table + COLORS + 1) + 0x200000
    cb = cb - 0x10000
    cr = cr - 0x10000
    red = y + cr * tl.load(table + COLORS + 2)
    green = y + cr * tl.load(table + COLORS + 5) + cb * tl.load(table + COLORS + 4)
    blue = y + cb * tl.load(table + COLORS + 3)
    return _to_byte(red), _to_byte(green), _to_byte(blue)


@_jit_part
def _table_rgb(table: tl.tensor, y: tl.tensor, cb: tl.tensor, cr: tl.tensor) -> tl.tensor:
    """Returns RGB of samples in units of 1/512 of an 8-bit level: each colour is the luma of equal brightness."""
    y = (y + 256) >> 9
    cb = _clip((cb + 256) >> 9)
    cr = _clip((cr + 256) >> 9)
    red = y + _in_lumas(cr, tl.load(table + COLORS + 2))
    green = y + _in_lumas(cb, tl.load(table + COLORS + 4)) + _in_lumas(cr, tl.load(table + COLORS + 5))
    blue = y + _in_lumas(cb, tl.load(table + COLORS + 3))
    return _brightness(table, red), _brightness(table, green), _brightness(table, blue)


@_jit_part
def _in_lumas(chroma: tl.tensor, factor: tl.tensor) -> tl.tensor:
    return ((chroma * factor) >> 16) - (factor >> 9)


@_jit_part
def _brightness(table: tl.tensor, luma: tl.tensor) -> tl.tensor:
    return _clip((luma * tl.load(table + COLORS + 1) + tl.load(table + COLORS)) >> 16)


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


@_jit_part
def _sample(place: tl.tensor, kept: tl.tensor, unused: tl.tensor) -> tl.tensor:
    return (tl.load(place, mask=kept, other=0).to(tl.int32) >> unused) << unused


@_jit_part
def _mixed(
    table: tl.tensor,
    plane: tl.tensor,
    down: tl.tensor,
    across: tl.tensor,
    kept: tl.tensor,
    pitch: tl.tensor,
    unused: tl.tensor,
    wide: tl.constexpr,
    colors: tl.constexpr,
) -> tl.tensor:
    """Returns chroma in units of 1/512 of an 8-bit level, filtered along odd lines, then between lines."""
    to_15_bits: tl.constexpr = 15 if wide else 7
    lines = table + MIXED + down * PER_MIXED
    columns = table + MIXED + (tl.load(table + LUMA) + across) * PER_MIXED
    above = tl.load(lines, mask=kept, other=0)
    total = 0 if colors == TABLES else 0x200
    for tap in tl.static_range(MIXED_TAPS):
        place = plane + tl.minimum(above + tap, tl.load(table + CHROMA) - 1) * pitch
        if colors == TABLES:
            along = _sample(place + (across >> 1) * 2, kept, unused) * 0x4000
        else:
            left = tl.load(columns, mask=kept, other=0)
            along = 0
            for step in tl.static_range(MIXED_TAPS):
                column = tl.minimum(left + step, tl.load(table + CHROMA + 4) - 1)
                weight = tl.load(columns + 1 + step, mask=kept, other=0)
                along += _sample(place + column * 2, kept, unused) * weight
        total += tl.minimum(along >> to_15_bits, 0x7FFF) * tl.load(lines + 1 + tap, mask=kept, other=0)
    return total >> 10


@_jit_part
def _plain_pixels(
    table: tl.tensor,
    sources: tl.tensor,
    frame: tl.tensor,
    down: tl.tensor,
    across: tl.tensor,
    kept: tl.tensor,
    pitch: tl.tensor,
    wide: tl.constexpr,
    planar: tl.constexpr,
    colors: tl.constexpr,
) -> tl.tensor:
    """Converts pixels of a picture that is not scaled."""
    luma = _plane(sources, frame, 0, wide)
    chroma = _plane(sources, frame, 1, wide)
    unused = tl.load(table + UNUSED_BITS)
    mixed: tl.constexpr = colors == TABLES or (colors == ACCURATE and not planar)
    unit: tl.constexpr = 2 if wide else 512
    y = _sample(luma + down * pitch + across, kept, unused)
    if mixed:
        cb = _mixed(table, chroma, down, across, kept, pitch, unused, wide, colors)
        cr = _mixed(table, chroma + 1, down, across, kept, pitch, unused, wide, colors)
    elif planar:
        place = down * pitch + across
        cb = _sample(chroma + place, kept, unused)
        cr = _sample(_plane(sources, frame, 2, wide) + place, kept, unused)
    else:
        place = (down >> 1) * pitch + (across >> 1) * 2
        cb = _sample(chroma + place, kept, unused)
        cr = _sample(chroma + place + 1, kept, unused)
    if colors == FAST:
        y, cb, cr = _fast_rgb(table, y, cb, cr)
    elif colors == TABLES:
        y, cb, cr = _table_rgb(table, y * unit, cb, cr)
    elif mixed:
        y, cb, cr = _accurate_rgb(table, y * unit, cb, cr)
    elif colors == ACCURATE:
        y, cb, cr = _accurate_rgb(table, y * unit, cb * unit, cr * unit)
    elif wide:
        y, cb, cr = _upper_byte(y), _upper_byte(cb), _upper_byte(cr)
    return y, cb, cr


@_jit
def plain_kernel(
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
    """Converts pictures without scaling. ``pitch`` is in samples."""
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < tl.load(table + LINES)) & (column < tl.load(table + COLUMNS))
    down = line + tl.load(table + TOP)
    across = column + tl.load(table + LEFT)
    one, two, three = _plain_pixels(table, sources, frame, down, across, kept, pitch, wide, planar, colors)
    _store(targets, frame, table, line, column, one, two, three)


@_jit_part
def _taps(axis: tl.tensor, number: tl.tensor) -> tl.tensor:
    """Returns the first tap of a result, its distance from the centre, and the weight lost per sample of distance."""
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
    """Scales a plane by a triangle filter as wide as the samples per result. The edge is repeated."""
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


@_jit_part
def _scaled_pixels(
    table: tl.tensor,
    sources: tl.tensor,
    frame: tl.tensor,
    down: tl.tensor,
    across: tl.tensor,
    pitch: tl.tensor,
    wide: tl.constexpr,
    planar: tl.constexpr,
    colors: tl.constexpr,
) -> tl.tensor:
    """Scales the planes of a picture, then converts colours."""
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
    return one, two, three


@_jit
def scaled_kernel(
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
    """Scales pictures and converts them. ``pitch`` is in samples."""
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    down = line + tl.load(table + TOP)
    across = column + tl.load(table + LEFT)
    one, two, three = _scaled_pixels(table, sources, frame, down, across, pitch, wide, planar, colors)
    _store(targets, frame, table, line, column, one, two, three)


@_jit
def finish_kernel(
    table: tl.tensor,
    values: tl.tensor,
    intermediates: tl.tensor,
    targets: tl.tensor,
    placements: tl.tensor,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Looks up pixels of intermediates and writes their final values."""
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < tl.load(table)) & (column < tl.load(table + 1))
    height = tl.load(table + 2)
    width = tl.load(table + 3)
    down = line + tl.load(placements + frame * 3)
    across = column + tl.load(placements + frame * 3 + 1)
    across = tl.where(tl.load(placements + frame * 3 + 2) != 0, width - 1 - across, across)
    base = tl.load(intermediates + frame).to(tl.pointer_type(tl.uint8)) + down * width + across
    target = tl.load(targets + frame).to(tl.pointer_type(values.dtype.element_ty))
    target = target + line * tl.load(table + 5) + column * tl.load(table + 6)
    for channel in tl.static_range(3):
        pixel = tl.load(base + channel * height * width, mask=kept, other=0).to(tl.int32)
        tl.store(target + channel * tl.load(table + 4), tl.load(values + channel * 256 + pixel), mask=kept)


@_jit
def picture_kernel(
    table: tl.tensor,
    places: tl.tensor,
    values: tl.tensor,
    sources: tl.tensor,
    targets: tl.tensor,
    placements: tl.tensor,
    pitch: tl.tensor,
    scales: tl.constexpr,
    swaps: tl.constexpr,
    wide: tl.constexpr,
    planar: tl.constexpr,
    colors: tl.constexpr,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Converts and finishes pictures in one kernel, without an intermediate in memory.

    ``swaps``: lines of the result are columns of the picture.
    """
    frame = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < tl.load(places)) & (column < tl.load(places + 1))
    below = line + tl.load(placements + frame * 3).to(tl.int32)
    beside = column + tl.load(placements + frame * 3 + 1).to(tl.int32)
    flipped = tl.load(placements + frame * 3 + 2) != 0
    beside = tl.where(flipped, tl.load(places + 2).to(tl.int32) - 1 - beside, beside)
    if swaps:
        below, beside = beside, below
    down = tl.load(places + 6).to(tl.int32) + below * tl.load(places + 7).to(tl.int32)
    across = tl.load(places + 8).to(tl.int32) + beside * tl.load(places + 9).to(tl.int32)
    if scales:
        one, two, three = _scaled_pixels(table, sources, frame, down, across, pitch, wide, planar, colors)
    else:
        one, two, three = _plain_pixels(table, sources, frame, down, across, kept, pitch, wide, planar, colors)
    target = tl.load(targets + frame).to(tl.pointer_type(values.dtype.element_ty))
    target = target + line * tl.load(places + 4) + column * tl.load(places + 5)
    step = tl.load(places + 3)
    tl.store(target, tl.load(values + one, mask=kept, other=0), mask=kept)
    tl.store(target + step, tl.load(values + 256 + two, mask=kept, other=0), mask=kept)
    tl.store(target + 2 * step, tl.load(values + 512 + three, mask=kept, other=0), mask=kept)


@_jit
def copy_kernel(
    sources: tl.tensor,
    targets: tl.tensor,
    pitch: tl.tensor,
    lines: tl.tensor,
    columns: tl.tensor,
    tile_lines: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """Copies the bytes of lines, without their padding."""
    picture = tl.program_id(2)
    line = tl.program_id(1) * tile_lines + tl.arange(0, tile_lines)[:, None]
    column = tl.program_id(0) * tile_columns + tl.arange(0, tile_columns)[None, :]
    kept = (line < lines) & (column < columns)
    source = tl.load(sources + picture).to(tl.pointer_type(tl.uint8))
    target = tl.load(targets + picture).to(tl.pointer_type(tl.uint8))
    tl.store(target + line * columns + column, tl.load(source + line * pitch + column, mask=kept, other=0), mask=kept)
