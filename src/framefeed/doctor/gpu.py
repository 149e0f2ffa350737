"""Checks of the GPU. They run in a child process: see ``child``."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from framefeed.doctor.clip import HEIGHT, WIDTH, decode_on_gpu
from framefeed.doctor.report import REPORT_IT, Finding, Probe, State, one_line
from framefeed.doctor.words import build_text, milliseconds, size_text

__all__ = ["REINSTALL_DRIVER", "gpu_probes"]

GPU_CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg2video", "mpeg4", "mjpeg")
GPU_FORMATS = tuple((chroma, bits) for chroma in ("420", "422", "444") for bits in (8, 10, 12))

_NO_DEVICE = (34, 100)  # CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_NO_DEVICE
_KERNEL_DRIVER = Path("/proc/driver/nvidia/version")

REINSTALL_DRIVER = "restart the machine; if that does not help, reinstall the NVIDIA driver"


def gpu_probes(required: bool) -> list[Probe]:
    """Returns the checks in order; the most fragile come last, because a crash ends those behind it."""
    decoding = ("decoding units", "Triton kernels")
    return [
        Probe("NVIDIA driver", "cuda", lambda: _driver(required), REINSTALL_DRIVER),
        Probe("video library", "cuda", _video_library, needs=("NVIDIA driver",)),
        Probe("GPUs", "cuda", _gpus, "pip install torch", ("NVIDIA driver",)),
        Probe("Triton", "cuda", _triton, "pip install triton", ("NVIDIA driver",)),
        Probe("PyNvVideoCodec", "cuda", _pynvvideocodec, needs=("NVIDIA driver",)),
        Probe("decoding units", "cuda", _decoding_units, needs=("GPUs", "video library", "PyNvVideoCodec")),
        Probe(
            "Triton kernels",
            "cuda",
            _kernels,
            "Triton compiles with a C compiler and Python's headers: apt-get install gcc python3-dev, or name a "
            f"compiler by CC; or {REPORT_IT}",
            ("GPUs", "Triton"),
        ),
        Probe("H.264 on the GPU", "cuda", functools.partial(decode_on_gpu, "H.264"), needs=decoding),
        Probe("HEVC on the GPU", "cuda", functools.partial(decode_on_gpu, "HEVC"), needs=decoding),
    ]


def _driver(required: bool) -> Finding:
    absent: State = "problem" if required else "not available"
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if _KERNEL_DRIVER.exists():
            fact = f"the kernel has the driver, but libcuda.so.1 cannot be loaded ({one_line(error)})"
            return Finding("problem", fact, "in a container: start it with --gpus all; else reinstall the driver")
        remedy = "install the NVIDIA driver (nvidia-smi shows it); in a container: start it with --gpus all"
        return Finding(absent, "none here", remedy if required else "")
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    fact = f"CUDA up to {number.value // 1000}.{number.value % 1000 // 10}"
    version = _driver_version()
    if version:
        fact = f"{version}, {fact}"
    error_code = cuda.cuInit(0)
    if error_code in _NO_DEVICE:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = f", CUDA_VISIBLE_DEVICES={hidden}" if hidden is not None else ""
        remedy = "unset CUDA_VISIBLE_DEVICES" if why else "in a container: start it with --gpus all"
        return Finding(absent, f"{fact}, but no GPU{why}", remedy if required else "")
    if error_code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(error_code, ctypes.byref(text))
        said = (text.value or b"unknown").decode(errors="replace")
        return Finding("problem", f"{fact}; it does not start: {said} (error {error_code})", REINSTALL_DRIVER)
    return Finding("ok", fact)


def _driver_version() -> str:
    """Returns the version that nvidia-smi shows; empty if unknown."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    text = ctypes.create_string_buffer(96)
    known = nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
    return text.value.decode(errors="replace") if known else ""


def _video_library() -> Finding:
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError as error:
        major = _driver_version().partition(".")[0] or "NNN"
        remedy = (
            "in a container: start it with -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility; else install the "
            f"driver's decoding part (Debian and Ubuntu: libnvidia-decode-{major} or libnvcuvid1)"
        )
        return Finding("problem", f"libnvcuvid.so.1 cannot be loaded ({one_line(error)})", remedy)
    return Finding("ok", "libnvcuvid.so.1")


def _gpus() -> Finding:
    import torch

    if torch.version.cuda is None:
        return Finding(
            "problem",
            f"torch {torch.__version__} is built without CUDA",
            "pip uninstall -y torch && pip install torch   (the build for another CUDA: pytorch.org/get-started)",
        )
    if not torch.cuda.is_available():
        remedy = "update the NVIDIA driver, or install a torch for an older CUDA: pytorch.org/get-started"
        return Finding("problem", f"torch, {build_text(torch.version.cuda)}, sees none: {_why_no_gpu()}", remedy)
    found: list[dict[str, Any]] = []
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        found.append({"device": f"cuda:{number}", "name": facts.name, "memory_bytes": int(facts.total_memory)})
    alike = Counter(f"{gpu['name']}, {size_text(gpu['memory_bytes'])}" for gpu in found)
    fact = "; ".join(text if count == 1 else f"{count} x {text}" for text, count in alike.items())
    return Finding("ok", fact, details=tuple(found))


def _why_no_gpu() -> str:
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return one_line(error)
    return "no reason given"


def _version(package: str) -> str | None:
    """Returns the version of a package; None if it is not installed."""
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"


def _triton() -> Finding:
    version = _version("triton")
    if version is None:
        return Finding("problem", "not installed", "pip install triton")
    return Finding("ok", version)


def _pynvvideocodec() -> Finding:
    version = _version("PyNvVideoCodec")
    if version is None:
        return Finding("problem", "not installed", 'pip install "framefeed[cuda]"')
    from framefeed.decode.nvdec.capabilities import NO_VIDEO_LIBRARY, capabilities
    from framefeed.errors import MissingBackend

    try:
        capabilities(0, "none", "420", 8)  # no real codec: this only loads the library
    except MissingBackend as error:
        if isinstance(error.__cause__, ImportError):
            fact = f"{version} cannot be loaded ({one_line(error.__cause__)})"
            return Finding("problem", fact, "pip install --force-reinstall PyNvVideoCodec")
        return Finding("problem", f"{version} {error.reason.partition('; ')[0]}", NO_VIDEO_LIBRARY)
    return Finding("ok", version)


def _decoding_units() -> Finding:
    import torch

    from framefeed.decode.nvdec.capabilities import num_units

    found: list[dict[str, Any]] = [
        {
            "device": f"cuda:{number}",
            "name": torch.cuda.get_device_name(number),
            "units": num_units(number),
            "formats": _formats(number),
        }
        for number in range(torch.cuda.device_count())
    ]
    fact = ", ".join(f"{gpu['units']} on {gpu['device']}" for gpu in found)
    return Finding("ok", fact, details=tuple(found))


def _formats(device: int) -> list[dict[str, Any]]:
    """Returns the formats that a GPU can decode."""
    from framefeed.decode.nvdec.capabilities import EXACT_CODECS, capabilities
    from framefeed.errors import MissingBackend

    formats = []
    for codec in GPU_CODECS:
        for chroma, bits in GPU_FORMATS:
            try:
                caps = capabilities(device, codec, chroma, bits)
            except MissingBackend:  # the driver does not know the format
                continue
            if caps.get("supported"):
                sizes = {name: caps[key] for name, key in _SIZES.items()}
                used = codec in EXACT_CODECS
                formats.append({"codec": codec, "chroma": chroma, "bits": bits, **sizes, "used": used})
    return formats


_SIZES = {"min_width": "width_min", "min_height": "height_min", "max_width": "width_max", "max_height": "height_max"}


def _kernels() -> Finding:
    import numpy as np
    import torch

    from framefeed.convert.conversion import Conversion, SurfaceFormat
    from framefeed.convert.cuda.launch import convert
    from framefeed.testing.samples import paint, read_number

    began = time.perf_counter()
    number = 1234
    picture = paint(number, WIDTH, HEIGHT)
    chroma = np.stack((picture.u, picture.v), -1).reshape(-1, WIDTH)
    surface = torch.from_numpy(np.concatenate((picture.y, chroma))).to("cuda")
    rgb = torch.zeros((HEIGHT, WIDTH, 3), dtype=torch.uint8, device="cuda")
    luma = surface.data_ptr()
    sources = torch.tensor([[luma, luma + WIDTH * HEIGHT, 0]], device="cuda")
    targets = torch.tensor([rgb.data_ptr()], device="cuda")
    convert(Conversion(SurfaceFormat.NV12, 8, (HEIGHT, WIDTH), layout="HWC"), sources, WIDTH, targets)
    shown = read_number(rgb.cpu().numpy())
    if shown != number:
        return Finding("problem", f"a picture of the number {number} reads {shown}", REPORT_IT)
    return Finding("ok", f"compiled and right, {milliseconds(time.perf_counter() - began)}")
