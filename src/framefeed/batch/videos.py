"""The files of a dataset: what is in each, opened as needed and a bounded number at a time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from framefeed._util.lazy_property import cached_property
from framefeed._util.process.fork import in_forked_children
from framefeed.convert.cpu.intermediate import IntermediateWriter
from framefeed.convert.desc import BoundDesc, IntermediateSpec, ProcessDesc
from framefeed.decode.nvdec.capabilities import PixelFormat, pixel_format
from framefeed.device import Fallback, choose_decoder
from framefeed.errors import FrameSizeError
from framefeed.index.video_index import VideoIndex
from framefeed.source import PacketSource, media_of, open_source

if TYPE_CHECKING:
    import torch

__all__ = ["Intermediates", "OpenVideo", "Videos", "bind", "open_video"]

MAX_OPEN = 512  # each is a packet table and a few small objects; files themselves are opened and closed elsewhere

LEAST_SAVING = 0.75  # of the bytes of bases that decoded pictures may have to be kept in their place

Intermediates = Mapping[IntermediateSpec, NDArray[np.uint8]]
"""Intermediates of one decoded picture: an 8-bit array for each kind that a description asks for."""


@dataclass(frozen=True, eq=False)
class OpenVideo:
    """A video that is being read.

    Attributes:
        name: Its file as the user spells it.
        index: Its packets.
        source: Gives the bytes of packets.
        bound: By name, the descriptions for this video's size.
        writers: What makes each of the bases that they need.
        starts: For each frame, the packet that its decoding starts from.
        on_cpu: Whether it is decoded on the CPU, whatever the device.
        conversions: What a GPU has to know to make the bases, by the layout of its decoder's pictures.
    """

    name: str
    index: VideoIndex
    source: PacketSource
    bound: Mapping[str, BoundDesc]
    writers: Mapping[IntermediateSpec, IntermediateWriter]
    starts: NDArray[np.int64]
    on_cpu: bool = True
    conversions: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def intermediate_shapes(self) -> dict[IntermediateSpec, tuple[int, int, int]]:
        """The shape of each base."""
        return {bound.intermediate: (3, *bound.intermediate_size) for bound in self.bound.values()}

    @cached_property
    def intermediate_bytes(self) -> int:
        """Bytes of all bases of one frame."""
        return sum(3 * height * width for _, height, width in self.intermediate_shapes.values())

    @cached_property
    def shares_no_base(self) -> bool:
        """True if each description has an intermediate of its own."""
        return len(self.intermediate_shapes) == len(self.bound)

    @cached_property
    def kept_size(self) -> tuple[int, int] | None:
        """Lines and bytes of a line of a frame that is kept as a GPU decodes it; None where its bases are kept.

        Decoded pictures of the usual kind have half as many bytes as RGB of the same size. But bases are made of them
        each time they are used, so it is done only where it saves a good deal.
        """
        stream = self.index.stream
        format_ = None if self.on_cpu else pixel_format(stream.pix_fmt)
        if format_ != PixelFormat("420", 8):
            return None
        lines, columns = (side + side % 2 for side in (stream.height, stream.width))
        kept = (lines * 3 // 2, columns)
        return kept if kept[0] * kept[1] <= LEAST_SAVING * self.intermediate_bytes else None

    @cached_property
    def frame_bytes(self) -> int:
        """Bytes of one frame that is kept."""
        return self.intermediate_bytes if self.kept_size is None else self.kept_size[0] * self.kept_size[1]


class Videos:
    """Opens videos by number. May be used by several threads at once, and after a fork.

    Args:
        names: The files, as the user spells them.
        find: Gives the index of a file by its number.
        processing: The descriptions.
        device: Where frames go.
        fallback: ``"cpu"`` where videos that a GPU cannot decode are decoded on the CPU.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        find: Callable[[int], VideoIndex],
        processing: Mapping[str, ProcessDesc],
        device: torch.device,
        fallback: Fallback,
    ) -> None:
        self._device = device
        self._fallback: Fallback = fallback
        self._names = names
        self._find = find
        self._processing = processing
        self._reset()
        in_forked_children(self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[int, OpenVideo] = OrderedDict()

    def __getitem__(self, number: int) -> OpenVideo:
        video = self._open.get(number)
        if video is not None:
            if len(self._open) > MAX_OPEN // 2:  # otherwise the order does not matter yet, and all threads come here
                with self._lock:
                    if number in self._open:
                        self._open.move_to_end(number)
            return video
        video = self._read(number)
        with self._lock:
            video = self._open.setdefault(number, video)
            if len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return video

    def _read(self, number: int) -> OpenVideo:
        index = self._find(number)
        source = open_source(index, media_of(index))
        return open_video(self._names[number], index, source, self._processing, self._device, self._fallback)


def open_video(
    name: str,
    index: VideoIndex,
    source: PacketSource,
    processing: Mapping[str, ProcessDesc],
    device: torch.device,
    fallback: Fallback,
) -> OpenVideo:
    """A video that is to be read; the arguments are those of ``Videos`` and of ``OpenVideo``."""
    bound = {each: bind(each, desc, index) for each, desc in processing.items()}
    kinds = {each.intermediate for each in bound.values()}
    packets = index.packets
    return OpenVideo(
        name,
        index,
        source,
        bound,
        {kind: IntermediateWriter(index.stream, kind) for kind in kinds},
        packets.start[packets.frames],
        device.type == "cpu" or bool(choose_decoder(index, device, fallback)),
    )


@lru_cache(maxsize=256)
def _bound(desc: ProcessDesc, height: int, width: int) -> BoundDesc:
    return desc.bind(height, width)


def bind(name: str, desc: ProcessDesc, index: VideoIndex) -> BoundDesc:
    """A description for the frames of a video.

    Raises:
        FrameSizeError: It does not fit to them.
    """
    try:
        return _bound(desc, *index.stream.display_size)
    except ValueError as error:
        raise FrameSizeError(index.path, f"cannot be processed as {name!r} says: {error}") from error
