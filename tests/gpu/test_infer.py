"""Batch inference on a GPU: right boxes for every format, no more decoding than planned, no frame on the host."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from framefeed import VideoIndex, infer
from framefeed.infer.execution.segments import sampled_frames
from framefeed.plan import plan_frames
from framefeed.testing.shape_detector import Painted, ShapeDetector, export, painted_boxes, write_shape_clip

WIDTH, HEIGHT = 320, 240
SIZE = (256, 320)
SKIP = 7
FRAME_BYTES = 3 * WIDTH * HEIGHT

# What may be copied to the host at once: candidates and results. A frame, or a batch's input, is much more.
MAX_COPIED = 32 << 10


@pytest.fixture(scope="module")
def cuda(device: torch.device) -> torch.device:
    if device.type != "cuda":
        pytest.skip("needs a real GPU")
    return device


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("infer")


@pytest.fixture(scope="module")
def clips(folder: Path) -> list[Path]:
    shape: dict[str, Any] = {"frames": 60, "width": WIDTH, "height": HEIGHT, "gop": 20, "bframes": 2}
    return [write_shape_clip(folder / f"{seed}.mp4", seed=seed, **shape) for seed in range(3)]


def _module(folder: Path) -> Any:
    return ShapeDetector(*SIZE)


def _exported(suffix: str, half: bool = False) -> Callable[[Path], Any]:
    def make(folder: Path) -> Path:
        detector = ShapeDetector(*SIZE)
        return export(detector.half() if half else detector, folder / f"shapes{'_half' if half else ''}{suffix}")

    return make


def _onnx(folder: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        pytest.skip("this ONNX Runtime cannot use a GPU")
    pytest.importorskip("onnx", reason="needs onnx to write the model")
    return export(ShapeDetector(*SIZE), folder / "shapes.onnx")


MODELS: dict[str, Callable[[Path], Any]] = {
    "pt2": _exported(".pt2"),
    "pt2, half": _exported(".pt2", half=True),
    "torchscript": _exported(".ts"),
    "callable": _module,
    "onnx": _onnx,
}


def run(clips: list[Path], model: Any, device: Any, **more: Any) -> infer.InferResult:
    return infer.run(
        clips, model, **{"frame_skip": SKIP, "batch_size": 4, "image_size": SIZE, "device": device, **more}
    )


def overlap(row: dict[str, Any], box: Painted) -> float:
    wide = min(row["x2"], box.x2) - max(row["x1"], box.x1)
    high = min(row["y2"], box.y2) - max(row["y1"], box.y1)
    common = max(0.0, wide) * max(0.0, high)
    area = (row["x2"] - row["x1"]) * (row["y2"] - row["y1"]) + (box.x2 - box.x1) * (box.y2 - box.y1)
    return float(common / (area - common))


def check_rows(result: infer.InferResult, clips: list[Path], least: float = 0.9) -> None:
    assert result.rows is not None and not result.errors
    rows = {(row["video"], row["frame_index"], row["class"]): row for row in result.rows.to_pylist()}
    assert len(rows) == result.num_rows
    for seed, path in enumerate(clips):
        for frame in sampled_frames(60, SKIP).tolist():
            for box in painted_boxes(frame, WIDTH, HEIGHT, seed=seed):
                assert overlap(rows.pop((str(path), frame, box.class_id)), box) >= least
    assert not rows


@pytest.mark.parametrize("kind", MODELS)
def test_every_format_finds_what_is_painted(cuda: torch.device, clips: list[Path], folder: Path, kind: str) -> None:
    check_rows(run(clips, MODELS[kind](folder), cuda), clips)


def test_as_on_the_cpu(cuda: torch.device, clips: list[Path], folder: Path) -> None:
    model = MODELS["pt2"](folder)
    for device in (cuda, "cpu"):
        run(clips, model, device, output=folder / f"{torch.device(device).type}.csv", restart=True)
    found = infer.diff(folder / "cuda.csv", folder / "cpu.csv", iou=0.9, tolerance=2.0, score_tolerance=0.05)
    assert found.equal, found


def test_only_what_the_plan_has_is_decoded(cuda: torch.device, folder: Path) -> None:
    shape: dict[str, Any] = {"width": WIDTH, "height": HEIGHT, "gop": 250, "bframes": 3}
    path = write_shape_clip(folder / "long.mp4", frames=600, **shape)
    planned = plan_frames(VideoIndex.scan(path).packets, sampled_frames(600, 25)).num_packets
    assert planned < 0.9 * 600  # there is something to be saved
    result = run([path], ShapeDetector(*SIZE), cuda, frame_skip=25, batch_size=8)
    assert result.num_frames == 24
    assert result.stats["packets_decoded"] <= planned


def traced_copies(job: Callable[[], Any], path: Path) -> list[int]:
    """Bytes of each copy from the device to the host while it runs, whoever made it, as the driver tells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler's remarks on itself differ from version to version
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], acc_events=True) as trace:
            job()
            torch.cuda.synchronize()
        trace.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    copies = [event for event in events if event.get("cat") == "gpu_memcpy" and "DtoH" in event["name"]]
    return [int(event["args"]["bytes"]) for event in copies]


class TorchCopies(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of each copy from the device to the host that torch makes in this thread, by what torch itself is told."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.copies: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        sources = [each for each in args if isinstance(each, Tensor) and each.device.type == "cuda"]
        if sources and isinstance(found, Tensor) and found.device.type == "cpu":
            self.copies.append(found.numel() * found.element_size())
        return found


def torch_copies(job: Callable[[], Any], path: Path) -> list[int]:
    mode = TorchCopies()
    with mode:
        job()
    return mode.copies


COPIES = {"traced": traced_copies, "told by torch": torch_copies}


@pytest.mark.parametrize(("how", "kind"), [("traced", "pt2"), ("traced", "callable"), ("told by torch", "callable")])
def test_no_frame_is_copied_to_the_host(
    cuda: torch.device, clips: list[Path], folder: Path, tmp_path: Path, how: str, kind: str
) -> None:
    model = MODELS[kind](folder)
    run(clips, model, cuda)  # what is loaded once does not count
    results: list[infer.InferResult] = []
    copies = COPIES[how](lambda: results.append(run(clips, model, cuda)), tmp_path / "trace.json")
    check_rows(results[0], clips)
    assert copies, "what was found has to come over somehow"
    assert max(copies) <= MAX_COPIED < FRAME_BYTES
    assert sum(copies) < FRAME_BYTES * results[0].num_frames / 10


@pytest.mark.parametrize("how", COPIES)
def test_a_frame_that_is_copied_would_be_noticed(
    cuda: torch.device, clips: list[Path], tmp_path: Path, how: str
) -> None:
    detector = ShapeDetector(*SIZE).to(cuda)

    def model(batch: Tensor) -> Any:
        return detector(batch.cpu().to(cuda))

    assert max(COPIES[how](lambda: run(clips[:1], model, cuda), tmp_path / "trace.json")) > MAX_COPIED


def test_what_the_gpu_cannot_decode(cuda: torch.device, clips: list[Path], folder: Path) -> None:
    other = write_shape_clip(
        folder / "3.avi", frames=60, width=WIDTH, height=HEIGHT, seed=3, codec="mpeg4", options={"b": "4000k"}
    )
    result = run([*clips, other], ShapeDetector(*SIZE), cuda)
    assert [bad.path for bad in result.errors] == [str(other)]
    assert "mpeg4" in result.errors[0].reason
    check_rows(run([*clips, other], ShapeDetector(*SIZE), cuda, fallback="cpu"), [*clips, other])
