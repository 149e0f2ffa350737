"""Decoding cost of orders, planned as in the loader, without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.catalog.catalog import Catalog
from framefeed.dataset.orders import Buffered, Order, Sequential
from framefeed.index.table import PacketTable
from framefeed.plan import plan_frames, random_frame_cost
from framefeed.plan.frames import Cursor
from framefeed.plan.lookahead import Budget, Group, GroupJob, LookAhead, Use
from framefeed.sampling.chances.probabilities import draw_probabilities
from framefeed.sampling.models import Model, SlidingWindow
from framefeed.sampling.population import Population

__all__ = ["DecodingCost", "Excerpt", "decoding_cost", "memory_needed"]

SAMPLE_FRAMES = 10_000
MIN_VIDEOS = 64
WINDOWS = 1000  # number of sliding-window runs to plan

# As in the loader: number of batches prepared together, and the look-ahead (in terms, in batches, and the samples read
# at a time).
OPEN_BATCHES = 3
WINDOW_TERMS, WINDOW_BATCHES, GROWTH = 1.25, 16, 1024
MIN_SOON = 64


@dataclass(frozen=True, eq=False)
class Excerpt:
    """A part of a catalog's frames, in whole groups.

    Attributes:
        tables: Packet table of each video.
        firsts: First frame used of each video.
        population: The frames used, as if each video had no others.
        share: Share of all frames.
    """

    tables: tuple[PacketTable, ...]
    firsts: tuple[int, ...]
    population: Population
    share: float

    @classmethod
    def of(cls, catalog: Catalog, *, num_frames: int | None = SAMPLE_FRAMES, seed: int = 0) -> Excerpt:
        """Takes about this number of frames from random videos, proportionally to their length; None takes all."""
        total = catalog.total_frames
        numbers: NDArray[np.int64] = np.arange(len(catalog))
        part = 1.0
        if num_frames is not None and total > num_frames:
            rng = np.random.default_rng(seed)
            numbers = rng.permutation(numbers)
            lengths = np.cumsum(catalog.num_frames[numbers])
            count = max(min(MIN_VIDEOS, len(numbers)), int(np.searchsorted(lengths, num_frames)) + 1)
            numbers, part = np.sort(numbers[:count]), min(1.0, num_frames / lengths[count - 1])
        else:
            rng = None
        tables, firsts, sizes = [], [], []
        for number in numbers.tolist():
            table = catalog[number].packets
            first, groups = _some_groups(table, part, rng)
            tables.append(table)
            firsts.append(first)
            sizes.append(groups)
        population = Population(np.concatenate(sizes), np.array([len(each) for each in sizes], np.int64))
        return cls(tuple(tables), tuple(firsts), population, population.num_frames / total)

    def locate(self, samples: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the video of each sample, and its frame number there."""
        starts = self.population.file_starts
        files = np.searchsorted(starts, samples, side="right") - 1
        return files, samples - starts[files] + np.array(self.firsts)[files]


def _some_groups(table: PacketTable, part: float, rng: np.random.Generator | None) -> tuple[int, NDArray[np.int64]]:
    """Returns consecutive groups with about that share of the frames: the first frame, and the group sizes."""
    starts = table.start[table.frames]
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(starts)) + 1, [len(starts)]])
    first, stop = 0, len(bounds) - 1
    if rng is not None and part < 1:
        place = rng.uniform(0, len(starts) * (1 - part))
        first = int(np.searchsorted(bounds, place, side="right")) - 1
        stop = max(first + 1, int(np.searchsorted(bounds, place + part * len(starts), side="right")) - 1)
    return int(bounds[first]), np.diff(bounds[first : stop + 1])


@dataclass(frozen=True)
class DecodingCost:
    """Decoding cost of an order.

    Attributes:
        decoded_per_delivered: Packets decoded per frame delivered.
        frames: Number of planned frames.
        whole: True if these are all frames.
    """

    decoded_per_delivered: float
    frames: int
    whole: bool


def memory_needed(order: Order | Model, population: Population) -> int:
    """Returns the number of cached frames at which an order reaches its lowest cost: a buffer and a group."""
    if isinstance(order, Buffered):
        return int(min(order.buffer_size + population.group_sizes.max(), population.num_frames))
    return 0


def decoding_cost(
    method: Order | Model, excerpt: Excerpt, *, batch_size: int, memory_frames: int = 0, seed: int = 0
) -> DecodingCost:
    """Plans an epoch of an order as the loader does, or single draws of a model, and counts packets.

    Args:
        method: An order or a model.
        excerpt: The frames to read. For a part of a catalog, memory and batches are scaled to the same part, so that
            frames meet by chance as often as in the whole.
        batch_size: Frames in a batch.
        memory_frames: Number of frames that may be cached, of the whole catalog. Models cache none.
        seed: Seed of the order.
    """
    count = excerpt.population.num_frames
    if isinstance(method, Model):
        cost = _drawn_cost(method, excerpt, batch_size, seed)
    else:
        # The needs of a buffer, and of frames in order, do not depend on the number of other frames.
        scale = 1.0 if isinstance(method, Buffered | Sequential) else excerpt.share
        cost = _planned_cost(method, excerpt, batch_size, memory_frames, scale, seed)
    return DecodingCost(cost, count, excerpt.share == 1)


def _planned_cost(
    order: Order, excerpt: Excerpt, batch_size: int, memory_frames: int, scale: float, seed: int
) -> float:
    uses = _uses(excerpt, order.indices(excerpt.population.layout, seed=seed, epoch=0))
    # The loader prepares a few batches together. With a small cache, that is what brings frames of a group together.
    at_once = OPEN_BATCHES if memory_frames < OPEN_BATCHES * batch_size else 1
    size = max(1, round(at_once * batch_size * scale))
    # Frames of a chunk are consecutive, however small the excerpt is.
    soon = max(MIN_SOON, round(OPEN_BATCHES * batch_size * scale))
    ahead = LookAhead(Budget(round(memory_frames * scale)), lambda _: 1, soon)
    window = max(int(WINDOW_TERMS * ahead.term(0)), WINDOW_BATCHES * size)
    known = decoded = 0
    running: dict[Group, Cursor] = {}
    for first in range(0, len(uses), size):
        if known < min(len(uses), first + window):
            known, before = min(len(uses), first + window + GROWTH), known
            ahead.extend(uses[before:known])
            ahead.last = uses[-1].time if known == len(uses) else None
        opening = ahead.open(uses[first : first + size])
        for job in opening.jobs:
            decoded += _decode(excerpt.tables[job.video], job, running)
        for key in opening.held[0]:
            ahead.release(key)
        ahead.take_dropped()
        ahead.settle()
    return decoded / len(uses)


def _decode(table: PacketTable, job: GroupJob, running: dict[Group, Cursor]) -> int:
    """Returns the packets that a job decodes, continuing a running decoder of its group if there is one."""
    cursor = running.pop(job.group, None)
    (decode,) = plan_frames(table, job.frames, None if cursor is None else {job.start: cursor}).jobs
    if job.goes_on:  # the decoder stays at its position, with pictures pending
        last = int(table.display_rank[decode.wanted].max())
        fed = {*decode.packets.tolist(), *(cursor.pending if cursor is not None and decode.resume >= 0 else ())}
        pending = frozenset(packet for packet in fed if table.display_rank[packet] > last)
        running[job.group] = Cursor(int(decode.packets[-1]) + 1 if decode.cost else decode.resume, pending)
    return decode.cost


def _uses(excerpt: Excerpt, samples: NDArray[np.int64]) -> list[Use]:
    files, frames = excerpt.locate(samples)
    starts = np.empty_like(frames)
    order = np.argsort(files, kind="stable")
    bounds = np.searchsorted(files[order], np.arange(len(excerpt.tables) + 1))
    for number, table in enumerate(excerpt.tables):
        of_file = order[bounds[number] : bounds[number + 1]]
        starts[of_file] = table.start[table.frames[frames[of_file]]]
    return [
        Use(*use) for use in zip(range(len(samples)), files.tolist(), frames.tolist(), starts.tolist(), strict=True)
    ]


def _drawn_cost(model: Model, excerpt: Excerpt, batch_size: int, seed: int) -> float:
    """Returns the packets per frame for independent draws."""
    if isinstance(model, SlidingWindow):
        return _window_cost(model, excerpt, seed)
    chances = draw_probabilities(model, excerpt.population, batch_size=batch_size)
    costs = np.concatenate(list(_frame_costs(excerpt)))
    return float(chances @ costs)


def _frame_costs(excerpt: Excerpt) -> Iterator[NDArray[np.int64]]:
    for table, first, size in zip(excerpt.tables, excerpt.firsts, excerpt.population.file_sizes.tolist(), strict=True):
        yield random_frame_cost(table)[first : first + size]


def _window_cost(model: SlidingWindow, excerpt: Excerpt, seed: int) -> float:
    """Returns the packets per frame of random runs in the excerpt; a part of a video may be shorter than a run."""
    sizes = np.array([table.num_frames for table in excerpt.tables])
    window = min(model.window, int(sizes.max()))
    ends = np.cumsum(np.maximum(0, sizes - window + 1))
    numbers = np.random.default_rng(seed).integers(0, ends[-1], WINDOWS)
    packets = 0
    for number in numbers.tolist():
        file = int(np.searchsorted(ends, number, side="right"))
        first = int(number - ends[file] + sizes[file] - window + 1)
        packets += plan_frames(excerpt.tables[file], np.arange(first, first + window)).num_packets
    return packets / (WINDOWS * window)
