"""A GPU's stand-in: what runs on one runs here, with PyAV's decoders, and with NumPy for kernels.

Pictures come out when a hardware decoder would give them, and lie in memory that is overwritten when it is fed again.
They are converted to gray: three times their luma.

All calls are done when they return, whatever stream they are for. Whether they would be in the right order on a GPU is
told by clocks: each access to device memory is noted, and what neither came before it on its stream nor was waited for
must not have touched the same memory.

With ``FRAMEFEED_TEST_LIBRARY=PyNvVideoCodec`` in the environment, decoders are those of PyNvVideoCodec itself, on an
emulated driver.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import dataclasses
import importlib
import itertools
import os
import re
import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import av
import numpy as np
import torch
from numpy.typing import NDArray

import emulated
import interpreted
from framefeed import VideoDecoder
from framefeed.batch import videos
from framefeed.convert.desc import Draw
from framefeed.convert.finish import Finisher
from framefeed.cuda import timelines
from framefeed.cuda.driver import DEFAULT_STREAM
from framefeed.decode import default
from framefeed.decode.nvdec import capabilities, nvcuvid
from framefeed.decode.nvdec import session_nvdec as nvdec
from framefeed.loader import loader
from framefeed.media.native import NativeFrame
from framefeed.packets import packet_decoder

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
        ends: How often they were told of the end of a stream by itself, behind all packets.
        heeds_ends: Whether they do if they are told together with the last packets.
        full: Whether there is no memory left for pictures.
        order: What is known of its streams.
    """

    def __init__(self) -> None:
        self.decoders = 0
        self.pictures = 0
        self.ends = 0
        self.heeds_ends = True
        self.full = False
        self.lock = threading.Lock()
        self.order = Order()
        self._sequences: dict[bytes, nvcuvid.Sequence] = {}

    def sequence(self, codec: str, content: bytes) -> nvcuvid.Sequence | None:
        """What is known of a stream by its parameter sets, which come first."""
        sets = content[: content.find(b"\0\0\0\1\x68")]
        with self.lock:  # of many groups, one tells for all
            found = self._sequences.get(sets) or _sequence(codec, content)
            if found is not None:
                self._sequences[sets] = found
        return found

    def look_at(self, tensor: torch.Tensor) -> torch.Tensor:
        """What whoever gets a tensor does with it: reads it, on the current stream.

        A batch whose rows were picked from another has memory of its own, which is written where it is read.
        """
        if self.order.knows(tensor.data_ptr(), tensor.nbytes):
            self.order.read(tensor.data_ptr(), tensor.nbytes, self.order.current)
        return tensor

    def reader(self, decoder: VideoDecoder) -> Any:
        """What reads a decoder's frames on the stand-in."""
        from framefeed.convert.transforms import compile_transforms
        from framefeed.decoder.reading_cuda import CudaReader

        geometry = compile_transforms(None, *decoder.index.stream.display_size)
        return CudaReader(decoder.index, decoder._media, "CHW", geometry, DEVICE)

    def natives(self, decoder: VideoDecoder, wanted: list[int]) -> list[NativeFrame]:
        """Frames as they were decoded."""
        found: dict[int, NativeFrame] = {}
        plan = self.reader(decoder).read_native(np.array(wanted), found.__setitem__)
        for source, target in plan.copies:
            found[target] = found[source]
        return [found[row] for row in range(len(wanted))]


class Watched(StandIn):
    """The same of PyNvVideoCodec itself, by what the emulated driver is asked for."""

    def __init__(self, driver: emulated.Driver) -> None:
        self.driver = driver
        driver.reset(self)
        super().__init__()

    def __getattribute__(self, name: str) -> Any:
        told = {"decoders": "made", "pictures": "picture"}.get(name)
        if told is not None:
            return self.driver.count(told)
        return getattr(self.driver, name) if name in _DRIVERS else super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _DRIVERS:
            setattr(self.driver, name, value)
        elif name not in ("decoders", "pictures"):
            super().__setattr__(name, value)


_DRIVERS = ("ends", "heeds_ends", "full")


# --- what comes before what -----------------------------------------------------------------------------------------


class Access(NamedTuple):
    """One access to memory.

    Attributes:
        begin, end: What was touched.
        writes: Whether it was written.
        stream, tick: Where, and when by that stream's own clock.
        what: For messages.
    """

    begin: int
    end: int
    writes: bool
    stream: int
    tick: int
    what: str


@dataclasses.dataclass(eq=False)
class _Block:
    """Memory that was allocated.

    Attributes:
        begin, end: Where it lies.
        stream: For which it was.
        users: Other streams that have to be done with it before it goes to somebody else.
        accesses: Those that matter.
        freed: Whether it has gone back.
    """

    begin: int
    end: int
    stream: int
    users: set[int]
    accesses: list[Access]
    freed: bool = False


class Order:
    """The clocks of streams, and who touched what.

    Attributes:
        clocks: For each stream, what it has seen of others.
    """

    def __init__(self) -> None:
        self._races: list[str] = []  # what was done, and what it did not wait for
        self._freed: deque[tuple[_Block, dict[int, int]]] = deque()
        self.clocks: dict[int, dict[int, int]] = {}
        self._blocks: list[_Block] = []  # in order of their addresses
        self._lock = threading.RLock()
        self._thread = threading.local()

    @property
    def current(self) -> int:
        """The current stream of this thread."""
        return getattr(self._thread, "stream", DEFAULT_STREAM)

    @contextlib.contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Makes a stream the current one."""
        before, self._thread.stream = self.current, int(stream.cuda_stream)
        try:
            yield
        finally:
            self._thread.stream = before

    def moment(self, stream: int) -> dict[int, int]:
        """What has been done by now, as an event has it."""
        with self._lock:
            return dict(self._clock(stream))

    def wait(self, stream: int, moment: dict[int, int]) -> None:
        """A stream waits for an event."""
        with self._lock:
            clock = self._clock(stream)
            for other, tick in moment.items():
                clock[other] = max(clock.get(other, 0), tick)

    def allocate(self, begin: int, size: int, stream: int | None) -> _Block:
        """Memory is handed out on a stream, where somebody else may have used it before; without one, to all."""
        with self._lock:
            self._settle()
            self._blocks = [block for block in self._blocks if block.end <= begin or begin + size <= block.begin]
            place = bisect.bisect([block.begin for block in self._blocks], begin)
            block = _Block(begin, begin + size, stream or DEFAULT_STREAM, set(), [])
            self._blocks.insert(place, block)
        if stream is not None:
            self.write(begin, size, stream, "allocating")
        return block

    def free(self, block: _Block) -> None:
        """Memory goes back; from now on it may be handed out again on its stream. Finalizers call this anywhere."""
        block.freed = True
        seen = dict(self._clock(block.stream))
        for user in tuple(block.users):
            for other, tick in dict(self._clock(user)).items():
                seen[other] = max(seen.get(other, 0), tick)
        self._freed.append((block, seen))

    def _settle(self) -> None:
        """Looks at what was freed: whoever gets it next does not wait for others than its stream."""
        while self._freed:
            block, seen = self._freed.popleft()
            self._check(Access(block.begin, block.end, True, block.stream, 0, "freeing"), block, seen)

    def use(self, begin: int, stream: int) -> None:
        """Memory is used on another stream than it was allocated for."""
        with self._lock:
            place = bisect.bisect([block.begin for block in self._blocks], begin) - 1
            self._blocks[place].users.add(stream)

    def found(self) -> list[str]:
        """What is not in order."""
        with self._lock:
            self._settle()
            return self._races

    def knows(self, begin: int, size: int) -> bool:
        """Whether that is memory that was allocated on the device."""
        with self._lock:
            blocks = [block for block in self._blocks if not block.freed]
            return any(block.begin <= begin and begin + size <= block.end for block in blocks)

    def allocated(self) -> int:
        """Bytes of memory that have not gone back."""
        with self._lock:
            return sum(block.end - block.begin for block in self._blocks if not block.freed)

    def read(self, begin: int, size: int, stream: int, what: str = "reading") -> None:
        """Notes that something is read."""
        self._touch(begin, size, stream, False, what)

    def write(self, begin: int, size: int, stream: int, what: str = "writing") -> None:
        """Notes that something is written."""
        self._touch(begin, size, stream, True, what)

    def _clock(self, stream: int) -> dict[int, int]:
        return self.clocks.setdefault(stream, {stream: 0})

    def _touch(self, begin: int, size: int, stream: int, writes: bool, what: str) -> None:
        with self._lock:
            clock = self._clock(stream)
            clock[stream] += 1
            place = bisect.bisect([block.begin for block in self._blocks], begin) - 1
            assert place >= 0 and begin + size <= self._blocks[place].end, f"{what}: not the device's memory"
            block = self._blocks[place]
            if block.freed:
                self._races.append(f"{what} on stream {stream} touches memory that has gone back")
            access = Access(begin, begin + size, writes, stream, clock[stream], what)
            self._check(access, block, clock)
            # What it has covered does not matter any more: it has waited for it, or for the same stream.
            block.accesses = [
                old
                for old in block.accesses
                if not (begin <= old.begin and old.end <= begin + size)
                or not (writes or (old.stream == stream and not old.writes))
            ]
            block.accesses.append(access)

    def _check(self, access: Access, block: _Block, seen: dict[int, int]) -> None:
        for old in block.accesses:
            apart = old.end <= access.begin or access.end <= old.begin
            if not apart and (old.writes or access.writes) and seen.get(old.stream, 0) < old.tick:
                self._races.append(
                    f"{access.what} on stream {access.stream} does not wait for {old.what} on stream {old.stream}"
                )


# --- PyNvVideoCodec -------------------------------------------------------------------------------------------------


class _Packet:
    bsl_data = bsl = pts = 0
    decode_flag: object = None


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


def _sequence(codec: str, content: bytes) -> nvcuvid.Sequence | None:
    """What NVIDIA's parser would say; x264 and x265 write how many references they use into the stream."""
    context: Any = av.CodecContext.create(codec, "r")
    try:
        for packet in [*context.parse(content), *context.parse(None)][:1]:
            context.decode(packet)
    except av.FFmpegError:
        return None
    if not context.coded_width:
        return None  # a damaged picture: FFmpeg has not looked at the headers
    told = re.search(rb" ref=(\d+)", content)
    return nvcuvid.Sequence((context.coded_width, context.coded_height), int(told[1]) if told else 4, True)


class _Decoder:
    """Gives pictures in order of display; those of a call lie where those of the call before did.

    It is configured anew where the coded size changes, and only there: with too few surfaces, pictures are not right.
    What it gives of coded pictures changes then, too, if it has been told so; otherwise they come scaled.
    """

    def __init__(self, used: StandIn, codec: str, stream: int) -> None:
        self._used = used
        self._codec = codec
        self._stream = stream
        self._context: Any = None
        self._surfaces: list[NDArray[np.uint8]] = []
        self._sequence: nvcuvid.Sequence | None = None
        self._starved = self._scaled = False
        self._told: tuple[int, int] | None = None
        self._room = (1 << 16, 1 << 16)  # what it gives of coded pictures

    def setReconfigParams(self, width: int, height: int) -> None:  # noqa: N802
        self._surfaces = []
        self._told = (width, height)

    def Decode(self, packet: Any) -> list[_Frame]:  # noqa: N802
        data = ctypes.string_at(packet.bsl_data, packet.bsl) if packet.bsl else b""
        if self._used.full:
            raise RuntimeError("cuMemAlloc returned CUDA_ERROR_OUT_OF_MEMORY")
        if data:  # those that come behind the end of a stream lie over the first ones, and others stay
            for surface in self._surfaces:
                surface[:] = GARBAGE
        try:
            pictures = self._pictures(data, packet.pts)
            if data and packet.decode_flag == "ENDOFSTREAM" and self._used.heeds_ends:
                pictures += self._pictures(b"", 0)
        except av.FFmpegError as error:
            self._context = None
            raise RuntimeError(f"a packet cannot be decoded: {error}") from error
        with self._used.lock:
            self._used.pictures += len(pictures)
            self._used.ends += not data
        return [self._keep(place, picture) for place, picture in enumerate(pictures)]

    def _pictures(self, data: bytes, pts: int) -> list[Any]:
        if self._context is None:
            self._context = av.CodecContext.create(self._codec, "r")
            self._context.thread_count = 1
            self._configure(data)
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

    def _configure(self, data: bytes) -> None:
        needed = self._used.sequence(self._codec, data) if self._codec in ("h264", "hevc") else None
        if needed is None:
            return
        if self._sequence is None or needed.size != self._sequence.size:
            self._scaled = self._sequence is not None and self._told is None
            if self._sequence is not None and self._told is not None:
                self._room, self._told = self._told, None
            self._sequence = needed
        self._starved = needed.surfaces > self._sequence.surfaces

    def _keep(self, place: int, picture: Any) -> _Frame:
        width, height = picture.width + picture.width % 2, picture.height + picture.height % 2
        order = self._used.order
        while len(self._surfaces) <= place:
            surface = np.empty(width * height * 3 // 2, np.uint8)
            block = order.allocate(surface.ctypes.data, surface.nbytes, self._stream)
            weakref.finalize(surface, order.free, block).atexit = False
            self._surfaces.append(surface)
        order.write(self._surfaces[place].ctypes.data, self._surfaces[place].nbytes, self._stream, "decoding")
        plane = picture.planes[0]
        luma = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: picture.height, : picture.width]
        if self._starved or self._scaled:
            luma = np.full_like(luma, GARBAGE)
        elif picture.width > self._room[0] or picture.height > self._room[1]:
            luma = luma.copy()
            luma[self._room[1] :] = luma[:, self._room[0] :] = GARBAGE
        self._surfaces[place][: width * height].reshape(height, width)[: picture.height, : picture.width] = luma
        return _Frame(self._surfaces[place], width, height, picture.pts or 0)


class _Names:
    def __getattr__(self, name: str) -> str:
        return name


def _library(used: StandIn) -> types.SimpleNamespace:
    def create(**arguments: Any) -> _Decoder:
        with used.lock:
            used.decoders += 1
        return _Decoder(used, CODECS[arguments["codec"]], arguments["cudastream"])

    def capabilities(**arguments: Any) -> dict[str, int]:
        sizes = {"width_min": 16, "height_min": 16, "width_max": 4096, "height_max": 4096}
        return {"supported": int(arguments["bitdepth"] == 8), "num_decoder_engines": UNITS, **sizes}

    return types.SimpleNamespace(
        PacketData=_Packet,
        VideoPacketFlag=_Names(),
        CreateDecoder=create,
        GetDecoderCaps=capabilities,
        cudaVideoCodec=_Names(),
        cudaVideoChromaFormat=_Names(),
        OutputColorType=_Names(),
    )


# --- CUDA -----------------------------------------------------------------------------------------------------------


class Stream:
    """A CUDA stream."""

    _handles = itertools.count(1)

    def __init__(self, device: Any = None) -> None:
        self.cuda_stream = next(self._handles)
        self.device = DEVICE


class _Contexts(threading.local):
    """Whether this thread has been told which GPU it uses."""

    told = False

    def use(self, device: int) -> None:
        self.told = True

    @contextlib.contextmanager
    def on_device(self, device: int) -> Iterator[None]:
        self.use(device)
        yield


def _event(order: Order, contexts: _Contexts) -> type:
    class Event:
        def __init__(self, stream: int) -> None:
            if not contexts.told:
                raise RuntimeError("making a CUDA event failed with CUDA error 201")
            self._moment = order.moment(stream)

        def wait(self, stream: int) -> None:
            order.wait(stream, self._moment)

        def synchronize(self) -> None:
            pass

    return Event


def _at(address: int, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Memory as an array."""
    size = int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).reshape(shape)


class _Calls:
    """What is queued on streams, done at once."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._empty = torch.empty

    def empty(self, *shape: Any, device: Any = None, dtype: Any = None, **more: Any) -> torch.Tensor:
        """Device memory where a device is named; it goes back when nothing looks at it any more, views neither."""
        if device is None:
            return self._empty(*shape, dtype=dtype, **more)
        like = self._empty(*shape, dtype=dtype, device="meta")
        memory = np.empty(like.nbytes, np.uint8)
        if memory.nbytes:
            block = self._order.allocate(memory.ctypes.data, memory.nbytes, self._order.current)
            weakref.finalize(memory, self._order.free, block).atexit = False
        return torch.from_numpy(memory).view(like.dtype).reshape(like.shape)

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """Its memory is not handed out again before that stream is done with it."""
        self._order.use(tensor.data_ptr(), stream.cuda_stream)

    def copy(self, target: int, source: int, num_bytes: int, stream: int) -> None:
        """On the device."""
        self._order.read(source, num_bytes, stream, "copying")
        self._order.write(target, num_bytes, stream, "copying")
        ctypes.memmove(target, source, num_bytes)

    def convert(self, conversion: Any, sources: Any, pitch: int, targets: Any, stream: Any, count: int) -> None:
        """Luma three times; pictures are neither scaled nor turned."""
        height, width = conversion.source_size
        assert conversion.output_size == (height, width), "the stand-in does not scale"
        for (luma, *_), target in zip(sources[:count].tolist(), targets[:count].tolist(), strict=True):
            self._order.read(luma, height * pitch, stream.cuda_stream, "converting")
            self._order.write(target, 3 * height * width, stream.cuda_stream, "converting")
            picture = _at(luma, (height, pitch))[:, :width]
            if conversion.layout == "CHW":
                _at(target, (3, height, width))[:] = picture
            else:
                _at(target, (height, width, 3))[:] = picture[..., None]

    def copy_pictures(
        self, sources: Any, pitch: int, targets: Any, size: tuple[int, int], stream: Any, count: int
    ) -> None:
        """All planes, line by line."""
        lines, columns = size
        for source, target in zip(sources[:count].tolist(), targets[:count].tolist(), strict=True):
            self._order.read(source, lines * pitch, stream.cuda_stream, "keeping")
            self._order.write(target, lines * columns, stream.cuda_stream, "keeping")
            _at(target, size)[:] = _at(source, (lines, pitch))[:, :columns]

    def finish(
        self, bound: Any, steps: Any, bases: Any, targets: Any, placements: Any, stream: Any, count: int
    ) -> None:
        """What the CPU does."""
        for base, target in zip(bases[:count].tolist(), targets[:count].tolist(), strict=True):
            kept = _at(base, (3, *bound.intermediate_size))
            self._order.read(base, kept.nbytes, stream.cuda_stream, "finishing")
            self._finish(bound, steps, kept, target, stream)

    def finish_pictures(
        self,
        conversion: Any,
        bound: Any,
        steps: Any,
        sources: Any,
        pitch: int,
        targets: Any,
        placements: Any,
        stream: Any,
        count: int,
    ) -> None:
        """The same of pictures, which are neither scaled nor turned."""
        height, width = conversion.source_size
        assert conversion.output_size == (height, width), "the stand-in does not scale"
        for (luma, *_), target in zip(sources[:count].tolist(), targets[:count].tolist(), strict=True):
            self._order.read(luma, height * pitch, stream.cuda_stream, "finishing")
            picture = np.ascontiguousarray(_at(luma, (height, pitch))[:, :width])
            self._finish(bound, steps, np.stack([picture] * 3), target, stream)

    def _finish(self, bound: Any, steps: Any, kept: NDArray[np.uint8], target: int, stream: Any) -> None:
        finisher, draw = Finisher(bound), cast("Draw", types.SimpleNamespace(flip=False))
        letters = bound.desc.dimension_order.replace("f", "")
        sample = finisher.empty(1, 1)[0]
        finisher.finish(kept, sample, 0, draw)
        frame = sample.select(bound.desc.dimension_order.index("f"), 0)
        values = frame.permute([letters.index(letter) for letter in "chw"]).contiguous()
        size = values.element_size()
        extent = size * (1 + sum(step * (length - 1) for step, length in zip(steps, values.shape, strict=True)))
        if extent == values.nbytes:
            self._order.write(target, values.nbytes, stream.cuda_stream, "finishing")
        there = np.lib.stride_tricks.as_strided(
            _at(target, (extent,)), (*values.shape, size), (*(size * step for step in steps), 1)
        )
        there[:] = values.view(torch.uint8).numpy().reshape(*values.shape, size)


def _triton() -> dict[str, Any]:
    language = types.ModuleType("triton.language")
    language.constexpr = lambda value: types.SimpleNamespace(value=value)  # type: ignore[attr-defined]
    triton = types.ModuleType("triton")
    triton.language, triton.jit = language, lambda kernel: kernel  # type: ignore[attr-defined]
    return {"triton": triton, "triton.language": language}


_LOADED = (
    "convert.cuda.kernels",
    "convert.cuda.launch",
    "convert.cuda.surfaces",
    "decoder.reading_cuda",
    "batch.assembly_cuda",
    "batch.workshop_cuda",
)


def _imitate_kernels(patch: Any, calls: _Calls) -> None:
    patch.setattr("framefeed.convert.cuda.surfaces.convert", calls.convert)
    patch.setattr("framefeed.convert.cuda.surfaces.copy_pictures", calls.copy_pictures)
    patch.setattr("framefeed.convert.cuda.surfaces.finish_pictures", calls.finish_pictures)
    patch.setattr("framefeed.batch.assembly_cuda.finish", calls.finish)
    patch.setattr("framefeed.batch.assembly_cuda.placement", lambda bound, draw: (0, 0, 0))


@contextlib.contextmanager
def installed(patch: Any, *, kernels: bool = False) -> Iterator[StandIn]:
    """Has everything that would go to a GPU go to the stand-in meanwhile.

    Args:
        patch: pytest's ``monkeypatch``.
        kernels: Whether the kernels are run, by Triton's interpreter; what they access is then not noted.
    """
    driver = emulated.load() if os.environ.get("FRAMEFEED_TEST_LIBRARY") == "PyNvVideoCodec" else None
    used = Watched(driver) if driver is not None else StandIn()
    library = _library(used) if driver is None else importlib.import_module("PyNvVideoCodec")
    caches: tuple[Any, ...] = (capabilities.library, capabilities.capabilities, default.cuda_engine)
    for name, module in {**({} if kernels else _triton()), "PyNvVideoCodec": library}.items():
        patch.setitem(sys.modules, name, module)
    for name in _LOADED:
        patch.delitem(sys.modules, f"framefeed.{name}", raising=False)
    for cache in caches:
        cache.cache_clear()
    contexts = _Contexts()
    calls, event = _Calls(used.order), _event(used.order, contexts)
    patch.setattr("framefeed.cuda.driver.Event", event)
    patch.setattr("framefeed.cuda.driver.new_stream", Stream)
    patch.setattr("framefeed.cuda.driver.on_device", contexts.on_device)
    patch.setattr(nvdec, "use_context", contexts.use)
    patch.setattr("framefeed.cuda.driver.copy_on_device", calls.copy)
    patch.setattr("framefeed.cuda.timelines.Event", event)
    patch.setattr(timelines.default_timeline(0), "_seen", {})  # of another stand-in's streams
    patch.setattr(nvdec, "new_stream", Stream)
    if driver is None:
        patch.setattr(nvcuvid, "parse_sequence", used.sequence)
    patch.setattr(nvdec, "copy_on_device", calls.copy)
    patch.setattr(torch, "empty", calls.empty)
    patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: calls.record_stream(tensor, stream))
    patch.setattr(
        torch.cuda, "current_stream", lambda device=None: types.SimpleNamespace(cuda_stream=used.order.current)
    )
    caller = types.SimpleNamespace(cuda_stream=DEFAULT_STREAM, device=DEVICE)
    patch.setattr(torch.cuda, "default_stream", lambda device=None: caller)
    patch.setattr(torch.cuda, "stream", used.order.on)
    facts = types.SimpleNamespace(total_memory=MEMORY)
    patch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    open_video = videos.open_video
    for place in (videos, packet_decoder):
        patch.setattr(place, "open_video", lambda *given: dataclasses.replace(open_video(*given), on_cpu=False))
    for name in _LOADED:
        importlib.import_module(f"framefeed.{name}")
    workshop = importlib.import_module("framefeed.batch.workshop_cuda").CudaWorkshop
    for place in (loader, packet_decoder):
        patch.setattr(place, "CpuWorkshop", lambda budget: workshop(DEVICE, budget))
    if kernels:
        interpreted.use_kernels(
            *(sys.modules[f"framefeed.{name}"] for name in ("convert.cuda.launch", "batch.workshop_cuda"))
        )
    else:
        _imitate_kernels(patch, calls)
    try:
        yield used
    finally:
        for name in _LOADED:
            sys.modules.pop(f"framefeed.{name}", None)
        for cache in caches:
            cache.cache_clear()
        if driver is not None:
            driver.used = None
            assert not driver.failures, driver.failures[0]
