"""``framefeed.infer.run``: runs a model over videos, on this machine or on Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from framefeed.errors import InvalidFile
from framefeed.infer.detection.fit import Resize, parse_size
from framefeed.infer.engines import choose_device, model_identity
from framefeed.infer.execution.execute import Executor, InferResult, execute
from framefeed.infer.execution.segments import SEGMENT_FRAMES
from framefeed.infer.execution.worker import InferenceWorker
from framefeed.infer.options import InferOptions
from framefeed.infer.videos import Paths

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from framefeed.infer.ray import RayExecutor, RayOptions

__all__ = ["read_classes", "run"]


def run(
    videos: Paths,
    model: str | os.PathLike[str] | Callable[[Tensor], Any],
    *,
    batch_size: int = 8,
    frame_skip: int = 25,
    output: str | os.PathLike[str] | None = None,
    image_size: int | str | tuple[int, int] | None = None,
    confidence: float = 0.25,
    iou: float = 0.45,
    device: str | torch.device = "auto",
    classes: Sequence[str] | str | os.PathLike[str] | None = None,
    max_batches: int | None = None,
    resize: Resize = "letterbox",
    layout: str = "auto",
    max_detections: int = 300,
    fallback: Literal["cpu"] | None = None,
    provider: Literal["cuda", "tensorrt"] = "cuda",
    trust_model: bool = False,
    num_threads: int | None = None,
    memory_budget: int | str | None = None,
    segment_frames: int = SEGMENT_FRAMES,
    restart: bool = False,
    progress: bool | None = None,
    ray: RayOptions | str | bool | None = None,
) -> InferResult:
    """Runs a detector over videos.

    Frames are decoded ahead, resized and passed to the model on the device. Boxes left after suppression become rows
    with the video, the frame's number and time, the box in pixels of the upright frame, score and class.

    With an ``output``, rerun the same call to resume an interrupted run.

    Args:
        videos: Files, folders, patterns, catalogs and packet stores.
        model: An ``.onnx``, ``.pt2``, TorchScript or TensorRT file, ``"module:name"``, or a callable that takes frames
            (n, 3, height, width) with values from 0 to 1.
        batch_size: Frames in a batch.
        frame_skip: 25 uses every 25th frame: 0, 25, 50 ...; 1 uses all. Other frames are decoded only where needed as
            references.
        output: A ``.csv`` or ``.parquet`` file; None returns the rows.
        image_size: Input size for models that accept any: 960, ``"960x544"`` (width x height) or (height, width).
        confidence: Lowest score to keep.
        iou: Boxes of one class that overlap more are suppressed.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"`` for a GPU if one is usable.
        classes: Class names, or a file with one name per line; None uses the names stored in the model.
        max_batches: Stop after this number of batches.
        resize: ``"letterbox"`` keeps the aspect ratio, ``"stretch"`` does not.
        layout: Layout of the model's outputs: ``"auto"``, or one of
            ``framefeed.infer.detection.layouts.LAYOUTS``.
        max_detections: Largest number of boxes in a frame.
        fallback: ``"cpu"`` decodes videos that the GPU does not support on the CPU; the default with ``device="auto"``.
        provider: ONNX Runtime provider on a GPU.
        trust_model: Allows the model file to run code of its own while loading.
        num_threads: Number of decoding threads; None is one per CPU.
        memory_budget: See ``VideoLoader``.
        segment_frames: Approximate number of frames that are processed, written and resumed as a unit.
        restart: Discards the complete or partial output of another run.
        progress: Shows progress; None does on a terminal.
        ray: Runs on Ray instead: True for Ray on this machine, an address, or ``RayOptions``.
        ray: Where to run instead of here: True for a Ray on this machine, an address, or ``RayOptions``.

    Raises:
        ModelError: The model cannot be used.
        InvalidFile: None of the videos can be used.
        StateError: The output belongs to another run.
        OutputError: The output cannot be written; finished segments are kept.
    """
    with ExitStack() as stack:
        elsewhere = _on_ray(model, ray, stack)
        chosen = str(choose_device(device, model)) if elsewhere is None else elsewhere.choose_device(str(device))
        options = InferOptions(
            batch_size=batch_size,
            frame_skip=frame_skip,
            image_size=parse_size(image_size) if image_size is not None else None,
            confidence=confidence,
            iou=iou,
            resize=resize,
            layout=layout,
            max_detections=max_detections,
            max_batches=max_batches,
            classes=read_classes(classes),
            device=chosen,
            fallback="cpu" if device == "auto" else fallback,
            provider=provider,
            trust_model=trust_model,
            num_threads=num_threads,
            memory_budget=memory_budget,
            segment_frames=segment_frames,
        )

        def make_executor() -> Executor:
            if elsewhere is not None:
                return elsewhere.use(options)
            worker = InferenceWorker(model, options)
            stack.callback(worker.close)
            return worker

        identity = {**model_identity(model), **options.identity()}
        return execute(videos, options, identity, make_executor, output=output, restart=restart, progress=progress)


def _on_ray(model: Any, ray: RayOptions | str | bool | None, stack: ExitStack) -> RayExecutor | None:
    """Connects to Ray until the end of the run; returns None for a run on this machine."""
    if ray is None or ray is False:
        return None
    from framefeed.infer.ray import RayExecutor, ray_options

    executor = RayExecutor(model, ray_options(ray))
    stack.callback(executor.close)
    return executor


def read_classes(classes: Sequence[str] | str | os.PathLike[str] | None) -> tuple[str, ...] | None:
    """Returns class names from a list, or from a file with one name per line.

    Raises:
        InvalidFile: The file cannot be read, or is empty.
    """
    if classes is None:
        return None
    if not isinstance(classes, str | os.PathLike):
        return tuple(str(name) for name in classes)
    try:
        names = [line.strip() for line in Path(classes).read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(classes, f"cannot read class names: {getattr(error, 'strerror', None) or error}") from error
    while names and not names[-1]:
        names.pop()
    if not names:
        raise InvalidFile(classes, "has no class names; expected one name per line")
    return tuple(names)
