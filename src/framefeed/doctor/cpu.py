"""Checks of everything that framefeed needs without a GPU."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import framefeed
from framefeed.doctor.clip import REINSTALL_PYAV, decode_on_cpu, has_codec
from framefeed.doctor.report import REPORT_IT, Finding, Probe
from framefeed.doctor.words import build_text, size_text

__all__ = ["cpu_probes"]

LEAST_PYTHON = (3, 10)
LEAST_SHARED_MEMORY = 256 << 20  # a container's usual 64 MiB are full after a few batches of a DataLoader's workers
LEAST_OPEN_FILES = 1024  # the usual limit; videos, workers and their pipes stay below it

DECODERS = {"h264": ("h264",), "hevc": ("hevc",), "vp8": ("vp8",), "vp9": ("vp9",), "av1": ("libdav1d", "libaom-av1")}

_SHARED_MEMORY = Path("/dev/shm")


def cpu_probes() -> list[Probe]:
    """Returns the checks in order."""
    return [
        Probe("framefeed", "cpu", lambda: Finding("ok", framefeed.__version__)),
        Probe("Python", "cpu", _python),
        Probe("operating system", "hint", _operating_system),
        Probe("torch", "cpu", _torch, "pip install torch"),
        Probe("PyAV", "cpu", _pyav, "pip install --force-reinstall av"),
        Probe("CPU decoders", "cpu", _decoders, REINSTALL_PYAV),
        Probe("CPUs", "hint", _cpus),
        Probe("memory", "hint", _memory),
        Probe("shared memory", "hint", _shared_memory),
        Probe("open files", "hint", _open_files),
        Probe("decoding on the CPU", "cpu", decode_on_cpu, f"pip install --force-reinstall av; or {REPORT_IT}"),
    ]


def _python() -> Finding:
    fact = f"{platform.python_version()}, {platform.python_implementation()}"
    if sys.version_info[:2] >= LEAST_PYTHON:
        return Finding("ok", fact)
    return Finding("problem", fact, f"install Python {'.'.join(map(str, LEAST_PYTHON))} or later")


def _operating_system() -> Finding:
    fact = " ".join((platform.system(), platform.release(), platform.machine()))
    if platform.system() == "Linux":
        return Finding("ok", fact)
    return Finding("problem", fact, "framefeed supports and tests Linux only")


def _torch() -> Finding:
    import torch

    return Finding("ok", f"{torch.__version__}, {build_text(torch.version.cuda)}")


def _pyav() -> Finding:
    import av

    versions = {name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()}
    shown = ", ".join(f"{name} {versions[name]}" for name in ("libavcodec", "libavformat", "libswscale"))
    return Finding("ok", f"{av.__version__}, {shown}", details=(versions,))


def _decoders() -> Finding:
    found = {codec: next(filter(_has_decoder, names), None) for codec, names in DECODERS.items()}
    missing = [codec for codec, decoder in found.items() if decoder is None]
    present = [codec for codec in found if codec not in missing]
    if missing:
        fact = f"none for {', '.join(missing)}; present: {', '.join(present) or 'none'}"
        return Finding("problem", fact, REINSTALL_PYAV, details=(found,))
    return Finding("ok", ", ".join(present), details=(found,))


def _has_decoder(name: str) -> bool:
    return has_codec(name, "r")


def _cpus() -> Finding:
    from framefeed._util.limits import available_cpus

    return Finding("ok", f"{available_cpus()} of {os.cpu_count()} for this process")


def _memory() -> Finding:
    from framefeed._util.limits import physical_memory, usable_memory

    return Finding("ok", f"{size_text(usable_memory())} of {size_text(physical_memory())} for this process")


def _shared_memory() -> Finding:
    if not _SHARED_MEMORY.is_dir():
        return Finding("not available", f"no {_SHARED_MEMORY} here")
    free = shutil.disk_usage(_SHARED_MEMORY).free
    fact = f"{size_text(free)} free in {_SHARED_MEMORY}"
    if free >= LEAST_SHARED_MEMORY:
        return Finding("ok", fact)
    remedy = (
        "torch's DataLoader passes batches between processes in it: start the container with --shm-size=8g, or use "
        "VideoLoader, which has no worker processes"
    )
    return Finding("problem", fact, remedy)


def _open_files() -> Finding:
    import resource

    most, possible = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return Finding("ok", "no limit")
    if most >= LEAST_OPEN_FILES:
        return Finding("ok", f"{most:,} at most")
    ceiling = "" if possible == resource.RLIM_INFINITY or possible >= 4096 else f" (an administrator: {possible} now)"
    return Finding("problem", f"{most:,} at most", f"ulimit -n 4096{ceiling}, in the shell that starts the program")
