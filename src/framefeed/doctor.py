"""Is this installation fit for use: the checks behind ``framefeed doctor``, as values.

A check never raises: what goes wrong in it is its result, and the next one runs. Those that touch a GPU's driver run in
a child process (``python -m framefeed.doctor``): a driver that crashes or hangs costs a line of the report, not the
report.

Nothing heavy is imported before the check that needs it, since a broken torch or PyAV is what is looked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args

import framefeed

if TYPE_CHECKING:
    import torch

__all__ = ["Check", "Device", "Need", "Report", "State", "examine"]

Device = Literal["cpu", "cuda", "auto"]
State = Literal["ok", "problem", "not available"]
Need = Literal["cpu", "cuda", "hint"]
Progress = Callable[[int, int], None]

LEAST_PYTHON = (3, 10)
LEAST_SHARED_MEMORY = 256 << 20  # a container's usual 64 MiB are full after a few batches of a DataLoader's workers
LEAST_OPEN_FILES = 1024  # the usual limit; videos, workers and their pipes stay below it
CHILD_SECONDS = 120.0  # a cold start of torch, CUDA, Triton and two decoders takes 20 or more
MOST_WORDS = 200  # characters of what it said before it crashed
KILL_SECONDS = 5.0  # a process that hangs inside the kernel cannot be ended: it is left behind

DECODERS = {"h264": ("h264",), "hevc": ("hevc",), "vp8": ("vp8",), "vp9": ("vp9",), "av1": ("libdav1d", "libaom-av1")}
GPU_CODECS = ("h264", "hevc", "vp8", "vp9", "av1", "mpeg2video", "mpeg4", "mjpeg")
GPU_FORMATS = tuple((chroma, bits) for chroma in ("420", "422", "444") for bits in (8, 10, 12))

# Larger than the 144x144 that NVDEC takes at least for HEVC; three groups with B-frames.
FRAMES = 24
WIDTH, HEIGHT = 256, 160
CLIPS: dict[str, dict[str, Any]] = {
    "H.264": {"codec": "libx264", "bframes": 2, "options": {"preset": "veryfast"}},
    "HEVC": {"codec": "libx265", "bframes": 2, "options": {"preset": "ultrafast"}, "tag": "hvc1"},
    "MPEG-4": {"codec": "mpeg4", "bframes": 2, "options": {"b": "800k", "qmin": "5"}},
}
TOLERANCE = 2  # of 255, between the colour conversions of CPU and GPU

_NO_DEVICE = (34, 100)  # CUDA_ERROR_STUB_LIBRARY, CUDA_ERROR_NO_DEVICE
_KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
_SHARED_MEMORY = Path("/dev/shm")

_REINSTALL_PYAV = "pip install --force-reinstall av   (the wheels bring FFmpeg with all of these)"
_REINSTALL_DRIVER = "restart the machine; if that does not help, reinstall the NVIDIA driver"
_REPORT_IT = "report it, with the output of: framefeed doctor --json"


@dataclass(frozen=True)
class Check:
    """What was found about one thing.

    Attributes:
        name: The thing.
        needed_for: ``"cpu"`` for all of framefeed, ``"cuda"`` for GPUs, ``"hint"`` for nothing that must be there.
        state: ``"not available"`` is no fault: it is not there, or could not be looked at.
        fact: A version, a figure, or what is wrong.
        remedy: What to do about it; empty where nothing is to be done.
        details: The same for programs, where a line is too short for it.
    """

    name: str
    needed_for: Need
    state: State
    fact: str
    remedy: str = ""
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Report:
    """The result of all checks.

    Attributes:
        device: What has to work: ``"cpu"``, ``"cuda"``, or ``"auto"`` for the CPU, and a GPU where there is one.
        checks: In the order they were made.
    """

    device: Device
    checks: tuple[Check, ...]

    @property
    def ready(self) -> bool:
        """Whether everything works that the device needs. With ``"auto"`` a GPU may be missing, or out of order."""
        return not self._problems("cpu") and (self.device != "cuda" or self.gpu_ready)

    @property
    def gpu_ready(self) -> bool:
        """Whether there is a GPU and nothing is wrong with it."""
        return self._state("NVIDIA driver") == "ok" and not self._problems("cuda")

    @property
    def verdict(self) -> str:
        """The report in one line."""
        hints = len(self._problems("hint"))
        return self._verdict() + (f"; {_count(hints, 'hint')}" if hints else "")

    def details(self, name: str) -> tuple[dict[str, Any], ...]:
        """The details of the check of that name; none where it was not made."""
        return next((check.details for check in self.checks if check.name == name), ())

    def _verdict(self) -> str:
        on_cpu, on_gpu = len(self._problems("cpu")), len(self._problems("cuda"))
        if on_cpu:
            return f"not ready: {_count(on_cpu + on_gpu, 'problem')}"
        if self.gpu_ready:
            return f"ready for the CPU and for {self._gpu()}"
        if self.device == "cuda":
            return f"not ready for cuda: {_count(on_gpu, 'problem')}; the CPU works"
        if on_gpu:
            return f"ready for the CPU; not for the GPU here: {_count(on_gpu, 'problem')}"
        return "ready for the CPU" + ("; no GPU here" if self.device == "auto" else "")

    def _gpu(self) -> str:
        gpus = self.details("decoding units")
        texts = [f"{gpu['device']} ({gpu['name']}, {_count(gpu['units'], 'decoding unit')})" for gpu in gpus[:1]]
        others = f"; {len(gpus) - 1} more not tried" if len(gpus) > 1 else ""
        return "".join(texts or ["cuda"]) + others

    def _problems(self, need: Need) -> list[Check]:
        return [check for check in self.checks if check.state == "problem" and check.needed_for == need]

    def _state(self, name: str) -> State | None:
        return next((check.state for check in self.checks if check.name == name), None)


def examine(device: Device = "auto", *, progress: Progress | None = None) -> Report:
    """Looks at everything that framefeed needs, and decodes a small clip.

    Args:
        device: What has to work. ``"cpu"`` leaves GPUs alone.
        progress: Called with the checks done and the checks in all.
    """
    looks = _cpu_looks()
    total = len(looks) + (device != "cpu")
    checks: list[Check] = []
    for look in looks:
        if progress is not None:
            progress(len(checks), total)
        checks.append(look.run({}))
    if device != "cpu":
        if progress is not None:
            progress(len(checks), total)
        checks += _ask_child(required=device == "cuda")
    return Report(device, tuple(checks))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


# --- one check ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Finding:
    state: State
    fact: str
    remedy: str = ""
    details: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class _Look:
    """How a check is made.

    Attributes:
        look: Makes it.
        remedy: What helps where it raises.
        needs: Checks that must be ok before it makes sense.
    """

    name: str
    needed_for: Need
    look: Callable[[], _Finding]
    remedy: str = _REPORT_IT
    needs: tuple[str, ...] = ()

    def run(self, before: Mapping[str, State]) -> Check:
        lacking = next((name for name in self.needs if before.get(name) != "ok"), None)
        if lacking is not None:
            return _check(self.name, self.needed_for, _Finding("not available", f"needs: {lacking}"))
        try:
            found = self.look()
        except Exception as error:  # whatever is broken: that is what is looked for
            found = _Finding("problem", _one_line(error), self.remedy)
        return _check(self.name, self.needed_for, found)


def _check(name: str, need: Need, found: _Finding) -> Check:
    return Check(name, need, found.state, found.fact, found.remedy, found.details)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- what all of framefeed needs ------------------------------------------------------------------------------------


def _cpu_looks() -> list[_Look]:
    return [
        _Look("framefeed", "cpu", lambda: _Finding("ok", framefeed.__version__)),
        _Look("Python", "cpu", _python),
        _Look("operating system", "hint", _operating_system),
        _Look("torch", "cpu", _torch, "pip install torch"),
        _Look("PyAV", "cpu", _pyav, "pip install --force-reinstall av"),
        _Look("CPU decoders", "cpu", _decoders, _REINSTALL_PYAV),
        _Look("CPUs", "hint", _cpus),
        _Look("shared memory", "hint", _shared_memory),
        _Look("open files", "hint", _open_files),
        _Look("decoding on the CPU", "cpu", _decode_on_cpu, f"pip install --force-reinstall av; or {_REPORT_IT}"),
    ]


def _python() -> _Finding:
    fact = f"{platform.python_version()}, {platform.python_implementation()}"
    if sys.version_info[:2] >= LEAST_PYTHON:
        return _Finding("ok", fact)
    return _Finding("problem", fact, f"install Python {'.'.join(map(str, LEAST_PYTHON))} or later")


def _operating_system() -> _Finding:
    fact = " ".join((platform.system(), platform.release(), platform.machine()))
    if platform.system() == "Linux":
        return _Finding("ok", fact)
    return _Finding("problem", fact, "framefeed is made for Linux, and tested there only")


def _torch() -> _Finding:
    import torch

    return _Finding("ok", f"{torch.__version__}, {_build(torch.version.cuda)}")


def _build(cuda: str | None) -> str:
    return f"built for CUDA {cuda}" if cuda is not None else "built without CUDA"


def _pyav() -> _Finding:
    import av

    versions = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    shown = ", ".join(f"{name} {versions[name]}" for name in ("libavcodec", "libavformat", "libswscale"))
    return _Finding("ok", f"{av.__version__}, {shown}", details=(versions,))


def _decoders() -> _Finding:
    found = {codec: next(filter(_has_decoder, names), None) for codec, names in DECODERS.items()}
    missing = [codec for codec, decoder in found.items() if decoder is None]
    present = [codec for codec in found if codec not in missing]
    if missing:
        fact = f"none for {', '.join(missing)}; present: {', '.join(present) or 'none'}"
        return _Finding("problem", fact, _REINSTALL_PYAV, details=(found,))
    return _Finding("ok", ", ".join(present), details=(found,))


def _has_decoder(name: str) -> bool:
    return _has_codec(name, "r")


def _has_codec(name: str, mode: Literal["r", "w"]) -> bool:
    from av.codec import Codec
    from av.codec.codec import UnknownCodecError

    try:
        Codec(name, mode)
    except UnknownCodecError:
        return False
    return True


def _cpus() -> _Finding:
    from framefeed.decode.engine import available_cpus

    return _Finding("ok", f"{available_cpus()} of {os.cpu_count()} for this process")


def _shared_memory() -> _Finding:
    if not _SHARED_MEMORY.is_dir():
        return _Finding("not available", f"no {_SHARED_MEMORY} here")
    free = shutil.disk_usage(_SHARED_MEMORY).free
    fact = f"{_size(free)} free in {_SHARED_MEMORY}"
    if free >= LEAST_SHARED_MEMORY:
        return _Finding("ok", fact)
    remedy = (
        "torch's DataLoader hands batches from its workers over in it: start the container with --shm-size=8g, or use "
        "VideoLoader, which has no worker processes"
    )
    return _Finding("problem", fact, remedy)


def _open_files() -> _Finding:
    import resource

    most, possible = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return _Finding("ok", "no limit")
    if most >= LEAST_OPEN_FILES:
        return _Finding("ok", f"{most:,} at most")
    ceiling = "" if possible == resource.RLIM_INFINITY or possible >= 4096 else f" (an administrator: {possible} now)"
    return _Finding("problem", f"{most:,} at most", f"ulimit -n 4096{ceiling}, in the shell that starts the program")


def _size(num_bytes: int) -> str:
    gib = num_bytes / (1 << 30)
    return f"{gib:,.1f} GiB" if gib >= 1 else f"{num_bytes / (1 << 20):,.0f} MiB"


# --- a real decode --------------------------------------------------------------------------------------------------


def _decode_on_cpu() -> _Finding:
    name = "H.264" if _has_codec(CLIPS["H.264"]["codec"], "w") else "MPEG-4"
    with _clip(name) as path:
        pictures, seconds = _read(path, "cpu")
    wrong = _wrong_number(pictures)
    if wrong:
        return _Finding("problem", f"{name}: {wrong}", _REPORT_IT)
    return _Finding("ok", f"{name}, {FRAMES} frames in random order, every number right, {_milliseconds(seconds)}")


def _decode_on_gpu(name: str) -> _Finding:
    encoder = CLIPS[name]["codec"]
    if not _has_codec(encoder, "w"):
        return _Finding("not available", f"PyAV here has no {encoder} to make a clip with", _REINSTALL_PYAV)
    from framefeed.errors import UnsupportedCodec

    with _clip(name) as path:
        expected, _ = _read(path, "cpu")
        try:
            pictures, first = _read(path, "cuda")
        except UnsupportedCodec as error:  # an old GPU: the others can still be used
            return _Finding("not available", str(error.__cause__ or error))
        _, second = _read(path, "cuda")
    wrong = _wrong_number(pictures)
    if wrong:
        return _Finding("problem", wrong, _REPORT_IT)
    difference = int((pictures.int() - expected.int()).abs().max())
    if difference > TOLERANCE:
        fact = f"differs from the CPU by {difference}/255; at most {TOLERANCE}/255 is expected"
        return _Finding("problem", fact, _REPORT_IT)
    times = f"{_milliseconds(first)} at first, then {_milliseconds(second)}"
    return _Finding("ok", f"{FRAMES} frames, every number right, within {difference}/255 of the CPU, {times}")


@contextlib.contextmanager
def _clip(name: str) -> Iterator[Path]:
    from framefeed.samples import write_clip

    with tempfile.TemporaryDirectory(prefix="framefeed-doctor-") as folder:
        path = Path(folder) / "clip.mp4"
        yield write_clip(path, frames=FRAMES, width=WIDTH, height=HEIGHT, gop=8, **CLIPS[name])


def _order() -> list[int]:
    return random.Random(0).sample(range(FRAMES), FRAMES)


def _read(path: Path, device: str) -> tuple[torch.Tensor, float]:
    """The frames in random order, in the CPU's memory, and the seconds that it took."""
    from framefeed import VideoDecoder

    began = time.perf_counter()
    frames = VideoDecoder(path, device=device, dimension_order="NHWC").get_frames_at(_order()).data.cpu()
    return frames, time.perf_counter() - began


def _wrong_number(pictures: torch.Tensor) -> str:
    """Which frame is not the one that was asked for; empty where all are."""
    from framefeed.samples import read_number

    for frame, picture in zip(_order(), pictures.numpy(), strict=True):
        try:
            number = read_number(picture)
        except ValueError as error:
            return f"frame {frame}: {error}"
        if number != frame:
            return f"frame {frame} shows the number {number}"
    return ""


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


# --- what a GPU needs, in the child ---------------------------------------------------------------------------------


def _gpu_looks(required: bool) -> list[_Look]:
    """The most fragile come last: what crashes takes those behind it along."""
    decoding = ("decoding units", "Triton kernels")
    return [
        _Look("NVIDIA driver", "cuda", lambda: _driver(required), _REINSTALL_DRIVER),
        _Look("video library", "cuda", _video_library, needs=("NVIDIA driver",)),
        _Look("GPUs", "cuda", _gpus, "pip install torch", ("NVIDIA driver",)),
        _Look("Triton", "cuda", _triton, "pip install triton", ("NVIDIA driver",)),
        _Look("PyNvVideoCodec", "cuda", _pynvvideocodec, needs=("NVIDIA driver",)),
        _Look("decoding units", "cuda", _decoding_units, needs=("GPUs", "video library", "PyNvVideoCodec")),
        _Look(
            "Triton kernels",
            "cuda",
            _kernels,
            "Triton compiles with a C compiler and Python's headers: apt-get install gcc python3-dev, or name a "
            f"compiler by CC; or {_REPORT_IT}",
            ("GPUs", "Triton"),
        ),
        _Look("H.264 on the GPU", "cuda", functools.partial(_decode_on_gpu, "H.264"), needs=decoding),
        _Look("HEVC on the GPU", "cuda", functools.partial(_decode_on_gpu, "HEVC"), needs=decoding),
    ]


def _driver(required: bool) -> _Finding:
    absent: State = "problem" if required else "not available"
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        if _KERNEL_DRIVER.exists():
            fact = f"the kernel has the driver, but libcuda.so.1 cannot be loaded ({_one_line(error)})"
            return _Finding("problem", fact, "in a container: start it with --gpus all; else reinstall the driver")
        remedy = "install the NVIDIA driver (nvidia-smi shows it); in a container: start it with --gpus all"
        return _Finding(absent, "none here", remedy if required else "")
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
        return _Finding(absent, f"{fact}, but no GPU{why}", remedy if required else "")
    if error_code:
        text = ctypes.c_char_p()
        cuda.cuGetErrorString(error_code, ctypes.byref(text))
        said = (text.value or b"unknown").decode(errors="replace")
        return _Finding("problem", f"{fact}; it does not start: {said} (error {error_code})", _REINSTALL_DRIVER)
    return _Finding("ok", fact)


def _driver_version() -> str:
    """As nvidia-smi shows it; empty where that is not known."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    text = ctypes.create_string_buffer(96)
    known = nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
    return text.value.decode(errors="replace") if known else ""


def _video_library() -> _Finding:
    try:
        ctypes.CDLL("libnvcuvid.so.1")
    except OSError as error:
        major = _driver_version().partition(".")[0] or "NNN"
        remedy = (
            "in a container: start it with -e NVIDIA_DRIVER_CAPABILITIES=compute,video,utility; else install the "
            f"driver's decoding part (Debian and Ubuntu: libnvidia-decode-{major} or libnvcuvid1)"
        )
        return _Finding("problem", f"libnvcuvid.so.1 cannot be loaded ({_one_line(error)})", remedy)
    return _Finding("ok", "libnvcuvid.so.1")


def _gpus() -> _Finding:
    import torch

    if torch.version.cuda is None:
        return _Finding(
            "problem",
            f"torch {torch.__version__} is built without CUDA",
            "pip uninstall -y torch && pip install torch   (the build for another CUDA: pytorch.org/get-started)",
        )
    if not torch.cuda.is_available():
        remedy = "update the NVIDIA driver, or install a torch for an older CUDA: pytorch.org/get-started"
        return _Finding("problem", f"torch, {_build(torch.version.cuda)}, sees none: {_why_no_gpu()}", remedy)
    found: list[dict[str, Any]] = []
    for number in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(number)
        found.append({"device": f"cuda:{number}", "name": facts.name, "memory_bytes": int(facts.total_memory)})
    alike = Counter(f"{gpu['name']}, {_size(gpu['memory_bytes'])}" for gpu in found)
    fact = "; ".join(text if count == 1 else f"{count} x {text}" for text, count in alike.items())
    return _Finding("ok", fact, details=tuple(found))


def _why_no_gpu() -> str:
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        return _one_line(error)
    return "no reason given"


def _version(package: str) -> str | None:
    """The version; None where the package is not installed."""
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "version unknown"


def _triton() -> _Finding:
    version = _version("triton")
    if version is None:
        return _Finding("problem", "not installed", "pip install triton")
    return _Finding("ok", version)


def _pynvvideocodec() -> _Finding:
    version = _version("PyNvVideoCodec")
    if version is None:
        return _Finding("problem", "not installed", 'pip install "framefeed[cuda]"')
    from framefeed.decode.nvdec import capabilities
    from framefeed.errors import MissingBackend

    try:
        capabilities(0, "none", "420", 8)  # of no codec: this only loads it
    except MissingBackend as error:
        fact = f"{version} cannot be loaded ({_one_line(error.__cause__ or error)})"
        return _Finding("problem", fact, "pip install --force-reinstall PyNvVideoCodec")
    return _Finding("ok", version)


def _decoding_units() -> _Finding:
    import torch

    from framefeed.decode.nvdec import num_units

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
    return _Finding("ok", fact, details=tuple(found))


def _formats(device: int) -> list[dict[str, Any]]:
    """What a GPU can decode."""
    from framefeed.decode.nvdec import EXACT_CODECS, capabilities
    from framefeed.errors import MissingBackend

    formats = []
    for codec in GPU_CODECS:
        for chroma, bits in GPU_FORMATS:
            try:
                caps = capabilities(device, codec, chroma, bits)
            except MissingBackend:  # a driver that does not know the format: it answered for H.264 before
                continue
            if caps.get("supported"):
                sizes = {name: caps[key] for name, key in _SIZES.items()}
                used = codec in EXACT_CODECS
                formats.append({"codec": codec, "chroma": chroma, "bits": bits, **sizes, "used": used})
    return formats


_SIZES = {"min_width": "width_min", "min_height": "height_min", "max_width": "width_max", "max_height": "height_max"}


def _kernels() -> _Finding:
    import numpy as np
    import torch

    from framefeed.process.cuda import Conversion, SurfaceFormat, convert
    from framefeed.samples import paint, read_number

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
        return _Finding("problem", f"a picture of the number {number} came out as {shown}", _REPORT_IT)
    return _Finding("ok", f"compiled and right, {_milliseconds(time.perf_counter() - began)}")


# --- the child, and asking it ---------------------------------------------------------------------------------------


def _gpu_checks(required: bool) -> Iterator[Check]:
    states: dict[str, State] = {}
    for look in _gpu_looks(required):
        check = look.run(states)
        states[check.name] = check.state
        yield check


def _child_command(required: bool) -> list[str]:
    return [sys.executable, "-m", "framefeed.doctor", "cuda" if required else "auto"]


def _ask_child(required: bool) -> list[Check]:
    """The checks of the GPU, by a child. The one in which it crashed or hung is a problem, those behind it are open."""
    try:
        said, complaints, ending = _run_child(required)
    except OSError as error:
        said, complaints, ending = [], [], f"could not be started ({_one_line(error)})"
    found, noise = _parse(said)
    stopped = _stopped(ending or "ended without an answer", complaints or noise)
    checks: list[Check] = []
    stopped_at = ""
    for look in _gpu_looks(required):
        if look.name in found:
            checks.append(found[look.name])
        elif not stopped_at:
            stopped_at = look.name
            checks.append(_check(look.name, "cuda", stopped))
        else:
            not_reached = _Finding("not available", f"not looked at, because of: {stopped_at}")
            checks.append(_check(look.name, "cuda", not_reached))
    if ending and not stopped_at:
        checks.append(_check("leaving the GPU", "cuda", stopped))
    return checks


def _stopped(ending: str, words: list[str]) -> _Finding:
    said = f"; it said: {words[-1][:MOST_WORDS]}" if words else ""
    remedy = f"to see more, run: python -m framefeed.doctor; where the driver is to blame, {_REINSTALL_DRIVER}"
    return _Finding("problem", f"the process that looked at it {ending}{said}", remedy)


def _run_child(required: bool) -> tuple[list[str], list[str], str]:
    """The lines that the child wrote to stdout and to stderr, and how it ended if not well."""
    # Files and no pipes: reading them never waits for a process that cannot be ended.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            _child_command(required), stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            ending = _ending(process.wait(CHILD_SECONDS))
        except subprocess.TimeoutExpired:
            ending = f"did not answer within {CHILD_SECONDS:.0f} s"
        finally:
            _end(process)
        return _lines(out), _lines(err), ending


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}" if code else ""
    try:
        return f"crashed ({signal.Signals(-code).name})"
    except ValueError:
        return f"crashed (signal {-code})"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the child and what it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_SECONDS)


def _parse(lines: Iterable[str]) -> tuple[dict[str, Check], list[str]]:
    """The checks among the lines, by name, and all other lines."""
    found: dict[str, Check] = {}
    noise: list[str] = []
    for line in lines:
        try:
            values = json.loads(line)
            check = Check(**{**values, "details": tuple(values["details"])})
            if check.state not in get_args(State) or check.needed_for not in get_args(Need):
                raise ValueError
            found[check.name] = check
        except (ValueError, TypeError, KeyError):
            noise.append(line)
    return found, noise


def _main() -> None:
    """The child: a line of JSON for each check, as soon as it is made."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    for check in _gpu_checks(required="cuda" in sys.argv[1:]):
        answers.write(json.dumps(asdict(check)) + "\n")
        answers.flush()


if __name__ == "__main__":
    _main()
