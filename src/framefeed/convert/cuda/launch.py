"""Launches the kernels: decoded pictures to intermediates, and intermediates to batches.

The results imitate `rgb.py`, `intermediate.py` and `finish.py` on the CPU, for many frames per launch: bit for bit
without scaling, up to rounding with scaling.

Frames are passed as device addresses, because decoders lend their surfaces for a short time only.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from framefeed.convert.conversion import Conversion, color_mode, conversion_table, inverse_affine
from framefeed.convert.cuda.device_tables import DeviceTableCache
from framefeed.convert.cuda.kernels import (
    COLUMNS,
    LINES,
    copy_kernel,
    finish_kernel,
    picture_kernel,
    plain_kernel,
    scaled_kernel,
)
from framefeed.convert.cuda.tables import on_stream
from framefeed.convert.desc import BoundDesc, Draw, Size
from framefeed.convert.finish import DTYPES, value_tables

__all__ = ["BatchLayout", "batch_layout", "convert", "copy_pictures", "finish", "finish_pictures", "placement"]

# Lines and columns of a program's tile.
PLAIN_TILE = (8, 128)
SCALED_TILE = (8, 32)
FINISH_TILE = (8, 128)
COPY_TILE = (8, 256)

_TABLES = DeviceTableCache()
_compiled: set[Hashable] = set()
_compiling = threading.Lock()


def _run(kernel: Any, grid: tuple[int, ...], variant: tuple[Hashable, ...], arguments: tuple[Any, ...]) -> None:
    """Launches a kernel; the first launch compiles it in one thread.

    Other threads would compile it as well, and Triton then imports parts of itself, which may fail in several threads
    at once.
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
    """A conversion prepared for a device."""

    kernel: Any
    tables: tuple[torch.Tensor]
    grid: tuple[int, int]
    constants: tuple[Any, ...]


@dataclass(frozen=True)
class _PictureLaunch:
    """A conversion and a description prepared for a device."""

    tables: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
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
    """Converts decoded pictures in one launch; returns without waiting for it.

    Args:
        conversion: Format of the pictures and of the results.
        sources: int64 (n, 3) on the device: addresses of luma, of Cb (or interleaved Cb and Cr), and of Cr (or 0).
        pitch: Bytes from one line to the next, in all planes of all pictures.
        targets: int64 (n,) on the device: addresses of byte arrays of shape ``conversion.output_shape``.
        stream: Stream of the launch; None for the current stream.
        count: Number of pictures, if the tables have room for more.
    """
    count = _count({"targets": (targets, 1), "sources": (sources, 3)}, count)
    samples = _in_samples(conversion, pitch)
    if count == 0:
        return
    device = sources.device
    launch: _Launch = _TABLES.get((conversion, device), lambda: _prepare(conversion, device), _where(stream, device))
    with on_stream(stream, device):
        arguments = (*launch.tables, sources, targets, samples, *launch.constants)
        _run(launch.kernel, (*launch.grid, count), (device, samples % 16, *launch.constants), arguments)


def _where(stream: torch.cuda.Stream | None, device: torch.device) -> torch.cuda.Stream | None:
    """Returns the stream of a launch; None without CUDA."""
    return torch.cuda.current_stream(device) if stream is None and device.type == "cuda" else stream


def _in_samples(conversion: Conversion, pitch: int) -> int:
    if conversion.surface.wide and pitch % 2:
        raise ValueError(f"the pitch of 16-bit samples must be even, got {pitch}")
    return pitch // 2 if conversion.surface.wide else pitch


def _prepare(conversion: Conversion, device: torch.device) -> _Launch:
    table = conversion_table(conversion)
    tile = SCALED_TILE if conversion.scales else PLAIN_TILE
    return _Launch(
        scaled_kernel if conversion.scales else plain_kernel,
        (torch.tensor(table, dtype=torch.int32).to(device),),
        _grid((table[LINES.value], table[COLUMNS.value]), tile),
        (conversion.surface.wide, conversion.surface.planar, color_mode(conversion).value, *tile),
    )


class BatchLayout(NamedTuple):
    """Memory layout of the frames of a batch.

    Attributes:
        begin: Address of the first frame of the first sample.
        sample, frame: Bytes from one sample to the next, and from one frame of a sample to the next.
        steps: Values from one channel to the next, from one line to the next, and from one column to the next.
    """

    begin: int
    sample: int
    frame: int
    steps: tuple[int, int, int]

    def address(self, row: int, place: int) -> int:
        """Returns the address of a frame of a sample."""
        return self.begin + row * self.sample + place * self.frame


def batch_layout(bound: BoundDesc, batch: torch.Tensor) -> BatchLayout:
    """Returns the layout of a batch of shape (samples, *bound.shape(frames)).

    Raises:
        ValueError: The batch does not have the size or type of the description.
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
    intermediates: torch.Tensor,
    targets: torch.Tensor,
    placements: torch.Tensor,
    stream: torch.cuda.Stream | None = None,
    count: int | None = None,
) -> None:
    """Writes intermediates into batches in one launch, bit for bit as ``Finisher`` does; returns without waiting for
    it.

    Args:
        bound: The description.
        steps: Steps of the batches' layout; the same for all of them.
        intermediates: int64 (n,) on the device: addresses of byte arrays (3, height, width) of
            ``bound.intermediate_size``.
        targets: int64 (n,) on the device: addresses of the frames in their batches.
        placements: int64 (n, 3) on the device: ``placement`` of the sample.
        stream: Stream of the launch; None for the current stream.
        count: Number of frames, if the tables have room for more.
    """
    count = _count({"intermediates": (intermediates, 1), "targets": (targets, 1), "placements": (placements, 3)}, count)
    if count == 0:
        return
    device = intermediates.device
    where = _where(stream, device)
    values = _TABLES.get((bound.desc, device), lambda: _values_on(bound, device), where)
    table = _TABLES.get((bound, steps, device), lambda: _finish_table(bound, steps).to(device), where)
    with on_stream(stream, device):
        arguments = (table, values, intermediates, targets, placements, *FINISH_TILE)
        _run(finish_kernel, (*_grid(bound.output_size, FINISH_TILE), count), (device, values.dtype), arguments)


def finish_pictures(
    conversion: Conversion,
    bound: BoundDesc,
    steps: tuple[int, int, int],
    sources: torch.Tensor,
    pitch: int,
    targets: torch.Tensor,
    placements: torch.Tensor,
    stream: torch.cuda.Stream | None = None,
    count: int | None = None,
) -> None:
    """Converts and finishes pictures in one launch, with the same bits as ``convert`` and ``finish``.

    Args:
        conversion: Format of the pictures and of ``bound.intermediate``.
        bound: The description.
        steps: Steps of the batches' layout; the same for all of them.
        sources: As for ``convert``.
        pitch: Bytes from one line to the next, in all planes of all pictures.
        targets: int64 (n,) on the device: addresses of the frames in their batches.
        placements: int64 (n, 3) on the device: ``placement`` of the sample.
        stream: Stream of the launch; None for the current stream.
        count: Number of pictures, if the tables have room for more.
    """
    count = _count({"targets": (targets, 1), "sources": (sources, 3), "placements": (placements, 3)}, count)
    samples = _in_samples(conversion, pitch)
    if conversion.output_size != bound.intermediate_size:
        gives, needs = conversion.output_size, bound.intermediate_size
        raise ValueError(f"the conversion gives {gives}, but the description needs {needs}")
    if count == 0:
        return
    device = sources.device
    launch: _PictureLaunch = _TABLES.get(
        (conversion, bound, steps, device),
        lambda: _prepare_pictures(conversion, bound, steps, device),
        _where(stream, device),
    )
    with on_stream(stream, device):
        arguments = (*launch.tables, sources, targets, placements, samples, *launch.constants)
        variant = (device, samples % 16, launch.tables[2].dtype, *launch.constants)
        _run(picture_kernel, (*launch.grid, count), variant, arguments)


def copy_pictures(
    sources: torch.Tensor,
    pitch: int,
    targets: torch.Tensor,
    size: Size,
    stream: torch.cuda.Stream | None = None,
    count: int | None = None,
) -> None:
    """Copies decoded pictures unchanged in one launch; returns without waiting for it.

    Args:
        sources: int64 (n,) on the device: addresses of the pictures.
        pitch: Bytes from one line to the next.
        targets: int64 (n,) on the device: addresses of the copies, which have no padding.
        size: Lines of all planes together, and bytes of a line.
        stream: Stream of the launch; None for the current stream.
        count: Number of pictures, if the tables have room for more.
    """
    count = _count({"sources": (sources, 1), "targets": (targets, 1)}, count)
    if count == 0:
        return
    lines, columns = size
    with on_stream(stream, sources.device):
        arguments = (sources, targets, pitch, lines, columns, *COPY_TILE)
        # Triton compiles variants for arguments equal to one and for multiples of 16.
        variant = (sources.device, *((number % 16 == 0, number == 1) for number in (pitch, lines, columns)))
        _run(copy_kernel, (*_grid(size, COPY_TILE), count), variant, arguments)


def _finish_table(bound: BoundDesc, steps: tuple[int, int, int]) -> torch.Tensor:
    """Returns sizes of the output and of the intermediate, and steps of channel, line and column."""
    return torch.tensor([*bound.output_size, *bound.intermediate_size, *steps], dtype=torch.int64)


def _prepare_pictures(
    conversion: Conversion, bound: BoundDesc, steps: tuple[int, int, int], device: torch.device
) -> _PictureLaunch:
    plain: _Launch = _TABLES.get((conversion, device), lambda: _prepare(conversion, device), None)
    # Size of the output; width of the converted picture; steps of channel, line and column; the inverse rotation.
    numbers = [*bound.output_size, bound.intermediate_size[1], *steps, *inverse_affine(conversion)]
    places = torch.tensor(numbers, dtype=torch.int64)
    tile = SCALED_TILE if conversion.scales else PLAIN_TILE
    return _PictureLaunch(
        (*plain.tables, places.to(device), _TABLES.get((bound.desc, device), lambda: _values_on(bound, device), None)),
        _grid(bound.output_size, tile),
        (conversion.scales, conversion.orientation.swaps_sides, *plain.constants),
    )


def _values_on(bound: BoundDesc, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(value_tables(bound.desc)).view(DTYPES[bound.desc.type][0]).to(device)


def placement(bound: BoundDesc, draw: Draw) -> tuple[int, int, int]:
    """Returns top, left and flip (0 or 1) for a sample's random numbers, relative to the intermediate."""
    changes = bound.changes(draw)
    if bound.intermediate_size == bound.output_size:
        return 0, 0, int(changes.flip)
    return changes.crop[0], changes.crop[1], int(changes.flip)


def _grid(size: Size, tile: Size) -> tuple[int, int]:
    return -(-size[1] // tile[1]), -(-size[0] // tile[0])


def _count(tables: dict[str, tuple[torch.Tensor, int]], count: int | None) -> int:
    """Returns the number of valid rows of tables; by default all."""
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
