"""Batches in a GPU's memory, and frames that are kept for them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from framefeed.batch.assembly import Assembly, Place, Samples, SampleShape
from framefeed.batch.videos import OpenVideo, Videos
from framefeed.convert.conversion import Conversion
from framefeed.convert.cuda.launch import batch_layout, finish, placement
from framefeed.convert.cuda.surfaces import StreamContext
from framefeed.convert.desc import BoundDesc, IntermediateSpec
from framefeed.convert.finish import DTYPES
from framefeed.cuda.driver import on_device
from framefeed.cuda.timelines import Moment, Timeline, default_timeline
from framefeed.decode.surface import SurfaceLayout

__all__ = ["DeviceAssembly", "DeviceIntermediates", "Frames", "Pictures", "finish_frames", "finish_pictures"]

Frames = list[tuple[tuple[int, ...], Sequence[Place]]]
"""Frames for one batch: the addresses of their bases, and where they go."""

Pictures = list[tuple[Any, "DeviceAssembly", Place]]
"""Decoded pictures, each with the one place where it goes."""


@dataclass(eq=False)
class DeviceIntermediates:
    """A cached frame in device memory.

    Attributes:
        arrays: One array for each kind, or one for the decoded picture.
        addresses: Where these begin.
        layout: Of the decoded picture; None where bases are kept.
        ready: After this moment it can be read; None where nothing has been written.
        in_use: After all of these moments it may be written again; the last one of each stream.
    """

    arrays: dict[IntermediateSpec | None, torch.Tensor]
    addresses: tuple[int, ...]
    layout: SurfaceLayout | None = None
    ready: Moment | None = None
    in_use: dict[Timeline, Moment] = field(default_factory=dict)

    def __del__(self) -> None:
        # Its memory may be handed out again at once, to be used on the default stream.
        device = next(iter(self.arrays.values())).device.index or 0
        with contextlib.suppress(Exception), on_device(device):
            default_timeline(device).wait_for(self.in_use.values())


class DeviceAssembly(Assembly):
    """A batch on a GPU. Memory is allocated for the default stream.

    Attributes:
        allocated: After these moments its memory may be written: when it was handed out, and when pictures were written
            that were not the right ones.
        written: After all of these it is complete.
        layouts: By name, where frames lie.
    """

    def __init__(self, videos: Videos, samples: Samples, shape: SampleShape, device: torch.device) -> None:
        self._device = device
        self.written: list[Moment] = []
        super().__init__(videos, samples, shape, stacked=True)
        self.allocated = [default_timeline(device.index or 0).now()]
        first = next(iter(self._known.values()))
        self.layouts = {name: batch_layout(first.bound[name], tensor) for name, tensor in self.batch.items()}

    def reject(self) -> None:
        """Something in it is going to be written again."""
        self.allocated += self.written

    def _empty(self, bound: BoundDesc, count: int) -> torch.Tensor:
        shape = (count, *bound.shape(self._shape.num_frames(bound.desc)))
        with torch.cuda.stream(torch.cuda.default_stream(self._device)):
            return torch.empty(shape, dtype=DTYPES[bound.desc.type][0], device=self._device)

    def _split(self, count: int) -> list[dict[str, torch.Tensor]]:
        return []

    def _clear(self, row: int, k: int) -> None:
        with torch.cuda.stream(torch.cuda.default_stream(self._device)):
            self.rows = self.rows or super()._split(len(self.samples))
            super()._clear(row, k)

    def __del__(self) -> None:
        # Where nobody took the batch, its memory must not be handed out again before all is written to it.
        if not self.written:
            return
        device = self._device.index or 0
        with contextlib.suppress(Exception), on_device(device):
            default_timeline(device).wait_for(self.written)


def finish_frames(batches: Mapping[DeviceAssembly, Frames], lane: StreamContext) -> None:
    """Launches what makes the final values of frames: once for each description, whatever the number of batches."""
    work: dict[tuple[int, Any], tuple[BoundDesc, list[tuple[int, int, tuple[int, int, int]]]]] = {}
    for assembly, frames in batches.items():
        for name, layout in assembly.layouts.items():
            order = assembly.places[name]
            for addresses, places in frames:
                for row, k in places:
                    if order[k] < 0:
                        continue
                    video = assembly.video(row, k)
                    own = video.bound[name]
                    found = work.get((id(own), layout.steps))
                    if found is None:
                        found = work[id(own), layout.steps] = (own, [])
                    how = _placement(own, assembly, row)
                    which = 0 if len(addresses) == 1 else list(video.intermediate_shapes).index(own.intermediate)
                    found[1].append((addresses[which], layout.address(row, order[k]), how))
    for (_, steps), (own, entries) in work.items():
        for low in range(0, len(entries), lane.placing.capacity):
            part = entries[low : low + lane.placing.capacity]
            from_, to, placements = lane.placing.send(len(part), *zip(*part, strict=True))
            finish(own, steps, from_, to, placements, lane.stream, len(part))


def finish_pictures(
    video: OpenVideo, conversions: Mapping[IntermediateSpec, Conversion], pictures: Pictures, lane: StreamContext
) -> None:
    """Launches what makes the final values of pictures, once for each description; nothing lies in between."""
    for name, own in video.bound.items():
        conversion = conversions[own.intermediate]
        plain = _is_plain(own)
        by_steps: dict[Any, tuple[list[Any], list[int], list[tuple[int, int, int]]]] = {}
        for picture, assembly, (row, k) in pictures:
            place = assembly.places[name][k]
            if place < 0:
                continue
            layout = assembly.layouts[name]
            surfaces, targets, placements = by_steps.setdefault(layout.steps, ([], [], []))
            surfaces.append(picture)
            targets.append(layout.address(row, place))
            if not plain:
                placements.append(_placement(own, assembly, row))
        for steps, (surfaces, targets, placements) in by_steps.items():
            if plain:
                lane.convert(conversion, surfaces, targets)
            else:
                lane.finish(conversion, own, steps, surfaces, targets, placements)


def _placement(own: BoundDesc, assembly: DeviceAssembly, row: int) -> tuple[int, int, int]:
    moves = own.desc.random_flip or own.intermediate_size != own.output_size
    return placement(own, assembly.samples.draw(row)) if moves else (0, 0, 0)


def _is_plain(own: BoundDesc) -> bool:
    """Returns whether a cached frame goes into the batch as it is."""
    desc = own.desc
    plain = desc.type == "byte" and desc.dimension_order == "fchw" and not desc.random_flip
    return plain and own.intermediate_size == own.output_size
