"""``python -m benchmarks.torchcodec_libraries FOLDER``: prints the library path that TorchCodec needs.

TorchCodec's wheel has no FFmpeg and links CUDA. It gets the FFmpeg of PyAV's wheel, which framefeed decodes with, too.
Beside a torch without CUDA, empty stand-ins satisfy the loader: decoding on the CPU calls none of their functions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

FFMPEG = ("avcodec", "avdevice", "avfilter", "avformat", "avutil", "swresample", "swscale")
CUDA = ("libc10_cuda.so", "libnvrtc.so.13", "libtorch_cuda.so")
SOURCE = "int aoti_torch_get_current_cuda_stream(int device, void **stream) { if (stream) *stream = 0; return 1; }\n"


def main() -> None:
    """Fills the folder, imports TorchCodec with the path, and prints it."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    site = Path(sysconfig.get_path("platlib"))
    _link_ffmpeg(site / "av.libs", folder)
    path = [folder, site / "av.libs"]
    if (site / "torch/lib/libtorch_cuda.so").exists():
        path += sorted(site.glob("nvidia/*/lib"))
    else:
        _make_stand_ins(folder)
    joined = os.pathsep.join(map(str, path))
    environment = {**os.environ, "LD_LIBRARY_PATH": joined}
    subprocess.run([sys.executable, "-c", "import torchcodec"], check=True, env=environment)
    print(joined)


def _link_ffmpeg(libraries: Path, folder: Path) -> None:
    """Links PyAV's libraries under the names that other programs look for: ``libavcodec.so.62``."""
    for name in FFMPEG:
        (library,) = libraries.glob(f"lib{name}-*.so.*")
        major = library.name.partition(".so.")[2].partition(".")[0]
        link = folder / f"lib{name}.so.{major}"
        link.unlink(missing_ok=True)
        link.symlink_to(library)


def _make_stand_ins(folder: Path) -> None:
    """Compiles libraries with the names of CUDA's; needs a C compiler."""
    for name in CUDA:
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        subprocess.run(command, check=True, input=SOURCE.encode())


if __name__ == "__main__":
    main()
