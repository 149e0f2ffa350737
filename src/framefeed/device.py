"""Choice of a device, the CPU or a GPU, checked before anything is decoded."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Literal

from framefeed.errors import MissingBackend, UnsupportedCodec
from framefeed.index.video_index import VideoIndex

if TYPE_CHECKING:
    import torch

__all__ = ["CpuFallback", "Fallback", "check_not_forked", "choose_decoder", "resolve_device"]

Fallback = Literal["cpu"] | None

_FORKED = (
    "CUDA was used before this process was forked, and does not survive a fork; start worker processes with "
    "multiprocessing_context='spawn', or decode in the main process and leave only CPU work to workers"
)


class CpuFallback:
    """True, with the reason, if a video is decoded on the CPU although its frames go to a GPU.

    Attributes:
        reason: Why, empty where it is not.
        status_known: As TorchCodec has it; here it is known as soon as the decoder is made.
    """

    status_known = True

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def __bool__(self) -> bool:
        return bool(self.reason)

    def __str__(self) -> str:
        return f"decoded on the CPU: {self.reason}" if self.reason else "no fallback to the CPU"

    def __repr__(self) -> str:
        return f"CpuFallback({self.reason!r})" if self.reason else "CpuFallback()"


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device that is meant: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"`` for a GPU where one can be used.

    Raises:
        MissingBackend: A GPU is asked for and cannot be used; the error says what is missing.
        ValueError: It is another kind of device.
    """
    import torch

    if device == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if not _lacking() else torch.device("cpu")
    chosen = torch.device(device if device is not None else torch.get_default_device())
    if chosen.type == "cpu":
        return chosen
    if chosen.type != "cuda":
        raise ValueError(f"device={str(device)!r} is not supported; possible: 'cpu', 'cuda', 'cuda:N', 'auto'")
    lacking = _lacking()
    if lacking:
        raise MissingBackend(str(chosen), f"{lacking}; use device='cpu', or device='auto' to take what there is")
    number = chosen.index if chosen.index is not None else torch.cuda.current_device()
    if number >= torch.cuda.device_count():
        raise ValueError(f"device={str(device)!r}: there are {torch.cuda.device_count()} GPUs here, counted from 0")
    return torch.device("cuda", number)


def _lacking() -> str:
    """Returns what is missing for decoding on a GPU; empty if nothing is."""
    import torch

    if torch.version.cuda is None:
        return "this torch was built without CUDA; install one with it, see pytorch.org"
    if _in_forked_child():
        return _FORKED
    if not torch.cuda.is_available():
        return "torch finds no usable GPU; is the NVIDIA driver installed (nvidia-smi)?"
    for package in ("PyNvVideoCodec", "triton"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed: pip install framefeed[cuda]"
    from framefeed.decode.nvdec.capabilities import library

    try:
        library()
    except MissingBackend as error:
        return str(error)
    return ""


def check_not_forked(device: torch.device) -> None:
    """Raises where a GPU that was used before a fork is used again after it.

    Raises:
        MissingBackend: It was; the error says what to do.
    """
    if _in_forked_child():
        raise MissingBackend(str(device), _FORKED)


def _in_forked_child() -> bool:
    import torch

    check: Any = getattr(torch.cuda, "_is_in_bad_fork", None)
    return bool(check is not None and check())


def choose_decoder(index: VideoIndex, device: torch.device, fallback: Fallback) -> CpuFallback:
    """Returns whether a video has to be decoded on the CPU to end up on the device.

    Raises:
        UnsupportedCodec: The GPU cannot decode it, and falling back was not allowed.
    """
    from framefeed.decode.nvdec.capabilities import check_supported

    try:
        check_supported(index, device.index or 0)
    except UnsupportedCodec as error:
        if fallback == "cpu":
            return CpuFallback(str(error))
        raise UnsupportedCodec(index.path, f"{error.path}: {error.reason}") from error
    return CpuFallback()
