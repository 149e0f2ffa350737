"""Calls of a loader's threads on a GPU: how often, and how long until each returns with Python's lock.

    PYTHONPATH=src python -m benchmarks.experiments.where_time_goes CLIPS/loader/small-*/*.mp4

Calls of the driver and launches of kernels keep Python's lock, and so keep all threads waiting; decoding lets go of it,
and waits to get it back. All threads together have one second of the lock in each second.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from benchmarks.gpu.clock import Clock
from framefeed import ProcessDesc, VideoDataset, VideoLoader

COPIES = 24


def main() -> None:
    """Reads for some seconds, with all calls timed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--order", default="sequential")
    parser.add_argument("--copies", type=int, default=COPIES, help="of each video in an epoch (default: %(default)s)")
    parser.add_argument("--share", type=float, help="of all frames that the memory is for (default: the loader's own)")
    arguments = parser.parse_args()
    from framefeed.convert.cuda import launch as cuda
    from framefeed.decode.nvdec import session_nvdec as nvdec

    clock = Clock()
    cuda._run = clock.around("launch of a kernel", cuda._run)
    nvdec.NvdecSession._frames = clock.around("Decode", nvdec.NvdecSession._frames)  # type: ignore[method-assign]
    names = [str(path) for path in arguments.videos] * arguments.copies
    dataset = VideoDataset(names, processing={"default": ProcessDesc(type="byte")}, device="cuda")
    share, size = arguments.share, dataset.videos[0].frame_bytes
    budget = None if share is None else int(share * len(dataset)) * size
    loader = VideoLoader(dataset, 64, order=arguments.order, buffer_length=8, memory_budget=budget)
    with clock.around_driver():
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
