"""Bindings of the few functions of NVIDIA's driver that framefeed calls directly."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any, ClassVar

from framefeed.errors import MissingBackend

__all__ = ["DEFAULT_STREAM", "Event", "copy_on_device", "copy_to_device", "new_stream", "on_device", "use_context"]

DEFAULT_STREAM = 0  # its handle

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: does not synchronise with the default stream
_NO_TIMES = 2  # CU_EVENT_DISABLE_TIMING


@functools.cache
def _function(name: str, *arguments: Any, waits: bool = False) -> Any:
    """Returns a function of the driver.

    Args:
        name: Its name.
        arguments: Types of its arguments.
        waits: Whether the call may block. Other functions keep the GIL: they return at once, and with many threads
            getting the GIL back can take a hundred times as long as the call.
    """
    try:
        driver = (ctypes.CDLL if waits else ctypes.PyDLL)("libcuda.so.1")
    except OSError as error:
        raise MissingBackend("libcuda.so.1", f"the NVIDIA driver cannot be loaded: {error}") from error
    function = getattr(driver, name)
    function.argtypes = list(arguments)
    function.restype = ctypes.c_int
    return function


_HANDLES = (ctypes.c_void_p, ctypes.c_void_p)
_COPY = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)


def copy_on_device(target: int, source: int, num_bytes: int, stream: int) -> None:
    """Queues a copy within device memory.

    Args:
        target, source: Addresses.
        num_bytes: Number of bytes.
        stream: Handle of the CUDA stream.
    """
    _check("copying a decoded picture", _function("cuMemcpyDtoDAsync_v2", *_COPY)(target, source, num_bytes, stream))


def copy_to_device(target: int, source: int, num_bytes: int, stream: int) -> None:
    """Queues a copy from pinned memory to device memory; takes the arguments of ``copy_on_device``."""
    _check("sending to the GPU", _function("cuMemcpyHtoDAsync_v2", *_COPY)(target, source, num_bytes, stream))


def _current_context() -> int:
    context = ctypes.c_void_p()
    _function("cuCtxGetCurrent", ctypes.POINTER(ctypes.c_void_p))(ctypes.byref(context))
    return context.value or 0


@functools.cache
def _primary_context(device: int) -> int:
    """Returns PyTorch's context of a GPU, retained for the life of the process."""
    context = ctypes.c_void_p()
    retain = _function("cuDevicePrimaryCtxRetain", ctypes.POINTER(ctypes.c_void_p), ctypes.c_int)
    _check("getting the CUDA context", retain(ctypes.byref(context), device))
    return context.value or 0


@contextlib.contextmanager
def on_device(device: int) -> Iterator[None]:
    """Makes PyTorch's context of a GPU current in this thread for the duration of the block."""
    import torch

    with torch.cuda.device(device):
        # Torch sets the context only when the device changes. Libraries with contexts of their own leave theirs current
        # in a thread, even destroyed ones.
        use_context(device)
        yield


def use_context(device: int) -> None:
    """Makes PyTorch's context of a GPU current in this thread for good. A new thread has none."""
    if _current_context() != _primary_context(device):
        _check("using the CUDA context", _function("cuCtxSetCurrent", ctypes.c_void_p)(_primary_context(device)))


class Event:
    """A CUDA event: a point in a stream's work that other streams can wait for. Torch's events release the GIL on every
    call.

    Args:
        stream: Handle of the CUDA stream; the event completes after everything queued on it so far.
    """

    __slots__ = ("_context", "_handle")
    _free: ClassVar[dict[int, list[int]]] = {}  # by context

    def __init__(self, stream: int) -> None:
        self._handle = 0
        self._context = _current_context()
        try:
            self._handle = self._free.setdefault(self._context, []).pop()
        except IndexError:
            handle = ctypes.c_void_p()
            create = _function("cuEventCreate", ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)
            _check("making a CUDA event", create(ctypes.byref(handle), _NO_TIMES))
            self._handle = handle.value or 0
        _check("recording a CUDA event", _function("cuEventRecord", *_HANDLES)(self._handle, stream))

    def wait(self, stream: int) -> None:
        """Makes a stream wait for this event."""
        call = _function("cuStreamWaitEvent", *_HANDLES, ctypes.c_uint)
        _check("waiting for a CUDA event", call(stream, self._handle, 0))

    def synchronize(self) -> None:
        """Blocks until the event has completed."""
        call = _function("cuEventSynchronize", ctypes.c_void_p, waits=True)
        _check("waiting for a CUDA event", call(self._handle))

    def __del__(self) -> None:
        if self._handle:
            # No reference is left, and CUDA lets streams that already wait finish.
            self._free.setdefault(self._context, []).append(self._handle)


def new_stream(device: int) -> Any:
    """Returns a new CUDA stream, not one of the 32 that torch hands out in turns. It is never destroyed."""
    import torch

    handle = ctypes.c_void_p()
    create = _function("cuStreamCreate", ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint)
    with on_device(device):
        _check("making a CUDA stream", create(ctypes.byref(handle), _NON_BLOCKING))
    return torch.cuda.ExternalStream(handle.value or 0, device=device)  # type: ignore[no-untyped-call]


def _check(what: str, error: int) -> None:
    if error:
        raise RuntimeError(f"{what} failed with CUDA error {error}")
