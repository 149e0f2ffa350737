"""``python -m benchmarks.camera_clips FOLDER``: clips of several cameras, laid out as driving data sets are.

Each clip is a folder with one MP4 file for each camera; ``index_frame.json`` beside them says how many frames clips
have. The numbers of the file and of the frame are painted into every picture.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.progress import Progress

from benchmarks.clips import ClipSet, write_files
from framefeed._util.atomic_write import write
from framefeed._util.limits import available_cpus

__all__ = ["CAMERAS", "INDEX", "write_camera_clips"]

CAMERAS = ("CAM_FRONT", "CAM_FRONT_RIGHT", "CAM_FRONT_LEFT", "CAM_BACK", "CAM_BACK_LEFT", "CAM_BACK_RIGHT")
INDEX = "index_frame.json"
VIDEOS = "videos"


def write_camera_clips(
    folder: Path | str,
    *,
    clips: int = 10,
    cameras: int = 6,
    frames: int = 240,
    width: int = 1600,
    height: int = 900,
    gop: int = 30,
    kilobits: int = 6000,
    workers: int = 1,
    done: Callable[[int], object] = lambda files: None,
) -> Path:
    """Writes those files that are not there yet; returns the path of the JSON file that names the clips.

    Args:
        folder: Where.
        clips: How many clips.
        cameras: Cameras of each, at most six.
        frames: Frames of each file.
        width, height: Pixels.
        gop: Distance of keyframes, exactly; there are no B-frames.
        kilobits: A second, at 30 frames.
        workers: Processes; one means this one.
        done: Called with the number of files that have become ready.
    """
    folder = Path(folder)
    names = [f"clip{number:02}" for number in range(clips)]
    paths = [folder / VIDEOS / name / f"{camera}.mp4" for name in names for camera in CAMERAS[:cameras]]
    kind = ClipSet("cameras", "hevc", width, height, gop, frames, 0, kilobits, len(paths))
    write_files([(kind, path, number) for number, path in enumerate(paths)], workers=workers, done=done)
    index = folder / INDEX
    write(index, json.dumps({VIDEOS: dict.fromkeys(names, frames)}, indent=1) + "\n")
    return index


def main(argv: list[str] | None = None) -> int:
    """Writes clips."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.camera_clips", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to put them")
    parser.add_argument("--clips", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--cameras", type=int, default=6, choices=range(1, 7), help="of each clip (default: 6)")
    parser.add_argument("--frames", type=int, default=240, help="of each file (default: 240)")
    parser.add_argument("--size", default="1600x900", help="of frames (default: 1600x900)")
    parser.add_argument("--gop", type=int, default=30, help="distance of keyframes (default: 30)")
    parser.add_argument("--kilobits", type=int, default=6000, help="a second, at 30 frames (default: 6000)")
    args = parser.parse_args(argv)
    width, height = (int(side) for side in args.size.split("x"))
    chosen = {name: getattr(args, name) for name in ("clips", "cameras", "frames", "gop", "kilobits")}
    with Progress() as progress:
        bar = progress.add_task("clips", total=args.clips * args.cameras)
        done = partial(progress.advance, bar)
        size = {"width": width, "height": height}
        index = write_camera_clips(args.folder, **chosen, **size, workers=available_cpus(), done=done)
    print(index)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
