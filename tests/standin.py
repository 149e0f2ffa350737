"""A GPU's stand-in: what runs on one runs here, with PyAV's decoders, and with NumPy for kernels.

Pictures come out when a hardware decoder would give them, and lie in memory that is overwritten when it is fed again.
They are converted to gray: three times their luma. All calls are done when they return, so what waits for what on
streams is not tested by this.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import itertools
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any, cast

import av
import numpy as np
import torch
from numpy.typing import NDArray

from framefeed import VideoDecoder, VideoLoader
from framefeed.data import videos
from framefeed.decode import default, nvdec
from framefeed.process.finish import Finisher

UNITS = 2
GARBAGE = 7  # what is left of pictures
CODECS = {"H264": "h264", "HEVC": "hevc", "VP8": "vp8", "VP9": "vp9"}
DEVICE = torch.device("cpu")
MEMORY = 8 << 30


class StandIn:
    """What it has been used for.

    Attributes:
        decoders: That were made.
        pictures: That came out of them.
    """

    def __init__(self) -> None:
        self.decoders = 0
        self.pictures = 0
        self.lock = threading.Lock()

    def reader(self, decoder: VideoDecoder) -> Any:
        """What reads a decoder's frames on the stand-in."""
        from framefeed.process.transforms import compile_transforms
        from framefeed.reading_cuda import CudaReader

        geometry = compile_transforms(None, *decoder.index.stream.display_size)
        return CudaReader(decoder.index, decoder._media, "CHW", geometry, DEVICE)

    @property
    def loader(self) -> type[VideoLoader]:
        """A VideoLoader that works on it."""
        from framefeed.data.workshop_cuda import CudaWorkshop

        class Loader(VideoLoader):
            def _set_up(self) -> None:
                super()._set_up()
                self._workshop = CudaWorkshop(DEVICE, self.memory_budget)

        return Loader


# --- PyNvVideoCodec -------------------------------------------------------------------------------------------------


class _Packet:
    bsl_data = bsl = pts = 0


class _Frame:
    """A picture in a decoder's memory."""

    def __init__(self, memory: NDArray[np.uint8], width: int, height: int, pts: int) -> None:
        self._memory = memory
        self._pts = pts
        self.shape = (height * 3 // 2, width)
        self.framesize = width * height * 3 // 2
        self.format = "Pixel_Format.NV12"

    def GetPtrToPlane(self, plane: int) -> int:  # noqa: N802
        return self._memory.ctypes.data

    def getPTS(self) -> int:  # noqa: N802
        return self._pts


class _Decoder:
    """Gives pictures in order of display; those of a call lie where those of the call before did."""

    def __init__(self, used: StandIn, codec: str) -> None:
        self._used = used
        self._codec = codec
        self._context: Any = None
        self._surfaces: list[NDArray[np.uint8]] = []

    def setReconfigParams(self, width: int, height: int) -> None:  # noqa: N802
        self._surfaces = []

    def Decode(self, packet: Any) -> list[_Frame]:  # noqa: N802
        data = ctypes.string_at(packet.bsl_data, packet.bsl) if packet.bsl else b""
        if data:  # at the end of a stream the last pictures come to lie over the first ones, and others stay
            for surface in self._surfaces:
                surface[:] = GARBAGE
        try:
            pictures = self._pictures(data, packet.pts)
        except av.FFmpegError as error:
            self._context = None
            raise RuntimeError(f"a packet cannot be decoded: {error}") from error
        with self._used.lock:
            self._used.pictures += len(pictures)
        return [self._keep(place, picture) for place, picture in enumerate(pictures)]

    def _pictures(self, data: bytes, pts: int) -> list[Any]:
        if self._context is None:
            self._context = av.CodecContext.create(self._codec, "r")
            self._context.thread_count = 1
        if not data:
            pictures = self._context.decode(None)
            self._context = None
            return cast("list[Any]", pictures)
        joined = self._codec in ("h264", "hevc")
        packets = [*self._context.parse(data), *self._context.parse(None)] if joined else [av.Packet(data)]
        found = []
        for packet in packets:
            packet.pts = pts
            found += self._context.decode(packet)
        return found

    def _keep(self, place: int, picture: Any) -> _Frame:
        width, height = picture.width + picture.width % 2, picture.height + picture.height % 2
        while len(self._surfaces) <= place:
            self._surfaces.append(np.empty(width * height * 3 // 2, np.uint8))
        plane = picture.planes[0]
        luma = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: picture.height, : picture.width]
        self._surfaces[place][: width * height].reshape(height, width)[: picture.height, : picture.width] = luma
        return _Frame(self._surfaces[place], width, height, picture.pts or 0)


class _Names:
    def __getattr__(self, name: str) -> str:
        return name


def _library(used: StandIn) -> types.SimpleNamespace:
    def create(**arguments: Any) -> _Decoder:
        with used.lock:
            used.decoders += 1
        return _Decoder(used, CODECS[arguments["codec"]])

    def capabilities(**arguments: Any) -> dict[str, int]:
        sizes = {"width_min": 16, "height_min": 16, "width_max": 4096, "height_max": 4096}
        return {"supported": int(arguments["bitdepth"] == 8), "num_decoder_engines": UNITS, **sizes}

    return types.SimpleNamespace(
        PacketData=_Packet,
        CreateDecoder=create,
        GetDecoderCaps=capabilities,
        cudaVideoCodec=_Names(),
        cudaVideoChromaFormat=_Names(),
        OutputColorType=_Names(),
    )


# --- CUDA -----------------------------------------------------------------------------------------------------------


class _Stream:
    _handles = itertools.count(1)

    def __init__(self, device: Any = None) -> None:
        self.cuda_stream = next(self._handles)
        self.device = DEVICE


class _Event:
    def __init__(self, stream: int) -> None:
        self.stream = stream

    def wait(self, stream: int) -> None:
        pass

    def synchronize(self) -> None:
        pass


def _at(address: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Memory as an array."""
    size = int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).reshape(shape)


def _copy(target: int, source: int, num_bytes: int, stream: int) -> None:
    ctypes.memmove(target, source, num_bytes)


def _convert(conversion: Any, sources: Any, pitch: int, targets: Any, stream: Any, count: int) -> None:
    """Luma three times; pictures are neither scaled nor turned."""
    height, width = conversion.source_size
    assert conversion.output_size == (height, width), "the stand-in does not scale"
    for (luma, *_), target in zip(sources[:count].tolist(), targets[:count].tolist(), strict=True):
        picture = _at(luma, (height, pitch))[:, :width]
        if conversion.layout == "CHW":
            _at(target, (3, height, width))[:] = picture
        else:
            _at(target, (height, width, 3))[:] = picture[..., None]


def _finish(
    bound: Any, bases: Any, batch: Any, rows: Any, places: Any, placements: Any, stream: Any, count: int
) -> None:
    """What the CPU does."""
    finisher = Finisher(bound)
    for base, row, place in zip(bases[:count].tolist(), rows.tolist(), places.tolist(), strict=False):
        finisher.finish(_at(base, (3, *bound.base_size)), batch[row], place, types.SimpleNamespace(flip=False))  # type: ignore[arg-type]


def _triton() -> dict[str, Any]:
    language = types.ModuleType("triton.language")
    language.constexpr = lambda value: types.SimpleNamespace(value=value)  # type: ignore[attr-defined]
    triton = types.ModuleType("triton")
    triton.language, triton.jit = language, lambda kernel: kernel  # type: ignore[attr-defined]
    return {"triton": triton, "triton.language": language}


_LOADED = ("process.cuda", "process.surfaces", "reading_cuda", "data.workshop_cuda")


@contextlib.contextmanager
def installed(patch: Any) -> Iterator[StandIn]:
    """Has everything that would go to a GPU go to the stand-in meanwhile.

    Args:
        patch: pytest's ``monkeypatch``.
    """
    used = StandIn()
    caches: tuple[Any, ...] = (nvdec._library, nvdec.capabilities, default.cuda_engine)
    for name, module in {**_triton(), "PyNvVideoCodec": _library(used)}.items():
        patch.setitem(sys.modules, name, module)
    for name in _LOADED:
        patch.delitem(sys.modules, f"framefeed.{name}", raising=False)
    for cache in caches:
        cache.cache_clear()
    patch.setattr("framefeed.driver.Event", _Event)
    patch.setattr("framefeed.driver.new_stream", _Stream)
    patch.setattr("framefeed.driver.on_device", lambda device: contextlib.nullcontext())
    patch.setattr("framefeed.driver.copy_on_device", _copy)
    patch.setattr("framefeed.process.timelines.Event", _Event)
    patch.setattr(nvdec, "new_stream", _Stream)
    patch.setattr(nvdec, "copy_on_device", _copy)
    caller = types.SimpleNamespace(cuda_stream=0, device=DEVICE)
    patch.setattr(torch.cuda, "current_stream", lambda device=None: caller)
    patch.setattr(torch.cuda, "default_stream", lambda device=None: caller)
    patch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    facts = types.SimpleNamespace(total_memory=MEMORY)
    patch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    open_video = videos.open_video
    patch.setattr(videos, "open_video", lambda *given: dataclasses.replace(open_video(*given), on_cpu=False))
    for name in _LOADED:
        importlib.import_module(f"framefeed.{name}")
    patch.setattr("framefeed.process.surfaces.convert", _convert)
    patch.setattr("framefeed.data.workshop_cuda.finish", _finish)
    patch.setattr("framefeed.data.workshop_cuda.placement", lambda bound, draw: (0, 0, 0))
    try:
        yield used
    finally:
        for name in _LOADED:
            sys.modules.pop(f"framefeed.{name}", None)
        for cache in caches:
            cache.cache_clear()
