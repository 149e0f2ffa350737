"""Conversion of a ``VideoIndex`` to plain values, for ``framefeed info``."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from framefeed import VideoIndex
    from framefeed.index.table import PacketTable

__all__ = ["describe", "group_sizes"]


def describe(index: VideoIndex) -> dict[str, Any]:
    """Returns everything in an index that JSON can hold."""
    return {
        "file": index.path,
        "stream": _stream(index),
        "time": _time(index),
        "frames": {"count": index.num_frames, "header_says": index.stream.header_frames},
        "packets": _packets(index),
        "groups": _groups(index.packets),
        "random_frame_cost": {
            "skipping_nonreference": _cost(index.packets),
            "feeding_all": _cost(_without_nonref(index.packets)),
        },
    }


def group_sizes(table: PacketTable) -> NDArray[np.int64]:
    """Returns the number of frames that decode from each random-access point, if any do."""
    import numpy as np

    return np.unique(table.start[table.frames], return_counts=True)[1].astype(np.int64)


def _stream(index: VideoIndex) -> dict[str, Any]:
    from framefeed.index import color_names

    stream = index.stream
    height, width = stream.display_size
    return {
        "container": stream.container,
        "stream_index": stream.stream_index,
        "codec": stream.codec,
        "width": width,
        "height": height,
        "stored_width": stream.width,
        "stored_height": stream.height,
        "rotation_degrees": 90 * stream.orientation.quarter_turns,
        "mirrored": stream.orientation.mirrored,
        "pixel_aspect": _ratio(stream.sample_aspect_ratio),
        "pixel_format": stream.pix_fmt,
        "color_space": color_names.SPACES.get(stream.color_space),
        "color_range": color_names.RANGES.get(stream.color_range),
        "color_primaries": color_names.PRIMARIES.get(stream.color_primaries),
        "color_transfer": color_names.TRANSFERS.get(stream.color_transfer),
        "bit_rate": stream.bit_rate,
        "byte_ranges": index.byte_ranges,
    }


def _time(index: VideoIndex) -> dict[str, Any]:
    stream = index.stream
    claimed = stream.header_duration
    return {
        "time_base": _ratio(stream.time_base, "/"),
        "begin_seconds": index.begin_seconds,
        "duration_seconds": index.duration_seconds,
        "header_duration_seconds": None if claimed is None else float(claimed * stream.time_base),
        "fps": index.average_fps,
        "header_fps": None if stream.average_rate is None else float(stream.average_rate),
    }


def _packets(index: VideoIndex) -> dict[str, Any]:
    from framefeed.index.bitstream import PacketKind
    from framefeed.index.table import DISCARD

    table = index.packets
    return {
        "count": len(table),
        "bytes": int(table.size.sum()),
        "nonreference": int(table.has(PacketKind.NONREF).sum()),
        "nonreference_share": index.nonreference_share(),
        "hidden": int(table.has(PacketKind.HIDDEN).sum()),
        "hidden_by_edit_list": int(table.has(DISCARD).sum()),
        "second_fields": int(table.has(PacketKind.SECOND_FIELD).sum()),
    }


def _groups(table: PacketTable) -> dict[str, Any]:
    import numpy as np

    numbers = np.arange(len(table))
    points = np.flatnonzero(table.start == numbers)
    latest = points[np.searchsorted(points, numbers, side="right") - 1]
    # Leading pictures follow a random-access point and decode from the one before it: the group is open.
    leading = table.start < latest
    sizes = group_sizes(table)
    return {
        "count": len(points),
        "open": len(np.unique(latest[leading])),
        "leading_packets": int(leading.sum()),
        "frames_min": int(sizes.min()),
        "frames_median": float(np.median(sizes)),
        "frames_max": int(sizes.max()),
    }


def _without_nonref(table: PacketTable) -> PacketTable:
    import numpy as np

    from framefeed.index.bitstream import PacketKind

    return dataclasses.replace(table, flags=table.flags & np.uint16(0xFFFF & ~int(PacketKind.NONREF)))


def _cost(table: PacketTable) -> dict[str, float]:
    import numpy as np

    from framefeed.plan import random_frame_cost

    cost = random_frame_cost(table)
    return {"mean": float(cost.mean()), "median": float(np.median(cost)), "max": int(cost.max())}


def _ratio(value: Fraction | None, mark: str = ":") -> str | None:
    return None if value is None else f"{value.numerator}{mark}{value.denominator}"
