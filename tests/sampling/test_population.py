"""Groups and files of a catalog, found without going through its videos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import clips
from framefeed import Catalog, CatalogError
from framefeed.catalog.arrow_file import write_file
from framefeed.catalog.catalog_rows import encode
from framefeed.dataset.orders import Layout
from framefeed.sampling import Population

from .conftest import LENGTHS

KINDS = ("h264_open_gop", "hevc_open_gop", "vp8_alt_ref", "h264_one_frame", "h264_bframes")


def _one_by_one(catalog: Catalog) -> Population:
    groups = []
    for number in range(len(catalog)):
        packets = catalog[number].packets
        starts = packets.start[packets.frames]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(starts)) + 1, [len(starts)]])
        groups.append(np.diff(bounds).tolist())
    return Population.of(groups)


def _assert_same(found: Population, expected: Population) -> None:
    assert found.group_sizes.tolist() == expected.group_sizes.tolist()
    assert found.groups_per_file.tolist() == expected.groups_per_file.tolist()


def test_known_groups(catalog: Catalog) -> None:
    population = Population.of_catalog(catalog)
    assert population.file_sizes.tolist() == list(LENGTHS)
    assert population.groups_per_file.tolist() == [-(-length // 8) for length in LENGTHS]
    assert population.group_sizes[:6].tolist() == [8, 8, 8, 8, 8, 4]
    assert repr(population) == "Population(8 files, 22 groups, 154 frames)"


def test_odd_streams(clip_folder: Path, tmp_path: Path) -> None:
    paths = [clips.make(kind, clip_folder) for kind in KINDS]
    catalog = Catalog.build(paths, tmp_path / "odd.arrow", progress=False)
    _assert_same(Population.of_catalog(catalog), _one_by_one(catalog))
    _assert_same(Population.of_catalog(tmp_path / "odd.arrow"), _one_by_one(catalog))


def test_many_batches_of_rows(catalog: Catalog, tmp_path: Path) -> None:
    batch = encode([catalog[number] for number in range(8)])
    write_file(str(tmp_path / "many.arrow"), [batch.slice(2, 5), batch, batch.slice(0, 1)], batch.schema, [])
    once = Population.of_catalog(catalog)
    expected = [*range(2, 7), *range(8), 0]
    population = Population.of_catalog(tmp_path / "many.arrow")
    assert population.groups_per_file.tolist() == once.groups_per_file[expected].tolist()
    assert population.file_sizes.tolist() == [LENGTHS[number] for number in expected]


def test_damage_is_told(catalog: Catalog, tmp_path: Path) -> None:
    batch = encode([catalog[0]])
    for wrong in (24, -1):  # frames are 24 packets
        place = batch.schema.get_field_index("frames")
        frames = pa.array([[*range(23), wrong]], batch.schema.field("frames").type)
        columns = [frames if number == place else column for number, column in enumerate(batch.columns)]
        write_file(str(tmp_path / "bad.arrow"), [pa.record_batch(columns, schema=batch.schema)], batch.schema, [])
        with pytest.raises(CatalogError, match=r"bad\.arrow: is damaged"):
            Population.of_catalog(tmp_path / "bad.arrow")
    empty = encode([])
    write_file(str(tmp_path / "empty.arrow"), [empty], empty.schema, [])
    with pytest.raises(CatalogError, match="is empty; add videos"):
        Population.of_catalog(tmp_path / "empty.arrow")
    with pytest.raises(CatalogError, match="no such catalog"):
        Population.of_catalog(tmp_path / "none.arrow")


def test_layouts_and_back() -> None:
    groups = [[3, 2], [1], [4, 4]]
    population = Population.of(groups)
    _assert_same(Population.of_layout(Layout.of(groups)), population)
    layout = population.layout
    assert layout.files.tolist() == [0, 5, 6]
    assert layout.groups.tolist() == [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert population.group_files.tolist() == [0, 0, 1, 2, 2]
    _assert_same(population.files(np.array([0, 2])), Population.of([[3, 2], [4, 4]]))


@pytest.mark.parametrize("groups", [[], [[]], [[0]], [[3], []]])
def test_populations_are_checked(groups: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="each file a group, and each group a frame"):
        Population.of(groups)
    with pytest.raises(ValueError, match="got 2 groups, but files with 3"):
        Population(np.array([1, 1]), np.array([1, 2]))
