"""Video super-resolution: five small frames in, the middle one four times as large out.

    python examples/superres/main.py                      # makes clips of moving texture, and trains
    python examples/superres/main.py --resume             # goes on after an interruption, bit for bit
    python examples/superres/main.py --device cuda        # decodes and trains on a GPU, in half precision
    python examples/superres/main.py --videos my_videos   # your own, of one size that 4 divides
    python -m torch.distributed.run --nproc_per_node=2 examples/superres/main.py
    tensorboard --logdir .demo/superres/board             # curves and pictures

From each sequence of five frames the loader makes two tensors: all of them at a quarter of the size, and the middle one
as it is. Both are flipped alike. README.md beside this file has the figures of a whole run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import checkpoint
import torch
from board import Board
from material import find_videos, make_clips, sequences
from network import SuperResolution, bicubic, psnr
from torch import distributed, nn
from torch.nn import functional

import framefeed
from framefeed import InvalidFile, VideoLoader

FRAMES = 5
SCALE = 4
HELD_OUT = 6  # every sixth file is not trained on


def main(argv: list[str] | None = None) -> int:
    """Trains, and says after each epoch how good it is beside bicubic enlargement."""
    args = _arguments(argv)
    # Half of the CPUs: other threads decode meanwhile, and one of OpenMP's that has no CPU keeps all others waiting.
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    rank, world = _join(args.device)
    if args.device == "cuda" and world > 1:
        args.device = f"cuda:{int(os.environ['LOCAL_RANK'])}"
    try:
        Training(args, rank, world).run()
    except (framefeed.FramefeedError, ValueError) as error:  # a file, or an argument, that cannot be used
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        saved = _checkpoint(args.folder).exists()
        print("interrupted;", "--resume goes on" if saved else "there was no checkpoint yet", file=sys.stderr)
        return 130
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
    return 0


class Training:
    """A run.

    Args:
        args: The command line.
        rank, world: Which of how many processes this is.
    """

    def __init__(self, args: argparse.Namespace, rank: int, world: int) -> None:
        self.args, self.rank = args, rank
        files = find_videos(args.videos) if args.videos is not None else make_clips(args, rank)
        held_out = files[HELD_OUT - 1 :: HELD_OUT]
        if not held_out:
            raise InvalidFile(files[0].parent, f"has {len(files)} videos, and one in {HELD_OUT} is held out")
        train = sequences([file for file in files if file not in held_out], FRAMES, SCALE, args.device, flip=True)
        test = sequences(held_out, FRAMES, SCALE, args.device)
        self.device = train.device
        size, together = args.batch_size, world > 1
        self.loader = VideoLoader(
            train, batch_size=size, shuffle=True, distributed=together, seed=args.seed, num_epochs=args.epochs
        )
        self.test = VideoLoader(test, batch_size=size, drop_last=False, distributed=together)
        if not len(self.loader):
            raise InvalidFile(files[0].parent, f"has {len(train)} sequences, which is less than a batch of {size}")
        torch.backends.cudnn.deterministic = True  # so that an interrupted run gives the same bits
        checkpoint.seed_all(args.seed)
        self.model = SuperResolution(FRAMES, args.channels, SCALE).to(self.device)
        checkpoint.seed_all(args.seed + rank)  # equal networks, but each rank flips by itself
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.learning_rate)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.device.type == "cuda")
        self.progress: dict[str, Any] = {"step": 0, "history": []}
        if args.resume:
            self.progress = checkpoint.load(_checkpoint(self.args.folder), **self._parts())
        self.parallel: nn.Module = self.model
        if together:
            self.parallel = nn.parallel.DistributedDataParallel(self.model)
        self.board = Board(args.folder / "board", self.progress["step"]) if rank == 0 else None

    def run(self) -> None:
        """Trains to the end."""
        args, history = self.args, self.progress["history"]
        if not history:
            self._evaluate(0, 0.0, 0.0)
        elif len(history) > args.epochs and self.rank == 0:
            print(f"all {args.epochs} epochs are done; --epochs asks for more")
        while len(history) - 1 < args.epochs and not self._stopped:
            losses, begin = [], time.perf_counter()
            for batch in self.loader:
                losses.append(self._step(batch))
                self.progress["step"] += 1
                at_end = self.loader.state_dict()["finished"]
                if self._stopped or (self.progress["step"] % args.save_every == 0 and not at_end):
                    self._save()
                if self._stopped:
                    break
            else:
                seconds = time.perf_counter() - begin
                rate = len(losses) * args.batch_size / seconds
                self._evaluate(self.loader.epoch + 1, float(torch.stack(losses).mean()) if losses else 0.0, rate)
                self._save()
        if self.board is not None:
            self.board.close()

    @property
    def _stopped(self) -> bool:
        return self.args.steps is not None and self.progress["step"] >= self.args.steps

    def _step(self, batch: dict[str, Any]) -> torch.Tensor:
        small, large = self._tensors(batch)
        if torch.rand(()) < 0.5:  # left and right were flipped by the loader
            small, large = small.flip(-2), large.flip(-2)
        with torch.autocast(self.device.type, torch.float16, enabled=self.device.type == "cuda"):
            found = self.parallel(small)
        loss = functional.l1_loss(found, large)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def _tensors(self, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """What the network gets and should give. CPUs are slow with half precision."""
        small, large = batch["input"], batch["label"][:, 0].float()
        return (small if self.device.type == "cuda" else small.float()), large

    @torch.no_grad()
    def _evaluate(self, epoch: int, loss: float, rate: float) -> None:
        """Measures on the files that were held out, each rank on its share."""
        sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        shown: dict[str, torch.Tensor] = {}
        for batch in self.test:
            small, large = self._tensors(batch)
            found, plain = self.model(small.float()).clamp(0, 1), bicubic(small[:, FRAMES // 2].float(), SCALE)
            sums += torch.stack([psnr(found, large).sum(), psnr(plain, large).sum(), sums.new_tensor(len(large))])
            shown = shown or {"network": found[0], "bicubic": plain[0], "wanted": large[0]}
        if distributed.is_initialized():
            distributed.all_reduce(sums)
        ours, plain_db = (sums[:2] / sums[2]).tolist()
        step = self.progress["step"]
        self.progress["history"].append({"epoch": epoch, "step": step, "psnr": ours, "bicubic": plain_db})
        if self.board is not None:
            gain = f"PSNR {ours:.2f} dB, bicubic {plain_db:.2f} dB ({ours - plain_db:+.2f})"
            more = f"  loss {loss:.4f}  {rate:.0f} sequences/s" if rate else ""
            print(f"epoch {epoch:3}  step {step:5}  {gain}{more}", flush=True)
            curves = {"psnr/network": ours, "psnr/bicubic": plain_db}
            self.board.curves(step, **curves, **({"loss": loss, "sequences_per_second": rate} if rate else {}))
            self.board.pictures(step, **shown)

    def _save(self) -> None:
        checkpoint.save(_checkpoint(self.args.folder), progress=self.progress, **self._parts())

    def _parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scaler": self.scaler,
            "loader": self.loader,
            "device": self.device,
        }


def _join(device: str) -> tuple[int, int]:
    """This process's rank and the number of processes."""
    if "RANK" not in os.environ:
        return 0, 1
    enough_gpus = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    with_gpus = device.startswith("cuda") and enough_gpus
    if with_gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if with_gpus else "gloo")
    return distributed.get_rank(), distributed.get_world_size()


def _checkpoint(folder: Path) -> Path:
    return folder / "checkpoint.pt"


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--folder", type=Path, default=Path(".demo/superres"), help="of all that is made (default: .demo/superres)")
    add("--videos", type=Path, metavar="FOLDER", help="your own videos, instead of clips that are made")
    add("--clips", type=_count, default=24, help="clips to make (default: 24)")
    add("--workers", type=_count, default=os.cpu_count() or 1, help="processes that make them (default: one a CPU)")
    add("--device", default="cpu", help="cpu, cuda, cuda:N or auto (default: cpu)")
    add("--epochs", type=_count, default=12, help="(default: 12)")
    add("--steps", type=_count, help="stop after so many in all, in mid-epoch too; --resume goes on")
    add("--batch_size", type=_count, default=16, help="of each rank (default: 16)")
    add("--channels", type=_count, default=32, help="of the network (default: 32)")
    add("--learning_rate", type=float, default=2e-3, help="(default: 0.002)")
    add("--save_every", type=_count, default=100, help="steps from one checkpoint to the next (default: 100)")
    add("--resume", action="store_true", help="go on from the last checkpoint")
    add("--seed", type=int, default=0, help="(default: 0)")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; possible are 1, 2, 3 ...")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
