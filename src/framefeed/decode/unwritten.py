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
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import av
import numpy as np
from av.video.codeccontext import VideoCodecContext
from numpy.typing import NDArray

from framefeed.ffmpeg import library, row_bytes

__all__ = ["Blocks", "UnwrittenPixels"]

_CONTEXT_BYTES = 1024  # the part of AVCodecContext that is searched; the structure is larger in every release since 5.0

_MARKS = np.frombuffer(os.urandom(16), np.uint64).copy()
_MAX_VIEWS = 256  # a pool has a few dozen pictures

# In an unwritten block, filters of a written neighbour change up to three pixels at the edge.
_INSET = 3
_MARK_WIDTH = 4


class Blocks(NamedTuple):
    """The blocks that a codec decodes whole, or not at all.

    Attributes:
        size: Their side in pixels.
        last_column: Whether only the last block of each row has to be looked at: rows are decoded from left to right
            and end at damage.
        fields: Whether the lines of a block may belong to two fields, which are decoded apart.
        padded: Whether blocks at the right and at the bottom are written beyond the edge of the picture.
    """

    size: int
    last_column: bool = False
    fields: bool = False
    padded: bool = True


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


_GetBuffer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


class _Hooks:
    """Addresses and functions of the FFmpeg that PyAV has loaded, checked on a context and a frame of PyAV's own.

    Raises:
        LookupError: Something is not where it is expected.
    """

    def __init__(self) -> None:
        codec, util = library("libavcodec"), library("libavutil")
        codec.avcodec_get_class.restype = ctypes.c_void_p
        util.av_frame_get_plane_buffer.restype = ctypes.c_void_p
        util.av_frame_get_plane_buffer.argtypes = [ctypes.c_void_p, ctypes.c_int]
        util.av_buffer_ref.restype = ctypes.c_void_p
        util.av_buffer_ref.argtypes = [ctypes.c_void_p]
        util.av_buffer_unref.argtypes = [ctypes.c_void_p]
        util.av_get_pix_fmt_name.restype = ctypes.c_char_p
        self.plane_buffer, self.ref = util.av_frame_get_plane_buffer, util.av_buffer_ref
        self.unref, self.format_name = util.av_buffer_unref, util.av_get_pix_fmt_name
        default = ctypes.cast(codec.avcodec_default_get_buffer2, ctypes.c_void_p).value
        assert default is not None
        self.get_buffer = _GetBuffer(default)
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
    """Where AVFrame has its pts: found by a number that was put there."""
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

    def __init__(self, hooks: _Hooks) -> None:
        self._default = hooks.get_buffer
        self.function = _GetBuffer(self._call)
        self.watcher: UnwrittenPixels | None = None

    def _call(self, context: int, frame: int, flags: int) -> int:
        result: int = self._default(context, frame, flags)
        watcher = self.watcher
        if result >= 0 and watcher is not None:
            watcher.mark(frame)
        return result


_idle_slots: deque[_Slot] = deque()


class _Marked(NamedTuple):
    """A picture whose memory was marked."""

    packet: int
    views: list[tuple[NDArray[Any], NDArray[Any]]]
    buffers: list[int]


class UnwrittenPixels:
    """Watches the pictures of one codec context.

    Args:
        context: Not opened yet.
        blocks: What the codec decodes whole; None where nothing is known, and every eight bytes are looked at.
    """

    def __init__(self, context: VideoCodecContext, blocks: Blocks | None) -> None:
        self._blocks = blocks
        self._has_fields = blocks is not None and blocks.fields
        self._marked: deque[_Marked] = deque()
        self._views: dict[tuple[int, ...], list[tuple[NDArray[Any], NDArray[Any]]]] = {}
        self._slot: _Slot | None = None
        hooks = _hooks()
        if hooks is None:
            return
        self._hooks = hooks
        try:
            slot = _idle_slots.pop()
        except IndexError:
            slot = _Slot(hooks)
        slot.watcher, self._slot = self, slot
        function = ctypes.cast(slot.function, ctypes.c_void_p)
        ctypes.c_void_p.from_address(hooks.address_of(context) + hooks.place).value = function.value

    def mark(self, frame: int) -> None:
        """Marks the memory of a picture that is about to be decoded; called by the decoder's threads."""
        hooks = self._hooks
        head = _Frame.from_address(frame)
        views = self._views_of(head)
        buffers = [hooks.ref(buffer) for plane in range(4) if (buffer := hooks.plane_buffer(frame, plane))]
        for view, mark in views:
            view[...] = mark
        packet = ctypes.c_int64.from_address(frame + hooks.pts_place).value
        self._marked.append(_Marked(packet, views, buffers))

    def found(self, shown: Sequence[int], done: int | None) -> bool:
        """Whether a picture has unwritten pixels, of those that have been decoded to their end.

        Args:
            shown: Packets whose pictures have come out.
            done: The last packet that is decoded; None for all that were fed.
        """
        found = False
        waiting: list[_Marked] = []
        for marked in self._take_all():
            # The second field may be in the packet that follows.
            whole = done is None or marked.packet < done or (marked.packet == done and not self._has_fields)
            if not whole and marked.packet not in shown:
                waiting.append(marked)
                continue
            found = found or any(_is_there(view, mark) for view, mark in marked.views)
            self._release(marked)
        self._marked.extendleft(reversed(waiting))
        return found

    def _take_all(self) -> Iterator[_Marked]:
        """The pictures that are marked now; a decoder's thread may add one meanwhile."""
        for _ in range(len(self._marked)):
            yield self._marked.popleft()

    def forget(self) -> None:
        """Takes no more interest in the pictures that were marked."""
        while self._marked:
            self._release(self._marked.popleft())

    def close(self) -> None:
        """Ends watching. The context must not decode any more."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self.forget()
            slot.watcher = None
            _idle_slots.append(slot)

    def _release(self, marked: _Marked) -> None:
        for buffer in marked.buffers:
            self._hooks.unref(ctypes.byref(ctypes.c_void_p(buffer)))

    def _views_of(self, head: _Frame) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        """The places to mark, with their marks. Pools use memory again, so they are kept by address."""
        key = (head.data[0] or 0, head.linesize[0], head.width, head.height, head.format)
        views = self._views.get(key)
        if views is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            views = self._views[key] = self._make_views(head)
        return views

    def _make_views(self, head: _Frame) -> list[tuple[NDArray[Any], NDArray[Any]]]:
        name = self._hooks.format_name(head.format)
        pix_fmt = av.VideoFormat(name.decode(), head.width, head.height)
        if self._blocks is not None:
            return _block_views(head, self._blocks, 1 if pix_fmt.components[0].bits <= 8 else 2)
        views = []
        for plane, height in {component.plane: component.height for component in pix_fmt.components}.items():
            used, line = row_bytes(pix_fmt, plane) // 8, head.linesize[plane]
            if head.data[plane] and line >= 8 * used > 0:
                view = _array(head, plane, 0, (height, used), (line, 8), np.dtype(np.uint64))
                views.append((view, _MARKS[:1]))
        return views


def _block_views(head: _Frame, blocks: Blocks, sample: int) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Four pixels of some lines in each block of the luma plane."""
    line, size = head.linesize[0], blocks.size
    width, height = (-(-side // size) * size if blocks.padded else side for side in (head.width, head.height))
    lines = 4 if blocks.fields else 2
    down = max(0, (height - _INSET - lines) // size + 1)
    across = max(0, (width - _INSET - _MARK_WIDTH) // size + 1)
    if line < width * sample or not down or not across:
        return []
    first = across - 1 if blocks.last_column else 0
    word = np.dtype(np.uint32 if sample == 1 else np.uint64)
    marks = _MARKS.view(word)[: min(lines, 2)]
    marks = (
        np.tile(marks, lines // 2).reshape(1, lines, 1) if not blocks.fields else np.repeat(marks, 2).reshape(1, 4, 1)
    )
    view = _array(
        head,
        0,
        _INSET * line + (first * size + _INSET) * sample,
        (down, lines, across - first),
        (size * line, line, size * sample),
        word,
    )
    return [(view, marks)]


def _array(
    head: _Frame, plane: int, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], word: np.dtype[Any]
) -> NDArray[Any]:
    """An array over a plane's memory."""
    end = offset + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) + word.itemsize
    memory = (ctypes.c_uint8 * end).from_address(head.data[plane])
    return np.ndarray(shape, word, memory, offset, strides)


def _is_there(view: NDArray[Any], mark: NDArray[Any]) -> bool:
    """Whether a mark has not been written over, in all lines of a block that belong together."""
    same = view == mark
    if same.ndim < 3:
        return bool(same.any())
    if same.shape[1] == 2:
        return bool((same[:, 0] & same[:, 1]).any())
    return bool((same[:, 0] & same[:, 2]).any() or (same[:, 1] & same[:, 3]).any())
