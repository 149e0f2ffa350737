"""Worker processes read packets, the main process decodes them: a training loop over clips of several cameras.

    python -m benchmarks.camera_clips data
    python examples/separation_decode/main.py --index_file data/index_frame.json
    python -m torch.distributed.run --nproc_per_node=2 examples/separation_decode/main.py --index_file ...

Workers need no GPU and never touch one, so they can be forked. The packets of a group are sent once and kept by the
main process, which decodes them on ``--device``. With ``--num_workers 0`` its threads read the packets, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import torch
from torch import distributed, nn

import framefeed
from framefeed import MultiCameraDataset, ProcessDesc, VideoClipSampler, VideoLoader
from framefeed._util.nvtx import Mark

STEP = Mark("train.step")


class TinyModel(nn.Module):
    """Something to train: it looks at every sixteenth pixel of all cameras."""

    def __init__(self, cameras: int) -> None:
        super().__init__()
        self.head = nn.Linear(3 * cameras, 1)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """(samples, cameras, frames, 3, height, width) of bytes -> a number for each sample."""
        small = frames[..., ::16, ::16].float().mean(dim=(2, 4, 5)) / 255
        found: torch.Tensor = self.head(small.flatten(1)).squeeze(1)
        return found


def main(argv: list[str] | None = None) -> int:
    """Trains, and says how fast that was."""
    args = _arguments(argv)
    rank, world = _join(args.device)
    device = args.device
    if device == "cuda" and world > 1:
        device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
    try:
        summary = _train(args, device, rank, world)
    except (framefeed.FramefeedError, ValueError) as error:  # a file, or an argument, that cannot be used
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
    if rank == 0:
        print(json.dumps(summary) if args.json else _table(summary))
    return 0


def _train(args: argparse.Namespace, device: str, rank: int, world: int) -> dict[str, Any]:
    width, height = _size(args.scale) if args.scale else (0, 0)
    desc = ProcessDesc(type="byte", scale_width=width, scale_height=height)
    dataset = MultiCameraDataset(args.index_file, processing={"frames": desc}, device=device)
    sampler = VideoClipSampler(dataset, args.group_num, frame_read_type=args.frame_read_type, rank=rank, world=world)
    loader = VideoLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=args.num_workers,
        packet_cache=0 if args.disable_cache else args.packet_cache,
        multiprocessing_context=args.start_method if args.num_workers else None,
    )
    model = TinyModel(len(dataset.cameras)).to(dataset.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    frames, seconds = 0, 0.0
    for epoch in range(args.epochs + args.warm_up):
        done, begin = 0, time.perf_counter()
        for batch in loader:
            with STEP:
                optimizer.zero_grad()
                loss = model(batch["frames"]).square().mean()
                loss.backward()
                optimizer.step()
            done += batch["frames"].shape[0] * batch["frames"].shape[1] * batch["frames"].shape[2]
        if dataset.device.type == "cuda":
            torch.cuda.synchronize(dataset.device)
        if epoch >= args.warm_up:
            frames, seconds = frames + done, seconds + time.perf_counter() - begin
    stats = loader.stats()
    rate = torch.tensor(frames / seconds, dtype=torch.float64)
    if distributed.is_initialized():
        rate = rate.to(dataset.device) if distributed.get_backend() == "nccl" else rate
        distributed.all_reduce(rate)
    return {
        "frames_per_second": round(float(rate), 1),
        "ranks": world,
        "device": device,
        "frame_read_type": args.frame_read_type,
        "packet_cache": not args.disable_cache,
        "group_num": args.group_num,
        "num_workers": args.num_workers,
        "frames": frames,
        "seconds": round(seconds, 3),
        "packets_kept": round(stats.group_hits / max(1, stats.groups), 3),
        "megabytes_moved": round(stats.bytes_moved / 1e6, 1),
        "decoded_per_delivered": round(stats.decoded_per_delivered, 2),
    }


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not width.isdecimal() or not height.isdecimal():
        raise ValueError(f"{text!r} is no size; possible is 640x360 (width x height)")
    return int(width), int(height)


def _join(device: str) -> tuple[int, int]:
    """This process's rank and the number of processes."""
    if "RANK" not in os.environ:
        return 0, 1
    enough_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    distributed.init_process_group("nccl" if device.startswith("cuda") and enough_gpus else "gloo")
    return distributed.get_rank(), distributed.get_world_size()


def _table(summary: dict[str, Any]) -> str:
    width = max(len(name) for name in summary)
    return "\n".join(f"{name.replace('_', ' '):<{width}}  {value}" for name, value in summary.items())


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index_file", default="data/index_frame.json", help="JSON: {video_dir: {clip: num_frames}}")
    parser.add_argument("--group_num", type=int, default=4, help="clips of a batch (default: 4)")
    parser.add_argument("--num_workers", type=int, default=2, help="processes that read packets (default: 2)")
    parser.add_argument("--disable_cache", action="store_true", help="packets are sent again each time")
    parser.add_argument("--frame_read_type", choices=["stream", "random"], default="stream", help="(default: stream)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N or auto (default: cpu)")
    parser.add_argument("--epochs", type=int, default=1, help="that are measured (default: 1)")
    parser.add_argument("--warm_up", type=int, default=0, help="epochs before that (default: 0)")
    parser.add_argument("--packet_cache", default="1GiB", help="what the main process keeps (default: 1GiB)")
    parser.add_argument("--scale", metavar="WxH", help="of frames (default: as they are)")
    parser.add_argument("--start_method", choices=["fork", "spawn"], default="fork", help="of workers (default: fork)")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    raise SystemExit(main())
