"""What it gains that a loader knows how many epochs there will be: frames a second, and how much is decoded.

    PYTHONPATH=src python benchmarks/epochs.py --width 224 --height 224 --output benchmarks/results/epochs-2-cores.json

Exact shuffle. Each timing is of all epochs together, the first one too. Where no videos are given, eight are made:
H.264 640x360 with groups of 30 and B-frames, 300 frames each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from framefeed import ProcessDesc, VideoDataset, VideoLoader
from framefeed.compare.provenance import machine, stamped, versions
from framefeed.testing import samples
from framefeed.testing.scenes import scene_painter


def make_clips(folder: Path) -> list[Path]:
    """Eight scenes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"scene{number}.mp4" for number in range(8)]
    for number, path in enumerate(paths):
        if not path.exists():
            samples.write_clip(
                path,
                frames=300,
                gop=30,
                bframes=2,
                width=640,
                height=360,
                painter=scene_painter(640, 360, number),
                options={"preset": "veryfast"},
                threads=2,
            )
    return paths


def run(arguments: argparse.Namespace, share: float, known: bool) -> tuple[float, float]:
    """Frames a second, and packets decoded for each of them."""
    processing = {"default": ProcessDesc(type="byte", scale_width=arguments.width, scale_height=arguments.height)}
    dataset = VideoDataset([str(path) for path in arguments.videos], processing=processing, device=arguments.device)
    num_bytes = int(share * len(dataset)) * dataset.videos[0].frame_bytes
    epochs = arguments.epochs
    loader = VideoLoader(
        dataset,
        arguments.batch_size,
        order="shuffle",
        memory_budget=num_bytes,
        drop_last=False,
        num_epochs=epochs if known else 1,
    )
    begin = time.perf_counter()
    for _ in range(epochs):
        for batch in loader:
            batch["default"].flatten()[0].item()  # on a GPU it is there then
    took = time.perf_counter() - begin
    stats = loader.stats()
    return stats.frames_delivered / took, stats.packets_decoded / stats.frames_delivered


def main() -> None:
    """Both ways in turn, with memory for several shares of the frames."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", type=Path)
    parser.add_argument("--clips", type=Path, default=Path(".bench/epochs"), help="where clips are made")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.1, 0.25, 0.5, 1.0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=0, help="scale to this width (default: 0, as it is)")
    parser.add_argument("--height", type=int, default=0)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    given = [f"{path.parent.name}/{path.name}" for path in arguments.videos]
    arguments.videos = arguments.videos or make_clips(arguments.clips)
    results: list[dict[str, Any]] = []
    for share in arguments.shares:
        runs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for _ in range(arguments.repeat):
            for known in runs:
                runs[known].append(run(arguments, share, known))
        row = stamped({"share": share})
        for known, name in ((False, "alone"), (True, "known")):
            rates, decoded = zip(*runs[known], strict=True)
            row[name] = {
                "frames_per_second": round(statistics.median(rates), 1),
                "all": [round(rate, 1) for rate in rates],
                "decoded_per_delivered": round(statistics.median(decoded), 3),
            }
        row["ratio"] = round(row["known"]["frames_per_second"] / row["alone"]["frames_per_second"], 2)
        results.append(row)
        print(json.dumps(row), flush=True)
    if arguments.output:
        document = {
            "command": " ".join(["PYTHONPATH=src python benchmarks/epochs.py", *given])
            + f" --device {arguments.device} --epochs {arguments.epochs} --repeat {arguments.repeat}"
            + (f" --width {arguments.width} --height {arguments.height}" if arguments.width else ""),
            "machine": machine(0),
            "versions": versions(),
            "results": results,
        }
        arguments.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
