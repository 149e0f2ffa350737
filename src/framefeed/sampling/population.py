"""``Population``: the frames to draw from, as files that consist of groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framefeed._util.lazy_property import cached_property
from framefeed.catalog.arrow_file import CatalogFile
from framefeed.catalog.catalog import Catalog
from framefeed.dataset.orders import Layout
from framefeed.errors import CatalogError

__all__ = ["Population"]


@dataclass(frozen=True, eq=False)
class Population:
    """The frames to draw from, numbered through their files.

    Stores nothing per frame: a million groups take 8 MB.

    Attributes:
        group_sizes: Frames of each group that decodes together, file after file, at least 1.
        groups_per_file: Number of groups in each file, at least 1.
    """

    group_sizes: NDArray[np.int64]
    groups_per_file: NDArray[np.int64]

    def __post_init__(self) -> None:
        if min(self.group_sizes.min(initial=1), self.groups_per_file.min(initial=1)) < 1 or not len(self.group_sizes):
            raise ValueError("a population needs at least one file, each file a group, and each group a frame")
        if self.groups_per_file.sum() != len(self.group_sizes):
            raise ValueError(f"got {len(self.group_sizes)} groups, but files with {self.groups_per_file.sum()}")

    @classmethod
    def of(cls, groups_per_file: Sequence[Sequence[int]]) -> Population:
        """Creates a population from the number of frames of each group of each file."""
        sizes = [size for groups in groups_per_file for size in groups]
        return cls(np.array(sizes, np.int64), np.array([len(groups) for groups in groups_per_file], np.int64))

    @classmethod
    def of_layout(cls, layout: Layout) -> Population:
        """Creates a population from a dataset's layout (``dataset.layout``), with samples in place of frames."""
        starts = layout.group_starts
        bounds = np.searchsorted(starts, np.append(layout.files, layout.num_samples))
        return cls(np.diff(np.append(starts, layout.num_samples)), np.diff(bounds))

    @classmethod
    def of_catalog(cls, catalog: Catalog | str | os.PathLike[str]) -> Population:
        """Creates a population from a catalog, without opening its videos one by one.

        Raises:
            CatalogError: The catalog is empty or damaged.
        """
        path = catalog.path if isinstance(catalog, Catalog) else os.fspath(catalog)
        if not isinstance(catalog, Catalog):
            with Catalog.open(path) as opened:  # accepts packet store folders, and raises helpful errors
                path = opened.path
        file = CatalogFile(path)
        if not len(file):
            raise CatalogError(path, "is empty; add videos with framefeed index")
        parts = [_groups(batch, path) for batch in file.batches if batch.num_rows]
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    # --- sizes ----------------------------------------------------------------------------------------------------

    @cached_property
    def num_frames(self) -> int:
        """Number of frames."""
        return int(self.group_sizes.sum())

    @property
    def num_files(self) -> int:
        """Number of files."""
        return len(self.groups_per_file)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.group_sizes)

    @cached_property
    def file_sizes(self) -> NDArray[np.int64]:
        """Number of frames in each file."""
        sizes: NDArray[np.int64] = np.add.reduceat(self.group_sizes, self.first_groups)
        return sizes

    @property
    def first_groups(self) -> NDArray[np.int64]:
        """First group of each file."""
        return np.cumsum(self.groups_per_file) - self.groups_per_file

    # --- positions ------------------------------------------------------------------------------------------------

    @property
    def group_starts(self) -> NDArray[np.int64]:
        """First frame of each group."""
        return np.cumsum(self.group_sizes) - self.group_sizes

    @property
    def file_starts(self) -> NDArray[np.int64]:
        """First frame of each file."""
        return np.cumsum(self.file_sizes) - self.file_sizes

    @property
    def group_files(self) -> NDArray[np.int64]:
        """File of each group."""
        return np.repeat(np.arange(self.num_files, dtype=np.int64), self.groups_per_file)

    @cached_property
    def layout(self) -> Layout:
        """Layout for orders; per-frame arrays are created on demand."""
        return Layout(self.num_frames, self.file_starts, self._frame_groups)

    def _frame_groups(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.num_groups, dtype=np.int64), self.group_sizes)

    def files(self, numbers: NDArray[np.int64]) -> Population:
        """Returns a population of only these files, by their rising numbers."""
        chosen = np.zeros(self.num_files, np.bool_)
        chosen[numbers] = True
        return Population(self.group_sizes[chosen[self.group_files]], self.groups_per_file[chosen])

    def __repr__(self) -> str:
        return f"Population({self.num_files} files, {self.num_groups} groups, {self.num_frames} frames)"


def _groups(batch: Any, path: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the sizes of all groups of a batch of rows, and the number of groups in each row."""
    batch.validate(full=True)  # lists must stay within their column
    (start, packet_bounds), (frames, frame_bounds) = (_list(batch, name) for name in ("start", "frames"))
    packets, counts = np.diff(packet_bounds), np.diff(frame_bounds)
    if (counts < 1).any() or (frames < 0).any() or (frames >= np.repeat(packets, counts)).any():
        raise CatalogError(path, "is damaged; delete it and build it again")
    # Frames of a group are adjacent and decode from the same packet.
    starts = start[np.repeat(packet_bounds[:-1], counts) + frames]
    is_first = np.empty(len(starts), np.bool_)
    is_first[1:] = starts[1:] != starts[:-1]
    is_first[frame_bounds[:-1]] = True
    firsts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(firsts, len(starts)))
    return sizes, np.diff(np.searchsorted(firsts, frame_bounds))


def _list(batch: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Returns all values of a list column, and the bounds of its rows."""
    column = batch.column(batch.schema.get_field_index(name))
    bounds = column.offsets.to_numpy().astype(np.int64)
    return column.values.to_numpy()[bounds[0] : bounds[-1]], bounds - bounds[0]
