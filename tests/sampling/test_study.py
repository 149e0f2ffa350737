"""Orders beside each other, and which one to take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from framefeed import Catalog
from framefeed.dataset.orders import Buffered, Chunked, Sequential, Shuffle
from framefeed.sampling import (
    Correlation,
    Entry,
    FileFirst,
    Independent,
    Population,
    SlidingWindow,
    Study,
    default_entries,
    design_effect,
    method_named,
    study,
)

from .populations import videos


def test_rows_have_what_was_computed(catalog_path: Path) -> None:
    told: list[tuple[int, int, str]] = []
    values = Correlation(0.8, 0.3)
    found = study(
        catalog_path, values, batch_size=16, steps=4, frame_bytes=100, progress=lambda *step: told.append(step)
    )
    population = Population.of_catalog(catalog_path)
    assert (found.num_files, found.num_groups, found.num_frames) == (8, 22, 154)
    rows = {row.name: row for row in found.rows}
    assert list(rows) == [
        *("sequential", "chunked:4", "chunked:8", "chunked:16", "buffered:1024"),
        *("shuffle", "shuffle, 1%", "shuffle, 10%", "shuffle, 25%", "window:16", "file first"),
    ]
    assert [step[2] for step in told[1:-1]] == list(rows) and told[-1][0] == told[-1][1] == len(rows)
    chunked = rows["chunked:8"]
    assert chunked.design_effect == pytest.approx(design_effect(Chunked(8), population, 16, values))
    assert chunked.over_steps == pytest.approx(design_effect(Chunked(8), population, 64, values))
    assert chunked.price == chunked.decoded_per_delivered * design_effect(Chunked(8), population, 64, values)
    assert [rows[name].unbiased for name in ("sequential", "chunked:4", "buffered:1024", "shuffle", "window:16")] == [
        *("epochs", "steps", "inner", "steps", "never"),
    ]
    assert rows["shuffle, 25%"].memory_frames == 38 and rows["shuffle, 25%"].memory_bytes == 3800
    assert rows["shuffle, 25%"].decoded_per_delivered < rows["shuffle"].decoded_per_delivered
    assert rows["file first"].least == pytest.approx(154 / 8 / 40) and rows["file first"].most == pytest.approx(154 / 8)
    document = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert document["rows"][1]["price"] == rows["chunked:4"].price
    assert document["recommendation"] == found.recommendation


def test_own_orders_and_memory(catalog: Catalog) -> None:
    found = study(
        catalog,
        0.5,
        batch_size=8,
        entries=["buffered:16", "window:4", Chunked(2), Entry(Shuffle(), 7, "mine")],
        frame_bytes=1000,
        memory_bytes=20_500,
        steps=100,
    )
    assert [row.name for row in found.rows] == ["buffered:16", "window:4", "chunked:2", "mine"]
    assert [row.memory_frames for row in found.rows] == [20, 0, 20, 7]
    assert [row.over_steps is None for row in found.rows] == [True, False, True, True]  # an epoch has fewer batches
    only = study(catalog, 0.5, batch_size=8, entries=["buffered:16"], frame_bytes=1000)
    assert only.rows[0].memory_frames == 16 + 8
    with_memory = study(catalog, 0.5, batch_size=8, memory_bytes=50 * 64 * 48 * 3)
    assert {row.memory_frames for row in with_memory.rows if not row.is_model} == {50}
    assert [row.name for row in with_memory.rows].count("shuffle") == 1


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("shuffle", Shuffle()),
        (" chunked:8", Chunked(8)),
        ("buffered:4096", Buffered(4096)),
        ("sequential", Sequential()),
        ("window:16", SlidingWindow(16)),
        ("file-first", FileFirst()),
        ("file first", FileFirst()),
        ("independent", Independent()),
    ],
)
def test_methods_by_name(name: str, method: object) -> None:
    assert method_named(name) == method


def test_names_that_mean_nothing() -> None:
    for name in ("window:0", "window:x", "windows", "", "chunked:0"):
        with pytest.raises(ValueError, match=r"window:16|has to be in"):
            method_named(name)


def test_too_few_frames(catalog: Catalog) -> None:
    with pytest.raises(ValueError, match="batch_size is 155, but there are only 154 frames"):
        study(catalog, 0.5, batch_size=155)


def test_larger_buffers_for_more_frames() -> None:
    names = [entry.label for entry in default_entries(videos(400))]
    assert "buffered:8192" in names and "buffered:65536" not in names
    assert "buffered:8192" not in [entry.label for entry in default_entries(videos(20))]


def _study(correlation: float, catalog: Catalog, memory_bytes: int | None = None) -> Study:
    return study(catalog, correlation, batch_size=16, steps=2, frame_bytes=10**6, memory_bytes=memory_bytes)


def test_recommendation_depends_on_correlation_and_memory(catalog: Catalog) -> None:
    # Frames that have nothing to do with each other: what is cheapest to decode.
    cheap, exact = _study(0.0, catalog).recommendation
    assert cheap.startswith("Decoding is the bottleneck: take order='sequential' (1.0 packets for each frame")
    assert exact.startswith("The model is the bottleneck: take order=")
    # Frames of a group are all alike: not in order, whatever else is possible with so much memory.
    for memory_bytes in (0, 40 * 10**6, None):
        found = _study(1.0, catalog, memory_bytes)
        cheap, exact = found.recommendation
        limit = found.memory_bytes
        best = min(
            (row for row in found.rows if not row.is_model and row.memory_bytes <= limit), key=lambda row: row.price
        )
        assert f"take order='{best.order}'" in cheap and "sequential" not in cheap
        assert ("memory_budget" in cheap) == bool(best.memory_bytes)
        assert "order='shuffle'" in (cheap if "take the same" in exact else exact)
    nothing = study(catalog, 0.5, batch_size=16, entries=["window:4"])
    assert nothing.recommendation == []
