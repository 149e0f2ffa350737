"""Batch inference beside its parts, and beside doing one after the other.

On the CPU decoding and the model compete for the same cores. With all cores each for itself, decoding does D frames a
second and the model M; whatever the order of things, both together cannot do more than 1 / (1/D + 1/M). That is the
bound that the whole is compared with. With the cores shared out, one half for each part, the slower part is the bound;
that is measured too. On a GPU decoding has hardware of its own: the slower part is the bound.

"One after the other" is what a plain script does: decode a batch with PyAV, on as many threads as FFmpeg likes, drop
the frames that are not wanted, resize, run the same model, and only then decode the next batch.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.harness import Entry, Work, figure
from framefeed import infer
from framefeed._util.atomic_write import atomic_path, write
from framefeed._util.lazy_property import cached_property
from framefeed._util.limits import available_cpus
from framefeed.convert.desc import ProcessDesc
from framefeed.dataset import VideoDataset
from framefeed.device import resolve_device
from framefeed.errors import FramefeedError
from framefeed.index import VideoIndex
from framefeed.infer.detection.detect import Detector
from framefeed.infer.detection.fit import fit_frames
from framefeed.infer.engines import open_engine
from framefeed.infer.execution.execute import execute
from framefeed.infer.execution.inference_pool import RunningBatch
from framefeed.infer.execution.worker import FRAMES, InferenceWorker
from framefeed.infer.options import InferOptions
from framefeed.loader import VideoLoader
from framefeed.plan import plan_frames
from framefeed.testing.scenes import scene_painter
from framefeed.testing.shape_detector import ShapeDetector, export, painted_boxes, write_shape_clip

__all__ = ["main"]

BATCH = 8
CONTENTS = 2
PLAIN_CLIPS = 2  # the plain script's rate does not depend on how many there are
AT_LEAST = {"of_bound": 0.9, "vs_one_after_the_other": 1.4}


@dataclass(frozen=True)
class Case:
    """Clips and a model.

    Attributes:
        name: What tables call it.
        width, height, frames, gop: Of each clip.
        files: How many clips.
        skip: Every so many frames one is taken.
        size: (height, width) of the model's input.
        work, channels: How much the model costs; see ``ShapeDetector``.
    """

    name: str
    width: int
    height: int
    frames: int
    gop: int
    files: int
    skip: int
    size: tuple[int, int]
    work: int
    channels: int

    @property
    def title(self) -> str:
        """In words."""
        count = f"{self.files} clips" if self.files > 1 else "one clip"
        clips = f"{count} H.264 {self.width}x{self.height}, groups of {self.gop} with B-frames"
        return f"{clips}, every {self.skip}th frame, model {self.size[1]}x{self.size[0]}"


# On the CPU the model costs about as much as decoding does, where overlapping gains most, and about a third of it. On a
# GPU decoding is the slower part of the first case, and the model that of the second.
CPU_CASES = (
    Case("every 25th", 1280, 720, 1000, 250, 2, 25, (384, 640), 8, 16),
    Case("every 5th", 1280, 720, 1000, 250, 1, 5, (384, 640), 3, 16),
)
GPU_CASES = (
    Case("every 25th", 1280, 720, 1000, 250, 48, 25, (640, 640), 12, 64),
    Case("every 5th", 1280, 720, 1000, 250, 24, 5, (640, 640), 20, 64),
)
SMOKE_CASES = (Case("smoke", 192, 128, 60, 20, 2, 5, (128, 192), 1, 4),)


def main(argv: list[str] | None = None) -> int:
    """Runs the benchmark; 0 when all boxes were right."""
    parser = harness.make_parser("inference", (__doc__ or "").split("\n\n")[0], repeat=3)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--only", nargs="+", help="cases by their names (default: all)")
    clips = Path(".bench") / "inference"
    parser.add_argument("--clips", type=Path, default=clips, help="where clips are kept (default: .bench/inference)")
    parser.add_argument("--only-clips", action="store_true", help="write the clips, and measure nothing")
    parser.add_argument("--smoke", action="store_true", help="tiny clips: does it all run?")
    arguments = parser.parse_args(argv)
    console = harness.make_console()
    try:
        device = resolve_device(arguments.device)
    except FramefeedError as error:
        console.print(str(error), markup=False)
        return 2
    cases = SMOKE_CASES if arguments.smoke else GPU_CASES if device.type == "cuda" else CPU_CASES
    settings = {"device": str(device), "batch_size": BATCH, "repeat": arguments.repeat}
    document = harness.begin("inference", argv, cpus=available_cpus(), configuration=settings, at_least=AT_LEAST)
    document["machine"] |= harness.gpu_name(device)
    for case in cases:
        if arguments.only and case.name not in arguments.only:
            continue
        with console.status(f"{case.name}: clips"):
            material = Material(case, arguments.clips, device)
        if arguments.only_clips:
            continue
        earlier, result = document["results"], {}
        for result in map(harness.stamped, _measure(material, arguments.repeat, console)):
            document["results"] = [*earlier, result]
            harness.save(arguments.output, document)  # after each turn
        console.print(_table(case, result))
    return 1 if any(result["wrong_boxes"] for result in document["results"]) else 0


class Material:
    """A case's clips and model.

    Args:
        case: What to measure.
        folder: Where clips are kept.
        device: Where it runs.
    """

    def __init__(self, case: Case, folder: Path, device: torch.device) -> None:
        self.case = case
        self.device = device
        own = folder / f"{case.width}x{case.height}-{case.frames}-gop{case.gop}"
        self.clips = [own / f"{number}.mp4" for number in range(case.files)]
        for number, path in enumerate(self.clips):
            if not path.exists():
                self._write(path, number)
        suffix = "onnx" if device.type == "cpu" else "pt2"
        self.model = own / f"model-{case.size[0]}x{case.size[1]}-{case.work}-{case.channels}.{suffix}"
        if not self.model.exists():
            detector = ShapeDetector(*case.size, work=case.work, channels=case.channels)
            with atomic_path(self.model) as part:
                export(detector.half() if device.type == "cuda" else detector, part)
        self.fit = fit_frames((case.height, case.width), case.size)
        self.sampled = list(range(0, case.frames, case.skip))
        self.num_frames = len(self.sampled) * case.files

    def _write(self, path: Path, number: int) -> None:
        """A scene as the other benchmarks have it, with rectangles; a few contents, each under several names."""
        case, seed = self.case, number % CONTENTS
        if number >= CONTENTS:
            write(path, self.clips[seed].read_bytes())
            return
        write_shape_clip(
            path,
            frames=case.frames,
            width=case.width,
            height=case.height,
            seed=seed,
            gop=case.gop,
            bframes=3,
            threads=available_cpus(),
            background=scene_painter(case.width, case.height, seed=seed),
            options={"x264-params": f"keyint={case.gop}:min-keyint={case.gop}:scenecut=0"},
        )

    def worker(self, num_threads: int) -> InferenceWorker:
        """A model that is loaded."""
        threads = None if self.device.type == "cuda" else num_threads
        device = str(self.device)
        return InferenceWorker(
            self.model, InferOptions(batch_size=BATCH, frame_skip=self.case.skip, device=device, num_threads=threads)
        )

    @cached_property
    def first_batch(self) -> torch.Tensor:
        """Frames with something to be found in them."""
        frames = self._frames(None)
        first = next(frames).clone()
        self._synchronize()
        frames.close()
        return first

    # --- the ways -------------------------------------------------------------------------------------------------

    def decode(self, num_threads: int | None) -> int:
        """Frames as the model gets them, and no model."""
        count = sum(len(batch) for batch in self._frames(num_threads))
        self._synchronize()
        return count

    def _frames(self, num_threads: int | None) -> Generator[torch.Tensor, None, None]:
        desc = ProcessDesc(type="byte", scale_height=self.fit.scaled[0], scale_width=self.fit.scaled[1])
        dataset = VideoDataset(self.clips, processing={FRAMES: desc}, device=self.device)
        numbers = np.arange(len(dataset)).reshape(self.case.files, -1)[:, :: self.case.skip].ravel().tolist()
        batches = [numbers[low : low + BATCH] for low in range(0, len(numbers), BATCH)]
        for batch in VideoLoader(dataset, batch_sampler=batches, num_threads=num_threads):
            yield batch[FRAMES][:, 0]

    def run_model(self, worker: InferenceWorker) -> int:
        """The model, and what is made of its outputs, on frames that are there: those of the first batch."""
        frames = self.first_batch
        with worker.on_stream():
            running: list[RunningBatch] = []
            for _ in range(0, self.num_frames, BATCH):
                running.append(worker.runner.submit(frames, self.fit))
                if len(running) > worker.runner.depth:
                    running.pop(0).result()
            for each in running:
                each.result()
        self._synchronize()
        return -(-self.num_frames // BATCH) * BATCH

    def whole(self, worker: InferenceWorker, folder: Path) -> int:
        """All of it, from the files to a file; only the model is there already, as in a run over many files."""
        output = folder / "found.csv"
        result = execute(self.clips, worker.options, {}, lambda: worker, output=output, restart=True, progress=False)
        return result.num_frames

    def plain_detector(self) -> Detector:
        """The model as a plain script has it: all cores for one batch."""
        engine = open_engine(self.model, self.device, num_threads=available_cpus())
        return Detector(engine, self.case.size, self.device, batch_size=BATCH)

    def one_after_the_other(self, detector: Detector) -> int:
        """Runs a plain script; returns the number of frames."""
        count = 0
        for path in self.clips[:PLAIN_CLIPS]:
            with av.open(str(path)) as container:
                container.streams.video[0].thread_type = "AUTO"
                wanted = itertools.islice(container.decode(video=0), 0, None, self.case.skip)
                for batch in _batches(wanted):
                    pictures = np.stack([self._picture(frame) for frame in batch])
                    frames = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous().to(self.device)
                    detector.collect(detector.launch(frames, self.fit))
                    count += len(batch)
        return count

    def _picture(self, frame: av.VideoFrame) -> Any:
        height, width = self.fit.scaled
        return frame.reformat(width, height, "rgb24", interpolation="BILINEAR").to_ndarray()

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    # --- right? ---------------------------------------------------------------------------------------------------

    def check(self) -> tuple[int, int, int]:
        """Boxes that are wrong, packets that the plan has, and those that were decoded."""
        found = infer.run(
            self.clips, self.model, batch_size=BATCH, frame_skip=self.case.skip, device=self.device, progress=False
        )
        planned = sum(plan_frames(VideoIndex.scan(path).packets, self.sampled).num_packets for path in self.clips)
        return self._wrong_boxes(found), planned, int(found.stats["packets_decoded"])

    def _wrong_boxes(self, found: infer.InferResult) -> int:
        """Painted rectangles that were not found, or not where they are, and what was found besides."""
        assert found.rows is not None
        rows: dict[tuple[str, int, int], list[Any]] = {}
        for row in found.rows.to_pylist():
            key = (row["video"], row["frame_index"], row["class"])
            rows.setdefault(key, []).append([row[side] for side in ("x1", "y1", "x2", "y2")])
        wrong = 0
        for file, path in enumerate(self.clips):
            for number in self.sampled:
                for box in painted_boxes(number, self.case.width, self.case.height, seed=file % CONTENTS):
                    boxes = rows.pop((str(path), number, box.class_id), [])
                    wrong += len(boxes) != 1 or _overlap(boxes[0], list(box[:4])) < 0.9
        return wrong + len(rows)


def _batches(frames: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(itertools.islice(frames, BATCH)):
        yield batch


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    common = max(0.0, wide) * max(0.0, high)
    return common / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common)


def _measure(material: Material, repeat: int, console: Console) -> Iterator[dict[str, Any]]:
    """Checks the boxes, then times all ways in turn, so that a disturbance does not hit one alone.

    Yields:
        The result so far, after each turn.
    """
    case, cpus = material.case, available_cpus()
    on_gpu = material.device.type == "cuda"
    wrong, planned, decoded = material.check()
    every, plain = material.worker(cpus), material.plain_detector()
    threads = None if on_gpu else cpus
    with tempfile.TemporaryDirectory() as folder, console.status(case.name) as status:
        entries = [
            Entry("decode", Work(lambda: material.decode(threads))),
            Entry("model", Work(lambda: material.run_model(every))),
            Entry("whole", Work(lambda: material.whole(every, Path(folder)))),
            Entry("one after the other", Work(lambda: material.one_after_the_other(plain))),
        ]
        if not on_gpu and cpus > 1:
            half = material.worker(cpus // 2)
            entries += [
                Entry("decode, half the cores", Work(lambda: material.decode(cpus // 2))),
                Entry("model, half the cores", Work(lambda: material.run_model(half))),
            ]
        for entry in entries:
            entry.contender.run(0)  # warms up
        for _ in harness.in_turns(entries, repeat, say=lambda text: status.update(f"{case.name}: {text}")):
            yield _result(case, entries, wrong, planned, decoded)


def _result(case: Case, entries: Sequence[Entry], wrong: int, planned: int, decoded: int) -> dict[str, Any]:
    medians = {entry.name: entry.median for entry in entries}
    turns = [dict(zip(medians, rates, strict=True)) for rates in zip(*(entry.rates for entry in entries), strict=True)]
    shared = "decode, half the cores" in medians
    bounds = [_bound(turn, shared) for turn in turns]
    ratios = {
        "of_bound": statistics.median(turn["whole"] / bound for turn, bound in zip(turns, bounds, strict=True)),
        "vs_one_after_the_other": statistics.median(turn["whole"] / turn["one after the other"] for turn in turns),
    }
    if shared:
        ratios["of_slower_with_half_the_cores_each"] = statistics.median(
            turn["whole"] / min(turn["decode, half the cores"], turn["model, half the cores"]) for turn in turns
        )
    return {
        "case": case.name,
        "on": case.title,
        "wrong_boxes": wrong,
        "packets_planned": planned,
        "packets_decoded": decoded,
        "packets_of_all_frames": case.frames * case.files,
        "unit": "frames/s",
        "rates": {entry.name: [round(rate, 2) for rate in entry.rates] for entry in entries},
        "medians": {name: round(rate, 2) for name, rate in medians.items()},
        "cpu_ms_per_frame": {entry.name: round(_cpu_ms(entry), 2) for entry in entries},
        "bound": round(statistics.median(bounds), 2),
        **{name: round(ratio, 3) for name, ratio in ratios.items()},
    }


def _cpu_ms(entry: Entry) -> float:
    """Milliseconds of all CPUs for each frame: other processes on the machine change it little."""
    return statistics.median(1000 * (run.cpu_seconds or 0.0) / run.frames for run in entry.runs)


def _bound(rates: dict[str, float], shared: bool) -> float:
    """Returns the rate that no order of things can exceed; see the top of this file."""
    if shared:
        return 1 / (1 / rates["decode"] + 1 / rates["model"])
    return min(rates["decode"], rates["model"])


def _table(case: Case, result: dict[str, Any]) -> Table:
    rows = [
        (name, figure(result["medians"][name]), figure(max(rates)), figure(result["cpu_ms_per_frame"][name]))
        for name, rates in result["rates"].items()
    ]
    rows.append(("bound", figure(result["bound"]), "", ""))
    for name in ("of_bound", "vs_one_after_the_other", "of_slower_with_half_the_cores_each"):
        if name in result:
            least = AT_LEAST.get(name)
            goal = "" if least is None else f"at least {least}"
            rows.append((f"whole {name.replace('_', ' ')}", figure(result[name], 2), goal, ""))
    rows.append(("wrong boxes", str(result["wrong_boxes"]), "", ""))
    rows.append(("packets decoded, planned", f"{result['packets_decoded']:,}", f"{result['packets_planned']:,}", ""))
    return harness.table(f"{case.name}: {case.title}", ["way"], ["median frames/s", "best", "CPU ms/frame"], rows)


if __name__ == "__main__":
    sys.exit(main())
