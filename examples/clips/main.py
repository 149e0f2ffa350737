"""Clips of 16 frames, labelled by the folders they are in, into a video classifier.

    python examples/clips/main.py                      # makes files in which things move, and trains
    python examples/clips/main.py --videos my_videos   # your own: a folder for each class
    python examples/clips/main.py --times offsets      # 16 times around each frame, as LeRobot's data sets have them
    python examples/clips/main.py --no-augment         # without Kornia
    python examples/clips/main.py --device cuda        # decodes, augments and trains on a GPU

Files have different frame rates. ``--fps`` is the rate of clips, so that what moves fast does so in all of them.
Classes differ in where things move to and in how fast: no single frame tells.

With ``--times fps`` a clip begins at any frame that leaves room for a whole one. With ``--times offsets`` it ends at
any frame, ``delta_timestamps`` says how many seconds before, and what would lie before the file's beginning is masked.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from scenes import write_scenes
from torch import nn
from torch.nn import functional

import framefeed
from framefeed import InvalidFile, MissingBackend, ProcessDesc, VideoDataset, VideoLoader
from framefeed.transforms import SampleLabels, VideoAugmentation, standard_video_augmentations

FRAMES = 16
WIDTH, HEIGHT = 48, 36
SUFFIXES = (".avi", ".mkv", ".mov", ".mp4", ".webm")
HELD_OUT = 5  # every fifth file of a class is not trained on


class Classifier(nn.Module):
    """Looks at what changes from frame to frame, in three layers, and takes the mean over frames that are there."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv3d(before, after, (3, 5, 5), (1, 2, 2), (1, 2, 2)), nn.BatchNorm3d(after), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(64, classes)

    def forward(self, clip: torch.Tensor, is_pad: torch.Tensor | None = None) -> torch.Tensor:
        """(N, frames, 3, height, width), and which frames only fill in, -> (N, classes)."""
        changes = clip.diff(dim=1, prepend=clip[:, :1])
        features = self.body(changes.transpose(1, 2)).mean(dim=(3, 4))
        there = torch.ones_like(features[:, :1]) if is_pad is None else (~is_pad)[:, None].to(features.dtype)
        found: torch.Tensor = self.head((features * there).sum(2) / there.sum(2))
        return found


def main(argv: list[str] | None = None) -> int:
    """Trains, and says after each epoch how many clips of unseen files are told right."""
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
    folder = args.videos or _make_files(args)
    classes, train_files, test_files = _split(folder)
    train, test = (_clips(files, classes, args) for files in (train_files, test_files))
    loader = VideoLoader(train, batch_size=args.batch_size, order="buffered:512", memory_budget=args.memory_budget)
    if not len(loader):
        raise InvalidFile(folder, f"has {len(train)} clips to train on; a batch has {args.batch_size}")
    augment = _augmentation(args)
    torch.manual_seed(0)
    model = Classifier(len(classes)).to(train.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    print(f"{train} of {len(classes)} classes, {len(loader)} batches, on {train.device}", flush=True)
    steps = args.steps or len(loader)
    for _ in range(args.epochs):
        begin, losses = time.perf_counter(), []
        for _, batch in zip(range(steps), loader, strict=False):
            if augment is not None:
                batch = augment(batch, epoch=loader.epoch)
            found, labels = model(batch["clip"], batch.get("clip_is_pad")), _numbers(batch)
            loss = functional.cross_entropy(found, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        loss, seconds = float(torch.stack(losses).mean()), time.perf_counter() - begin
        right = _accuracy(model, test, args)
        rate = len(losses) * args.batch_size / seconds
        print(f"epoch {loader.epoch + 1}: loss {loss:.3f}, {rate:.0f} clips/s, accuracy {right:.1%}", flush=True)


def _clips(files: list[Path], classes: list[str], args: argparse.Namespace) -> VideoDataset:
    """Clips of some files, by a rate or by offsets around an anchor."""
    desc = ProcessDesc(scale_width=WIDTH, scale_height=HEIGHT, normalized=True)
    # The label goes with the sample's own name, from which augmentations draw their random numbers.
    labels = SampleLabels(lambda filename, frame_index, changes: classes.index(Path(filename).parent.name))
    common: dict[str, Any] = {"processing": {"clip": desc}, "get_label": labels, "device": args.device}
    if args.times == "fps":
        return VideoDataset(files, FRAMES, fps=args.fps, **common)
    before = [(place + 1 - FRAMES) / args.fps for place in range(FRAMES)]  # -1.5, -1.4, ..., 0.0
    return VideoDataset(files, delta_timestamps={"clip": before}, tolerance_s=args.tolerance_s, **common)


def _numbers(batch: dict[str, Any]) -> torch.Tensor:
    return torch.tensor([label.label for label in batch["labels"]], device=batch["clip"].device)


@torch.no_grad()
def _accuracy(model: nn.Module, test: VideoDataset, args: argparse.Namespace) -> float:
    model.eval()
    right = count = 0
    loader = VideoLoader(test, args.batch_size, shuffle=True, drop_last=False, memory_budget=args.memory_budget)
    for _, batch in zip(range(args.test_batches), loader, strict=False):
        found = model(batch["clip"], batch.get("clip_is_pad")).argmax(1)
        right, count = right + int((found == _numbers(batch)).sum()), count + len(found)
    model.train()
    return right / count


def _augmentation(args: argparse.Namespace) -> VideoAugmentation | None:
    """Small turns, shifts and changes of colour, the same for all frames of a clip."""
    if args.augment is False:
        return None
    try:
        # No flips: they would make left of right, and the label wrong.
        return VideoAugmentation(*standard_video_augmentations(flip=0.0, blur=0.0), keys="clip")
    except MissingBackend as error:
        if args.augment:
            raise
        print(f"without augmentation: {error}")
        return None


def _split(folder: Path) -> tuple[list[str], list[Path], list[Path]]:
    """The classes, and the files to train on and to test with."""
    if not folder.is_dir():
        raise InvalidFile(folder, "is no folder; one is needed, with a folder for each class in it")
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    by_class = {path.name: [file for file in sorted(path.iterdir()) if _is_video(file)] for path in inside}
    if len(by_class) < 2:
        raise InvalidFile(folder, f"has {len(by_class)} folders; one is needed for each of two or more classes")
    for name, files in by_class.items():
        if len(files) < 2:
            raise InvalidFile(folder / name, f"has {len(files)} videos; two are needed, to train on and to test with")
    test = [file for files in by_class.values() for file in files[1::HELD_OUT]]
    train = [file for files in by_class.values() for file in files if file not in test]
    return list(by_class), train, test


def _is_video(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")


def _make_files(args: argparse.Namespace) -> Path:
    folder = args.folder / "videos"
    with Progress(transient=True) as progress:
        task = progress.add_task("files", total=args.files * 8)
        write_scenes(folder, args.files, workers=args.workers, done=lambda: progress.advance(task))
    return folder


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--folder", type=Path, default=Path(".demo/clips"), help="of the files that are made (default: .demo/clips)")
    add("--videos", type=Path, metavar="FOLDER", help="your own, with a folder for each class")
    add("--files", type=_count, default=10, help="to make of each class (default: 10)")
    add("--workers", type=_count, default=os.cpu_count() or 1, help="processes that make them (default: one a CPU)")
    add("--times", choices=["fps", "offsets"], default="fps", help="how the times of frames are given (default: fps)")
    add("--fps", type=float, default=10.0, help="frames a second of clips (default: 10)")
    add("--tolerance_s", type=float, default=1e-4, help="how far from its offset a frame may be (default: 0.0001)")
    add("--augment", action=argparse.BooleanOptionalAction, help="(default: where Kornia is installed)")
    add("--batch_size", type=_count, default=16, help="(default: 16)")
    add("--memory_budget", default="512MB", help="for frames that are kept until they are needed (default: 512MB)")
    add("--device", default="cpu", help="cpu, cuda, cuda:N or auto (default: cpu)")
    add("--epochs", type=_count, default=2, help="(default: 2)")
    add("--steps", type=_count, help="batches of each epoch (default: all)")
    add("--test_batches", type=_count, default=40, help="at most (default: 40)")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number; possible are 1, 2, 3 ...")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
