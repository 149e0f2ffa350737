"""Worker processes that read packets for a loader's threads.

The loader's threads decode. Instead of reading packets themselves they get them from worker processes: groups arrive in
the order of the epoch, and a thread that needs a group waits for it.
"""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from framefeed._util.process.finalize import closer
from framefeed._util.process.long_wait import Patience, process_state
from framefeed.batch.videos import OpenVideo, Videos
from framefeed.dataset.frame_dataset import FrameDataset
from framefeed.errors import FramefeedError, SourceError
from framefeed.loader.stats import LoaderStats
from framefeed.packets.group_messages import BatchRequirements, GroupMessage, GroupReader, GroupRequester, Key
from framefeed.packets.packet_group import PacketGroup, take_group
from framefeed.source import CutOff, PacketSource

__all__ = ["PacketWorkerEpoch", "PacketWorkers"]

THREAD = "framefeed-packets"

# Seconds between checks for room for another batch, in the thread that receives messages.
PAUSE_SECONDS = 0.002

# Time limit for ending the processes, in seconds; then torch is left to do it.
MAX_END_SECONDS = 10.0


# --- workers ------------------------------------------------------------------------------------------------------


class PacketWorkers:
    """Worker processes of a loader, which persist from epoch to epoch.

    Args:
        dataset: The dataset.
        count: Number of processes.
        cache_bytes: Size of the packet cache, which saves sending packets again.
        context: Start method, ``"fork"`` or ``"spawn"``; None for torch's default.

    Attributes:
        cache_bytes: Size of the packet cache.
        kept: Groups cached at the end of the last epoch.
    """

    def __init__(self, dataset: FrameDataset, count: int, cache_bytes: int, context: str | None) -> None:
        plain = copy.copy(dataset)
        plain.get_label = None  # labels are made in the main process
        self._source = _CurrentRequests()
        self.cache_bytes = cache_bytes
        self.kept: dict[Key, PacketGroup] = {}
        self._loader: DataLoader[GroupMessage] = DataLoader(
            GroupReader(plain),
            batch_sampler=self._source,
            num_workers=count,
            collate_fn=GroupReader.collate,
            multiprocessing_context=context,
            persistent_workers=True,
        )
        # Also referenced elsewhere: if it were freed as part of a cycle, the processes' queues might be gone before
        # torch can stop the processes, which then takes ten seconds.
        self._begun: list[Any] = []
        weakref.finalize(self, closer.note, _end, self._begun).atexit = False

    @property
    def are_alive(self) -> bool:
        """Returns True if all started processes are alive."""
        return all(process.is_alive() for each in self._begun for process in getattr(each, "_workers", ()))

    def end(self) -> None:
        """Ends the processes. Torch would do so with the last reference, which a traceback may hold.

        Until then the death of one can raise in the main thread, if other workers were started there.
        """
        _end(self._begun)

    def begin(self, requester: GroupRequester) -> Iterator[GroupMessage]:
        """Starts reading for an epoch, and ends the previous one.

        Uses a thread of its own: if torch starts workers in the main thread, the death of one raises there, at any
        point and with any lock held. Here the receiver of messages gets the error.
        """
        self._source.requester = requester
        begun: Future[Iterator[GroupMessage]] = Future()
        # Not a pool thread: workers are forked from it, and would wait for the pool's threads at exit.
        thread = threading.Thread(target=self._begin, args=(begun,), daemon=True)
        thread.start()
        patience = Patience(self.describe)
        while thread.is_alive():  # workers of the last epoch must answer
            thread.join(patience.seconds())
            patience.tell_if_due()
        return begun.result()

    def describe(self) -> list[str]:
        """Describes the workers and their states."""
        processes = [process for each in self._begun for process in getattr(each, "_workers", ())]
        return [f"loader worker {place}, {process_state(each.pid)}" for place, each in enumerate(processes)]

    def _begin(self, begun: Future[Iterator[GroupMessage]]) -> None:
        try:
            self._begun[:] = [iter(self._loader)]
            begun.set_result(self._begun[0])
        except BaseException as error:
            begun.set_exception(error)


def _end(begun: list[Any]) -> None:
    """Ends the processes of torch's iterators."""
    while begun:
        shut_down = getattr(begun.pop(), "_shutdown_workers", None)
        if shut_down is not None:
            # A killed process may have held a lock that this waits for.
            thread = threading.Thread(target=shut_down, name=THREAD, daemon=True)
            thread.start()
            thread.join(MAX_END_SECONDS)


class _CurrentRequests:
    """Requests of the current epoch."""

    def __init__(self) -> None:
        self.requester: GroupRequester | None = None

    def __iter__(self) -> Iterator[list[Key]]:
        return iter(self.requester or ())


class _Shared:
    """Batches read twice, by two threads at different positions."""

    def __init__(self, batches: Iterable[NDArray[np.int64]]) -> None:
        self._source = iter(batches)
        self._lock = threading.Lock()
        self._queues: list[deque[NDArray[np.int64]]] = [deque(), deque()]
        self._error: Exception | None = None

    def reader(self, which: int) -> Iterator[NDArray[np.int64]]:
        """Returns one of the two readers. The first raises the source's error; the second ends there."""
        own, other = self._queues[which], self._queues[1 - which]
        while True:
            with self._lock:
                if not own:
                    batch = self._next(raises=which == 0)
                    if batch is None:
                        return
                    own.append(batch)
                    other.append(batch)
                batch = own.popleft()
            yield batch

    def _next(self, *, raises: bool) -> NDArray[np.int64] | None:
        if self._error is None:
            try:
                return next(self._source, None)
            except Exception as error:
                self._error = error
        if raises:
            raise self._error
        return None


# --- received packets ---------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _QueuedGroup:
    """A received group.

    Attributes:
        group: The group with its packets, or the error of reading it.
        users: Number of received, undelivered batches that need it.
        kept: True if it stays cached without users.
    """

    group: PacketGroup | FramefeedError
    users: int = 0
    kept: bool = False


class _PacketQueue:
    """Groups sent by workers, for threads that wait for them.

    Args:
        dataset: The dataset.
        kept: Groups already cached.
        stats: Counters to update.
    """

    def __init__(self, dataset: FrameDataset, kept: dict[Key, PacketGroup], stats: LoaderStats) -> None:
        self._dataset = dataset
        self._stats = stats
        self._changed = threading.Condition()
        self._entries = {key: _QueuedGroup(group, kept=True) for key, group in kept.items()}
        self._batches: deque[Iterable[Key]] = deque()
        self._end: BaseException | None = None
        self._ended = False
        self.closed = False

    def add(self, requirements: BatchRequirements, messages: list[GroupMessage]) -> None:
        """Adds the groups of a batch and the messages sent for it."""
        sent: dict[Key, PacketGroup | FramefeedError] = {}
        for message in messages:
            # Cached groups outlive their message, whose memory is shared with a worker and keeps a file open.
            sent.update((key, group.alone() if requirements.keys[key] else group) for key, group in message.filled())
            sent.update(message.failed)
        with self._changed:
            self._stats.bytes_moved += sum(message.data.numel() for message in messages)
            self._stats.groups += len(requirements.keys)
            for key, kept in requirements.keys.items():
                entry = self._entries.get(key)
                group = sent.get(key)
                if group is not None:
                    if entry is None or isinstance(entry.group, FramefeedError):
                        # Otherwise the memory of the existing group is not duplicated.
                        entry = self._entries[key] = _QueuedGroup(group, entry.users if entry is not None else 0)
                elif entry is None:  # should have been cached, but could not be read
                    entry = self._entries[key] = _QueuedGroup(self._try(key))
                else:
                    self._stats.group_hits += 1
                entry.users += 1
                entry.kept = kept and isinstance(entry.group, PacketGroup)
            for key in requirements.dropped:
                if not requirements.keys.get(key, False):
                    self._forget(key)
            self._batches.append(requirements.keys)
            self._changed.notify_all()

    def kept(self) -> dict[Key, PacketGroup]:
        """Returns the cached groups."""
        with self._changed:
            entries = self._entries.items()
            return {key: each.group for key, each in entries if each.kept and isinstance(each.group, PacketGroup)}

    def deliver(self) -> None:
        """Drops the groups that only the delivered batch needed."""
        with self._changed:
            for key in self._batches.popleft() if self._batches else ():
                entry = self._entries[key]
                entry.users -= 1
                if not entry.users and not entry.kept:
                    del self._entries[key]

    def _forget(self, key: Key) -> None:
        entry = self._entries.get(key)
        if entry is not None:
            entry.kept = False
            if not entry.users:
                del self._entries[key]

    def get(self, key: Key) -> PacketGroup:
        """Waits for a group and returns it.

        Raises:
            FramefeedError: The group could not be read.
        """
        with self._changed:
            while True:
                entry = self._entries.get(key)
                if entry is not None:
                    break
                if self._end is not None:
                    raise self._end
                if self.closed:
                    raise SourceError(self._dataset.filenames[key[0]], "the loader was closed")
                if self._ended:
                    return self._read(key)
                self._changed.wait()
        if isinstance(entry.group, FramefeedError):
            raise copy.copy(entry.group)
        return entry.group

    def _try(self, key: Key) -> PacketGroup | FramefeedError:
        try:
            return self._read(key)
        except FramefeedError as error:
            return error

    def _read(self, key: Key) -> PacketGroup:
        """Reads a group from its file."""
        video = self._dataset.videos[key[0]]
        return take_group(video.index, video.source, key[1])

    def end(self, error: BaseException | None = None) -> None:
        """Marks the end of the messages."""
        with self._changed:
            self._end, self._ended = error, True
            self._changed.notify_all()

    def close(self) -> None:
        """Drops everything and wakes waiting threads."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()


class _QueueSource:
    """Reads the packets of a video from a queue."""

    def __init__(self, queue: _PacketQueue, file: int, index: Any) -> None:
        self._queue = queue
        self._file = file
        self._starts = index.packets.start

    def read(self, numbers: NDArray[np.int64]) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yields (number, data) for rising packet numbers; waits for groups that have not arrived."""
        left = numbers
        while len(left):
            # A run starts at the first packet of a group, or continues within one.
            group = self._queue.get((self._file, int(self._starts[left[0]])))
            inside = np.isin(left, group.packets)
            count = len(left) if inside.all() else int(np.argmin(inside))
            if not count:
                if not group.whole:
                    raise SourceError(group.key[0], f"packet {int(left[0])} is not in any group that was read")
                left = left[1:]  # hidden by an edit list; no frame needs it
                continue
            places = np.searchsorted(group.packets, left[:count])
            try:
                for place, data in group.source().read(places):
                    yield int(group.packets[place]), data
            except CutOff as error:
                raise CutOff(int(group.packets[error.packet]), error.reason) from None
            left = left[count:]


class _QueueVideos:
    """Files of a dataset, with packets from a queue."""

    def __init__(self, videos: Videos, queue: _PacketQueue) -> None:
        self._videos = videos
        self._queue = queue
        self._opened: dict[
            int, tuple[OpenVideo, OpenVideo]
        ] = {}  # as they were opened, and with packets from the queue

    def __getitem__(self, number: int) -> OpenVideo:
        video = self._videos[number]
        found = self._opened.get(number)
        if found is None or found[0] is not video:
            source: PacketSource = _QueueSource(self._queue, number, video.index)
            found = self._opened[number] = (video, replace(video, source=source))
        return found[1]


# --- an epoch -----------------------------------------------------------------------------------------------------


class PacketWorkerEpoch:
    """Packets of one epoch.

    Args:
        workers: Worker processes that read them.
        dataset: The dataset.
        batches: The batches of the epoch.
        stats: Counters to update.

    Attributes:
        dataset: A copy of the dataset that gets its packets from the workers.
        batches: The same batches, for decoding.
        workers: The workers.
        failed: True if the workers cannot be used again.
    """

    def __init__(
        self,
        workers: PacketWorkers,
        dataset: FrameDataset,
        batches: Iterable[NDArray[np.int64]],
        stats: LoaderStats,
    ) -> None:
        shared = _Shared(batches)
        kept, workers.kept = workers.kept, {}
        self._queue = _PacketQueue(dataset, kept, stats)
        self.dataset = copy.copy(dataset)
        self.dataset.videos = _QueueVideos(dataset.videos, self._queue)  # type: ignore[assignment]
        self.batches = shared.reader(0)
        sizes = ((key, group.num_bytes) for key, group in kept.items())
        self._requester = GroupRequester(dataset, shared.reader(1), workers.cache_bytes, sizes)
        # Started here, not in the thread: workers may be forked.
        self._source = workers.begin(self._requester)
        self._thread: threading.Thread | None = None
        self.workers = workers
        self.failed = False

    def start(self, reached: Callable[[], int]) -> None:
        """Starts receiving packets.

        Args:
            reached: Returns how many batches the decoding threads may have requested.
        """
        self._thread = threading.Thread(target=self._take, args=(reached,), name=THREAD, daemon=True)
        self._thread.start()

    def _take(self, reached: Callable[[], int]) -> None:
        queue = self._queue
        try:
            for count, (requirements, messages) in enumerate(self._arrivals()):
                while not queue.closed and count > reached():
                    time.sleep(PAUSE_SECONDS)
                if queue.closed:
                    return
                queue.add(requirements, messages)
        except BaseException as error:
            self.failed = True
            self.workers.end()
            queue.end(error)
        else:
            queue.end()

    def _arrivals(self) -> Iterator[tuple[BatchRequirements, list[GroupMessage]]]:
        """Yields the requirements of each batch, and the messages sent for it."""
        early: deque[GroupMessage] = deque()
        asked = self._requester.requirements
        while True:
            if not asked:  # it requests more when a message arrives
                message = self._next_message()
                if message is not None:
                    early.append(message)
                elif not asked:
                    return
                continue
            requirements = asked.popleft()
            yield requirements, [early.popleft() if early else self._sent() for _ in range(requirements.messages)]

    def _sent(self) -> GroupMessage:
        message = self._next_message()
        if message is None:
            raise RuntimeError("DataLoader workers sent fewer messages than requested")
        return message

    def _next_message(self) -> GroupMessage | None:
        """Receives a message; returns None after the last."""
        try:
            return next(self._source, None)
        except (OSError, EOFError) as error:
            if "DataLoader worker" in str(error):  # raised by a worker
                raise
            # The connection is gone: the file is not to blame.
            reason = f"{error}: it was killed, perhaps because memory ran out"
            raise RuntimeError(f"a DataLoader worker ended while it sent packets ({reason})") from error

    def deliver(self) -> None:
        """Reports the delivery of a batch."""
        self._queue.deliver()

    def close(self) -> None:
        """Stops receiving."""
        self._queue.close()

    def join(self, seconds: float) -> bool:
        """Waits until the workers can be used for another epoch; returns False if they cannot."""
        if self._thread is not None:
            self._thread.join(seconds)
        if self._thread is not None and self._thread.is_alive():
            return False
        self.workers.kept = self._queue.kept()
        return True
