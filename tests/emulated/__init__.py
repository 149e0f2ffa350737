"""NVIDIA's driver, as far as PyNvVideoCodec uses it: pictures are decoded by PyAV, and device memory is the machine's.

PyNvVideoCodec is linked against ``libcuda.so.1`` and loads ``libnvcuvid.so.1``. Here are libraries of these names whose
functions are Python's, so that the library itself can be run, and watched, where there is no GPU: what it asks decoders
to do when sizes change, which memory it writes to, and when.

What it does not tell: what hardware makes of damaged packets (here, they are refused), and how fast it is.

The libraries stay loaded for as long as the process lives, so whoever uses them has a process of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

from emulated.driver import CALL, Driver

__all__ = ["Driver", "load"]

_LIBRARIES = {
    "libcuda.so.1": """
        cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxGetDevice cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuDeviceGet
        cuDeviceGetCount cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain cuEventCreate cuEventDestroy_v2
        cuEventRecord cuEventSynchronize cuGetErrorName cuGetErrorString cuInit cuMemAllocAsync cuMemAllocPitch_v2
        cuMemAlloc_v2 cuMemFreeAsync cuMemFree_v2 cuMemcpy2DAsync_v2 cuMemcpy2D_v2 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2
        cuPointerGetAttribute cuStreamCreate cuStreamDestroy_v2 cuStreamGetCtx cuStreamSynchronize cuStreamWaitEvent
    """,
    "libnvcuvid.so.1": """
        cuvidGetDecoderCaps cuvidCreateDecoder cuvidDestroyDecoder cuvidDecodePicture cuvidGetDecodeStatus
        cuvidReconfigureDecoder cuvidMapVideoFrame64 cuvidUnmapVideoFrame64 cuvidCtxLockCreate cuvidCtxLockDestroy
        cuvidCtxLock cuvidCtxUnlock cuvidCreateVideoParser cuvidDestroyVideoParser
        cuvidCreateVideoSource cuvidCreateVideoSourceW cuvidDestroyVideoSource cuvidSetVideoSourceState
        cuvidGetVideoSourceState cuvidGetSourceVideoFormat cuvidGetSourceAudioFormat
        begin_parsing go_on_parsing answered
    """,
    "libnvidia-encode.so.1": "NvEncodeAPIGetMaxSupportedVersion NvEncodeAPICreateInstance",
}

# Parsers call PyNvVideoCodec back, and what it raises there passes through whatever has called. So this is not done by
# Python: it only says what is to be called next.
_PARSE = """
typedef struct { long (*call)(void *, void *); void *user, *what; } step;

long cuvidParseVideoData(long parser, long source) {
  step next = {0, 0, 0};
  long answer = begin_parsing(parser, source, 0, 0, 0, 0);
  while (!answer) {
    answer = go_on_parsing(parser, (long)&next, answer, 0, 0, 0);
    if (answer || !next.call) break;
    answer = answered(parser, (int)next.call(next.user, next.what), 0, 0, 0, 0);
  }
  return answer;
}
"""


@functools.cache
def load() -> Driver:
    """Loads the libraries, once in a process. From now on everybody in it gets them.

    Raises:
        RuntimeError: There is no C compiler.
    """
    if shutil.which("cc") is None:
        raise RuntimeError("there is no C compiler")
    driver = Driver()
    with tempfile.TemporaryDirectory() as folder:
        for name, functions in _LIBRARIES.items():
            _load(driver, Path(folder), name, functions.split())
    return driver


def _load(driver: Driver, folder: Path, name: str, functions: list[str]) -> None:
    lines = ["typedef long (*call)(long, long, long, long, long, long);", f"call calls[{len(functions)}];"]
    for place, function in enumerate(functions):
        body = f"return calls[{place}] ? calls[{place}](a, b, c, d, e, f) : 0;"
        lines.append(f"long {function}(long a, long b, long c, long d, long e, long f) {{ {body} }}")
    source = folder / f"{name}.c"
    source.write_text("\n".join(lines) + (_PARSE if "begin_parsing" in functions else ""))
    options = ["-shared", "-fPIC", "-fexceptions", "-O1", "-Wl,-Bsymbolic", f"-Wl,-soname,{name}"]
    subprocess.run(["cc", *options, "-o", folder / name, source], check=True)
    library = ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    table = (CALL * len(functions)).in_dll(library, "calls")
    for place, function in enumerate(functions):
        table[place] = driver.function(function)
    # PyNvVideoCodec tidies up when the process ends, and Python is not there any more.
    atexit.register(ctypes.memset, ctypes.addressof(table), 0, ctypes.sizeof(table))
