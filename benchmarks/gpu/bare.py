"""The floor beneath framefeed in the GPU benchmark: PyNvVideoCodec's decoders alone."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.dlpack import from_dlpack

from benchmarks.clips import ClipSet, expected_numbers, read_numbers
from benchmarks.gpu.device import Device, side_by_side
from benchmarks.gpu.peers import library, message
from benchmarks.harness import Contender, Run

__all__ = ["LEAST_SIZE", "Bare", "Packets", "new_decoder", "view"]

PIECE = 32  # packets that are given to a decoder at once; a group may be longer
LEAST_SIZE = (1920, 1088)  # what framefeed's decoders are made for, at least


class Packets:
    """The groups of a set in memory, as hardware decoders want them: a list of byte strings each."""

    def __init__(self, files: Sequence[Path], codec: str) -> None:
        self.groups: list[list[bytearray]] = []
        self.names: list[tuple[int, int]] = []  # file and first frame of each group
        for file, path in enumerate(files):
            first = 0
            for group in _groups(path, codec):
                self.groups.append(group)
                self.names.append((file, first))
                first += len(group)


def _groups(path: Path, codec: str) -> Iterator[list[bytearray]]:
    group: list[bytearray] = []
    with av.open(path) as container:
        stream = container.streams.video[0]
        annex_b = av.BitStreamFilterContext(f"{codec}_mp4toannexb", stream)
        for packet in container.demux(stream):
            for changed in annex_b.filter(packet if packet.size else None):
                if changed.is_keyframe and group:
                    yield group
                    group = []
                group.append(bytearray(bytes(changed)))
    yield group


def new_decoder(device: Device, codec: str, size: tuple[int, int], **more: Any) -> Any:
    """A decoder as framefeed makes them, on a stream of its own.

    Args:
        device: Where.
        codec: As FFmpeg calls it.
        size: Width and height of pictures.
        more: Further arguments of PyNvVideoCodec.
    """
    nvc = library()
    return nvc.CreateDecoder(
        gpuid=0,
        codec=getattr(nvc.cudaVideoCodec, codec.upper()),
        cudacontext=0,
        cudastream=device.new_stream().cuda_stream,
        usedevicememory=1,
        maxwidth=max(LEAST_SIZE[0], size[0]),
        maxheight=max(LEAST_SIZE[1], size[1]),
        outputColorType=nvc.OutputColorType.NATIVE,
        **more,
    )


class Bare(Contender):
    """Decoders on threads that do nothing else, with packets from memory; their pictures are counted and left.

    Args:
        device: Where.
        clips: The set.
        packets: Its packets.
        decoders: One for each thread; they are made once and used by several of these.
        bulk: Whether a decoder gets up to 32 packets at once, not one, and the end of the stream with the last ones.

    Attributes:
        note: What has to be known about its check.
    """

    note = ""

    def __init__(self, device: Device, clips: ClipSet, packets: Packets, decoders: list[Any], *, bulk: bool) -> None:
        self._device = device
        self._clips = clips
        self._decoders = decoders
        self._names = packets.names
        length = PIECE if bulk else 1
        # Views keep the memory where it is; an address and a length are all that is handed over.
        self._groups = [
            [view(bytearray(b"".join(group[at : at + length]))) for at in range(0, len(group), length)]
            for group in packets.groups
        ]
        self._packets = [library().PacketData() for _ in decoders]
        self._last = [library().PacketData() for _ in decoders]
        for packet in self._last if bulk else ():  # one call less
            packet.decode_flag = library().VideoPacketFlag.ENDOFSTREAM
        self._bulk = bulk
        self._next = [itertools.cycle(range(len(self._groups))) for _ in decoders]
        for thread, places in enumerate(self._next):
            for _ in range(thread % len(self._groups)):
                next(places)

    @staticmethod
    def make_decoders(device: Device, clips: ClipSet) -> list[Any]:
        """Makes as many as framefeed uses, each on a stream of its own."""
        return [new_decoder(device, clips.codec, (clips.width, clips.height)) for _ in range(device.num_decoders)]

    def work(self, thread: int) -> int:
        """A group."""
        number = next(self._next[thread])
        count = sum(len(frames) for frames in self._decode(thread, number))
        expected = len(self._group_numbers(number))
        if count != expected:
            raise RuntimeError(f"{count} pictures of {expected}")
        return count

    def _decode(self, thread: int, number: int) -> Iterator[list[Any]]:
        decode, group = self._decoders[thread].Decode, self._groups[number]
        for place, (address, size, _) in enumerate(group):
            packet = self._last[thread] if self._bulk and place + 1 == len(group) else self._packets[thread]
            packet.bsl_data, packet.bsl, packet.pts = address, size, place
            yield decode(packet)
        if not self._bulk:
            self._last[thread].bsl = 0
            yield decode(self._last[thread])

    def _group_numbers(self, number: int) -> range:
        first = self._names[number][1]
        return range(first, min(first + self._clips.gop, self._clips.frames))

    def check(self) -> int:
        """Numbers in the luma of each file's first and last group."""
        wrong = 0
        files = [file for file, _ in self._names]
        for file in sorted(set(files)):
            for number in {files.index(file), len(files) - 1 - files[::-1].index(file)}:
                wrong += self._check_group(number)
        return wrong

    def _check_group(self, number: int) -> int:
        expected = expected_numbers(self._names[number][0], self._group_numbers(number))
        wrong = came = 0
        for frames in self._decode(0, number):
            self._device.synchronize()
            for frame, pair in zip(frames, expected[came:], strict=False):
                found = self._read(frame)
                wrong += found is not None and bool((found != pair).any())
            came += len(frames)
        return wrong + abs(came - len(expected))

    def _read(self, frame: Any) -> NDArray[np.int64] | None:
        try:
            return cast("NDArray[np.int64]", read_numbers(_luma(frame, self._clips.height)[None, None])[0])
        except Exception as error:  # a floor that is not known is worse than one whose pictures are counted only
            self.note = f"pictures are counted, not read: {message(error)}"
            return None

    def run(self, seconds: float) -> Run:
        """A timing."""
        return side_by_side(self.work, len(self._decoders), seconds, self._device)

    def close(self) -> None:
        """Drops the decoders and their packets."""
        self._decoders.clear()
        self._groups = []


def view(data: bytearray) -> tuple[int, int, Any]:
    """Address and length, and what keeps the memory where it is."""
    holder = ctypes.c_char.from_buffer(data)
    return ctypes.addressof(holder), len(data), holder


def _luma(frame: Any, height: int) -> torch.Tensor:
    """The upper part of a picture in NV12."""
    picture = from_dlpack(frame)
    return (picture if picture.ndim == 2 else picture[..., 0])[:height]
