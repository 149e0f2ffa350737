"""Small stand-ins for libraries that need a GPU, or a release that is gone. Every pixel of a frame is its number.

They are as unforgiving as the libraries are: memory is used again, numbers have to be in order, calls to be complete.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

HEIGHT, WIDTH = 4, 6
FRAMES = 48  # of the clip that they pretend to read


def picture(number: int) -> torch.Tensor:
    return torch.full((HEIGHT, WIDTH, 3), number, dtype=torch.uint8)


def module(name: str, **names: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    vars(made).update(names)
    return made


# --- PyNvVideoCodec -----------------------------------------------------------------------------------------------


class SimpleDecoder:
    """Frames lie in a pool that the next call overwrites; numbers that occur twice are given once."""

    def __init__(self, path: str, *, gpu_id: int, use_device_memory: bool, output_color_type: str) -> None:
        assert Path(path).exists() and gpu_id == 0 and use_device_memory and output_color_type == "RGB"
        self._pool = torch.zeros(FRAMES, HEIGHT, WIDTH, 3, dtype=torch.uint8)

    def __len__(self) -> int:
        return FRAMES

    def __getitem__(self, number: int) -> torch.Tensor:
        return self.get_batch_frames_by_index([number])[0]

    def get_batch_frames_by_index(self, numbers: list[int]) -> list[torch.Tensor]:
        numbers = list(dict.fromkeys(number for number in numbers if 0 <= number < FRAMES))
        for place, number in enumerate(numbers):
            self._pool[place] = picture(number)
        return list(self._pool[: len(numbers)])


def pynvvideocodec() -> dict[str, types.ModuleType]:
    library = module(
        "PyNvVideoCodec", SimpleDecoder=SimpleDecoder, OutputColorType=types.SimpleNamespace(RGB="RGB", RGBP="RGBP")
    )
    return {"PyNvVideoCodec": library}


# --- VALI ---------------------------------------------------------------------------------------------------------


class Surface:
    def __init__(self, format_: str) -> None:
        self.format = format_
        self.tensor = picture(255)

    @staticmethod
    def Make(format: str, width: int, height: int, gpu_id: int) -> Surface:  # noqa: N802
        assert (width, height, gpu_id) == (WIDTH, HEIGHT, 0)
        return Surface(format)

    def __dlpack__(self, stream: int | None = None) -> Any:
        assert self.format == "RGB"
        return self.tensor.reshape(HEIGHT, WIDTH * 3).__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


class SeekContext:
    def __init__(self, seek_frame: int) -> None:
        self.seek_frame = seek_frame


class PyDecoder:
    Width, Height, Format, NumFrames = WIDTH, HEIGHT, "NV12", FRAMES

    def __init__(self, input: str, opts: dict[str, str], gpu_id: int) -> None:
        assert Path(input).exists() and opts == {} and gpu_id == 0
        self._next = 0
        self.broken = False

    def DecodeSingleSurface(  # noqa: N802
        self, surf: Surface, seek_ctx: SeekContext | None = None
    ) -> tuple[bool, str]:
        assert surf.format == self.Format
        if seek_ctx is not None:
            self._next = seek_ctx.seek_frame
        if self._next >= FRAMES or self.broken:
            return False, "END_OF_STREAM"
        surf.tensor.fill_(self._next)
        self._next += 1
        return True, "SUCCESS"


class PySurfaceConverter:
    def __init__(self, gpu_id: int) -> None:
        assert gpu_id == 0
        self.broken = False

    def Run(self, src: Surface, dst: Surface, cc_ctx: Any = None) -> tuple[bool, str]:  # noqa: N802
        if self.broken:
            return False, "UNSUPPORTED_FMT_CONV_PARAMS"
        assert (src.format, dst.format) == ("NV12", "RGB")
        dst.tensor.copy_(src.tensor)
        return True, "SUCCESS"


def vali() -> dict[str, types.ModuleType]:
    library = module(
        "python_vali",
        PyDecoder=PyDecoder,
        PySurfaceConverter=PySurfaceConverter,
        Surface=Surface,
        SeekContext=SeekContext,
        PixelFormat=types.SimpleNamespace(RGB="RGB", NV12="NV12"),
    )
    return {"python_vali": library}


# --- DALI ---------------------------------------------------------------------------------------------------------


class Pipeline:
    def __init__(self, **arguments: Any) -> None:
        assert arguments["batch_size"] == 1 and arguments["num_threads"] > 0 and arguments["device_id"] == 0
        # One run for one input: nothing may be asked for ahead.
        assert arguments["prefetch_queue_depth"] == 1 and not arguments["exec_async"]
        self._fed: dict[str, Any] = {}
        self._built = False

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def set_outputs(self, graph: Any) -> None:
        self._graph = graph

    def build(self) -> None:
        self._built = True

    def feed_input(self, name: str, batch: list[Any]) -> None:
        assert self._built and len(batch) == 1
        self._fed[name] = batch[0]

    def run(self) -> tuple[list[Any]]:
        kind, encoded, numbers = self._graph
        assert kind == "video" and self._fed[encoded].dtype == np.uint8 and self._fed[numbers].dtype == np.int32
        assert bytes(self._fed.pop(encoded)[4:8]) == b"ftyp"
        frames = torch.stack([picture(int(number)) for number in self._fed.pop(numbers)])
        return ([types.SimpleNamespace(shape=lambda: list(frames.shape), frames=frames)],)


def _external_source(*, name: str, dtype: str, ndim: int) -> str:
    assert (name, dtype, ndim) in {("encoded", "UINT8", 1), ("numbers", "INT32", 1)}
    return name


def _video(encoded: str, *, device: str, frames: str) -> tuple[str, str, str]:
    assert device == "mixed"
    return "video", encoded, frames


def _feed_ndarray(decoded: Any, target: torch.Tensor) -> None:
    target.copy_(decoded.frames)


def dali(place: str = "decoders") -> dict[str, types.ModuleType]:
    """With the operator in ``decoders``, in ``experimental`` or nowhere."""
    holder = types.SimpleNamespace(video=_video)
    fn = module("nvidia.dali.fn", external_source=_external_source)
    if place == "decoders":
        vars(fn)["decoders"] = holder
    elif place == "experimental":
        vars(fn)["experimental"] = types.SimpleNamespace(decoders=holder)
    return {
        "nvidia": module("nvidia", __path__=[]),
        "nvidia.dali": module("nvidia.dali", Pipeline=Pipeline, __version__="1.2.3", __path__=[]),
        "nvidia.dali.fn": fn,
        "nvidia.dali.types": module("nvidia.dali.types", UINT8="UINT8", INT32="INT32"),
        "nvidia.dali.plugin": module("nvidia.dali.plugin", __path__=[]),
        "nvidia.dali.plugin.pytorch": module("nvidia.dali.plugin.pytorch", feed_ndarray=_feed_ndarray),
    }


# --- Torchvision --------------------------------------------------------------------------------------------------

STEP = 512  # ticks from frame to frame


def _read_video_timestamps(path: str, pts_unit: str) -> tuple[list[int], float]:
    assert Path(path).exists() and pts_unit == "pts"
    warnings.warn("deprecated", UserWarning, stacklevel=2)
    return [STEP * number for number in reversed(range(FRAMES))], 30.0


def _read_video(
    path: str, start_pts: int, end_pts: int, pts_unit: str, output_format: str
) -> tuple[torch.Tensor, None, dict[str, Any]]:
    assert Path(path).exists() and (pts_unit, output_format) == ("pts", "THWC")
    warnings.warn("deprecated", UserWarning, stacklevel=2)
    numbers = [number for number in range(FRAMES) if start_pts <= STEP * number <= end_pts]
    return torch.stack([picture(number) for number in numbers]), None, {}


def torchvision(*, video: bool = True) -> dict[str, types.ModuleType]:
    names: dict[str, Callable[..., Any]] = {}
    if video:
        names = {"read_video": _read_video, "read_video_timestamps": _read_video_timestamps}
    io = types.SimpleNamespace(**names)
    return {"torchvision": module("torchvision", io=io, __version__="0.28.0")}


FAKES: dict[str, Callable[[], dict[str, types.ModuleType]]] = {
    "pynvvideocodec": pynvvideocodec,
    "vali": vali,
    "dali": dali,
    "torchvision": torchvision,
}
