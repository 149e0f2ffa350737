"""How many frames a second a GPU's decoders give in short runs, by their number and by the length of runs.

    PYTHONPATH=src python benchmarks/short_runs.py CLIPS/loader/cameras-*/*.mp4

Single frames and shuffles are decoded in runs that begin with a group and end with a frame that is wanted: 15 of 30
frames on average. This is the most that can be had of them.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from framefeed.bench.gpu_device import Gpu, side_by_side
from framefeed.bench.gpu_ours import LEAST_SIZE, Packets, new_decoder, view
from framefeed.bench.gpu_peers import library


class Runs:
    """Decoders on threads that get runs of packets in one piece each, and are emptied after each.

    Args:
        packets: Groups.
        decoders: One for each thread.
        length: Packets of a run.
    """

    def __init__(self, packets: Packets, decoders: list[Any], length: int) -> None:
        self._decoders = decoders
        self._runs = [view(bytearray(b"".join(group[:length]))) for group in packets.groups]
        self._random = [random.Random(number) for number in range(len(decoders))]
        self._packets = [library().PacketData() for _ in decoders]

    def work(self, thread: int) -> int:
        """A run; returns how many pictures came."""
        decode, packet = self._decoders[thread].Decode, self._packets[thread]
        address, size, _ = self._random[thread].choice(self._runs)
        packet.bsl_data, packet.bsl, packet.pts = address, size, 0
        count = len(decode(packet))
        packet.bsl = 0
        return count + len(decode(packet))


def main() -> None:
    """Measures every combination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="clips of one set")
    parser.add_argument("--codec", default="hevc", help="(default: hevc)")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 15, 30], help="(default: 8 15 30)")
    parser.add_argument("--decoders", type=int, nargs="+", default=[7, 11, 14, 18], help="(default: 7 11 14 18)")
    parser.add_argument("--latencies", nargs="+", default=["NATIVE", "LOW"], help="(default: NATIVE LOW)")
    parser.add_argument("--seconds", type=float, default=1, help="for each (default: 1)")
    arguments = parser.parse_args()
    device, nvc = Gpu(), library()
    packets = Packets(arguments.files, arguments.codec)
    for latency in arguments.latencies:
        made: list[Any] = []
        for count in sorted(arguments.decoders):
            while len(made) < count:
                mode = getattr(nvc.DisplayDecodeLatencyType, latency)
                made.append(new_decoder(device, arguments.codec, LEAST_SIZE, latency=mode))
            rates = []
            for length in arguments.lengths:
                runs = Runs(packets, made[:count], length)
                side_by_side(runs.work, count, 0.3, device)
                rates.append(f"{length}: {side_by_side(runs.work, count, arguments.seconds, device).rate:,.0f}")
            print(f"{latency}, {count} decoders, frames/s by length of runs: {'; '.join(rates)}", flush=True)


if __name__ == "__main__":
    main()
