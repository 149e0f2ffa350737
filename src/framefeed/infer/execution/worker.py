"""Does segments: decodes their frames ahead, runs the model on them, and gives what was found in each."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from framefeed._util.finalize import closer
from framefeed._util.limits import available_cpus
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
MAX_DATASETS = 8  # kept open: each knows the packets of its videos


class InferenceWorker:
    """A model, and what decodes for it.

    Args:
        model: See ``open_engine``.
        options: See ``InferOptions``; the device is a real one.

    Attributes:
        options: What it was made with.
        names: Names of classes that came with the model.
        size: (height, width) of the model's input.
        runner: Runs batches.
        stats: What was done.
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
                # All lanes together then have that many: each has the thread that it is in.
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
            else:  # somebody's own code may not like to be called twice at a time
                self.runner = InferencePool(self.new_detector, 1, 0)
        self.stats = WorkerStats()

    def new_detector(self) -> Detector:
        """What makes boxes of batches; each lane has one."""
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
        """Everything that is launched goes to one stream, which no library takes for the default one."""
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield

    def close(self) -> None:
        """Ends its threads; it cannot be used any more."""
        self.runner.close()

    def run(
        self,
        segments: Sequence[Segment],
        videos: Sequence[VideoRef],
        advance: Callable[[int, int], None] = lambda video, frames: None,
    ) -> Iterator[Finished]:
        """Does segments; gives each when it is done, in the order in which they are done best.

        Args:
            segments: What to do. The videos of a segment have one size.
            videos: All videos that they refer to.
            advance: Told of each video how many further frames are done.

        Raises:
            ModelError: The model cannot be used. What is wrong with videos is told with the segments.
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
        """Does segments whose frames have one size."""
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
        """Has batches run as they come, and takes what was found in them in order."""
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
        except GeneratorExit:  # perhaps from the garbage collector, in any thread and with any lock held
            close = partial(closer.note, close)
            raise
        finally:
            close()
            for *_, run in running:
                run.cancel()
            self.stats.model_seconds += runner.seconds - before

    # --- videos ---------------------------------------------------------------------------------------------------

    def _dataset(self, refs: Sequence[VideoRef], catalog: str, fit: Fit) -> tuple[VideoDataset | None, dict[int, str]]:
        """A dataset of videos, and by number why some of them cannot be used."""
        key = (catalog, fit, *(ref.name for ref in refs))
        dataset = self._datasets.get(key)
        unusable: dict[int, str] = {}
        if dataset is None:
            desc = ProcessDesc(type="byte", scale_height=fit.scaled[0], scale_width=fit.scaled[1])
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what is left out is noticed below
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
                unusable[ref.number] = reasons.get(ref.name, "cannot be read here")
            elif counts[ref.name] != ref.num_frames:
                unusable[ref.number] = f"has {counts[ref.name]} frames here and {ref.num_frames} where the run began"
        return dataset, unusable

    def _catalog(self, path: str) -> Catalog | None:
        """A catalog, None where it is not there: another machine may not see it."""
        if path not in self._catalogs:
            try:
                self._catalogs[path] = Catalog.open(path) if os.path.exists(path) else None
            except CatalogError:
                self._catalogs[path] = None
        return self._catalogs[path]


def _frame_of(name: str, frame: int, _: Any) -> tuple[str, int]:
    return name, frame
