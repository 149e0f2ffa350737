"""``framefeed frames``: writes selected frames as PNG files."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefeed.cli import arguments
from framefeed.cli.arguments import comma_separated, expected, integer

if TYPE_CHECKING:
    from framefeed import Frame, VideoDecoder

__all__ = ["add_parser"]

CHUNK_BYTES = 128 << 20  # RGB frames held at once
_numbers = comma_separated(integer)
_seconds = comma_separated(arguments.number("a number of seconds", -math.inf))


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "frames",
        help="write selected frames as PNG",
        description="Writes frames as NAME_000017.png, where NAME is the video's and 17 the frame's number. "
        "Existing files are overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", help="a video")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--at", metavar="N,N...", type=_numbers, help="frame numbers, as 0,17,-1; negative from the end")
    which.add_argument("--range", metavar="A:B[:STEP]", type=_slice, help="frames A, A+STEP ... before B, as 0:100:10")
    which.add_argument("--time", metavar="S,S...", type=_seconds, help="the frames shown at these seconds, as 1.5,2.0")
    parser.add_argument("-o", "--output", metavar="FOLDER", type=Path, default=Path(), help="default: this folder")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    from framefeed import VideoDecoder
    from framefeed.cli import console

    decoder = VideoDecoder(args.file, dimension_order="NHWC")
    numbers = _chosen(decoder, args)
    args.output.mkdir(parents=True, exist_ok=True)
    written = []
    with console.progress(args.file, show=not args.json) as report:
        for number, frame in _read(decoder, numbers):
            path = args.output / f"{Path(args.file).stem}_{number:06d}.png"
            written.append(_write(path, number, frame))
            report(len(written), len(numbers))
    if args.json:
        console.print_json({"file": args.file, "frames": written})
        return 0
    rows = [(item["frame"], f"{item['pts_seconds']:.3f}", item["path"]) for item in written]
    console.print_table(console.make_table(("frame", "at second", "written"), rows, title=args.file))
    return 0


def _slice(text: str) -> slice:
    parts = text.split(":")
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or (len(numbers) == 3 and numbers[2] == 0):
        raise expected("a range as 0:100, 0:100:10, :50 or -10:", text)
    return slice(*numbers)


def _chosen(decoder: VideoDecoder, args: argparse.Namespace) -> list[int]:
    """Returns distinct frame numbers, rising, so that each group is decoded once. Raises before any file is written."""
    count = len(decoder)
    if args.range is not None:
        return sorted(_in_range(args, count))
    chosen = (
        _played_at(decoder, args) if args.at is None else [_frame_number(number, count, args) for number in args.at]
    )
    return sorted(set(chosen))


def _in_range(args: argparse.Namespace, count: int) -> range:
    from framefeed import FrameIndexError

    chosen: range = range(count)[args.range]
    if not chosen:
        ends = (args.range.start, args.range.stop, *([args.range.step] if args.range.step is not None else ()))
        text = ":".join("" if end is None else str(end) for end in ends)
        raise FrameIndexError(args.file, f"no frames in the range {text}; frames are 0..{count - 1}")
    return chosen


def _frame_number(number: int, count: int, args: argparse.Namespace) -> int:
    from framefeed import FrameIndexError

    if not -count <= number < count:
        raise FrameIndexError(args.file, f"no frame {number}; frames are 0..{count - 1}")
    return number % count


def _played_at(decoder: VideoDecoder, args: argparse.Namespace) -> list[int]:
    import numpy as np

    from framefeed import FrameTimeError

    begin, end = decoder.index.begin_seconds, decoder.index.end_seconds
    for time in args.time:
        if not begin <= time < end:
            raise FrameTimeError(args.file, f"no frame at {time} s; the video is shown from {begin} s to {end} s")
    begins = decoder.index.pts_seconds(np.arange(len(decoder)))
    return [int(place) - 1 for place in np.searchsorted(begins, args.time, side="right")]


def _read(decoder: VideoDecoder, numbers: list[int]) -> Iterator[tuple[int, Frame]]:
    """Yields frames, many at a time within bounded memory."""
    from framefeed import Frame, FrameSizeError

    height, width = decoder.index.stream.display_size
    size = max(1, CHUNK_BYTES // max(1, 3 * height * width))
    for start in range(0, len(numbers), size):
        chunk = numbers[start : start + size]
        try:
            batch = decoder.get_frames_at(chunk)
        except FrameSizeError:  # the size changes in mid-stream: read frames one by one
            yield from ((number, decoder.get_frame_at(number)) for number in chunk)
            continue
        times = zip(batch.pts_seconds.tolist(), batch.duration_seconds.tolist(), strict=True)
        for number, data, (begin, duration) in zip(chunk, batch.data, times, strict=True):
            yield number, Frame(data, begin, duration)


def _write(path: Path, number: int, frame: Frame) -> dict[str, Any]:
    from framefeed import OutputError
    from framefeed._util.atomic_write import write
    from framefeed.cli.commands.png import encode_png

    height, width, _ = frame.data.shape
    picture = encode_png(frame.data.numpy())
    try:
        write(path, picture)
    except OSError as error:
        raise OutputError(path, f"cannot be written ({error.strerror or error})") from error
    return {
        "frame": number,
        "pts_seconds": frame.pts_seconds,
        "width": width,
        "height": height,
        "path": str(path),
    }
