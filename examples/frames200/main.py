"""Two hundred video files, batches of 128 frames drawn uniformly from all of them, into a small classifier.

    python examples/frames200/main.py                          # makes the files, and trains on the plain shuffled order
    python examples/frames200/main.py --order buffered:1024    # nearly as random, and each frame is decoded once
    python examples/frames200/main.py --order sequential       # the peak, with no randomness at all
    python examples/frames200/main.py --no_model               # loading alone
    python examples/frames200/main.py --device cuda            # frames are decoded on the GPU and stay there

Every frame of every file is one sample, so that all are equally likely whatever the lengths of the files are. README.md
beside this file answers the questions of the exercise.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from patterns import PATTERNS, write_patterns
from rich.progress import Progress
from torch import nn
from torch.nn import functional

import framefeed
from framefeed import ProcessDesc, VideoDataset, VideoLoader

TEST_SEED = 1_000_000  # of files that no training run sees


def main(argv: list[str] | None = None) -> int:
    """Trains, and says how fast that was and what was learnt."""
    args = _arguments(argv)
    # Half of the CPUs: other threads decode meanwhile, and one of OpenMP's that has no CPU keeps all others waiting.
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    try:
        _train(args)
    except (framefeed.FramefeedError, ValueError) as error:  # a file, or an argument, that cannot be used
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; files that were made are kept", file=sys.stderr)
        return 130
    return 0


def _train(args: argparse.Namespace) -> None:
    train_folder, test_folder = _make_files(args)
    train, test = (_frames(folder, args.device) for folder in (train_folder, test_folder))
    loader = VideoLoader(train, batch_size=args.batch_size, order=args.order, memory_budget=args.memory_budget)
    if not len(loader):
        raise framefeed.InvalidFile(train_folder, f"has {len(train)} frames; a batch has {args.batch_size}")
    torch.manual_seed(0)
    model = Classifier(len(PATTERNS)).to(train.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"{train}, {len(loader)} batches of {args.batch_size}, order {args.order}, on {train.device}", flush=True)
    for epoch in range(args.epochs):
        before, begin, batches = loader.stats(), time.perf_counter(), 0
        for _, batch in zip(range(args.steps or len(loader)), loader, strict=False):
            if not args.no_model:
                _step(model, optimizer, batch)
            batches += 1
        if train.device.type == "cuda":
            torch.cuda.synchronize(train.device)
        seconds, after = time.perf_counter() - begin, loader.stats()
        waited = (after.wait_seconds - before.wait_seconds) / seconds
        print(
            f"epoch {epoch + 1}: {batches / seconds:.2f} it/s, {batches * args.batch_size / seconds:,.0f} images/s, "
            f"{waited:.0%} of the time spent waiting for frames, {after.decoded_per_delivered:.2f} decoded for each"
            + ("" if args.no_model else f", accuracy on unseen files {_accuracy(model, test, args):.1%}"),
            flush=True,
        )


def _frames(folder: Path, device: str) -> VideoDataset:
    """Every frame of every file below a folder is a sample; the class is the name of the folder it is in."""
    desc = ProcessDesc(scale_width=64, scale_height=64, normalized=True, mean=0.5, std=0.25)
    return VideoDataset(folder, processing={"image": desc}, get_label=_class_of, device=device)


def _class_of(filename: str, frame_index: int, changes: Any) -> int:
    return PATTERNS.index(Path(filename).parent.name)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Any]) -> None:
    images = batch["image"][:, 0]
    labels = torch.tensor(batch["labels"], device=images.device)
    loss = functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@torch.no_grad()
def _accuracy(model: nn.Module, test: VideoDataset, args: argparse.Namespace) -> float:
    model.eval()
    right = 0
    for batch in VideoLoader(test, batch_size=args.batch_size, drop_last=False):
        found = model(batch["image"][:, 0]).argmax(1).cpu()
        right += int((found == torch.tensor(batch["labels"])).sum())
    model.train()
    return right / len(test)


class Classifier(nn.Module):
    """Three layers and a mean over what they see, without colours: those differ from file to file."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.InstanceNorm2d(1)]
        for before, after in ((1, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(before, after, 5, stride=2, padding=2), nn.BatchNorm2d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(N, 3, height, width) -> (N, classes)."""
        found: torch.Tensor = self.body(images.mean(1, keepdim=True))
        return found


def _make_files(args: argparse.Namespace) -> tuple[Path, Path]:
    """The folders to train on and to test with, filled where they are not."""
    tests = max(len(PATTERNS), args.files // 5)
    folders = args.folder / f"train-{args.files}", args.folder / f"test-{tests}"
    with Progress(transient=True) as progress:
        task = progress.add_task("files", total=args.files + tests)
        options = {"workers": args.workers, "done": lambda: progress.advance(task)}
        write_patterns(folders[0], args.files, **options)
        write_patterns(folders[1], tests, seed=TEST_SEED, **options)
    return folders


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--folder", type=Path, default=Path(".demo/frames200"), help="of the files (default: .demo/frames200)")
    add("--files", type=_count, default=200, help="to train on (default: 200)")
    add("--workers", type=_count, default=os.cpu_count() or 1, help="processes that make them (default: one a CPU)")
    add("--batch_size", type=_count, default=128, help="(default: 128)")
    add("--order", default="shuffle", help="shuffle, buffered:N, chunked:N or sequential (default: shuffle)")
    add("--memory_budget", default="512MB", help="for frames that are kept until they are needed (default: 512MB)")
    add("--device", default="cpu", help="cpu, cuda, cuda:N or auto (default: cpu)")
    add("--epochs", type=_count, default=3, help="(default: 3)")
    add("--steps", type=_count, help="batches of each epoch (default: all)")
    add("--no_model", action="store_true", help="only load")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; possible are 1, 2, 3 ...")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
