"""Devices of the GPU benchmark, and timings of threads that share one."""

from __future__ import annotations

import gc
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import torch

from benchmarks.harness import Contender, Run

if TYPE_CHECKING:
    from framefeed.decode.nvdec.session_nvdec import NvdecFactory

__all__ = ["Device", "Gpu", "Threaded", "side_by_side"]


class Device:
    """The place where frames are decoded: the CPU, for trying the benchmark itself.

    Attributes:
        name: Its name for framefeed.
        num_decoders: Decoders that framefeed uses side by side.
    """

    name = "cpu"
    num_decoders = 2

    def enter_thread(self) -> None:
        """Makes a thread ready to use it."""

    def new_stream(self) -> Any:
        """Returns a stream with an address as ``cuda_stream``."""
        return SimpleNamespace(cuda_stream=0)

    def synchronize(self) -> None:
        """Waits for all that has been queued."""

    def used_memory(self) -> int:
        """Returns bytes of its memory that are in use, by all processes."""
        return 0

    def release_memory(self) -> None:
        """Releases unused memory."""

    def decoders_created(self) -> int:
        """Returns framefeed's decoders so far."""
        return 0

    def kept_bytes(self, rgb: int) -> int:
        """Returns the bytes that framefeed keeps of a frame of full size that has so many as RGB."""
        return rgb

    def describe(self) -> dict[str, Any]:
        """Describes it for results."""
        return {"gpu": "none: a dry run", "nvdec_units": 0, "decoders": self.num_decoders}


class Gpu(Device):
    """The first GPU."""

    name = "cuda"

    def __init__(self) -> None:
        from framefeed.decode.default import cuda_engine

        torch.zeros(1, device="cuda")
        self._engine = cuda_engine(0)
        self.num_decoders = self._engine.max_threads

    def enter_thread(self) -> None:
        """Makes its context the thread's."""
        torch.cuda.set_device(0)

    def new_stream(self) -> Any:
        """One of torch's."""
        return torch.cuda.Stream(device=0)  # type: ignore[no-untyped-call]

    def synchronize(self) -> None:
        """Waits for all streams."""
        torch.cuda.synchronize(0)

    def used_memory(self) -> int:
        """Returns the driver's figure."""
        free, total = torch.cuda.mem_get_info(0)
        return total - free

    def release_memory(self) -> None:
        """Empties torch's cache."""
        gc.collect()
        torch.cuda.empty_cache()

    def decoders_created(self) -> int:
        """Those of the hardware: one session of the pool may make several."""
        return cast("NvdecFactory", self._engine.factory).created

    def kept_bytes(self, rgb: int) -> int:
        """Returns the size as decoded."""
        return rgb // 2

    def describe(self) -> dict[str, Any]:
        """Name, driver and decoding units."""
        from framefeed.decode.nvdec.capabilities import num_units

        return {
            "gpu": torch.cuda.get_device_name(0),
            "gpu_memory_gib": round(torch.cuda.mem_get_info(0)[1] / 2**30, 1),
            "driver": _driver_version(),
            "cuda": torch.version.cuda,
            "nvdec_units": num_units(0),
            "decoders": self.num_decoders,
        }


def _driver_version() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.split("\n")[0].strip()


def side_by_side(work: Callable[[int], int], num_threads: int, seconds: float, device: Device) -> Run:
    """Lets threads work for at least some time, all of them to the end; the rate is the sum of theirs.

    Each thread's own time begins and ends with whole pieces of its work, and none stops before all have enough: pieces
    may be long, and neither their beginnings nor their ends are left to fewer threads.

    Args:
        work: ``work(thread)`` does a piece and returns its number of frames.
        num_threads: How many.
        seconds: That each has to work at least.
        device: Where.
    """
    finished: dict[int, tuple[int, float]] = {}
    failures: list[BaseException] = []
    ready = threading.Barrier(num_threads)

    def run(thread: int) -> None:
        try:
            device.enter_thread()
            ready.wait()
            start = time.perf_counter()
            count = 0
            while not failures and len(finished) < num_threads:
                count += work(thread)
                if thread not in finished and time.perf_counter() - start >= seconds:
                    device.synchronize()
                    finished[thread] = (count, time.perf_counter() - start)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            failures.append(error)
            ready.abort()

    device.synchronize()
    if num_threads == 1:
        run(0)
    else:
        threads = [threading.Thread(target=run, args=(number,)) for number in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    device.synchronize()
    if failures:
        raise failures[0]
    frames = sum(count for count, _ in finished.values())
    return Run(frames, max(took for _, took in finished.values()), sum(n / took for n, took in finished.values()))


class Threaded(Contender):
    """A contender whose threads each do pieces of work.

    Args:
        device: Where.
        num_threads: How many.
    """

    def __init__(self, device: Device, num_threads: int) -> None:
        self._device = device
        self._num_threads = num_threads

    def work(self, thread: int) -> int:
        """Does a piece; returns its number of frames."""
        raise NotImplementedError

    def check_one(self, thread: int) -> int:
        """Counts wrong frames of a thread's first pieces."""
        raise NotImplementedError

    def check(self) -> int:
        """Counts wrong frames, with all threads at work."""
        with ThreadPoolExecutor(self._num_threads, initializer=self._device.enter_thread) as pool:
            return sum(pool.map(self.check_one, range(self._num_threads)))

    def run(self, seconds: float) -> Run:
        """Takes a timing."""
        return side_by_side(self.work, self._num_threads, seconds, self._device)
