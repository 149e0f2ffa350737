"""Frames a second of a GPU's decoders in short runs, by their number and by the length of runs.

    PYTHONPATH=src python -m benchmarks.experiments.short_runs CLIPS/loader/cameras-*/*.mp4

Single frames and shuffles are decoded in runs that begin with a group and end with a frame that is wanted: 15 of 30
frames on average. This is the most that can be had of them, in several ways:

    Decode               packets, then an empty one that ends the stream; an object for each picture
    ENDOFSTREAM          as framefeed does it: one call, the packets are said to be the last ones
    GetNumDecodedFrame   pictures are only counted; where they lie is known, as each call writes to the same places
    SetSeekPTS           two calls: of the pictures before the last packet's none is copied out of the decoder
    both                 these two together
"""

from __future__ import annotations

import argparse
import itertools
import random
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.bare import LEAST_SIZE, Packets, new_decoder, view
from benchmarks.gpu.device import Gpu, side_by_side
from benchmarks.gpu.peers import library
from framefeed.cuda.driver import DEFAULT_STREAM, copy_on_device

WAYS = ("Decode", "ENDOFSTREAM", "GetNumDecodedFrame", "SetSeekPTS", "both")
LATE = 1 << 40  # a time beyond all others


class Runs:
    """Decoders on threads that get runs of packets in one piece each, and are emptied after each.

    Args:
        packets: Groups.
        decoders: One for each thread.
        length: Packets of a run.
        way: One of ``WAYS``.
    """

    def __init__(self, packets: Packets, decoders: list[Any], length: int, way: str = "Decode") -> None:
        self._decoders = decoders
        runs = [group[:length] for group in packets.groups]
        cuts = [-1] if way in ("SetSeekPTS", "both") else []
        self._runs = [[view(bytearray(b"".join(part))) for part in _parts(run, cuts)] for run in runs]
        self._random = [random.Random(number) for number in range(len(decoders))]
        self._packets = [library().PacketData() for _ in decoders]
        self._counts_only = way in ("GetNumDecodedFrame", "both")
        self._at_once = way == "ENDOFSTREAM"
        for packet in self._packets if self._at_once else ():
            packet.decode_flag = library().VideoPacketFlag.ENDOFSTREAM
        for decoder in decoders:
            decoder.SetSeekPTS(LATE if cuts else 0)

    def work(self, thread: int) -> int:
        """A run; returns how many pictures came."""
        return self._count(thread, self._random[thread].randrange(len(self._runs)))

    def _count(self, thread: int, run: int) -> int:
        packet, decoder, count = self._packets[thread], self._decoders[thread], 0
        parts = self._runs[run]
        for number, (address, size, _) in enumerate(parts):
            # The times of the pictures of one call rise from its own, by so much a frame.
            packet.bsl_data, packet.bsl, packet.pts = address, size, LATE if number + 1 == len(parts) > 1 else 1
            count += decoder.GetNumDecodedFrame(packet) if self._counts_only else len(decoder.Decode(packet))
        if self._at_once:
            return count
        packet.bsl = 0
        return count + (decoder.GetNumDecodedFrame(packet) if self._counts_only else len(decoder.Decode(packet)))

    def last_picture(self, run: int) -> bytes:
        """The last picture of a run, by the first decoder, in the CPU's memory."""
        packet, decoder = self._packets[0], self._decoders[0]
        parts = self._runs[run]
        for number, (address, size, _) in enumerate(parts):
            packet.bsl_data, packet.bsl, packet.pts = address, size, LATE if number + 1 == len(parts) > 1 else 1
            decoder.Decode(packet)
        packet.bsl = 0
        frame = decoder.Decode(packet)[-1]
        torch.cuda.synchronize()
        size = frame.framesize
        copy = torch.empty(int(size() if callable(size) else size), dtype=torch.uint8, device="cuda")
        copy_on_device(copy.data_ptr(), frame.GetPtrToPlane(0), copy.numel(), DEFAULT_STREAM)
        return bytes(copy.cpu().numpy())


def _parts(run: list[Any], cuts: list[int]) -> list[list[Any]]:
    edges = [0, *(len(run) + cut for cut in cuts if len(run) + cut > 0), len(run)]
    return [run[begin:end] for begin, end in itertools.pairwise(edges)]


def _same_places(decoder: Any, runs: Runs) -> bool:
    """Returns True where the n-th picture of a call always lies in the same place."""
    packet, seen = library().PacketData(), []
    for run in range(2):
        (address, size, _), *_ = runs._runs[run]
        packet.bsl_data, packet.bsl, packet.pts = address, size, 1
        seen.append([frame.GetPtrToPlane(0) for frame in decoder.Decode(packet)])
        packet.bsl = 0
        tail = [frame.GetPtrToPlane(0) for frame in decoder.Decode(packet)]
        if tail != seen[-1][: len(tail)]:
            return False
    return seen[0][: len(seen[1])] == seen[1][: len(seen[0])]


def main() -> None:
    """Measures every combination."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="clips of one set")
    parser.add_argument("--codec", default="hevc", help="(default: hevc)")
    parser.add_argument("--lengths", type=int, nargs="+", default=[8, 15, 30], help="(default: 8 15 30)")
    parser.add_argument("--decoders", type=int, nargs="+", default=[7, 11, 14, 18], help="(default: 7 11 14 18)")
    parser.add_argument("--latencies", nargs="+", default=["NATIVE", "LOW"], help="(default: NATIVE LOW)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="(default: all)")
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
            for way in arguments.ways:
                rates = []
                for length in arguments.lengths:
                    runs = Runs(packets, made[:count], length, way)
                    side_by_side(runs.work, count, 0.3, device)
                    rates.append(f"{length}: {side_by_side(runs.work, count, arguments.seconds, device).rate:,.0f}")
                print(f"{latency}, {count} decoders, {way}, frames/s by length of runs: {'; '.join(rates)}", flush=True)
        plain, late = (Runs(packets, made[:1], arguments.lengths[-1], way) for way in ("Decode", "SetSeekPTS"))
        made[0].SetSeekPTS(0)
        print("pictures lie in the same places each time:", _same_places(made[0], plain))
        expected = [plain.last_picture(run) for run in range(4)]
        made[0].SetSeekPTS(LATE)
        print("the last picture is the same with SetSeekPTS:", [late.last_picture(run) for run in range(4)] == expected)


if __name__ == "__main__":
    main()
