"""Worker: decodes the frames of segments ahead, runs the model, and yields the detections of each."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from framefeed._util.limits import available_cpus
from framefeed._util.process.finalize import closer
from framefeed.catalog import Catalog
from framefeed.convert.desc import ProcessDesc
from framefeed.dataset import VideoDataset
from framefeed.errors import CatalogError, FramefeedError
from framefeed.infer.detection.detect import Detector, input_size, new_stream
from framefeed.infer.detection.fit import Fit, fit_frames
from framefeed.infer.detection.suppress import find_suppressor
from framefeed.infer.engines import open_engine
from framefeed.infer.execution.inference_pool import (
    BatchRunner,
    InferencePool,
    InferenceStream,
    RunningBatch,
    split_threads,
)
from framefeed.infer.execution.segments import Segment
from framefeed.infer.execution.work import Finished, SegmentBatches, VideoRef, WorkerStats
from framefeed.infer.options import InferOptions
from framefeed.loader import VideoLoader

__all__ = ["FRAMES", "InferenceWorker"]

FRAMES = "frames"
MAX_DATASETS = 8  # kept open: each holds the packet tables of its videos


class InferenceWorker:
    """A model, and decoding for it.

    Args:
        model: See ``open_engine``.
        options: See ``InferOptions``; the device must be resolved.

    Attributes:
        options: The options.
        names: Class names stored in the model.
        size: (height, width) of the model's input.
        runner: Runs batches.
        stats: Counters.
    """

    def __init__(self, model: Any, options: InferOptions) -> None:
        self.options = options
        self._device = torch.device(options.device)
        self._datasets: dict[tuple[Any, ...], VideoDataset] = {}
        self._catalogs: dict[str, Catalog | None] = {}
        self._stream = new_stream(self._device) if self._device.type == "cuda" else None
        threads = options.num_threads or available_cpus()
        lanes, threads_of_lane = split_threads(threads)
        with self.on_stream():
            engine = open_engine(
                model,
                self._device,
                trust_model=options.trust_model,
                provider=options.provider,
                # Together all concurrent batches then have that many: each includes its own thread.
                num_threads=threads - lanes + 1,
            )
            self.size = input_size(engine, options.image_size)
            self.names = engine.signature.names
            self._engine = engine
            find_suppressor()
            if self._device.type == "cuda":
                self.runner: BatchRunner = InferenceStream(self.new_detector)
            elif engine.concurrent:
                self.runner = InferencePool(self.new_detector, lanes, threads_of_lane)
            else:  # user code may not support concurrent calls
                self.runner = InferencePool(self.new_detector, 1, 0)
        self.stats = WorkerStats()

    def new_detector(self) -> Detector:
        """Creates a detector; each concurrent batch has one."""
        options = self.options
        names = options.classes or self.names
        return Detector(
            self._engine,
            self.size,
            self._device,
            batch_size=options.batch_size,
            layout=options.layout,
            confidence=options.confidence,
            iou=options.iou,
            max_detections=options.max_detections,
            num_classes=len(names) if names else None,
        )

    @contextlib.contextmanager
    def on_stream(self) -> Iterator[None]:
        """Runs all launches on one stream, which is not the default one."""
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield

    def close(self) -> None:
        """Ends its threads. The worker cannot be used afterwards."""
        self.runner.close()

    def run(
        self,
        segments: Sequence[Segment],
        videos: Sequence[VideoRef],
        advance: Callable[[int, int], None] = lambda video, frames: None,
    ) -> Iterator[Finished]:
        """Runs segments; yields each when it is finished, in the most efficient order.

        Args:
            segments: The segments. The videos of a segment have equal size.
            videos: All videos that they refer to.
            advance: Called with each video and its number of newly finished frames.

        Raises:
            ModelError: The model cannot be used. Errors of videos are part of the results.
        """
        known = {video.number: video for video in videos}
        alike: dict[tuple[str, tuple[int, int]], list[int]] = {}
        for number, segment in enumerate(segments):
            first = known[segment.pieces[0].video]
            alike.setdefault((first.catalog, first.size), []).append(number)
        for (catalog, size), numbers in alike.items():
            chosen = [(number, segments[number]) for number in numbers]
            for finished in self._run_alike(chosen, known, catalog, size, advance):
                finished.classes = self.names
                yield finished

    def _run_alike(
        self,
        segments: Sequence[tuple[int, Segment]],
        known: dict[int, VideoRef],
        catalog: str,
        size: tuple[int, int],
        advance: Callable[[int, int], None],
    ) -> Iterator[Finished]:
        """Runs segments of equal frame size."""
        wanted = dict.fromkeys(piece.video for _, segment in segments for piece in segment.pieces)
        refs = [known[video] for video in wanted]
        dataset, unusable = self._dataset(refs, catalog, fit_frames(size, self.size, self.options.resize))
        work = SegmentBatches(segments, refs, dataset, unusable, self.options, advance)
        loader = None
        if dataset is not None and work.batches:
            loader = VideoLoader(
                dataset,
                batch_sampler=work,
                on_error="skip",
                memory_budget=self.options.memory_budget,
                num_threads=self.options.num_threads,
            )
            yield from self._read(loader, work, fit_frames(size, self.size, self.options.resize))
            self.stats.add(loader.stats())
        yield from work.finish_up_to(None)

    def _read(self, loader: VideoLoader, work: SegmentBatches, fit: Fit) -> Iterator[Finished]:
        """Submits batches as they arrive, and collects detections in order."""
        runner = self.runner
        before = runner.seconds
        with self.on_stream():
            iterator = iter(loader)
        running: deque[tuple[int, list[tuple[str, int]], RunningBatch]] = deque()
        close: Callable[[], None] = iterator.close
        try:
            while True:
                with self.on_stream():
                    batch = next(iterator, None)
                    work.note_bad(loader)
                    if batch is not None:
                        frames = batch[FRAMES][:, 0]
                        self.stats.batches += 1
                        self.stats.frames += len(frames)
                        self.stats.full_batches += len(frames) == self.options.batch_size
                        running.append((iterator.position - 1, batch["labels"], runner.submit(frames, fit)))
                        del frames
                    elif not running:
                        return
                    has_ended = batch is None
                    del batch
                    if not has_ended and len(running) <= runner.depth:
                        continue
                    number, labels, run = running.popleft()
                    work.add(number, labels, run.result(), fit)
                yield from work.finish_up_to(number + 1)
        except GeneratorExit:  # possibly from the garbage collector, in any thread and with any lock held
            close = partial(closer.note, close)
            raise
        finally:
            close()
            for *_, run in running:
                run.cancel()
            self.stats.model_seconds += runner.seconds - before

    # --- videos ---------------------------------------------------------------------------------------------------

    def _dataset(self, refs: Sequence[VideoRef], catalog: str, fit: Fit) -> tuple[VideoDataset | None, dict[int, str]]:
        """Opens a dataset of videos; returns it with the unusable videos and reasons."""
        key = (catalog, fit, *(ref.name for ref in refs))
        dataset = self._datasets.get(key)
        unusable: dict[int, str] = {}
        if dataset is None:
            desc = ProcessDesc(type="byte", scale_height=fit.scaled[0], scale_width=fit.scaled[1])
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # skipped files are detected below
                    dataset = VideoDataset(
                        [ref.name for ref in refs],
                        processing={FRAMES: desc},
                        get_label=_frame_of,
                        catalog=self._catalog(catalog),
                        on_error="skip",
                        device=self._device,
                        fallback=self.options.fallback,
                    )
            except FramefeedError as error:
                return None, {ref.number: error.reason for ref in refs}
            while len(self._datasets) >= MAX_DATASETS:
                self._datasets.pop(next(iter(self._datasets)))
            self._datasets[key] = dataset
        reasons = {bad.path: bad.reason for bad in dataset.unreadable}
        counts = dict(zip(dataset.filenames, dataset.counts.tolist(), strict=True))
        for ref in refs:
            if ref.name not in counts:
                unusable[ref.number] = reasons.get(ref.name, "cannot be read by this worker")
            elif counts[ref.name] != ref.num_frames:
                unusable[ref.number] = f"has {counts[ref.name]} frames here, but {ref.num_frames} where the run began"
        return dataset, unusable

    def _catalog(self, path: str) -> Catalog | None:
        """Opens a catalog; returns None if it is missing, as on another machine."""
        if path not in self._catalogs:
            try:
                self._catalogs[path] = Catalog.open(path) if os.path.exists(path) else None
            except CatalogError:
                self._catalogs[path] = None
        return self._catalogs[path]


def _frame_of(name: str, frame: int, _: Any) -> tuple[str, int]:
    return name, frame
