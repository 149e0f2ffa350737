"""``PacketDecoder``: packets that others have read -> batches, on the CPU or on a GPU."""

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

from framefeed._util.finalize import closer
from framefeed._util.limits import budget_bytes, parse_bytes
from framefeed._util.nvtx import ASSEMBLE
from framefeed._util.threads import Outcome, Threads
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
AHEAD = 2  # batches that are decoded while another one is used
THREAD = "framefeed-packet-decoder"


@dataclass
class PacketStats:
    """What a ``PacketDecoder`` has done.

    Attributes:
        batches: Batches handed out.
        frames_delivered: Frames in them.
        packets_decoded: Packets that were fed to decoders.
        bytes_moved: Bytes of packets that came from workers.
        groups: Groups that were needed by batches.
        group_hits: Those of them whose packets were here already.
        groups_reread: Those that should have been here and were read from their files instead.
        frame_hits: Frames that had been decoded before they were asked for.
        skipped: Samples that were left out because of an error.
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
        """Share of groups whose packets were here already."""
        return self.group_hits / self.groups if self.groups else 0.0


@dataclass(eq=False)
class _BatchTask:
    """A job of a batch.

    Attributes:
        job: The job.
        place: The place of its group in the batch; None for several.
        outcome: What comes of it.
    """

    job: PacketJob
    place: int | None
    outcome: Outcome = field(default_factory=Outcome)


@dataclass(eq=False)
class _BatchInProgress:
    """A batch that is being decoded.

    Attributes:
        packets: What came in.
        errors: By the place of a sample in it, why it cannot be had.
        rows: For each row of the assembly, the place of its sample.
        assembly: The tensors; None where no sample is left.
        tasks: What is done for it.
        prepared: What threads have not been told of yet.
    """

    packets: PacketBatch
    errors: dict[int, FramefeedError]
    rows: list[int] = field(default_factory=list)
    assembly: Assembly | None = None
    tasks: list[_BatchTask] = field(default_factory=list)
    prepared: list[_BatchTask] = field(default_factory=list)

    def fail(self, place: int, failed: Failed | FramefeedError) -> None:
        """Notes which samples fail with frames of a group, or with all of it."""
        samples = self.packets.samples
        for row in range(len(samples)):
            for frame in samples.frames[row][samples.files[row] == place].tolist():
                error = failed if isinstance(failed, FramefeedError) else failed.get(frame)
                if error is not None:
                    self.errors.setdefault(row, error)

    def abandon(self) -> None:
        """Ends all work on it."""
        for task in (*self.tasks, *self.prepared):
            task.job.stop()


class PacketDecoder:
    """Decodes packets that worker processes have read.

    Batches have, bit for bit, what ``VideoLoader`` would give for the same samples. A decoder is used by the process
    that made it, or by one that was forked from it before a GPU was used; workers have no part in it.

    Args:
        processing: What is made of frames: descriptions by name, or a dataset that has them.
        device: ``"cpu"``, ``"cuda"``, ``"cuda:N"`` or ``"auto"``; None takes the dataset's, or the CPU.
        fallback: ``"cpu"`` decodes what the GPU cannot decode on the CPU; None takes the dataset's where the device is
            the dataset's too.
        packet_cache: Bytes of packets that are kept, so that workers need not send them again; 0 turns that off.
        memory_budget: Bytes of decoded frames that are kept for later, where frames are asked for in order; None for an
            eighth of the memory that this process may use, or of the GPU's, and there at most half of what is free.
        num_threads: How many threads decode; None for as many as keep the device busy.
        on_error: What an error of a sample does: ``"raise"``, or ``"skip"`` to leave the sample out.

    Attributes:
        skip_reasons: The errors of samples that were left out.
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
            raise ValueError(f'on_error is "raise" or "skip", not {on_error!r}')
        if num_threads is not None and operator.index(num_threads) < 1:
            raise ValueError(f"num_threads is at least 1, got {num_threads}")
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
        """Makes what belongs to one process."""
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
        """What was done so far: a copy."""
        return replace(self._stats, packets_decoded=self._store.packets_decoded)

    def close(self) -> None:
        """Ends all work and forgets all packets and frames; nothing can be decoded any more."""
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

    # --- asking for packets ---------------------------------------------------------------------------------------

    def requests(
        self, dataset: FrameDataset, batches: Iterable[Sequence[int]], *, in_order: bool | None = None
    ) -> Requests:
        """A ``batch_sampler`` for a loader of a ``PacketDataset``: its batches say which packets need not be sent.

        What is not sent is expected in the order in which it was asked for. Where a batch gets lost, packets that are
        missing are read from their files.

        Args:
            dataset: Where samples come from.
            batches: The numbers of the samples of each batch, as a ``VideoClipSampler`` gives them.
            in_order: Whether each batch has the samples that follow those of the batch before, so that a group is best
                decoded as a whole; None asks the sampler.
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
            self._set_up()  # forked: locks may be held by threads that are not there

    # --- batches --------------------------------------------------------------------------------------------------

    def __call__(self, batches: Iterable[PacketBatch]) -> Iterator[dict[str, Any]]:
        """Decodes batches as they come, the next ones while one is used.

        Batches of which no sample is left are left out.

        Raises:
            FramefeedError: A sample cannot be had, and ``on_error`` is ``"raise"``.
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
                except Exception as error:  # the batches before it are good
                    packets, lost = None, error
                if packets is not None:
                    under_way.append(self._begin(packets))
                while under_way and (packets is None or len(under_way) > AHEAD):
                    batch = self._end(under_way[0])
                    under_way.popleft()
                    if batch is not None:
                        yield batch
                        del batch  # its memory may be used again
                if packets is None:
                    break
            if lost is not None:
                raise lost
        except GeneratorExit:  # perhaps from the garbage collector, in any thread and with any lock held
            end = partial(closer.note, end)
            raise
        finally:
            source = None  # ends its workers, whoever keeps the traceback of an error
            end()

    def decode(self, packets: PacketBatch) -> dict[str, Any]:
        """A batch; an empty one where no sample is left.

        Raises:
            FramefeedError: A sample cannot be had, and ``on_error`` is ``"raise"``.
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
        except BaseException:  # it may be an interruption, anywhere
            work.abandon()
            for task in list(work.prepared):  # others may wait for it, and it lets go of what it was given
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
        """Waits for a batch; None where nothing of it is left."""
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
            # A copy: this one gets a traceback that leads to the batch, and the group keeps the original.
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
        """Whether the descriptions can be applied to what was sent."""
        if packets.masked and MASK in self._processing:
            raise ValueError(f"{MASK!r} is where masks go; choose another name")
        absent = set(self._shown_slots(packets.shape)) - set(packets.shown)
        if absent:
            frames = sorted({slot % packets.shape.length for slot in absent})
            raise ValueError(
                f"the decoder's descriptions show frames {frames} of a sequence, and the dataset's do not, so that "
                "they were not sent; give both the same index_map"
            )

    def _shown_slots(self, shape: SampleShape) -> list[int]:
        found = self._shown.get(shape)
        if found is None:
            found = self._shown[shape] = shape.shown(self._processing.values())
        return found

    def _groups_of(self, packets: PacketBatch) -> list[HeldGroup | FramefeedError]:
        """The groups of a batch with their packets, those that were sent and those that are here."""
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
        """A group with its packets; where these should have been here, from their file."""
        if isinstance(group, PacketGroup):
            return group
        for dataset in self._datasets:
            if file < len(dataset.filenames):
                index = dataset.index_of(file)
                if (index.path, index.fingerprint) == group.key[:2]:
                    self._stats.groups_reread += 1
                    return take_group(index, open_source(index, media_of(index)), group.key[2])
        reason = f"packets of the group that begins with packet {group.key[2]} were not sent, and are not here"
        raise SourceError(group.key[0], f"{reason}; use the requests of this decoder")

    def _open(self, group: PacketGroup, in_order: bool) -> HeldGroup:
        """A group that has come in."""
        if self.device.type == "cuda" and group.new_headers and self._fallback != "cpu":
            reason = 'its headers change in mid-stream, which a GPU\'s decoder does not tell; use fallback="cpu"'
            raise UnsupportedCodec(group.key[0], reason)
        if in_order or self._store.keeps(group.key):
            group = group.alone()  # what came with it can go, and so can the open file that both are in
        path, source = group.key[0], group.source()
        video = open_video(path, group.index, source, self._processing, self.device, self._fallback)
        if group.new_headers and not video.on_cpu:
            video = replace(video, on_cpu=True)
        return HeldGroup(video, group)


class _GroupVideos:
    """The groups of a batch in the place of a dataset's files."""

    def __init__(self, groups: Sequence[HeldGroup | FramefeedError]) -> None:
        self._groups = groups

    def __getitem__(self, place: int) -> OpenVideo:
        held = self._groups[place]
        assert isinstance(held, HeldGroup)
        return held.video


def _end_pass(process: int, workshop: Workshop, store: GroupStore, under_way: Iterable[_BatchInProgress]) -> None:
    """Lets go of what batches have that nobody waits for."""
    if process == os.getpid():
        workshop.end()
        for work in under_way:
            work.abandon()
        store.drop_frames()


def _conflicts(groups: Sequence[HeldGroup | FramefeedError]) -> dict[int, FramefeedError]:
    """By place, the groups that cannot be had, and those whose frames cannot share a batch with the first."""
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
