"""``PacketDecoder``: decodes packets from worker processes into batches, on the CPU or on a GPU."""

from __future__ import annotations

import copy
import operator
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any, Literal

import torch

from framefeed._util.limits import budget_bytes, parse_bytes
from framefeed._util.nvtx import ASSEMBLE
from framefeed._util.process.finalize import closer
from framefeed._util.process.threads import Outcome, Threads
from framefeed.batch.assembly import MASK, MISSING, Assembly, SampleShape, shape_conflict, with_cameras
from framefeed.batch.videos import OpenVideo, open_video
from framefeed.batch.workshop import CpuWorkshop, Workshop
from framefeed.convert.desc import ProcessDesc
from framefeed.dataset.frame_dataset import LABELS, FrameDataset, checked_processing
from framefeed.device import Fallback, resolve_device
from framefeed.errors import FramefeedError, SourceError, UnsupportedCodec
from framefeed.packets.group_store import Claim, GroupStore, HeldGroup, Places
from framefeed.packets.packet_dataset import KnownGroup, PacketBatch
from framefeed.packets.packet_group import PacketGroup, take_group
from framefeed.packets.packet_jobs import DecodeFrames, Failed, Means, PacketJob, PutFrames, PutLater
from framefeed.packets.packet_requests import Requests
from framefeed.source import media_of, open_source

__all__ = ["PacketDecoder", "PacketStats"]

DEFAULT_CACHE = 1 << 30
DEFAULT_MEMORY_SHARE = 8
AHEAD = 2  # batches decoded while the caller uses one
THREAD = "framefeed-packet-decoder"


@dataclass
class PacketStats:
    """Counters of a ``PacketDecoder``.

    Attributes:
        batches: Batches delivered.
        frames_delivered: Frames in them.
        packets_decoded: Packets fed to decoders.
        bytes_moved: Packet bytes received from workers.
        groups: Groups needed by batches.
        group_hits: Groups whose packets were cached.
        groups_reread: Groups missing from the cache that were read from their files.
        frame_hits: Frames decoded before they were requested.
        skipped: Samples skipped because of an error.
    """

    batches: int = 0
    frames_delivered: int = 0
    packets_decoded: int = 0
    bytes_moved: int = 0
    groups: int = 0
    group_hits: int = 0
    groups_reread: int = 0
    frame_hits: int = 0
    skipped: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of groups whose packets were cached."""
        return self.group_hits / self.groups if self.groups else 0.0


@dataclass(eq=False)
class _BatchTask:
    """A job of a batch.

    Attributes:
        job: The job.
        place: Position of its group in the batch; None for several groups.
        outcome: Result of the job.
    """

    job: PacketJob
    place: int | None
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(eq=False)
class _BatchInProgress:
    """A batch that is being decoded.

    Attributes:
        packets: The received packets.
        errors: Failed samples, by position, with errors.
        rows: For each row of the assembly, the position of its sample.
        assembly: The output tensors; None if no sample is left.
        tasks: Submitted tasks.
        prepared: Tasks not submitted yet.
    """

    packets: PacketBatch
    errors: dict[int, FramefeedError]
    rows: list[int] = field(default_factory=list)
    assembly: Assembly | None = None
    tasks: list[_BatchTask] = field(default_factory=list)
    prepared: list[_BatchTask] = field(default_factory=list)

    def fail(self, place: int, failed: Failed | FramefeedError) -> None:
        """Marks the samples that need failed frames of a group, or any frame of a failed group."""
        samples = self.packets.samples
        for row in range(len(samples)):
            for frame in samples.frames[row][samples.files[row] == place].tolist():
                error = failed if isinstance(failed, FramefeedError) else failed.get(frame)
                if error is not None:
                    self.errors.setdefault(row, error)

    def abandon(self) -> None:
        """Stops all its tasks."""
        for task in (*self.tasks, *self.prepared):
            task.job.stop()


class PacketDecoder:
    """Decodes packets that worker processes have read.

    Batches are bit for bit equal to those of ``VideoLoader`` for the same samples. Use a decoder in the process that
    created it, or in one forked from it before a GPU was used; workers do not need it.

    Args:
        processing: Output descriptions by name, or a dataset that has them.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``; None uses the dataset's device, or the CPU.
        fallback: ``"cpu"`` decodes on the CPU what the GPU does not support; None uses the dataset's fallback if the
            device is the dataset's too.
        packet_cache: Bytes of packets to cache, so that workers need not send them again; 0 disables the cache.
        memory_budget: Bytes of decoded frames to cache where frames are requested in order. None for an eighth of the
            memory available to this process or, on a GPU, of the GPU's memory and at most half of its free memory.
        num_threads: Number of decoding threads; None for as many as keep the device busy.
        on_error: Handling of failed samples: ``"raise"``, or ``"skip"`` to leave them out.

    Attributes:
        skip_reasons: Error messages of skipped samples.
    """

    def __init__(
        self,
        processing: FrameDataset | Mapping[str, ProcessDesc] | None = None,
        *,
        device: str | torch.device | None = None,
        fallback: Fallback = None,
        packet_cache: int | str = DEFAULT_CACHE,
        memory_budget: int | str | None = None,
        num_threads: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}')
        if num_threads is not None and operator.index(num_threads) < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        if isinstance(processing, FrameDataset):
            self._processing = processing.processing
            if device is None:
                device, fallback = processing.device, fallback or processing.fallback
        else:
            self._processing = checked_processing(processing, None)
        self.device = resolve_device("cpu" if device is None else device)
        self._fallback: Fallback = "cpu" if device == "auto" else fallback
        self._cache_bytes = parse_bytes(packet_cache)
        self._budget = budget_bytes(memory_budget, self.device, DEFAULT_MEMORY_SHARE)
        self._num_threads = num_threads
        self._on_error = on_error
        self.skip_reasons: list[str] = []
        self._stats = PacketStats()
        self._shown: dict[SampleShape, list[int]] = {}
        self._datasets: list[FrameDataset] = []
        self._closed = False
        self._set_up()

    def _set_up(self) -> None:
        """Creates everything that belongs to one process."""
        self._process = os.getpid()
        self._entry = threading.Lock()
        self._workshop: Workshop
        if self.device.type == "cuda":
            from framefeed.batch.workshop_cuda import CudaWorkshop

            self._workshop = CudaWorkshop(self.device, self._budget)
        else:
            self._workshop = CpuWorkshop(self._budget)
        self._threads = Threads(self._num_threads or self._workshop.num_threads, THREAD)
        self._store = GroupStore(self._cache_bytes, self._budget, self._workshop.give_back)
        self._means = Means(self._store, self._workshop, self._threads.closed)

    def stats(self) -> PacketStats:
        """Returns a copy of the counters."""
        return replace(self._stats, packets_decoded=self._store.packets_decoded)

    def close(self) -> None:
        """Stops all work and drops all packets and frames. The decoder cannot be used afterwards."""
        self._closed = True
        if self._process == os.getpid():
            self._threads.close()
            self._store.clear()

    def __enter__(self) -> PacketDecoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- requests -------------------------------------------------------------------------------------------------

    def requests(
        self, dataset: FrameDataset, batches: Iterable[Sequence[int]], *, in_order: bool | None = None
    ) -> Requests:
        """Returns a ``batch_sampler`` for a loader of a ``PacketDataset``. It tells workers which packets are cached.

        Cached packets are expected in the order of the requests. If a batch is lost, missing packets are read from
        their files.

        Args:
            dataset: The dataset.
            batches: Sample numbers of each batch, such as a ``VideoClipSampler``.
            in_order: True if each batch continues the samples of the batch before, so that whole groups are worth
                decoding; None asks the sampler.
        """
        if in_order is None:
            in_order = getattr(batches, "frame_read_type", "random") == "stream"
        if not any(each is dataset for each in self._datasets):
            self._datasets.append(dataset)
        return Requests(dataset, batches, self._cache_bytes, in_order, self._begin_epoch)

    def _begin_epoch(self) -> None:
        self._check_process()
        self._store.clear()

    def _check_process(self) -> None:
        if self._closed:
            raise RuntimeError("the decoder is closed")
        if self._process != os.getpid():
            self._set_up()  # forked: locks may be held by threads that do not exist here

    # --- batches --------------------------------------------------------------------------------------------------

    def __call__(self, batches: Iterable[PacketBatch]) -> Iterator[dict[str, Any]]:
        """Decodes batches as they arrive, and the next ones while one is used.

        Batches with no remaining sample are left out.

        Raises:
            FramefeedError: A sample failed, and ``on_error`` is ``"raise"``.
        """
        self._check_process()
        under_way: deque[_BatchInProgress] = deque()
        process, workshop, store = self._process, self._workshop, self._store
        source: Iterator[PacketBatch] | None = None
        lost: Exception | None = None
        closer.start()
        workshop.begin()
        end: Callable[[], None] = partial(_end_pass, process, workshop, store, under_way)
        try:
            source = iter(batches)
            while True:
                try:
                    packets = next(source, None)
                except Exception as error:  # deliver the batches before it first
                    packets, lost = None, error
                if packets is not None:
                    under_way.append(self._begin(packets))
                while under_way and (packets is None or len(under_way) > AHEAD):
                    batch = self._end(under_way[0])
                    under_way.popleft()
                    if batch is not None:
                        yield batch
                        del batch  # allows its memory to be reused
                if packets is None:
                    break
            if lost is not None:
                raise lost
        except GeneratorExit:  # possibly from the garbage collector, in any thread and with any lock held
            end = partial(closer.note, end)
            raise
        finally:
            source = None  # ends its workers, even if an error's traceback is kept
            end()

    def decode(self, packets: PacketBatch) -> dict[str, Any]:
        """Decodes a batch; returns an empty dict if no sample is left.

        Raises:
            FramefeedError: A sample failed, and ``on_error`` is ``"raise"``.
        """
        work = self._begin(packets)
        try:
            return self._end(work) or {}
        finally:
            work.abandon()

    def _begin(self, packets: PacketBatch) -> _BatchInProgress:
        """Starts decoding a batch."""
        self._check_process()
        work = _BatchInProgress(packets, dict(packets.errors))
        try:
            with self._entry, ASSEMBLE:
                self._check_fit(packets)
                self._store.begin_batch()
                groups = self._groups_of(packets)
                for place, error in _conflicts(groups).items():
                    work.fail(place, error)
                work.rows = [row for row in range(len(packets)) if row not in work.errors]
                if work.rows:
                    self._begin_tasks(work, groups)
        except BaseException:  # possibly an interruption, at any point
            work.abandon()
            for task in list(work.prepared):  # other jobs may wait for it, and it releases its frames
                self._submit(work, task)
            raise
        return work

    def _begin_tasks(self, work: _BatchInProgress, groups: Sequence[HeldGroup | FramefeedError]) -> None:
        packets = work.packets
        samples = packets.samples.pick(work.rows)
        videos: Any = _GroupVideos(groups)
        work.assembly = assembly = self._workshop.assemble(videos, samples, packets.shape)
        wanted: dict[int, dict[int, Places]] = {}
        for (place, frame), places in assembly.targets.items():
            wanted.setdefault(place, {})[frame] = places
        put = PutFrames(self._means, assembly)
        putting = _BatchTask(put, None)
        for place, frames in wanted.items():
            held = groups[place]
            assert isinstance(held, HeldGroup)
            following = None if packets.following is None else packets.following[place]
            decode, later = DecodeFrames(self._means, held, assembly), PutLater(self._means, held, assembly)
            decoding, waiting = _BatchTask(decode, place), _BatchTask(later, place)
            work.prepared = [decoding, waiting, putting]
            claim = Claim(put.frames, later.wanted, decode.wanted, decode.keep)
            self._store.claim(held, frames, following, decoding.outcome, claim)
            self._stats.frame_hits += len(frames) - len(decode.wanted) - len(claim.failed)
            if decode.wanted:
                self._submit(work, decoding)
            if later.wanted:
                self._submit(work, waiting)
            if claim.failed:
                work.fail(place, claim.failed)
            if len(put.frames) >= self._workshop.put_length:
                self._submit(work, putting)
                put = PutFrames(self._means, assembly)
                putting = _BatchTask(put, None)
        if put.frames:
            self._submit(work, putting)
        work.prepared = []

    def _submit(self, work: _BatchInProgress, task: _BatchTask) -> None:
        self._threads.submit(task.job.run, task.outcome)
        work.tasks.append(task)

    def _end(self, work: _BatchInProgress) -> dict[str, Any] | None:
        """Waits for a batch; returns None if no sample is left."""
        for task in work.tasks:
            try:
                failed: Failed | FramefeedError = task.outcome.get()
            except FramefeedError as error:
                failed = error
            if failed and task.place is not None:
                work.fail(task.place, failed)
        if self._threads.closed.up:
            raise RuntimeError("the decoder was closed while it was in use")
        work.tasks.clear()
        errors = [error for _, error in sorted(work.errors.items())]
        if errors and self._on_error == "raise":
            # A copy: its traceback refers to the batch, while the group keeps the original.
            raise copy.copy(errors[0]) from errors[0].__cause__
        self.skip_reasons += map(str, errors)
        self._stats.skipped += len(errors)
        good = [place for place, row in enumerate(work.rows) if row not in work.errors]
        if work.assembly is None or not good:
            return None
        self._workshop.hand_out(work.assembly)
        tensors = work.assembly.batch
        if len(good) < len(work.rows):
            tensors = {name: tensor[good] for name, tensor in tensors.items()}
        return self._finished(tensors, work.packets, [work.rows[place] for place in good])

    def _finished(self, tensors: dict[str, torch.Tensor], packets: PacketBatch, rows: list[int]) -> dict[str, Any]:
        batch: dict[str, Any] = dict(tensors)
        frames = packets.samples.frames[rows]
        shown = self._shown_slots(packets.shape)
        if packets.cameras:
            batch = dict(with_cameras(tensors, self._processing, packets.shape.cameras))
        if packets.masked:
            batch[MASK] = torch.from_numpy(packets.shape.mask(frames, shown)).to(self.device)
        for name, column in packets.extra_columns.items():
            batch[name] = torch.from_numpy(column[rows]).to(self.device)
        if packets.labels is not None:
            batch[LABELS] = [packets.labels[row] for row in rows]
        self._stats.batches += 1
        self._stats.frames_delivered += int((frames[:, shown] != MISSING).sum())
        return batch

    # --- groups ---------------------------------------------------------------------------------------------------

    def _check_fit(self, packets: PacketBatch) -> None:
        """Checks that the descriptions fit the packets sent."""
        if packets.masked and MASK in self._processing:
            raise ValueError(f"processing cannot use the name {MASK!r}: it is reserved for masks")
        absent = set(self._shown_slots(packets.shape)) - set(packets.shown)
        if absent:
            frames = sorted({slot % packets.shape.length for slot in absent})
            raise ValueError(
                f"the decoder's descriptions show frames {frames} of a sequence, which the dataset's do not, so "
                "they were not sent; use the same index_map for both"
            )

    def _shown_slots(self, shape: SampleShape) -> list[int]:
        found = self._shown.get(shape)
        if found is None:
            found = self._shown[shape] = shape.shown(self._processing.values())
        return found

    def _groups_of(self, packets: PacketBatch) -> list[HeldGroup | FramefeedError]:
        """Returns the groups of a batch with their packets, sent or cached."""
        found: list[HeldGroup | FramefeedError] = []
        self._stats.bytes_moved += packets.num_bytes
        for place, group in enumerate(packets.filled()):
            self._stats.groups += 1
            held = self._store.find(group)
            if place in packets.failed:
                found.append(packets.failed[place])
                continue
            try:
                if held is None:
                    held = self._open(self._complete(group, packets.files[place]), packets.following is not None)
                elif isinstance(group, KnownGroup):
                    self._stats.group_hits += 1
                self._store.add(held)
                found.append(held)
            except FramefeedError as error:
                found.append(error)
        return found

    def _complete(self, group: PacketGroup | KnownGroup, file: int) -> PacketGroup:
        """Returns a group with its packets; reads them from the file if they are missing from the cache."""
        if isinstance(group, PacketGroup):
            return group
        for dataset in self._datasets:
            if file < len(dataset.filenames):
                index = dataset.index_of(file)
                if (index.path, index.fingerprint) == group.key[:2]:
                    self._stats.groups_reread += 1
                    return take_group(index, open_source(index, media_of(index)), group.key[2])
        reason = f"packets of the group that begins with packet {group.key[2]} were neither sent nor cached"
        raise SourceError(group.key[0], f"{reason}; use this decoder's requests() as batch_sampler")

    def _open(self, group: PacketGroup, in_order: bool) -> HeldGroup:
        """Opens an incoming group."""
        if self.device.type == "cuda" and group.new_headers and self._fallback != "cpu":
            reason = 'its headers change in mid-stream, which GPU decoders do not report; use fallback="cpu"'
            raise UnsupportedCodec(group.key[0], reason)
        if in_order or self._store.keeps(group.key):
            group = group.alone()  # frees the rest of the message, and the open file that both are in
        path, source = group.key[0], group.source()
        video = open_video(path, group.index, source, self._processing, self.device, self._fallback)
        if group.new_headers and not video.on_cpu:
            video = replace(video, on_cpu=True)
        return HeldGroup(video, group)


class _GroupVideos:
    """Groups of a batch in place of a dataset's files."""

    def __init__(self, groups: Sequence[HeldGroup | FramefeedError]) -> None:
        self._groups = groups

    def __getitem__(self, place: int) -> OpenVideo:
        held = self._groups[place]
        assert isinstance(held, HeldGroup)
        return held.video


def _end_pass(process: int, workshop: Workshop, store: GroupStore, under_way: Iterable[_BatchInProgress]) -> None:
    """Releases the resources of abandoned batches."""
    if process == os.getpid():
        workshop.end()
        for work in under_way:
            work.abandon()
        store.drop_frames()


def _conflicts(groups: Sequence[HeldGroup | FramefeedError]) -> dict[int, FramefeedError]:
    """Returns failed groups, and groups whose frames cannot share a batch with the first, by position."""
    found: dict[int, FramefeedError] = {}
    first: OpenVideo | None = None
    for place, group in enumerate(groups):
        if isinstance(group, FramefeedError):
            found[place] = group
            continue
        first = first or group.video
        conflict = shape_conflict(first, group.video)
        if conflict is not None:
            found[place] = conflict
    return found
