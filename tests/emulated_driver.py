"""NVIDIA's driver, as far as PyNvVideoCodec uses it: pictures are decoded by PyAV, and device memory is the machine's.

PyNvVideoCodec is linked against ``libcuda.so.1`` and loads ``libnvcuvid.so.1``. Here are libraries of these names whose
functions are Python's, so that the library itself can be run, and watched, where there is no GPU: what it asks decoders
to do when sizes change, which memory it writes to, and when.

What it does not tell: what hardware makes of damaged packets (here, they are refused), and how fast it is.

The libraries stay loaded for as long as the process lives, so whoever uses them has a process of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import shutil
import subprocess
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import av
import numpy as np
from numpy.typing import NDArray

from framefeed.index.bitstream import hevc_headers
from framefeed.index.bitstream.bits import BitReader, unescape
from framefeed.index.bitstream.nal import split_annex_b

if TYPE_CHECKING:
    from standin import StandIn

UNITS = 2
GARBAGE = 7  # what lies in memory that nobody has written to
LEAST, LARGEST = 16, 4096  # sizes of pictures
PARTS = 512  # memory begins at multiples of this
CODECS = {4: "h264", 8: "hevc", 9: "vp8", 10: "vp9"}  # cudaVideoCodec

_INVALID_VALUE, _OUT_OF_MEMORY, _NOT_SUPPORTED, _UNKNOWN = 1, 2, 801, 999
_END_OF_STREAM, _HAS_TIME, _END_OF_PICTURE = 1, 2, 8
_ON_DEVICE, _UNIFIED = 2, 4  # CU_MEMORYTYPE
_CONTEXT = 0x77
_NVENC_VERSION = 13 << 4

_LIBRARIES = {
    "libcuda.so.1": """
        cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxGetDevice cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuDeviceGet
        cuDeviceGetCount cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain cuEventCreate cuEventDestroy_v2
        cuEventRecord cuEventSynchronize cuGetErrorName cuGetErrorString cuInit cuMemAllocAsync cuMemAllocPitch_v2
        cuMemAlloc_v2 cuMemFreeAsync cuMemFree_v2 cuMemcpy2DAsync_v2 cuMemcpy2D_v2 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2
        cuPointerGetAttribute cuStreamCreate cuStreamDestroy_v2 cuStreamGetCtx cuStreamSynchronize cuStreamWaitEvent
        """.split(),
    "libnvcuvid.so.1": """
        cuvidGetDecoderCaps cuvidCreateDecoder cuvidDestroyDecoder cuvidDecodePicture cuvidGetDecodeStatus
        cuvidReconfigureDecoder cuvidMapVideoFrame64 cuvidUnmapVideoFrame64 cuvidCtxLockCreate cuvidCtxLockDestroy
        cuvidCtxLock cuvidCtxUnlock cuvidCreateVideoParser cuvidDestroyVideoParser
        cuvidCreateVideoSource cuvidCreateVideoSourceW cuvidDestroyVideoSource cuvidSetVideoSourceState
        cuvidGetVideoSourceState cuvidGetSourceVideoFormat cuvidGetSourceAudioFormat
        begin_parsing go_on_parsing answered
        """.split(),
    "libnvidia-encode.so.1": ["NvEncodeAPIGetMaxSupportedVersion", "NvEncodeAPICreateInstance"],
}

_CALL = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_long] * 6)

# Parsers call PyNvVideoCodec back, and what it raises there passes through whatever has called. So this is not done by
# Python: it only says what is to be called next.
_PARSE = """
typedef struct { long (*call)(void *, void *); void *user, *what; } step;

long cuvidParseVideoData(long parser, long source) {
  step next = {0, 0, 0};
  long answer = begin_parsing(parser, source, 0, 0, 0, 0);
  while (!answer) {
    answer = go_on_parsing(parser, (long)&next, answer, 0, 0, 0);
    if (answer || !next.call) break;
    answer = answered(parser, (int)next.call(next.user, next.what), 0, 0, 0, 0);
  }
  return answer;
}
"""


# --- structures -----------------------------------------------------------------------------------------------------

_long, _uint, _int, _byte, _pointer = ctypes.c_ulong, ctypes.c_uint, ctypes.c_int, ctypes.c_ubyte, ctypes.c_void_p


class _Area(ctypes.Structure):
    _fields_ = tuple((side, ctypes.c_short) for side in ("left", "top", "right", "bottom"))

    def sides(self) -> tuple[int, int, int, int]:
        return self.left, self.top, self.right, self.bottom


class _WideArea(ctypes.Structure):
    _fields_ = tuple((side, ctypes.c_int) for side in ("left", "top", "right", "bottom"))


class _Create(ctypes.Structure):
    """CUVIDDECODECREATEINFO."""

    _fields_ = (
        ("width", _long), ("height", _long), ("surfaces", _long), ("codec", _int), ("chroma", _int), ("flags", _long),
        ("depth", _long), ("intra_only", _long), ("max_width", _long), ("max_height", _long), ("reserved", _long),
        ("area", _Area), ("format", _int), ("deinterlacing", _int), ("target_width", _long), ("target_height", _long),
        ("mapped", _long), ("lock", _pointer), ("target_area", _Area), ("histogram", _long), ("more", _long * 4),
    )  # fmt: skip


class _Reconfigure(ctypes.Structure):
    """CUVIDRECONFIGUREDECODERINFO."""

    _fields_ = (
        ("width", _uint), ("height", _uint), ("target_width", _uint), ("target_height", _uint), ("surfaces", _uint),
        ("reserved", _uint * 12), ("area", _Area), ("target_area", _Area), ("more", _uint * 11),
    )  # fmt: skip


class _Capabilities(ctypes.Structure):
    """CUVIDDECODECAPS."""

    _fields_ = (
        ("codec", _int), ("chroma", _int), ("depth", _uint), ("reserved", _uint * 3), ("supported", _byte),
        ("units", _byte), ("formats", ctypes.c_ushort), ("max_width", _uint), ("max_height", _uint),
        ("max_blocks", _uint), ("min_width", ctypes.c_ushort), ("min_height", ctypes.c_ushort), ("more", _uint * 11),
    )  # fmt: skip


class _Format(ctypes.Structure):
    """CUVIDEOFORMAT."""

    _fields_ = (
        ("codec", _int), ("rate", _uint * 2), ("progressive", _byte), ("luma_depth", _byte), ("chroma_depth", _byte),
        ("surfaces", _byte), ("width", _uint), ("height", _uint), ("area", _WideArea), ("chroma", _int),
        ("bit_rate", _uint), ("aspect", _int * 2), ("signal", _byte * 4), ("more", _uint),
    )  # fmt: skip


class _Picture(ctypes.Structure):
    """CUVIDPICPARAMS. Hardware finds pictures by ``data``, which here is a number."""

    _fields_ = (
        ("columns", _int), ("rows", _int), ("place", _int), ("field", _int), ("bottom", _int), ("second", _int),
        ("length", _uint), ("data", _pointer), ("slices", _uint), ("offsets", _pointer), ("is_reference", _int),
        ("is_intra", _int), ("reserved", _uint * 30), ("specific", _uint * 1024),
    )  # fmt: skip


class _Display(ctypes.Structure):
    """CUVIDPARSERDISPINFO."""

    _fields_ = (
        ("place", _int), ("progressive", _int), ("top_first", _int), ("repeat", _int), ("time", ctypes.c_longlong),
    )  # fmt: skip


class _Parser(ctypes.Structure):
    """CUVIDPARSERPARAMS."""

    _fields_ = (
        ("codec", _int), ("surfaces", _uint), ("clock", _uint), ("threshold", _uint), ("delay", _uint),
        ("flags", _uint), ("reserved", _uint * 4), ("user", _pointer), ("on_sequence", _pointer),
        ("on_decode", _pointer), ("on_display", _pointer), ("more", _pointer * 8),
    )  # fmt: skip


class _Source(ctypes.Structure):
    """CUVIDSOURCEDATAPACKET."""

    _fields_ = (("flags", _long), ("size", _long), ("payload", _pointer), ("time", ctypes.c_longlong))


class _Step(ctypes.Structure):
    """What a parser calls next."""

    _fields_ = (("call", _pointer), ("user", _pointer), ("what", _pointer))


class _Copy(ctypes.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = tuple(
        field
        for end in ("source", "target")
        for field in (
            (f"{end}_x", _long), (f"{end}_y", _long), (f"{end}_type", _int), (f"{end}_host", _pointer),
            (f"{end}_device", _pointer), (f"{end}_array", _pointer), (f"{end}_pitch", _long),
        )
    ) + (("columns", _long), ("rows", _long))  # fmt: skip

    def at(self, end: str) -> int:
        """Where it begins."""
        on_device = getattr(self, f"{end}_type") in (_ON_DEVICE, _UNIFIED)
        base = getattr(self, f"{end}_device" if on_device else f"{end}_host")
        return int(base + getattr(self, f"{end}_y") * getattr(self, f"{end}_pitch") + getattr(self, f"{end}_x"))


# --- NVIDIA's parser, and hardware ----------------------------------------------------------------------------------


def _h264_references(unit: bytes) -> int:
    """``max_num_ref_frames`` of a sequence parameter set as x264 writes them."""
    bits = BitReader(unescape(unit[1:]))
    high = bits.u(8) >= 100
    bits.skip(16)
    bits.ue()
    if high:
        if bits.ue() == 3:
            bits.skip(1)
        bits.ue()
        bits.ue()
        bits.skip(1)
        assert not bits.flag(), "scaling matrices"
    bits.ue()
    if bits.ue() == 0:
        bits.ue()
    return bits.ue()


def _hevc_references(unit: bytes) -> int:
    """``sps_max_dec_pic_buffering`` of a sequence parameter set as x265 writes them."""
    bits = BitReader(unescape(unit[2:]))
    bits.skip(4)
    sub_layers = bits.u(3)
    bits.skip(1)
    hevc_headers.skip_profile(bits, sub_layers)
    bits.ue()
    if bits.ue() == 3:
        bits.skip(1)
    bits.ue()
    bits.ue()
    if bits.flag():
        for _ in range(4):
            bits.ue()
    for _ in range(3):
        bits.ue()
    bits.skip(1)
    return bits.ue() + 1


def _surfaces(codec: str, sps: bytes) -> int:
    """How many pictures a decoder must be able to keep: about what NVIDIA's parser was seen to say."""
    if codec == "h264":
        return max(5, _h264_references(sps) + 1)
    return max(8, _hevc_references(sps) + 3) if codec == "hevc" else 12


def _units(codec: str, content: bytes) -> list[tuple[int, bytes]]:
    """The units of a picture's data with their types."""
    return [(unit[0] & 31 if codec == "h264" else unit[0] >> 1 & 63, unit) for unit in split_annex_b(content)]


def _sps(codec: str, content: bytes) -> bytes:
    """The sequence parameter set at the beginning of a picture's data; nothing where there is none."""
    if codec not in ("h264", "hevc"):
        return b""
    wanted = 7 if codec == "h264" else hevc_headers.SPS
    return next((unit for type_, unit in _units(codec, content[:2048]) if type_ == wanted), b"")


def _has_picture(codec: str, content: bytes) -> bool:
    if codec not in ("h264", "hevc"):
        return True
    slices = (1, 5) if codec == "h264" else range(22)
    return any(type_ in slices for type_, _ in _units(codec, content))


def _context(codec: str, *, crops: bool) -> Any:
    context: Any = av.CodecContext.create(codec, "r")
    context.thread_count = 1
    if not crops:
        context.flags2 |= av.codec.context.Flags2.ignore_crop
    return context


class _Refused(Exception):
    """A parser does not go on."""


_ON_SEQUENCE, _ON_DECODE, _ON_DISPLAY = range(3)

Steps = Iterator[tuple[int, Any]]
"""What is to be called, and what it is told."""


class _ParserObject:
    """Splits a byte stream into pictures, and tells when each is to be decoded and shown."""

    def __init__(self, driver: Driver, wanted: Any) -> None:
        self._driver = driver
        self._number = wanted.codec
        self._codec = CODECS[wanted.codec]
        self._joined = self._codec in ("h264", "hevc")
        self._user = wanted.user
        self._surfaces = max(1, wanted.surfaces)
        self._calls = (wanted.on_sequence, wanted.on_decode, wanted.on_display)
        self._steps: Steps = iter(())
        self._answer = 0
        self._told: Any = None
        self._formats: dict[bytes, Any] = {}
        self._place = 0
        self._time = 0
        self._begin()

    def _begin(self) -> None:
        self._context = _context(self._codec, crops=False)
        self._fed = 0
        self._inside: dict[int, tuple[int, int]] = {}  # place in the stream -> its number, and its surface
        self._times: list[int] = []
        self._format: Any = None

    def begin(self, source: Any) -> None:
        """Takes a packet in. What has not been done for the one before never will be."""
        data = ctypes.string_at(source.payload, source.size) if source.size else b""
        ends = bool(source.flags & _END_OF_STREAM) and (not data or self._driver.heeds_ends)
        self._driver.ends += ends and not data
        if data and source.flags & _HAS_TIME:
            self._time = source.time
        self._steps = self._parse(data, ends, ends or bool(source.flags & _END_OF_PICTURE))

    def go_on(self, step: Any) -> None:
        """Says what is to be called next; nothing where all is done."""
        which, what = next(self._steps, (None, None))
        self._told = what  # stays while it is looked at
        step.call, step.user = (self._calls[which], self._user) if which is not None else (None, None)
        step.what = ctypes.addressof(what) if what is not None else None

    def answered(self, answer: int) -> None:
        """What was called said so."""
        self._answer = answer
        if not answer:
            raise _Refused

    def _parse(self, data: bytes, ends: bool, whole: bool) -> Steps:
        units = list(self._context.parse(data)) if self._joined and data else [av.Packet(data)] if data else []
        if self._joined and whole:
            units += self._context.parse(None)
        for unit in units:
            yield from self._decode(unit)
        if ends:
            pictures = self._context.decode(None)
            for picture in pictures:
                yield self._show(picture)
            self._begin()

    def _decode(self, unit: Any) -> Steps:
        content = bytes(unit)
        unit.pts, unit.dts = self._fed, None
        self._fed += 1
        try:
            pictures = self._context.decode(unit)
        except av.FFmpegError as error:
            self._begin()
            raise _Refused from error
        format_ = self._look(content)
        if format_ is None or not _has_picture(self._codec, content):
            for picture in pictures:
                yield self._show(picture)
            return
        if format_ is not self._format:
            self._driver.note("sequence", (format_.width, format_.height), format_.surfaces)
            yield _ON_SEQUENCE, format_
            if self._answer > 1:
                self._surfaces = self._answer
            self._format = format_
        number = self._driver.expect(format_.surfaces)
        taken = {place for _, place in self._inside.values()}
        places = [(self._place + step) % self._surfaces for step in range(self._surfaces)]
        self._place = next((place for place in places if place not in taken), places[0])
        self._inside[unit.pts] = number, self._place
        self._times.append(self._time)
        yield _ON_DECODE, _Picture(place=self._place, data=number, length=1, slices=1)
        self._place += 1
        for picture in pictures:
            yield self._show(picture)

    def _show(self, picture: Any) -> tuple[int, Any]:
        """Times come out in rising order."""
        number, place = self._inside.pop(picture.pts)
        self._driver.arrived(number, picture)
        self._times.sort()
        return _ON_DISPLAY, _Display(place=place, progressive=1, time=self._times.pop(0))

    def _look(self, content: bytes) -> Any:
        """What is told of a stream, where it changes; None before anything is known."""
        coded = (self._context.coded_width, self._context.coded_height)
        sps = _sps(self._codec, content)
        if self._format is not None and (not sps if self._joined else coded == self._size):
            return self._format
        if not coded[0] or (self._joined and not sps):
            return None
        self._size = coded
        key = sps or repr(coded).encode()
        if key not in self._formats:
            shown = self._shown(content)
            name = self._context.format.name
            depth = 2 if "p10" in name else 4 if "p12" in name else 0
            self._formats[key] = _Format(
                codec=self._number, progressive=1, luma_depth=depth, chroma_depth=depth, width=coded[0], height=coded[1],
                surfaces=_surfaces(self._codec, sps), area=_WideArea(0, 0, *shown), chroma=3 if "444" in name else 1,
            )  # fmt: skip
        return self._formats[key]

    def _shown(self, content: bytes) -> tuple[int, int]:
        context = _context(self._codec, crops=True)
        context.decode(av.Packet(content))
        return context.width, context.height


class _DecoderObject:
    """Post-processes pictures as it was told last."""

    def __init__(self, driver: Driver, wanted: Any) -> None:
        self._driver = driver
        self.max_size = (wanted.max_width, wanted.max_height)
        self._format = wanted.format
        self.held: dict[int, int] = {}
        self.configure(wanted)

    def configure(self, wanted: Any) -> None:
        self.size = (wanted.width, wanted.height)
        self.surfaces = wanted.surfaces
        self.target = (wanted.target_width, wanted.target_height)
        self.area = wanted.area.sides() if any(wanted.area.sides()) else (0, 0, *self.size)

    def render(self, place: int) -> NDArray[np.uint8]:
        """What is mapped: a plane of luma, and one or two of chroma, with lines of a whole number of parts."""
        picture, needed = self._driver.pictures[self.held[place]]
        type_: Any = np.uint16 if self._format & 1 else np.uint8
        if picture is None:  # another one is being decoded there
            width, height = self.target
            lines = 3 * height if self._format >= 2 else height + -(-height // 2)
            return np.full((lines, _whole(width * np.dtype(type_).itemsize)), GARBAGE, np.uint8)
        depth = max(component.bits for component in picture.format.components)
        up = np.dtype(type_).itemsize * 8 - depth  # high bits are those that count
        planes = []
        for plane in picture.planes:
            lines = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size).view(type_)
            planes.append(self._cut(lines[: plane.height, : plane.width] << up, picture.width // plane.width))
        if self._format < 2:
            planes[1:] = [np.stack(planes[1:], -1).reshape(len(planes[1]), -1)]
        out = np.full((sum(map(len, planes)), _whole(planes[0][0].nbytes)), GARBAGE, np.uint8)
        begin = 0
        for plane in planes:
            out[begin : begin + len(plane), : plane[0].nbytes] = np.ascontiguousarray(plane).view(np.uint8)
            begin += len(plane)
        if self.surfaces < needed:
            out[:] = GARBAGE  # written over before it was shown
        return out

    def _cut(self, plane: NDArray[Any], step: int) -> NDArray[Any]:
        """The part that is shown, scaled to the size that is wanted."""
        left, top, right, bottom = (-(-side // step) for side in self.area)
        width, height = (-(-side // step) for side in self.target)
        part = plane[top:bottom, left:right]
        if part.shape == (height, width):
            return part
        self._driver.note("scaled", part.shape, (height, width))
        rows, columns = np.arange(height) * len(part) // height, np.arange(width) * part.shape[1] // width
        return np.asarray(part[rows][:, columns])


# --- the driver -----------------------------------------------------------------------------------------------------


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

    def load(self, folder: Path) -> None:
        """Loads the libraries. From now on everybody in this process gets them."""
        for name, functions in _LIBRARIES.items():
            lines = ["typedef long (*call)(long, long, long, long, long, long);", f"call calls[{len(functions)}];"]
            for place, function in enumerate(functions):
                arguments = "long a, long b, long c, long d, long e, long f"
                body = f"return calls[{place}] ? calls[{place}](a, b, c, d, e, f) : 0;"
                lines.append(f"long {function}({arguments}) {{ {body} }}")
            source = folder / f"{name}.c"
            source.write_text("\n".join(lines) + (_PARSE if "begin_parsing" in functions else ""))
            options = ["-shared", "-fPIC", "-fexceptions", "-O1", "-Wl,-Bsymbolic", f"-Wl,-soname,{name}"]
            subprocess.run(["cc", *options, "-o", folder / name, source], check=True)
            library = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
            table = (_CALL * len(functions)).in_dll(library, "calls")
            for place, function in enumerate(functions):
                table[place] = self._call(function)
            # PyNvVideoCodec tidies up when the process ends, and Python is not there any more.
            atexit.register(ctypes.memset, ctypes.addressof(table), 0, ctypes.sizeof(table))
            self._kept.append(table)

    def _call(self, name: str) -> Any:
        function: Callable[..., int | None] | None = getattr(self, name, None)

        def call(*arguments: int) -> int:
            if function is None:
                self.failures.append(f"{name} is not emulated")
                return _NOT_SUPPORTED
            try:
                return function(*arguments) or 0
            except _Refused:
                return _UNKNOWN
            except Exception:
                self.failures.append(traceback.format_exc())
                return _UNKNOWN

        made = _CALL(call)
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

    def cuDeviceGetCount(self, out: int, *_: int) -> None:  # noqa: N802
        _put(out, 1, ctypes.c_int)

    def cuDeviceGet(self, out: int, number: int, *_: int) -> None:  # noqa: N802
        _put(out, number & 0xFFFFFFFF, ctypes.c_int)

    def cuDevicePrimaryCtxRetain(self, out: int, *_: int) -> None:  # noqa: N802
        _put(out, _CONTEXT)

    def cuCtxCreate_v2(self, out: int, *_: int) -> None:  # noqa: N802
        self._contexts.append(next(self._handles))
        _put(out, self._contexts[-1])

    def cuCtxDestroy_v2(self, context: int, *_: int) -> None:  # noqa: N802
        if self._contexts[-1:] == [context]:
            self._contexts.pop()

    def cuCtxGetDevice(self, out: int, *_: int) -> None:  # noqa: N802
        _put(out, 0, ctypes.c_int)

    def cuCtxPushCurrent_v2(self, context: int, *_: int) -> None:  # noqa: N802
        self._contexts.append(context)

    def cuCtxPopCurrent_v2(self, out: int, *_: int) -> None:  # noqa: N802
        context = self._contexts.pop()
        if out:
            _put(out, context)

    def cuStreamGetCtx(self, stream: int, out: int, *_: int) -> None:  # noqa: N802
        _put(out, _CONTEXT)

    def _new_handle(self, out: int, *_: int) -> None:
        _put(out, next(self._handles))

    cuEventCreate = cuStreamCreate = cuvidCtxLockCreate = _new_handle

    def cuPointerGetAttribute(self, out: int, *_: int) -> None:  # noqa: N802
        _put(out, _CONTEXT)

    def cuGetErrorName(self, error: int, out: int, *_: int) -> None:  # noqa: N802
        name = {_OUT_OF_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY"}.get(error & 0xFFFFFFFF, f"CUDA_ERROR_{error}")
        text = ctypes.create_string_buffer(name.encode())
        self._kept.append(text)
        _put(out, ctypes.addressof(text))

    cuGetErrorString = cuGetErrorName

    def cuMemAlloc_v2(self, out: int, size: int, *_: int) -> int | None:  # noqa: N802
        if self.full:
            return _OUT_OF_MEMORY
        memory = np.full(size + PARTS, GARBAGE, np.uint8)
        begin = _whole(memory.ctypes.data)
        order = self.used.order if self.used is not None else None
        block = order.allocate(begin, size, None) if order is not None else None
        self._memory[begin] = size, memory, order, block
        _put(out, begin)
        return None

    cuMemAllocAsync = cuMemAlloc_v2

    def cuMemFree_v2(self, begin: int, *__: int) -> int | None:  # noqa: N802
        if begin not in self._memory:
            self.failures.append("memory is given back that was not allocated")
            return _INVALID_VALUE
        *_, block = self._memory.pop(begin)
        if block is not None:
            block.freed = True  # it waits for everything
        return None

    cuMemFreeAsync = cuMemFree_v2

    def cuMemcpy2DAsync_v2(self, what: int, stream: int, *_: int) -> int | None:  # noqa: N802
        copy = _Copy.from_address(what)
        for end in ("source", "target"):
            if getattr(copy, f"{end}_type") not in (_ON_DEVICE, _UNIFIED):
                continue
            size = (copy.rows - 1) * getattr(copy, f"{end}_pitch") + copy.columns
            room = self._room(copy.at(end))
            if size > room:
                self.failures.append(f"the {end} of a copy has {room} bytes, and {size} are copied")
                return None  # a GPU would do it
        for row in range(copy.rows):
            ctypes.memmove(
                copy.at("target") + row * copy.target_pitch, copy.at("source") + row * copy.source_pitch, copy.columns
            )
        target = copy.at("target")
        for begin, (size, _, order, _) in list(self._memory.items()):
            if begin <= target < begin + size and order is not None:
                order.write(target, (copy.rows - 1) * copy.target_pitch + copy.columns, stream, "decoding")
        return None

    def _room(self, place: int) -> int:
        """How much memory there is from a place on."""
        ends = [(begin, begin + size) for begin, (size, *_) in list(self._memory.items())]
        ends += [(begin, begin + memory.nbytes) for begin, memory in list(self._mapped.items())]
        return next((end - place for begin, end in ends if begin <= place < end), 0)

    # --- decoders ---

    def NvEncodeAPIGetMaxSupportedVersion(self, out: int, *_: int) -> None:  # noqa: N802
        _put(out, _NVENC_VERSION, ctypes.c_uint32)

    def cuvidGetDecoderCaps(self, out: int, *_: int) -> None:  # noqa: N802
        found = _Capabilities.from_address(out)
        found.supported, found.units, found.formats = found.codec in CODECS, UNITS, 15
        found.min_width = found.min_height = LEAST
        found.max_width = found.max_height = LARGEST
        found.max_blocks = LARGEST * LARGEST // 256

    def _made(self, out: int, what: Any) -> None:
        handle = next(self._handles)
        self._objects[handle] = what
        _put(out, handle)

    def cuvidCreateDecoder(self, out: int, wanted: int, *_: int) -> int | None:  # noqa: N802
        if self.full:
            return _OUT_OF_MEMORY
        decoder = _DecoderObject(self, _Create.from_address(wanted))
        self.note("made", decoder.size, decoder.surfaces)
        self._made(out, decoder)
        return None

    def cuvidReconfigureDecoder(self, handle: int, wanted: int, *_: int) -> int | None:  # noqa: N802
        decoder: _DecoderObject = self._objects[handle]
        decoder.configure(_Reconfigure.from_address(wanted))
        self.note("configured", decoder.size, decoder.surfaces, decoder.target)
        too_large = any(side > most for side, most in zip(decoder.size, decoder.max_size, strict=True))
        return _INVALID_VALUE if too_large else None

    def _destroy(self, handle: int, *_: int) -> None:
        del self._objects[handle]

    cuvidDestroyDecoder = cuvidDestroyVideoParser = _destroy

    def cuvidDecodePicture(self, handle: int, what: int, *_: int) -> None:  # noqa: N802
        picture, decoder = _Picture.from_address(what), self._objects[handle]
        self.pictures.pop(decoder.held.pop(picture.place, -1), None)
        decoder.held[picture.place] = picture.data

    def cuvidMapVideoFrame64(self, handle: int, place: int, out: int, pitch: int, *_: int) -> None:  # noqa: N802
        memory = self._objects[handle].render(place & 0xFFFFFFFF)
        self._mapped[memory.ctypes.data] = memory
        self.note("picture")
        _put(out, memory.ctypes.data)
        _put(pitch, memory.shape[1], ctypes.c_uint)

    def cuvidUnmapVideoFrame64(self, handle: int, place: int, *_: int) -> None:  # noqa: N802
        self._mapped.pop(place)[:] = GARBAGE

    def cuvidGetDecodeStatus(self, handle: int, place: int, out: int, *_: int) -> None:  # noqa: N802
        _put(out, 2, ctypes.c_int)  # success

    def cuvidCreateVideoParser(self, out: int, wanted: int, *_: int) -> None:  # noqa: N802
        self._made(out, _ParserObject(self, _Parser.from_address(wanted)))

    def begin_parsing(self, handle: int, source: int, *_: int) -> None:
        self._objects[handle].begin(_Source.from_address(source))

    def go_on_parsing(self, handle: int, step: int, *_: int) -> None:
        self._objects[handle].go_on(_Step.from_address(step))

    def answered(self, handle: int, answer: int, *_: int) -> None:
        self._objects[handle].answered(answer)


def _whole(size: int) -> int:
    """The next whole number of parts."""
    return -(-size // PARTS) * PARTS


def _put(place: int, value: int, type_: Any = ctypes.c_uint64) -> None:
    type_.from_address(place).value = value


@functools.cache
def load() -> Driver:
    """Loads the libraries, once in a process.

    Raises:
        RuntimeError: There is no C compiler.
    """
    if shutil.which("cc") is None:
        raise RuntimeError("there is no C compiler")
    driver = Driver()
    with tempfile.TemporaryDirectory() as folder:
        driver.load(Path(folder))
    return driver

