"""What is trained on: the user's videos or clips that are made, and the sequences in them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.progress import Progress
from texture import write_textures
from torch import distributed

from framefeed import InvalidFile, ProcessDesc, VideoDataset, video_size_from_file

SUFFIXES = (".avi", ".mkv", ".mov", ".mp4", ".webm")


def find_videos(folder: Path) -> list[Path]:
    """The videos below a folder."""
    if not folder.is_dir():
        raise InvalidFile(folder, "is no folder")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise InvalidFile(folder, f"has no videos ({', '.join(SUFFIXES)})")
    return files


def make_clips(args: argparse.Namespace, rank: int) -> list[Path]:
    """Clips of moving texture, which the first rank makes where they are not there."""
    folder = args.folder / "clips"
    if rank == 0:
        with Progress(transient=True) as progress:
            task = progress.add_task("clips of moving texture", total=args.clips)
            write_textures(folder, args.clips, workers=args.workers, done=lambda: progress.advance(task))
    if distributed.is_initialized():
        distributed.barrier()
    return write_textures(folder, args.clips)


def sequences(files: Sequence[Path], frames: int, scale: int, device: str, *, flip: bool = False) -> VideoDataset:
    """Sequences as two tensors: all frames made smaller, and the middle one as it is."""
    size = video_size_from_file(files[0])
    if size.width % scale or size.height % scale:
        raise InvalidFile(files[0], f"is {size.width}x{size.height}, which {scale} does not divide")
    small = {"scale_width": size.width // scale, "scale_height": size.height // scale}
    middle = [-1] * (frames // 2) + [0]
    processing = {
        "input": ProcessDesc(type="half", normalized=True, random_flip=flip, **small),
        "label": ProcessDesc(type="half", normalized=True, random_flip=flip, index_map=middle),
    }
    return VideoDataset(files, frames, processing=processing, device=device)
