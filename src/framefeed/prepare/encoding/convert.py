"""Converts decoded pictures to the output format with FFmpeg filters: crop, resize, rotate, pixel format."""

from __future__ import annotations

from typing import Any

import av
import av.filter

from framefeed.prepare.encoding.picture_format import FULL_RANGE, UNSPECIFIED, PictureFormat, is_rgb

__all__ = ["Converter"]

# Bicubic filters widen in libswscale as pictures shrink, so that all pixels count. The other two flags make results
# equal on all processors, and rounding exact.
_SCALING = "bicubic+accurate_rnd+bitexact"

_TURNS = {0: (), 1: ("transpose=cclock",), 2: ("hflip", "vflip"), 3: ("transpose=clock",)}
_SYMMETRIC = ("yuv420p", "yuv420p10le", "yuv444p", "yuv444p10le", "gray", "gray10le", "gbrp", "gbrp10le")


class Converter:
    """Converts the pictures of one video.

    Args:
        target: The output format.
        num_threads: Threads of the filters.

    Attributes:
        sizes: Stored sizes of the pictures seen.
        interlaced: True if any picture was marked as interlaced.
    """

    def __init__(self, target: PictureFormat, num_threads: int = 1) -> None:
        self._target = target
        self._num_threads = num_threads
        self._graphs: dict[tuple[Any, ...], av.filter.Graph | None] = {}
        self.sizes: set[tuple[int, int]] = set()
        self.interlaced = False

    def __call__(self, picture: Any) -> Any:
        """Converts a picture; the input must not be used afterwards."""
        target = self._target
        rgb = is_rgb(picture.format.name)
        self.sizes.add((picture.width, picture.height))
        self.interlaced |= bool(picture.interlaced_frame)
        if not rgb:
            # The container's values apply where the stream has none. The same for all, or filters would restart.
            if picture.colorspace == UNSPECIFIED:
                picture.colorspace = target.color_space
            full = picture.format.name.startswith("yuvj") or (picture.color_range or target.color_range) == FULL_RANGE
            picture.color_range = FULL_RANGE if full else picture.color_range or target.color_range
        key = (picture.width, picture.height, picture.format.name, picture.colorspace, picture.color_range)
        if key not in self._graphs:
            self._graphs[key] = self._make_graph(*key, rgb)
        graph = self._graphs[key]
        if graph is not None:
            picture.pts = 0
            graph.vpush(picture)
            picture = graph.vpull()
        picture.pict_type = 0  # or the encoder would reuse the source's keyframes
        return picture

    def _make_graph(
        self, width: int, height: int, pix_fmt: str, space: int, extent: int, rgb: bool
    ) -> av.filter.Graph | None:
        steps = self._steps(width, height, pix_fmt, extent, rgb)
        if not steps:
            return None
        graph = av.filter.Graph()
        graph.threads = self._num_threads
        colors = "" if rgb else f":colorspace={space}:range={extent}"
        nodes = [graph.add("buffer", f"video_size={width}x{height}:pix_fmt={pix_fmt}:time_base=1/1{colors}")]
        for step in steps:
            name, _, arguments = step.partition("=")
            nodes.append(graph.add(name, arguments or None))
        nodes.append(graph.add("buffersink"))
        graph.link_nodes(*nodes).configure()
        return graph

    def _steps(self, width: int, height: int, pix_fmt: str, extent: int, rgb: bool) -> list[str]:
        target = self._target
        size = (width & ~1, height & ~1)
        steps = [] if size == (width, height) else [f"crop={size[0]}:{size[1]}:0:0"]
        scaled = (target.scaled_width, target.scaled_height)
        turns = [
            *(("hflip",) if target.orientation.mirrored else ()),
            *_TURNS[target.orientation.quarter_turns],
        ]
        to = target.pix_fmt
        if target.orientation.swaps_sides and to not in _SYMMETRIC:
            # Otherwise chroma halved in one direction would be halved in the other one as well.
            to = "yuv444p10le" if to.endswith("10le") else "yuv444p"
            turns.append(f"scale=flags={_SCALING}")
            turns.append(f"format={target.pix_fmt}")
        if size != scaled or pix_fmt != to:
            steps += [self._scale(scaled, extent, rgb), f"format={to}"]
        return steps + turns

    def _scale(self, size: tuple[int, int], extent: int, rgb: bool) -> str:
        step = f"scale={size[0]}:{size[1]}:flags={_SCALING}:interl=-1"
        if rgb and not is_rgb(self._target.pix_fmt):
            return f"{step}:out_color_matrix=bt709:out_range=limited"
        if not rgb and extent == FULL_RANGE:
            return f"{step}:in_range=full:out_range=full"
        return step
