"""Gain of a loader that knows the number of epochs: frames a second, and packets decoded for each frame.

    PYTHONPATH=src python -m benchmarks.experiments.epochs --width 224 --height 224 --output epochs.json

Exact shuffle. Each timing is of all epochs together, the first one too. Where no videos are given, eight are made:
H.264 640x360 with groups of 30 and B-frames, 300 frames each.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.clips import EPOCHS, write_sets
from benchmarks.harness import Contender, Entry, Run
from framefeed import ProcessDesc, VideoDataset, VideoLoader


@dataclass
class Loader(Contender):
    """A contender: all epochs by a new loader.

    Attributes:
        arguments: Those of the command.
        videos: The files.
        share: Share of all frames that the memory holds.
        known: Tell the loader the number of epochs.
    """

    arguments: argparse.Namespace
    videos: list[Path]
    share: float
    known: bool

    def run(self, seconds: float) -> Run:
        """Times all epochs."""
        given = self.arguments
        processing = {"default": ProcessDesc(type="byte", scale_width=given.width, scale_height=given.height)}
        dataset = VideoDataset([str(path) for path in self.videos], processing=processing, device=given.device)
        loader = VideoLoader(
            dataset,
            given.batch_size,
            order="shuffle",
            memory_budget=int(self.share * len(dataset)) * dataset.videos[0].frame_bytes,
            drop_last=False,
            num_epochs=given.epochs if self.known else 1,
        )
        begin = time.perf_counter()
        for _ in range(given.epochs):
            for batch in loader:
                batch["default"].flatten()[0].item()  # on a GPU it is there then
        took = time.perf_counter() - begin
        stats = loader.stats()
        frames = stats.frames_delivered
        return Run(frames, took, frames / took, stats.packets_decoded / frames)


def main(argv: list[str] | None = None) -> int:
    """Measures both ways in turn, with memory for several shares of the frames."""
    parser = harness.make_parser("experiments.epochs", __doc__, repeat=3)
    parser.add_argument("videos", nargs="*", type=Path)
    parser.add_argument("--clips", type=Path, default=Path(".bench/epochs"), help="where clips are made")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.25, 0.5, 1.0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=0, help="scale to this width (default: 0, as it is)")
    parser.add_argument("--height", type=int, default=0)
    arguments = parser.parse_args(argv)
    videos = arguments.videos or write_sets([EPOCHS], arguments.clips)[EPOCHS.name]
    document = harness.begin("experiments.epochs", argv)
    for share in arguments.shares:
        names = {"alone": False, "known": True}
        entries = [Entry(name, Loader(arguments, videos, share, known)) for name, known in names.items()]
        for _ in harness.in_turns(entries, arguments.repeat):
            pass
        row: dict[str, Any] = {"share": share} | {
            entry.name: {
                "frames_per_second": round(entry.median, 1),
                "all": [round(rate, 1) for rate in entry.rates],
                "decoded_per_delivered": entry.decoded,
            }
            for entry in entries
        }
        row["ratio"] = round(entries[1].median / entries[0].median, 2)
        document["results"].append(harness.stamped(row))
        print(json.dumps(row), flush=True)
        harness.save(arguments.output, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
