"""Detection of pixels that a decoder left unwritten.

FFmpeg takes the memory of pictures from a pool and does not clear it. Where the data of a picture ends too early, some
decoders (HEVC, VP8, JPEG, TIFF) report success and leave the rest as it was: pixels of an earlier picture, which may be
of another video. So memory is marked before a decoder gets it. A mark that is still there when the packet has been
decoded is a pixel that the data does not determine.

PyAV has no way to watch the memory of pictures. FFmpeg has: ``AVCodecContext.get_buffer2``, which is set here through
``ctypes``. Its place in the structure is not guessed: a new context holds the address of
``avcodec_default_get_buffer2`` there.
"""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from collections import deque
from typing import Any, ClassVar, NamedTuple

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from framefeed.media.ffmpeg import library, row_bytes

__all__ = ["Blocks", "UnwrittenPixels"]

_CONTEXT_BYTES = 1024  # the part of AVCodecContext that is searched; the structure is larger in every release since 5.0

# Eight bytes of a mark are enough to tell it from pixels.
_FIRST, _SECOND = (int(word) for word in np.frombuffer(os.urandom(16), np.uint64))

_MAX_VIEWS = 256  # a pool has a few dozen pictures

# In an unwritten block, filters of a written neighbour change up to three pixels at the edge.
_INSET = 3


class Blocks(NamedTuple):
    """The blocks that a codec decodes whole, or not at all.

    Attributes:
        size: Their side in pixels.
        all_planes: Whether a block of one plane may be decoded without those of the others.
        last_column: Whether only the last block of each row has to be looked at: rows are decoded from left to right
            and end at damage.
        fields: Whether the lines of a block may belong to two fields, which are decoded apart.
        padded: Whether blocks at the right and at the bottom are written beyond the edge of the picture.
        filtered: Whether the edges of a block may be written with its neighbours.
        first_only: Whether only the first block has to be looked at: a picture is written as a whole or not at all.
    """

    size: int
    all_planes: bool = False
    last_column: bool = False
    fields: bool = False
    padded: bool = True
    filtered: bool = True
    first_only: bool = False


class _Frame(ctypes.Structure):
    """The beginning of FFmpeg's AVFrame, unchanged since 2015 but for ``key_frame``, which FFmpeg 8 has removed."""

    _fields_ = [
        ("data", ctypes.c_void_p * 8),
        ("linesize", ctypes.c_int * 8),
        ("extended_data", ctypes.c_void_p),
        ("width", ctypes.c_int),
        ("height", ctypes.c_int),
        ("nb_samples", ctypes.c_int),
        ("format", ctypes.c_int),
    ]


class _Buffer(ctypes.Structure):
    """FFmpeg's AVBufferRef, unchanged since 2012."""

    _fields_ = [("buffer", ctypes.c_void_p), ("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


_GetBuffer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
_GetBufferLocked = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
)  # keeps Python's lock


# Of each plane, where AVFrame has its address and the bytes of its lines.
_PLANES = [(plane, slice(8 * plane, 8 * plane + 8), slice(64 + 4 * plane, 68 + 4 * plane)) for plane in range(4)]


class _Hooks:
    """Addresses and functions of the FFmpeg that PyAV has loaded, checked on a context and a frame of PyAV's own.

    Raises:
        LookupError: Something is not where it is expected.
    """

    def __init__(self) -> None:
        # What takes less time than giving up Python's lock and getting it again keeps it.
        codec, util = library("libavcodec"), ctypes.PyDLL(library("libavutil")._name)
        codec.avcodec_get_class.restype = ctypes.c_void_p
        util.av_frame_get_plane_buffer.restype = ctypes.c_void_p
        util.av_frame_get_plane_buffer.argtypes = [ctypes.c_void_p, ctypes.c_int]
        util.av_buffer_ref.restype = ctypes.c_void_p
        util.av_buffer_ref.argtypes = [ctypes.c_void_p]
        util.av_buffer_unref.argtypes = [ctypes.c_void_p]
        util.av_buffer_get_ref_count.argtypes = [ctypes.c_void_p]
        util.av_get_pix_fmt_name.restype = ctypes.c_char_p
        self.plane_buffer, self.ref = util.av_frame_get_plane_buffer, util.av_buffer_ref
        self.unref, self.format_name = util.av_buffer_unref, util.av_get_pix_fmt_name
        self.ref_count = util.av_buffer_get_ref_count
        default = ctypes.cast(codec.avcodec_default_get_buffer2, ctypes.c_void_p).value
        assert default is not None
        self.get_buffer = _GetBufferLocked(default)
        self._class = codec.avcodec_get_class()
        context = av.CodecContext.create("hevc", "r")
        words = np.frombuffer(_read(self.address_of(context), _CONTEXT_BYTES), np.uintp)
        found = np.flatnonzero(words == default)
        if len(found) != 1:
            raise LookupError("AVCodecContext.get_buffer2")
        self.place = int(found[0]) * words.itemsize
        self.pts_place = _place_of_pts()

    def address_of(self, context: av.CodecContext) -> int:
        """The AVCodecContext of a PyAV context."""
        address = _pointer_in(context)
        if _read(address, 8) != self._class.to_bytes(8, "little"):
            raise LookupError("AVCodecContext")
        return address


def _pointer_in(wrapper: object) -> int:
    """The first member of a Cython object, which follows Python's header and the table of its methods."""
    place = id(wrapper) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
    return int.from_bytes(_read(place, 8), "little")


def _read(address: int, length: int) -> bytes:
    """Memory of this process; an address that is not valid raises instead of ending the process."""
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, length, address)
    except (OSError, OverflowError) as error:
        raise LookupError("PyAV's objects") from error
    finally:
        os.close(memory)


def _place_of_pts() -> int:
    """Finds the offset of ``pts`` in AVFrame by a number that was put there."""
    frame = av.VideoFrame(16, 16, "gray")
    frame.pts = number = 0x5A17_B2C3_94D5_E6F7
    head = _read(_pointer_in(frame), 256)
    place = head.find(number.to_bytes(8, "little"))
    if place < ctypes.sizeof(_Frame) or _Frame.from_buffer_copy(head).width != 16:
        raise LookupError("AVFrame.pts")
    return place


@functools.cache
def _hooks() -> _Hooks | None:
    try:
        return _Hooks()
    except (LookupError, OSError, AttributeError) as error:
        warnings.warn(
            f"PyAV {av.__version__} is laid out in a way that is not known ({error}): pixels that damaged data leaves "
            "unwritten are not detected",
            RuntimeWarning,
            stacklevel=4,
        )
        return None


class _Slot:
    """A C function that a codec context calls. It is never freed: a context may call it until its last thread ends."""

    idle: ClassVar[deque[_Slot]] = deque()  # here for decoders that end with the process, after this module's names

    def __init__(self, hooks: _Hooks) -> None:
        self.watcher: UnwrittenPixels | None = None
        get_buffer = hooks.get_buffer

        def call(context: int, frame: int, flags: int) -> int:
            result: int = get_buffer(context, frame, flags)
            watcher = self.watcher
            if result >= 0 and watcher is not None:
                watcher.mark(frame)
            return result

        self.function = _GetBuffer(call)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value


_Places = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any]]
"""Memory with the mark that belongs there; and, where its words are too short to tell it, the same once more.

Marks are arrays: NumPy compares with a number of Python's own in twice the time.
"""


class UnwrittenPixels:
    """Watches the pictures of one codec context.

    Args:
        context: Not opened yet.
        blocks: What the codec decodes whole; None where nothing is known, and every eight bytes are looked at.
    """

    def __init__(self, context: VideoCodecContext, blocks: Blocks | None) -> None:
        self._blocks = blocks
        self._marked: deque[tuple[int, list[_Places], list[int]]] = deque()  # with the packet and the buffers
        self._watched = slice(None if blocks is None or blocks.all_planes else 1)
        self._places: dict[bytes, _Places | None] = {}
        self._slot: _Slot | None = None
        hooks = _hooks()
        if hooks is None:
            return
        self._hooks = hooks
        self._pointer = ctypes.c_void_p()
        self._pointer_at = ctypes.byref(self._pointer)
        try:
            slot = _Slot.idle.pop()
        except IndexError:
            slot = _Slot(hooks)
        slot.watcher, self._slot = self, slot
        ctypes.c_void_p.from_address(hooks.address_of(context) + hooks.place).value = slot.address

    def mark(self, frame: int) -> None:
        """Marks the memory of a picture that is about to be decoded; called by the decoder's threads."""
        hooks = self._hooks
        head = ctypes.string_at(frame, hooks.pts_place + 8)
        layout = head[_Frame.width.offset : ctypes.sizeof(_Frame)]
        places: list[_Places] = []
        buffers: list[int] = []
        for plane, address, line in _PLANES[self._watched]:
            buffer = hooks.plane_buffer(frame, plane)
            if not buffer:
                break
            # The memory stays until it has been looked at, even if the decoder gives it up.
            buffers.append(hooks.ref(buffer))
            key = head[address] + head[line] + layout  # pools use memory again, each plane's for itself
            if key not in self._places:
                if len(self._places) >= _MAX_VIEWS:
                    self._places.clear()
                self._places[key] = self._find_places(frame, plane)
            place = self._places[key]
            if place is not None:
                first, mark, second, other = place
                first[...] = mark
                if second is not None:
                    second[...] = other
                places.append(place)
        self._marked.append((int.from_bytes(head[hooks.pts_place :], "little", signed=True), places, buffers))

    def found(self, done: int) -> bool:
        """Returns whether a finished picture has unwritten pixels.

        Args:
            done: The last packet that is decoded.
        """
        found = False
        marked = self._marked
        while marked and marked[0][0] <= done:
            _, places, buffers = marked.popleft()
            for place in places:
                # That of H.264 gives up the memory of a picture that is missing, and has the one before in its place.
                found = found or (_is_there(*place) and any(self._hooks.ref_count(each) > 1 for each in buffers))
            self._release(buffers)
        return found

    def forget(self) -> None:
        """Takes no more interest in the pictures that were marked."""
        while self._marked:
            self._release(self._marked.popleft()[2])

    def close(self) -> None:
        """Ends watching. The context must not decode any more."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self.forget()
            slot.watcher = None
            slot.idle.append(slot)

    def _release(self, buffers: list[int]) -> None:
        for buffer in buffers:
            self._pointer.value = buffer
            self._hooks.unref(self._pointer_at)

    def _find_places(self, frame: int, plane: int) -> _Places | None:
        head = _Frame.from_address(frame)
        name = self._hooks.format_name(head.format)
        pix_fmt = av.VideoFormat(name.decode(), head.width, head.height)
        size = next((each for each in pix_fmt.components if each.plane == plane), None)
        if size is None:
            return None
        buffer = _Buffer.from_address(self._hooks.plane_buffer(frame, plane))
        memory = _Memory(head.data[plane], head.linesize[plane], buffer.data + buffer.size - head.data[plane])
        if self._blocks is None:
            return _everywhere(memory, row_bytes(pix_fmt, plane), size.height)
        return _in_blocks(memory, self._blocks, size.width, size.height, 1 if size.bits <= 8 else 2)


class _Memory(NamedTuple):
    """The memory of a plane: where it begins, the bytes of a line, and the bytes in all."""

    address: int
    line: int
    size: int


def _everywhere(memory: _Memory, used: int, height: int) -> _Places | None:
    """All of the plane's lines, eight bytes at a time."""
    words = used // 8
    if memory.line < 8 * words or not words:
        return None
    view = _array(memory, 0, (height, words), (memory.line, 8), np.dtype(np.uint64))
    return _with_marks(view, None) if view is not None else None


def _in_blocks(memory: _Memory, blocks: Blocks, width: int, height: int, sample: int) -> _Places | None:
    """Eight bytes of a line in each block, or of a line of each field; where that is too much, four of two lines."""
    line, size = memory.line, blocks.size
    fields = 2 if blocks.fields else 1
    word = np.dtype(np.uint64 if size == 8 or sample == 2 or blocks.padded else np.uint32)
    used = word.itemsize // sample
    inset, lines = min(_INSET, (size - used) // 2), fields * (8 // word.itemsize)
    down = -(-height // size) if blocks.padded else (height - _INSET - lines) // size + 1
    across = -(-width // size) if blocks.padded else (width - inset - used) // size + 1
    if line < width * sample or down < 1 or across < 1:
        return None
    if blocks.first_only:
        down = across = 1
    column = across - 1 if blocks.last_column else 0
    shape, strides = (fields, down, across - column), (line, size * line, size * sample)
    begin = min(_INSET, (size - lines) // 2)
    if blocks.fields and not blocks.filtered and height >= size and not 0 < height % (2 * size) < size:
        # A block of a field is twice as high: lines of both fields in turn, counted from the last, are in each of them.
        step = size - 1
        begin = (height - 1) % step
        shape, strides = (1, (height - 1) // step + 1, across - column), (line, step * line, size * sample)
    offset = begin * line + (column * size + inset) * sample
    first = _array(memory, offset, shape, strides, word)
    second = _array(memory, offset + fields * line, shape, strides, word) if word.itemsize == 4 else None
    if first is None or (second is None and word.itemsize == 4):
        return _in_blocks(memory, blocks._replace(padded=False), width, height, sample) if blocks.padded else None
    return _with_marks(first, second)


def _with_marks(first: NDArray[Any], second: NDArray[Any] | None) -> _Places:
    most = 2 ** (8 * first.itemsize) - 1
    return first, np.array(_FIRST & most, first.dtype), second, np.array(_SECOND & most, first.dtype)


def _array(
    memory: _Memory, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], word: np.dtype[Any]
) -> NDArray[Any] | None:
    """An array over a plane's memory; None where it does not fit."""
    end = offset + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + word.itemsize
    if end > memory.size:
        return None
    return np.ndarray(shape, word, memoryview((ctypes.c_uint8 * end).from_address(memory.address)), offset, strides)


def _is_there(first: NDArray[Any], mark: NDArray[Any], second: NDArray[Any] | None, other: NDArray[Any]) -> bool:
    """Returns whether a mark was not overwritten."""
    same = first == mark
    if not np.count_nonzero(same):  # faster than any()
        return False
    return second is None or bool((same & (second == other)).any())
