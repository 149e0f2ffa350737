"""The functions of NVIDIA's driver that PyNvVideoCodec calls."""

# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
import itertools
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from emulated.hardware import CODECS, GARBAGE, PARTS, Refused, VideoDecoder, VideoParser, whole_parts
from emulated.structures import ON_DEVICE, Capabilities, Copy, Create, Parser, Picture, Reconfigure, Source, Step

if TYPE_CHECKING:
    from standin import StandIn

CALL = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 6)

UNITS = 2
LEAST, LARGEST = 16, 4096  # sizes of pictures

_INVALID_VALUE, _OUT_OF_MEMORY, _NOT_SUPPORTED, _UNKNOWN = 1, 2, 801, 999
_DEVICE_POINTER, _DEVICE_ORDINAL = 3, 9  # CU_POINTER_ATTRIBUTE
_CONTEXT = 0x77
_NVENC_VERSION = 13 << 4


def _lines(begin: int, pitch: int, copy: Copy) -> NDArray[np.uint8]:
    """What is copied from or to a place."""
    content = (ctypes.c_uint8 * ((copy.rows - 1) * pitch + copy.columns)).from_address(begin)
    whole = np.frombuffer(content, np.uint8)
    return np.lib.stride_tricks.as_strided(whole, (copy.rows, copy.columns), (pitch, 1))


def _put(place: int, value: int, type_: Any = ctypes.c_uint64) -> None:
    type_.from_address(place).value = value


class Driver:
    """One GPU.

    Attributes:
        notes: What happened: decoders that were made and configured, scaled pictures.
        failures: What should not have happened: memory that is not there, functions that are not emulated.
        used: The stand-in that keeps book of memory and streams, if any.
        pictures: By number, what a decoder makes of packets, and how many surfaces that takes.
        ends: How often parsers were told of the end of a stream by itself.
        heeds_ends: Whether they do if they are told together with packets.
        full: Whether there is no memory left.
    """

    def __init__(self) -> None:
        self.notes: list[tuple[Any, ...]] = []
        self.failures: list[str] = []
        self.used: StandIn | None = None
        self.pictures: dict[int, tuple[Any, int]] = {}
        self.ends = 0
        self.heeds_ends = True
        self.full = False
        self._handles = itertools.count(0x1000)
        self._objects: dict[int, Any] = {}
        # Where it begins -> size, memory, who keeps book of it, and as what.
        self._memory: dict[int, tuple[int, NDArray[np.uint8], Any, Any]] = {}
        self._mapped: dict[int, NDArray[np.uint8]] = {}
        self._thread = threading.local()
        self._kept: list[Any] = []

    def reset(self, used: StandIn | None = None) -> None:
        """Forgets what happened."""
        self.notes.clear()
        self.failures.clear()
        self.used, self.ends, self.heeds_ends, self.full = used, 0, True, False

    def note(self, *words: Any) -> None:
        """Notes that something happened."""
        self.notes.append(words)

    def count(self, what: str) -> int:
        """How often something happened."""
        return sum(words[0] == what for words in self.notes)

    def expect(self, surfaces: int) -> int:
        """The number of a picture that will be decoded."""
        number = next(self._handles)
        self.pictures[number] = None, surfaces
        return number

    def arrived(self, number: int, picture: Any) -> None:
        """A picture has been decoded."""
        if number in self.pictures:  # otherwise another one was decoded over it
            self.pictures[number] = picture, self.pictures[number][1]

    def function(self, name: str) -> Any:
        """A function of the driver, by its name, for C."""
        function: Callable[..., int | None] | None = getattr(self, name, None)

        def call(*arguments: int) -> int:
            if function is None:
                self.failures.append(f"{name} is not emulated")
                return _NOT_SUPPORTED
            try:
                return function(*arguments) or 0
            except Refused:
                return _UNKNOWN
            except Exception:
                self.failures.append(traceback.format_exc())
                return _UNKNOWN

        made = CALL(call)
        self._kept.append(made)
        return made

    # --- CUDA ---

    def _nothing(self, *_: int) -> None:
        """It is done."""

    cuInit = cuDevicePrimaryCtxRelease_v2 = cuStreamDestroy_v2 = cuStreamSynchronize = _nothing
    cuEventDestroy_v2 = cuEventRecord = cuEventSynchronize = cuStreamWaitEvent = _nothing
    cuvidCtxLockDestroy = cuvidCtxLock = cuvidCtxUnlock = _nothing

    @property
    def _contexts(self) -> list[int]:
        """Those of this thread, the current one last."""
        if not hasattr(self._thread, "contexts"):
            self._thread.contexts = []
        found: list[int] = self._thread.contexts
        return found

    def cuDeviceGetCount(self, out: int, *_: int) -> None:
        _put(out, 1, ctypes.c_int)

    def cuDeviceGet(self, out: int, number: int, *_: int) -> None:
        _put(out, number & 0xFFFFFFFF, ctypes.c_int)

    def cuDevicePrimaryCtxRetain(self, out: int, *_: int) -> None:
        _put(out, _CONTEXT)

    def cuCtxCreate_v2(self, out: int, *_: int) -> None:
        self._contexts.append(next(self._handles))
        _put(out, self._contexts[-1])

    def cuCtxDestroy_v2(self, context: int, *_: int) -> None:
        if self._contexts[-1:] == [context]:
            self._contexts.pop()

    def cuCtxGetDevice(self, out: int, *_: int) -> None:
        _put(out, 0, ctypes.c_int)

    def cuCtxPushCurrent_v2(self, context: int, *_: int) -> None:
        self._contexts.append(context)

    def cuCtxPopCurrent_v2(self, out: int, *_: int) -> None:
        context = self._contexts.pop()
        if out:
            _put(out, context)

    def cuStreamGetCtx(self, stream: int, out: int, *_: int) -> None:
        _put(out, _CONTEXT)

    def _new_handle(self, out: int, *_: int) -> None:
        _put(out, next(self._handles))

    cuEventCreate = cuStreamCreate = cuvidCtxLockCreate = _new_handle

    def cuPointerGetAttribute(self, out: int, attribute: int, place: int, *_: int) -> int | None:
        attribute &= 0xFFFFFFFF
        if attribute == _DEVICE_POINTER:
            _put(out, place)
        elif attribute == _DEVICE_ORDINAL:
            _put(out, 0, ctypes.c_int)
        else:
            self.failures.append(f"attribute {attribute} of a pointer is not emulated")
            return _NOT_SUPPORTED
        return None

    def cuGetErrorName(self, error: int, out: int, *_: int) -> None:
        name = {_OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY"}.get(error & 0xFFFFFFFF, f"CUDA_ERROR_{error}")
        text = ctypes.create_string_buffer(name.encode())
        self._kept.append(text)
        _put(out, ctypes.addressof(text))

    cuGetErrorString = cuGetErrorName

    def cuMemAlloc_v2(self, out: int, size: int, *_: int) -> int | None:
        if self.full:
            return _OUT_OF_MEMORY
        memory = np.full(size + PARTS, GARBAGE, np.uint8)
        begin = whole_parts(memory.ctypes.data)
        order = self.used.order if self.used is not None else None
        block = order.allocate(begin, size, None) if order is not None else None
        self._memory[begin] = size, memory, order, block
        _put(out, begin)
        return None

    cuMemAllocAsync = cuMemAlloc_v2

    def cuMemFree_v2(self, begin: int, *__: int) -> int | None:
        if begin not in self._memory:
            self.failures.append("memory is given back that was not allocated")
            return _INVALID_VALUE
        *_, block = self._memory.pop(begin)
        if block is not None:
            block.freed = True  # it waits for everything
        return None

    cuMemFreeAsync = cuMemFree_v2

    def cuMemcpy2DAsync_v2(self, what: int, stream: int, *rest: int) -> int | None:
        copy = Copy.from_address(what)
        for end in ("source", "target"):
            if getattr(copy, f"{end}_type") not in ON_DEVICE:
                continue
            size = (copy.rows - 1) * getattr(copy, f"{end}_pitch") + copy.columns
            room = self._room(copy.at(end))
            if size > room:
                self.failures.append(f"the {end} of a copy has {room} bytes, and {size} are copied")
                return None  # a GPU would do it
        target = copy.at("target")
        _lines(target, copy.target_pitch, copy)[:] = _lines(copy.at("source"), copy.source_pitch, copy)
        for begin, (num_bytes, _, order, __) in list(self._memory.items()):
            if begin <= target < begin + num_bytes and order is not None:
                order.write(target, (copy.rows - 1) * copy.target_pitch + copy.columns, stream, "decoding")
        return None

    def _room(self, place: int) -> int:
        """How much memory there is from a place on."""
        ends = [(begin, begin + size) for begin, (size, *_) in list(self._memory.items())]
        ends += [(begin, begin + memory.nbytes) for begin, memory in list(self._mapped.items())]
        return next((end - place for begin, end in ends if begin <= place < end), 0)

    # --- decoders ---

    def NvEncodeAPIGetMaxSupportedVersion(self, out: int, *_: int) -> None:
        _put(out, _NVENC_VERSION, ctypes.c_uint32)

    def cuvidGetDecoderCaps(self, out: int, *_: int) -> None:
        found = Capabilities.from_address(out)
        found.supported, found.units, found.formats = found.codec in CODECS, UNITS, 15
        found.min_width = found.min_height = LEAST
        found.max_width = found.max_height = LARGEST
        found.max_blocks = LARGEST * LARGEST // 256

    def _made(self, out: int, what: Any) -> None:
        handle = next(self._handles)
        self._objects[handle] = what
        _put(out, handle)

    def cuvidCreateDecoder(self, out: int, wanted: int, *_: int) -> int | None:
        if self.full:
            return _OUT_OF_MEMORY
        decoder = VideoDecoder(self, Create.from_address(wanted))
        self.note("made", decoder.size, decoder.surfaces)
        self._made(out, decoder)
        return None

    def cuvidReconfigureDecoder(self, handle: int, wanted: int, *_: int) -> int | None:
        decoder: VideoDecoder = self._objects[handle]
        decoder.configure(Reconfigure.from_address(wanted))
        self.note("configured", decoder.size, decoder.surfaces, decoder.target)
        too_large = any(side > most for side, most in zip(decoder.size, decoder.max_size, strict=True))
        return _INVALID_VALUE if too_large else None

    def _destroy(self, handle: int, *_: int) -> None:
        del self._objects[handle]

    cuvidDestroyDecoder = cuvidDestroyVideoParser = _destroy

    def cuvidDecodePicture(self, handle: int, what: int, *_: int) -> None:
        picture, decoder = Picture.from_address(what), self._objects[handle]
        self.pictures.pop(decoder.held.pop(picture.place, -1), None)
        decoder.held[picture.place] = picture.data

    def cuvidMapVideoFrame64(self, handle: int, place: int, out: int, pitch: int, *_: int) -> None:
        memory = self._objects[handle].render(place & 0xFFFFFFFF)
        self._mapped[memory.ctypes.data] = memory
        self.note("picture")
        _put(out, memory.ctypes.data)
        _put(pitch, memory.shape[1], ctypes.c_uint)

    def cuvidUnmapVideoFrame64(self, handle: int, place: int, *_: int) -> None:
        self._mapped.pop(place)[:] = GARBAGE

    def cuvidGetDecodeStatus(self, handle: int, place: int, out: int, *_: int) -> None:
        _put(out, 2, ctypes.c_int)  # success

    def cuvidCreateVideoParser(self, out: int, wanted: int, *_: int) -> None:
        self._made(out, VideoParser(self, Parser.from_address(wanted)))

    def begin_parsing(self, handle: int, source: int, *_: int) -> None:
        self._objects[handle].begin(Source.from_address(source))

    def go_on_parsing(self, handle: int, step: int, *_: int) -> None:
        self._objects[handle].go_on(Step.from_address(step))

    def answered(self, handle: int, answer: int, *_: int) -> None:
        self._objects[handle].answered(answer)
