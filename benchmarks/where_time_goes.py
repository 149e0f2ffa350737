"""What a loader's threads do on a GPU, by call: how often, and how long until it returns with Python's lock.

    PYTHONPATH=src python benchmarks/where_time_goes.py CLIPS/loader/small-*/*.mp4

Calls of the driver and launches of kernels keep Python's lock, and so keep all threads waiting; decoding lets go of it,
and waits to get it back. All threads together have one second of the lock in each second.
"""

from __future__ import annotations

import argparse
import collections
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from framefeed import ProcessDesc, VideoDataset, VideoLoader
from framefeed.convert.cuda import launch as cuda
from framefeed.cuda import driver
from framefeed.decode.nvdec import session_nvdec as nvdec

COPIES = 24


class Clock:
    """How often things are called, and how long they take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self.calls: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def timed(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                took = time.perf_counter() - begin
                with self._lock:
                    self.seconds[name] += took
                    self.calls[name] += 1

        return timed


def main() -> None:
    """Reads for some seconds, with all calls timed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--order", default="sequential")
    parser.add_argument("--copies", type=int, default=COPIES, help="of each video in an epoch (default: %(default)s)")
    parser.add_argument("--share", type=float, help="of all frames that the memory is for (default: the loader's own)")
    arguments = parser.parse_args()
    clock = Clock()
    function = driver._function
    wrapped: dict[Any, Any] = {}

    def timed_function(name: str, *types: Any, **more: Any) -> Any:
        key = (name, types)
        if key not in wrapped:
            wrapped[key] = clock.around(name, function(name, *types, **more))
        return wrapped[key]

    driver._function = timed_function  # type: ignore[assignment]
    cuda._run = clock.around("launch of a kernel", cuda._run)
    nvdec.NvdecSession._frames = clock.around("Decode", nvdec.NvdecSession._frames)  # type: ignore[method-assign]
    names = [str(path) for path in arguments.videos] * arguments.copies
    dataset = VideoDataset(names, processing={"default": ProcessDesc(type="byte")}, device="cuda")
    share, size = arguments.share, dataset.videos[0].frame_bytes
    budget = None if share is None else int(share * len(dataset)) * size
    loader = VideoLoader(dataset, 64, order=arguments.order, buffer_length=8, memory_budget=budget)
    for timed in (False, True):
        clock.seconds.clear()
        clock.calls.clear()
        begin, cpu, count = time.perf_counter(), time.process_time(), 0
        for batch in loader:
            count += len(batch["default"])
            if time.perf_counter() - begin > (arguments.seconds if timed else 2):
                break
        torch.cuda.synchronize()
        took, busy = time.perf_counter() - begin, time.process_time() - cpu
    print(f"{count / took:,.0f} frames/s, {busy / took:.2f} CPUs busy")
    for name, seconds in sorted(clock.seconds.items(), key=lambda item: -item[1]):
        calls = clock.calls[name]
        each = 1e6 * seconds / calls
        print(f"{name:28} {seconds / took:6.2f} s in a second, {calls / took:7.0f} calls/s, {each:8.1f} us each")


if __name__ == "__main__":
    main()
