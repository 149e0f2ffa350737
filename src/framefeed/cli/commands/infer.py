"""``framefeed infer``: runs a detector over videos; writes rows to a CSV or Parquet file."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from framefeed.cli.arguments import count, expected, number, search_here

if TYPE_CHECKING:
    from framefeed.infer import InferResult

__all__ = ["add_parser"]

ALL_GOOD, SOME_BAD, NOTHING_DONE, INTERRUPTED = 0, 1, 2, 130
SHOWN = 20  # bad videos printed; JSON has all
_share = number("a number from 0 to 1", 0, 1)
LAYOUTS = ("auto", "yolo", "yolo-last", "yolov5", "end2end", "boxes")


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "infer",
        help="run a detector over videos",
        description="Decodes every N-th frame, runs a model on batches of frames, suppresses overlapping boxes, and "
        "writes the rest as rows. Rerun the command to resume an interrupted run.",
        epilog="exit codes: 0 success, 1 some videos could not be used or lack frames (they are listed), 2 nothing "
        "could be done, 130 interrupted",
        allow_abbrev=False,
    )
    parser.add_argument("videos", metavar="VIDEO", nargs="+", help="videos, folders, patterns, catalogs, packet stores")
    parser.add_argument(
        "--model", metavar="MODEL", required=True, help=".onnx, .pt2, TorchScript, .engine, .trt or module:function"
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=_output, required=True, help=".csv or .parquet")
    parser.add_argument("--batch-size", metavar="N", type=count, default=8, help="frames in a batch (8)")
    parser.add_argument("--frame-skip", metavar="N", type=count, default=25, help="every N-th frame (25); 1 for all")
    parser.add_argument("--image-size", metavar="SIZE", type=_size, help="model input size: 960 or 960x544")
    parser.add_argument("--confidence", metavar="SCORE", type=_share, default=0.25, help="lowest score (0.25)")
    parser.add_argument("--iou", metavar="SHARE", type=_share, default=0.45, help="overlap to suppress (0.45)")
    parser.add_argument(
        "--device", type=_device, default="auto", help="cpu, cuda, cuda:N, or auto (a GPU if one is usable)"
    )
    parser.add_argument("--classes", metavar="FILE", type=Path, help="class names, one per line")
    parser.add_argument("--max-batches", metavar="N", type=count, help="stop after N batches")
    parser.add_argument("--resize", choices=("letterbox", "stretch"), default="letterbox", help="how frames are fitted")
    parser.add_argument("--layout", choices=LAYOUTS, default="auto", help="layout of the model's outputs")
    parser.add_argument("--max-detections", metavar="N", type=count, default=300, help="limit per frame (300)")
    parser.add_argument("--fallback", choices=("cpu",), help="where to decode videos that the GPU does not support")
    parser.add_argument("--provider", choices=("cuda", "tensorrt"), default="cuda", help="for ONNX models on a GPU")
    parser.add_argument("--trust-model", action="store_true", help="allow the model file to run code of its own")
    parser.add_argument("--threads", metavar="N", type=count, help="decoding threads (one per CPU)")
    parser.add_argument("--restart", action="store_true", help="discard the output of another run")
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        nargs="?",
        const="local",
        type=_ray_address,
        help="run on Ray: on this machine, or at an address",
    )
    parser.add_argument("--ray-workers", metavar="N", type=_workers, help="copies of the model on Ray: 4, or 2:16")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="print only bad videos")
    parser.set_defaults(run=run, fail=parser.error)


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    if args.ray_workers is not None and args.ray is None:
        args.fail("--ray-workers needs --ray")
    from framefeed import FramefeedError, infer
    from framefeed.infer.engines.call import is_callable_name

    if is_callable_name(args.model):
        search_here()
    ray = None
    if args.ray is not None:
        low, high = args.ray_workers or (None, None)
        ray = infer.RayOptions(address=None if args.ray == "local" else args.ray, min_workers=low, max_workers=high)
    try:
        result = infer.run(
            args.videos,
            args.model,
            batch_size=args.batch_size,
            frame_skip=args.frame_skip,
            output=args.output,
            image_size=args.image_size,
            confidence=args.confidence,
            iou=args.iou,
            device=args.device,
            classes=args.classes,
            max_batches=args.max_batches,
            resize=args.resize,
            layout=args.layout,
            max_detections=args.max_detections,
            fallback=args.fallback,
            provider=args.provider,
            trust_model=args.trust_model,
            num_threads=args.threads,
            restart=args.restart,
            progress=False if args.json or args.quiet else None,  # None: on a terminal
            ray=ray,
        )
    except FramefeedError:
        raise
    except ValueError as error:  # incompatible arguments, or a missing GPU
        args.fail(str(error))
    except KeyboardInterrupt:
        same = "the same command without --restart" if args.restart else "the same command"
        sys.stderr.write(f"framefeed: interrupted; rerun {same} to resume\n")
        return INTERRUPTED
    _report(args, result)
    if result.errors and not result.num_frames:
        return NOTHING_DONE
    return SOME_BAD if result.errors else ALL_GOOD


def _report(args: argparse.Namespace, result: InferResult) -> None:
    from framefeed.cli import console

    if args.json:
        console.print_json(
            {
                "output": str(result.output),
                "videos": result.num_videos,
                "frames": result.num_frames,
                "rows": result.num_rows,
                "resumed_frames": result.resumed_frames,
                "frames_lost": result.frames_lost,
                "seconds": round(result.seconds, 3),
                "frames_per_second": round(result.frames_per_second, 2),
                "device": result.device,
                "stats": result.stats,
                "bad": [{"file": bad.path, "reason": bad.reason} for bad in result.errors],
            }
        )
        return
    if not args.quiet:
        columns = ("output", "videos", "frames", "rows", "device", "seconds", "frames/s")
        rate = result.frames_per_second if result.num_frames > result.resumed_frames else None
        row = (str(result.output), result.num_videos, result.num_frames, result.num_rows, result.device)
        console.print_table(console.make_table(columns, [(*row, result.seconds, rate)]))
        if result.resumed_frames:
            console.print_lines(f"{result.resumed_frames:,} of these frames were resumed from an earlier run")
    if result.errors:
        rows = [(bad.path, bad.reason) for bad in result.errors[:SHOWN]]
        console.print_table(console.make_table(("bad video", "reason"), rows))
    if len(result.errors) > SHOWN:
        console.print_lines(f"and {len(result.errors) - SHOWN} more (--json lists them)")


def _device(text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise expected("cpu, cuda, cuda:1 ... or auto", text)
    return text


def _size(text: str) -> str:
    if not re.fullmatch(r"0*[1-9]\d*(x0*[1-9]\d*)?", text):
        raise expected("a size as 960, or 960x544 (width x height)", text)
    return text


def _output(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise expected("a file name that ends in .csv or .parquet", text)
    return path


def _workers(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        pair = count(low), count(high or low)
    except argparse.ArgumentTypeError:
        pair = (1, 0)
    if pair[0] > pair[1]:
        raise expected("a number of workers as 4, or 2:16", text)
    return pair


def _ray_address(text: str) -> str:
    """A video that follows ``--ray`` is taken for its address; told by how it looks."""
    if text not in ("local", "auto") and not re.fullmatch(r"[\w+.-]+://.+|[^/\\]+:\d+", text):
        what = "an address as auto, host:6379 or ray://host:10001 (without one, --ray goes behind the videos)"
        raise expected(what, text)
    return text
