"""``study``: compares orders: statistics of their batches, and decoding cost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

import numpy as np
import torch

from framefeed._util.limits import budget_bytes
from framefeed.catalog.arrow_file import CatalogFile
from framefeed.catalog.catalog import Catalog
from framefeed.dataset.orders import Buffered, Chunked, Order, Sequential, Shuffle, resolve
from framefeed.loader.loader import DEFAULT_MEMORY_SHARE
from framefeed.plan.randomness import whole_number
from framefeed.sampling.chances.pairs import find_pairs
from framefeed.sampling.chances.probabilities import probability_range
from framefeed.sampling.correlation import Correlation
from framefeed.sampling.cost import SAMPLE_FRAMES, Excerpt, decoding_cost, memory_needed
from framefeed.sampling.models import FileFirst, Independent, Model, SlidingWindow
from framefeed.sampling.population import Population
from framefeed.sampling.rows import Entry, Row, Study, Unbiased

__all__ = ["SHARES", "default_entries", "method_named", "study"]

SHARES = (0.0, 0.01, 0.1, 0.25)
"""Shares of all frames for which a full shuffle is shown with memory."""

STEPS = 10
BUFFERS = (1024, 8192, 65_536)


def default_entries(population: Population, memory_frames: int | None = None) -> list[Entry]:
    """Returns the loader's orders at common sizes, and two models that are often used instead.

    Args:
        population: The frames to draw from.
        memory_frames: Number of frames that may be cached; None shows a full shuffle with several amounts, and the
            others with what they need.
    """
    orders: list[Order] = [Sequential(), Chunked(4), Chunked(8), Chunked(16)]
    orders += [Buffered(size) for size in BUFFERS if size == BUFFERS[0] or 4 * size <= population.num_frames]
    if memory_frames is None:
        entries = [Entry(order, memory_needed(order, population)) for order in orders]
        for share in SHARES:
            name = f"shuffle, {share:.0%}" if share else "shuffle"
            entries.append(Entry(Shuffle(), round(share * population.num_frames), name))
    else:
        entries = [Entry(order, memory_frames) for order in [*orders, Shuffle()]]
    window = SlidingWindow(min(16, int(population.file_sizes.max())))
    return [*entries, Entry(window), Entry(FileFirst())]


def method_named(name: str) -> Order | Model:
    """Returns an order by its loader name, or a model: ``"window:16"``, ``"file first"``, ``"independent"``.

    Raises:
        ValueError: The name is unknown.
    """
    kind, _, size = name.strip().partition(":")
    if kind == "window" and size.isdecimal() and int(size):
        return SlidingWindow(int(size))
    models: dict[str, Model] = {"file first": FileFirst(), "file-first": FileFirst(), "independent": Independent()}
    if name.strip() in models:
        return models[name.strip()]
    try:
        return resolve(name.strip(), False)
    except ValueError as error:
        raise ValueError(f"{error}; and the models window:16, file-first, independent") from None


def study(
    catalog: Catalog | str | os.PathLike[str],
    correlation: Correlation | float,
    *,
    batch_size: int = 128,
    entries: Sequence[Entry | Order | Model | str] | None = None,
    steps: int = STEPS,
    frame_bytes: int | None = None,
    memory_bytes: int | None = None,
    sample_frames: int | None = SAMPLE_FRAMES,
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> Study:
    """Compares orders on the videos of a catalog, without decoding.

    Args:
        catalog: The videos.
        correlation: Correlation of values; see `FrameValues.correlation`. A number applies within groups, with none
            between groups.
        batch_size: Frames in a batch, at least 2.
        entries: Orders or models to compare, also by name; None for `default_entries`. Orders get ``memory_bytes``, or
            what they need.
        steps: Number of consecutive batches evaluated together: a buffer defers frames from one batch to the next.
            Momentum averages over about 10.
        frame_bytes: Size of a cached frame; None for the videos' own size as RGB.
        memory_bytes: Memory limit. None shows orders with what they need and a shuffle with several amounts, and
            recommends within the loader's default, a quarter of the available memory.
        sample_frames: Number of frames that decoding is planned for; None for all.
        seed: Seed of simulations, and of the choice of planned frames.
        progress: Called with the steps done, the total number of steps, and a description.

    Raises:
        CatalogError: The catalog is empty or damaged.
        ValueError: There are fewer frames than a batch.
    """
    whole_number("batch_size", batch_size, least=2)
    whole_number("steps", steps, least=1)
    values = correlation if isinstance(correlation, Correlation) else Correlation(float(correlation))
    with contextlib.ExitStack() as stack:
        opened = catalog if isinstance(catalog, Catalog) else stack.enter_context(Catalog.open(catalog))
        progress(0, 1, "reading the catalog")
        population = Population.of_catalog(opened)
        size = _frame_bytes(opened) if frame_bytes is None else whole_number("frame_bytes", frame_bytes, least=1)
        excerpt = Excerpt.of(opened, num_frames=sample_frames, seed=seed)
    if batch_size > population.num_frames:
        raise ValueError(f"batch_size is {batch_size}, but there are only {population.num_frames} frames")
    memory = None if memory_bytes is None else memory_bytes // size
    if entries is None:
        chosen = default_entries(population, memory)
    else:
        chosen = [_entry(each, population, memory) for each in entries]
    rows = []
    for number, entry in enumerate(chosen):
        progress(number, len(chosen), entry.label)
        rows.append(_row(entry, population, excerpt, values, batch_size, steps, size, seed))
    progress(len(chosen), len(chosen), "")
    return Study(
        population.num_files,
        population.num_groups,
        population.num_frames,
        batch_size,
        steps,
        values,
        excerpt.population.num_frames,
        budget_bytes(memory_bytes, torch.device("cpu"), DEFAULT_MEMORY_SHARE),
        tuple(rows),
    )


def _entry(given: Entry | Order | Model | str, population: Population, memory: int | None) -> Entry:
    if isinstance(given, Entry):
        return given
    method = method_named(given) if isinstance(given, str) else given
    return Entry(method, memory_needed(method, population) if memory is None else memory)


def _row(
    entry: Entry,
    population: Population,
    excerpt: Excerpt,
    values: Correlation,
    batch_size: int,
    steps: int,
    frame_bytes: int,
    seed: int,
) -> Row:
    method = entry.method
    is_model = isinstance(method, Model)
    pairs = find_pairs(method, population, batch_size, seed=seed)
    over = None
    if is_model or steps * batch_size <= population.num_frames:
        over = find_pairs(method, population, steps * batch_size, seed=seed).design_effect(values)
    least, most = probability_range(method, population, batch_size)
    memory = 0 if is_model else min(entry.memory_frames, population.num_frames)
    cost = decoding_cost(method, excerpt, batch_size=batch_size, memory_frames=memory, seed=seed)
    return Row(
        entry.label,
        method.name,
        is_model,
        _unbiased(method, least, most),
        least,
        most,
        pairs.drawn.same_group,
        pairs.drawn.same_file,
        pairs.how,
        pairs.error,
        pairs.design_effect(values),
        over,
        cost.decoded_per_delivered,
        memory,
        memory * frame_bytes,
    )


def _unbiased(method: Order | Model, least: float, most: float) -> Unbiased:
    if isinstance(method, Shuffle | Chunked | Independent):
        return "steps"
    if isinstance(method, Buffered):
        return "inner"
    if isinstance(method, Model):
        return "steps" if np.isclose(least, most) else "never"
    return "epochs"


def _frame_bytes(catalog: Catalog) -> int:
    """Returns the mean size of a frame as RGB, in bytes."""
    file = CatalogFile(catalog.path)
    pixels = file.numbers("width").astype(np.float64) * file.numbers("height")
    return round(3 * float(np.average(pixels, weights=catalog.num_frames)))
