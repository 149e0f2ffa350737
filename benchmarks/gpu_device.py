"""What the GPU benchmark runs on, and how it takes time there."""

from __future__ import annotations

import gc
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

if TYPE_CHECKING:
    from framefeed.decode.nvdec.session_nvdec import NvdecFactory

__all__ = ["Cpu", "Device", "Gpu", "Run", "side_by_side"]


@dataclass(frozen=True)
class Run:
    """One timing.

    Attributes:
        frames: That were delivered.
        seconds: That it took.
        rate: Frames a second; not their quotient where several threads took their own time.
        decoded_per_delivered: Packets decoded for each frame, where that is known.
        first_seconds: Until the first batch came, where that is not in the rate.
    """

    frames: int
    seconds: float
    rate: float
    decoded_per_delivered: float | None = None
    first_seconds: float | None = None


class Device(Protocol):
    """Where frames are decoded.

    Attributes:
        name: What framefeed is told.
        num_decoders: Decoders that framefeed uses side by side.
    """

    name: str
    num_decoders: int

    def enter_thread(self) -> None:
        """Makes a thread ready to use it."""

    def new_stream(self) -> Any:
        """A stream with an address as ``cuda_stream``."""

    def synchronize(self) -> None:
        """Waits for all that has been queued."""

    def used_memory(self) -> int:
        """Bytes of its memory that are in use, by all processes."""

    def release_memory(self) -> None:
        """Gives back what nobody uses any more."""

    def decoders_created(self) -> int:
        """By framefeed, so far."""

    def kept_bytes(self, rgb: int) -> int:
        """What framefeed takes to keep a frame of full size that has so many bytes as RGB."""

    def describe(self) -> dict[str, Any]:
        """What it is."""


class Gpu:
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
        """As the driver counts it."""
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
        """As it was decoded."""
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


class Cpu:
    """In place of a GPU, for trying the benchmark itself."""

    name = "cpu"
    num_decoders = 2

    def enter_thread(self) -> None:
        """Needs nothing."""

    def new_stream(self) -> Any:
        """None in fact."""
        return _NoStream()

    def synchronize(self) -> None:
        """Nothing is queued."""

    def used_memory(self) -> int:
        """Not counted."""
        return 0

    def release_memory(self) -> None:
        """Leaves it to Python."""

    def decoders_created(self) -> int:
        """Not counted."""
        return 0

    def kept_bytes(self, rgb: int) -> int:
        """As it is."""
        return rgb

    def describe(self) -> dict[str, Any]:
        """No GPU."""
        return {"gpu": "none: a dry run", "nvdec_units": 0, "decoders": self.num_decoders}


class _NoStream:
    cuda_stream = 0


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
