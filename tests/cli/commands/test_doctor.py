"""``framefeed doctor``: what is broken is a line with a remedy, and never takes the report down."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch

import framefeed
from cli.conftest import Ran, Run
from framefeed import FrameBatch, MissingBackend, UnsupportedCodec, VideoDecoder, doctor
from framefeed.decode.nvdec import capabilities as decoders
from framefeed.doctor import Check, Report, clip, cpu, examine, gpu
from framefeed.doctor import child as doctor_child
from framefeed.doctor.report import Finding

CPU_CHECKS = (
    "framefeed",
    "Python",
    "operating system",
    "torch",
    "PyAV",
    "CPU decoders",
    "CPUs",
    "memory",
    "shared memory",
    "open files",
    "decoding on the CPU",
)
GPU_CHECKS = (
    "NVIDIA driver",
    "video library",
    "GPUs",
    "Triton",
    "PyNvVideoCodec",
    "decoding units",
    "Triton kernels",
    "H.264 on the GPU",
    "HEVC on the GPU",
)
H200 = {
    "device": "cuda:0",
    "name": "NVIDIA H200",
    "units": 7,
    "formats": [
        {"codec": codec, "chroma": chroma, "bits": bits, "used": codec != "vp9"}
        | {"min_width": 48, "min_height": 16, "max_width": size, "max_height": size}
        for codec, chroma, bits, size in (
            ("h264", "420", 8, 4096),
            ("hevc", "420", 8, 8192),
            ("hevc", "420", 10, 8192),
            ("hevc", "444", 8, 8192),
            ("vp9", "420", 8, 8192),
        )
    ],
}

IMPORTS = "from framefeed.doctor import child, gpu\nfrom framefeed.doctor.report import Finding"
# The child's own code, in which nothing of a driver is there.
NO_DRIVER = """
import ctypes, pathlib
def missing(name): raise OSError(f"{name}: cannot open shared object file")
ctypes.CDLL = missing
gpu._KERNEL_DRIVER = pathlib.Path("not there")
"""
# The same with a driver, and neither a torch with CUDA nor any of the packages.
DRIVER_ALONE = """
import torch
torch.version.cuda = None
gpu._driver = lambda required: Finding("ok", "999.1, CUDA up to 99.0")
gpu._video_library = lambda: Finding("ok", "libnvcuvid.so.1")
gpu._version = lambda package: None
"""
# A child that says what it is told to.
SAY = """
import json, os, signal, sys, time
def say(*checks, **further):
    for name in checks:
        check = {"name": name, "needed_for": "cuda", "state": "ok", "fact": "", "remedy": "", "details": [], **further}
        print(json.dumps(check), flush=True)
"""


class Child:
    """Sets what is run in place of the child."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def command(self, *words: str) -> None:
        def command(required: bool) -> list[str]:
            return [*words, "cuda" if required else "auto"]

        self._monkeypatch.setattr(doctor_child, "_child_command", command)

    def script(self, code: str) -> None:
        self.command(sys.executable, "-c", SAY + textwrap.dedent(code))

    def changed(self, code: str) -> None:
        self.command(sys.executable, "-c", f"{IMPORTS}\n{textwrap.dedent(code)}\nchild.main()")

    def all_is_well(self, *gpus: dict[str, Any]) -> None:
        self.script(
            f"""
            for name in {GPU_CHECKS!r}:
                say(name, details={list(gpus)!r} if name == "decoding units" else [])
            """
        )


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    return Child(monkeypatch)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the CPU's checks out, where the GPU's are the matter."""
    monkeypatch.setattr(doctor, "cpu_probes", list)


def found(ran: Ran) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in ran.json["checks"]}


def one(name: str) -> Check:
    """A check of the CPU alone."""
    return next(probe for probe in cpu.cpu_probes() if probe.name == name).run({})


# --- the whole ------------------------------------------------------------------------------------------------------


def test_here(run: Run) -> None:
    ran = run("doctor", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert set(ran.json) == {"ready", "verdict", "device", "gpu_ready", "checks"}
    assert (ran.json["ready"], ran.json["device"]) == (True, "auto")
    checks = found(ran)
    assert tuple(checks) == CPU_CHECKS + GPU_CHECKS
    for check in ran.json["checks"]:
        assert set(check) == {"name", "needed_for", "state", "fact", "remedy", "details"}
        assert check["state"] in ("ok", "problem", "not available") and check["fact"]
        assert check["remedy"] is None or check["state"] != "ok"
        assert len(check["fact"].splitlines()) == 1
    assert all(checks[name]["state"] == "ok" for name in CPU_CHECKS if checks[name]["needed_for"] == "cpu")
    assert checks["framefeed"]["fact"] == framefeed.__version__
    assert torch.__version__ in checks["torch"]["fact"]
    assert "libavcodec" in checks["PyAV"]["fact"]
    assert checks["CPU decoders"]["fact"] == "h264, hevc, vp8, vp9, av1"
    assert "every number right" in checks["decoding on the CPU"]["fact"]


def test_without_a_driver(run: Run, child: Child) -> None:
    child.changed(NO_DRIVER)
    ran = run("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "ready for the CPU; no GPU here"
    assert "PROBLEM" not in ran.out and "what to do" not in ran.out
    for name in CPU_CHECKS + GPU_CHECKS:
        assert sum(line.split("  ")[0].strip() == name for line in ran.out.splitlines()) == 1
    ran = run("doctor", "--json")
    assert {found(ran)[name]["state"] for name in GPU_CHECKS} == {"not available"}
    assert ran.json["gpu_ready"] is False


def test_gpu_is_asked_for_and_there_is_none(run: Run, child: Child) -> None:
    child.changed(NO_DRIVER)
    ran = run("doctor", "--device", "cuda")
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "not ready for cuda: 1 problem; the CPU works"
    assert "  NVIDIA driver: install the NVIDIA driver" in ran.out


def test_cpu_alone_leaves_the_gpu_alone(run: Run, child: Child) -> None:
    child.command("this program does not exist")
    ran = run("doctor", "--device", "cpu", "--json")
    assert ran.code == 0
    assert tuple(found(ran)) == CPU_CHECKS
    assert (ran.json["verdict"], ran.json["gpu_ready"]) == ("ready for the CPU", None)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("device", "code"), [("auto", 0), ("cuda", 1)])
def test_driver_without_what_it_takes_to_use_it(run: Run, child: Child, device: str, code: int) -> None:
    child.changed(DRIVER_ALONE)
    ran = run("doctor", "--device", device, "--json")
    assert ran.code == code
    checks = found(ran)
    problems = [name for name, check in checks.items() if check["state"] == "problem"]
    assert problems == ["GPUs", "Triton", "PyNvVideoCodec"]
    assert "built without CUDA" in checks["GPUs"]["fact"]
    assert "pip install torch" in checks["GPUs"]["remedy"]
    assert checks["Triton"]["remedy"] == "pip install triton"
    assert (
        checks["PyNvVideoCodec"] | {"fact": "not installed", "remedy": 'pip install "framefeed[cuda]"'}
        == (checks["PyNvVideoCodec"])
    )
    assert checks["decoding units"]["state"] == checks["HEVC on the GPU"]["state"] == "not available"
    assert "3 problems" in ran.json["verdict"]
    assert ran.json["verdict"].startswith("ready for the CPU; not for the GPU" if code == 0 else "not ready for cuda")


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_gpu_that_is_ready(run: Run, child: Child, device: str) -> None:
    child.all_is_well(H200)
    ran = run("doctor", "--device", device)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[-1] == "ready for the CPU and for cuda:0 (NVIDIA H200, 7 decoding units)"
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]
    assert ["NVIDIA H200 decodes"] in rows
    assert ["h264", "4:2:0 8 bit", "48x16 to 4096x4096", "on the GPU"] in rows
    assert ["hevc", "4:2:0 8/10 bit, 4:4:4 8 bit", "48x16 to 8192x8192", "on the GPU"] in rows
    assert ["vp9", "4:2:0 8 bit", "48x16 to 8192x8192", "on the CPU"] in rows


@pytest.mark.usefixtures("quick")
def test_several_gpus_of_a_kind(run: Run, child: Child) -> None:
    child.all_is_well(*({**H200, "device": f"cuda:{number}"} for number in range(8)))
    ran = run("doctor", "--device", "cuda")
    assert ran.out.splitlines()[-1].endswith("cuda:0 (NVIDIA H200, 7 decoding units); 7 more not tried")
    assert ran.out.count("NVIDIA H200 decodes") == 1


# --- a child that does not do as it should --------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("device", "code"), [("auto", 0), ("cuda", 1)])
def test_child_that_crashes(run: Run, child: Child, device: str, code: int) -> None:
    child.script("say('NVIDIA driver', 'video library'); os.kill(os.getpid(), signal.SIGSEGV)")
    ran = run("doctor", "--device", device, "--json")
    assert ran.code == code
    checks = found(ran)
    assert tuple(checks) == GPU_CHECKS
    assert checks["video library"]["state"] == "ok"
    assert checks["GPUs"]["state"] == "problem" and "crashed (SIGSEGV)" in checks["GPUs"]["fact"]
    assert "reinstall the NVIDIA driver" in checks["GPUs"]["remedy"]
    assert {checks[name]["state"] for name in GPU_CHECKS[3:]} == {"not available"}
    assert checks["Triton"]["fact"] == "not looked at, because of: GPUs"
    assert "1 problem" in ran.json["verdict"]


@pytest.mark.usefixtures("quick")
def test_child_that_crashes_when_all_is_done(run: Run, child: Child) -> None:
    child.script(f"say(*{GPU_CHECKS!r}); os.kill(os.getpid(), signal.SIGABRT)")
    ran = run("doctor", "--device", "cuda", "--json")
    assert ran.code == 1
    assert ran.json["checks"][-1]["name"] == "leaving the GPU"
    assert "SIGABRT" in ran.json["checks"][-1]["fact"]


@pytest.mark.usefixtures("quick")
def test_child_that_hangs(run: Run, child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_child, "CHILD_SECONDS", 2.0)
    # It has started another process, does not listen to polite signals, and holds on to its output.
    child.script(
        f"""
        import subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{other.pid}}")
        say("NVIDIA driver")
        time.sleep(60)
        """
    )
    began = time.perf_counter()
    ran = run("doctor", "--device", "cuda", "--json")
    assert time.perf_counter() - began < 20
    assert ran.code == 1
    assert found(ran)["NVIDIA driver"]["state"] == "ok"
    assert found(ran)["video library"]["fact"].endswith("did not answer within 2 s")
    for pid in (tmp_path / "pids").read_text().split():
        assert _has_ended(int(pid))


def _has_ended(pid: int) -> bool:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # nobody has asked for it yet
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.usefixtures("quick")
def test_child_that_says_garbage(run: Run, child: Child) -> None:
    child.script(
        r"""
        print("hello\n{not json\nnull\n[1]\n7\n{}\n\"details\"")
        say("NVIDIA driver", state="splendid")
        say("video library", needed_for="fun")
        say("GPUs", mood="good")
        say("Triton", details=None)
        sys.stdout.buffer.write(b"\xff\xfe\x00 and so on\n")
        """
    )
    ran = run("doctor", "--device", "cuda", "--json")
    assert ran.code == 1
    checks = found(ran)
    assert tuple(checks) == GPU_CHECKS
    assert checks["NVIDIA driver"]["state"] == "problem"
    assert "ended without an answer; it said: " in checks["NVIDIA driver"]["fact"]
    assert "and so on" in checks["NVIDIA driver"]["fact"]
    assert {checks[name]["state"] for name in GPU_CHECKS[1:]} == {"not available"}


@pytest.mark.usefixtures("quick")
def test_noise_among_answers_does_no_harm(run: Run, child: Child) -> None:
    child.changed(
        NO_DRIVER
        + """
        import os
        driver = gpu._driver
        def noisy(required):
            print("welcome", flush=True)
            os.write(1, b'{"name": "GPUs"')  # half a line, as a library in C would write it
            return driver(required)
        gpu._driver = noisy
        """.replace("\n        ", "\n")
    )
    ran = run("doctor", "--json")
    assert ran.json["verdict"] == "ready for the CPU; no GPU here"
    assert found(ran)["GPUs"]["fact"] == "needs: NVIDIA driver"


@pytest.mark.usefixtures("quick")
def test_child_that_fails_or_does_not_start(run: Run, child: Child, tmp_path: Path) -> None:
    child.script("sys.exit('no module named sorrow')")
    fact = found(run("doctor", "--json"))["NVIDIA driver"]["fact"]
    assert fact == "the process that looked at it ended with exit code 1; it said: no module named sorrow"
    child.command(str(tmp_path / "missing"))
    ran = run("doctor", "--device", "cuda", "--json")
    assert ran.code == 1
    assert "could not be started" in found(ran)["NVIDIA driver"]["fact"]


@pytest.mark.usefixtures("quick")
def test_check_that_raises_in_the_child(run: Run, child: Child) -> None:
    child.changed(
        DRIVER_ALONE
        + """
def broken(): raise ZeroDivisionError("two\\nlines")
gpu._gpus = broken
"""
    )
    checks = found(run("doctor", "--json"))
    assert (checks["GPUs"]["state"], checks["GPUs"]["fact"]) == ("problem", "ZeroDivisionError: two lines")
    assert checks["Triton"]["fact"] == "not installed"  # the next one has run
    assert checks["Triton kernels"]["fact"] == "needs: GPUs"


# --- what all of framefeed needs ------------------------------------------------------------------------------------


@pytest.fixture
def no_gpu(child: Child) -> None:
    child.changed(NO_DRIVER)


def _swap(monkeypatch: pytest.MonkeyPatch) -> None:
    right = VideoDecoder.get_frames_at
    monkeypatch.setattr(
        VideoDecoder, "get_frames_at", lambda self, frames: right(self, [6 if n == 5 else n for n in frames])
    )


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("device", ["cpu", "auto", "cuda"])
def test_wrong_frame_on_the_cpu(run: Run, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    _swap(monkeypatch)
    ran = run("doctor", "--device", device, "--json")
    assert (ran.code, ran.json["ready"]) == (1, False)
    check = found(ran)["decoding on the CPU"]
    assert (check["state"], check["fact"]) == ("problem", "H.264: frame 5 shows the number 6")
    assert ran.json["verdict"] == f"not ready: {'2 problems' if device == 'cuda' else '1 problem'}"


@pytest.mark.usefixtures("no_gpu")
def test_check_that_raises(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("something\n  else")

    monkeypatch.setattr(VideoDecoder, "get_frames_at", broken)
    monkeypatch.setattr(cpu, "_python", broken)
    ran = run("doctor")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.count("RuntimeError: something else") == 2 and "Traceback" not in ran.out
    assert ran.out.splitlines()[-1] == "not ready: 2 problems"
    assert "NVIDIA driver" in ran.out  # later checks have run


@pytest.mark.usefixtures("no_gpu")
def test_long_error_is_cut_in_the_table_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("word " * 1000 + "end")

    monkeypatch.setattr(cpu, "_python", broken)
    ran = run("doctor")
    assert "RuntimeError: word" in ran.out and "..." in ran.out and len(ran.out) < 10_000
    assert found(run("doctor", "--json"))["Python"]["fact"].endswith("word end")


def test_grey_picture_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = VideoDecoder.get_frames_at

    def grey(self: VideoDecoder, frames: Any) -> FrameBatch:
        batch = right(self, frames)
        batch.data[-1] = 128
        return batch

    monkeypatch.setattr(VideoDecoder, "get_frames_at", grey)
    check = one("decoding on the CPU")
    assert check.state == "problem" and "no clear number" in check.fact


def test_clip_without_x264(monkeypatch: pytest.MonkeyPatch) -> None:
    right = clip.has_codec
    monkeypatch.setattr(clip, "has_codec", lambda name, mode: "264" not in name and right(name, mode))
    check = one("decoding on the CPU")
    assert (check.state, check.fact.split(",")[0]) == ("ok", "MPEG-4")


@pytest.mark.parametrize(("module", "name"), [("torch", "torch"), ("av", "PyAV")])
def test_package_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch, module: str, name: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    check = one(name)
    assert check.state == "problem" and module in check.fact
    assert check.remedy.startswith("pip install") and module in check.remedy


def test_missing_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    right = cpu._has_decoder
    monkeypatch.setattr(cpu, "_has_decoder", lambda name: name not in ("libdav1d", "libaom-av1", "vp8"))
    check = one("CPU decoders")
    assert (check.state, check.fact) == ("problem", "none for vp8, av1; present: h264, hevc, vp9")
    assert "pip install" in check.remedy
    assert right("h264") and not right("libx264") and not right("nothing")


def test_old_python_and_other_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "LEAST_PYTHON", (9, 1))
    assert one("Python").remedy == "install Python 9.1 or later"
    monkeypatch.setattr(platform, "system", lambda: "Plan9")
    assert (one("operating system").state, one("operating system").needed_for) == ("problem", "hint")


def test_hints_do_not_count(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(64 << 20, 0, 64 << 20))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 512))
    ran = run("doctor", "--device", "cpu", "--json")
    assert (ran.code, ran.json["verdict"]) == (0, "ready for the CPU; 2 hints")
    checks = found(ran)
    assert checks["shared memory"]["fact"] == "64 MiB free in /dev/shm"
    assert "--shm-size" in checks["shared memory"]["remedy"]
    assert checks["open files"]["fact"] == "256 at most"
    assert "ulimit -n" in checks["open files"]["remedy"]


def test_limits_that_are_high_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert one("open files").fact == "no limit"
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1024))
    assert one("open files").state == "ok"
    monkeypatch.setattr(cpu, "_SHARED_MEMORY", tmp_path / "missing")
    assert one("shared memory").state == "not available"


def test_progress_rises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ask_child", lambda required: [])
    seen: list[tuple[int, int]] = []
    examine("auto", progress=lambda done, total: seen.append((done, total)))
    total = len(cpu.cpu_probes()) + 1  # the last is for all GPUs
    assert seen == [(done, total) for done in range(total)]


# --- what a GPU needs, with imitations ------------------------------------------------------------------------------


class FakeLibrary:
    """The driver's libraries."""

    def __init__(self, error: int, known: bool = True) -> None:
        self._error = error
        self.nvmlInit_v2 = lambda: 0 if known else 1

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return self._error

    def cuDriverGetVersion(self, number: Any) -> int:  # noqa: N802
        number._obj.value = 12080
        return 0

    def cuGetErrorString(self, code: int, text: Any) -> int:  # noqa: N802
        text._obj.value = b"driver and library do not fit"
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, length: int) -> int:  # noqa: N802
        text.value = b"570.1.2"
        return 0


def _drivers(monkeypatch: pytest.MonkeyPatch, **libraries: FakeLibrary) -> None:
    def load(name: str) -> FakeLibrary:
        try:
            return libraries[name.split(".")[0].replace("-", "_")]
        except KeyError:
            raise OSError(f"{name}: cannot open shared object file") from None

    monkeypatch.setattr(ctypes, "CDLL", load)


def test_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    _drivers(monkeypatch, libcuda=FakeLibrary(0), libnvidia_ml=FakeLibrary(0))
    assert gpu._driver(True) == Finding("ok", "570.1.2, CUDA up to 12.8")
    assert "libnvidia-decode-570" in gpu._video_library().remedy
    assert "NVIDIA_DRIVER_CAPABILITIES" in gpu._video_library().remedy
    assert gpu._video_library().state == "problem"
    _drivers(monkeypatch, libcuda=FakeLibrary(0), libnvidia_ml=FakeLibrary(0, known=False), libnvcuvid=FakeLibrary(0))
    assert gpu._driver(True).fact == "CUDA up to 12.8"
    assert gpu._video_library().state == "ok"


def test_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    _drivers(monkeypatch, libcuda=FakeLibrary(100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpu._driver(False) == Finding("not available", "CUDA up to 12.8, but no GPU, CUDA_VISIBLE_DEVICES=")
    assert gpu._driver(True).state == "problem"
    assert gpu._driver(True).remedy == "unset CUDA_VISIBLE_DEVICES"


def test_driver_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    _drivers(monkeypatch, libcuda=FakeLibrary(803))
    check = gpu._driver(False)
    assert check.state == "problem" and "driver and library do not fit (error 803)" in check.fact
    assert "restart" in check.remedy


def test_driver_outside_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _drivers(monkeypatch)
    monkeypatch.setattr(gpu, "_KERNEL_DRIVER", tmp_path)
    check = gpu._driver(False)
    assert check.state == "problem" and "--gpus all" in check.remedy


def test_torch_that_sees_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old() -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", too_old)
    check = gpu._gpus()
    assert check.state == "problem" and "too old" in check.fact and "update the NVIDIA driver" in check.remedy


def test_gpus_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = namedtuple("facts", "name total_memory")
    gpus = [facts("Large", 80 << 30), facts("Small", 8 << 30), facts("Large", 80 << 30)]
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_properties", gpus.__getitem__)
    check = gpu._gpus()
    assert (check.state, check.fact) == ("ok", "2 x Large, 80.0 GiB; Small, 8.0 GiB")
    assert [gpu["device"] for gpu in check.details] == ["cuda:0", "cuda:1", "cuda:2"]


def test_pynvvideocodec_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise MissingBackend("PyNvVideoCodec", "cannot be loaded") from ImportError("libsomething.so.7")

    monkeypatch.setattr(gpu, "_version", lambda package: "2.2.3")
    monkeypatch.setattr(decoders, "capabilities", broken)
    check = gpu._pynvvideocodec()
    assert (check.state, check.fact) == ("problem", "2.2.3 cannot be loaded (ImportError: libsomething.so.7)")
    assert check.remedy == "pip install --force-reinstall PyNvVideoCodec"


def test_pynvvideocodec_without_the_drivers_part_for_video(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        reason = "cannot be loaded (Failed to load libnvidia-encode.so.1); the driver's part"
        raise MissingBackend("PyNvVideoCodec", reason) from RuntimeError("a page of text")

    monkeypatch.setattr(gpu, "_version", lambda package: "2.2.3")
    monkeypatch.setattr(decoders, "capabilities", broken)
    check = gpu._pynvvideocodec()
    assert check.fact == "2.2.3 cannot be loaded (Failed to load libnvidia-encode.so.1)"
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in (check.remedy or "")


def test_version_of_a_package() -> None:
    assert gpu._version("numpy") == sys.modules["numpy"].__version__
    assert gpu._version("no_such_package") is None
    assert gpu._version("json") == "version unknown"


def test_decoding_units(monkeypatch: pytest.MonkeyPatch) -> None:
    def capabilities(device: int, codec: str, chroma: str, bits: int) -> dict[str, int]:
        if chroma == "422":
            raise MissingBackend("PyNvVideoCodec", "the driver does not say")
        sizes = {"width_min": 144, "height_min": 144, "width_max": 8192, "height_max": 4096}
        return {"supported": int(codec in ("h264", "av1") and bits == 8), "num_decoder_engines": 3, **sizes}

    monkeypatch.setattr(decoders, "capabilities", capabilities)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "Large")
    check = gpu._decoding_units()
    assert (check.state, check.fact) == ("ok", "3 on cuda:0")
    (large,) = check.details
    formats = [(found["codec"], found["chroma"], found["bits"], found["used"]) for found in large["formats"]]
    used = "av1" in decoders.EXACT_CODECS
    assert formats == [
        ("h264", "420", 8, True),
        ("h264", "444", 8, True),
        ("av1", "420", 8, used),
        ("av1", "444", 8, used),
    ]
    assert [large["formats"][0][key] for key in ("min_width", "min_height", "max_width", "max_height")] == [
        144,
        144,
        8192,
        4096,
    ]


def _decode_with(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """A decoder for "cuda" that is the CPU's, with its frames changed."""
    right = VideoDecoder

    class Fake:
        def __init__(self, path: Path, *, device: str, dimension_order: Any) -> None:
            self._change = change if device == "cuda" else lambda frames: frames
            self._decoder = right(path, device="cpu", dimension_order=dimension_order)

        def get_frames_at(self, indices: Any) -> FrameBatch:
            batch = self._decoder.get_frames_at(indices)
            batch.data = self._change(batch.data)
            return batch

    monkeypatch.setattr(framefeed, "VideoDecoder", Fake)


@pytest.mark.parametrize("name", ["H.264", "HEVC"])
def test_gpu_is_compared_with_the_cpu(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    _decode_with(monkeypatch, lambda frames: frames)
    check = clip.decode_on_gpu(name)
    assert check.state == "ok" and "within 0/255 of the CPU" in check.fact
    _decode_with(monkeypatch, lambda frames: frames ^ 2)
    assert "within 2/255 of the CPU" in clip.decode_on_gpu(name).fact
    _decode_with(monkeypatch, lambda frames: frames ^ 3)
    check = clip.decode_on_gpu(name)
    assert check.state == "problem" and "differs from the CPU by 3/255" in check.fact
    _decode_with(monkeypatch, lambda frames: frames.roll(1, 0))
    check = clip.decode_on_gpu(name)
    assert check.state == "problem" and "shows the number" in check.fact


def test_gpu_that_cannot_decode_a_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(frames: torch.Tensor) -> torch.Tensor:
        raise UnsupportedCodec("clip.mp4", "hevc: not here") from UnsupportedCodec("hevc", "this GPU does not")

    _decode_with(monkeypatch, refuse)
    check = clip.decode_on_gpu("HEVC")
    assert (check.state, check.fact) == ("not available", "hevc: this GPU does not")
    monkeypatch.setattr(clip, "has_codec", lambda name, mode: False)
    check = clip.decode_on_gpu("HEVC")
    assert check.state == "not available" and "libx265" in check.fact and check.remedy


def test_gpu_without_one_codec_is_still_ready() -> None:
    states: dict[str, doctor.State] = dict.fromkeys(GPU_CHECKS, "ok")
    states["HEVC on the GPU"] = "not available"
    report = Report("cuda", tuple(Check(name, "cuda", state, "") for name, state in states.items()))
    assert report.ready and report.gpu_ready
    assert report.verdict == "ready for the CPU and for cuda"


# --- arguments ------------------------------------------------------------------------------------------------------


def test_help(run: Run) -> None:
    ran = run("doctor", "--help")
    assert ran.code == 0
    assert "--device {cpu,cuda,auto}" in ran.out and "--json" in ran.out and "exit codes: 0" in ran.out
    assert "  doctor " in run("--help").out
    ran = run("doctor", "--device", "tpu")
    assert (ran.code, ran.out) == (2, "")
    assert "cpu" in ran.err and "cuda" in ran.err and "auto" in ran.err


def test_nothing_heavy_is_loaded_before_it_is_looked_at() -> None:
    code = (
        "import sys, json, framefeed.doctor, framefeed.cli.commands.doctor\n"
        "print(json.dumps([name for name in ('torch', 'av', 'pyarrow', 'numpy', 'rich') if name in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []


def test_child_is_this_python() -> None:
    assert doctor_child._child_command(True) == [sys.executable, "-m", "framefeed.doctor", "cuda"]
    command = doctor_child._child_command(False)
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    assert [json.loads(line)["name"] for line in ran.stdout.splitlines()] == list(GPU_CHECKS)
