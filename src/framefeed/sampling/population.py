"""``Population``: all frames that can be drawn, as files that consist of groups."""

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
    """All frames that can be drawn, numbered through their files.

    Nothing in it is as long as the frames are many: a million groups take 8 MB.

    Attributes:
        group_sizes: Frames of each group that decodes together, file after file, at least 1.
        groups_per_file: Groups of each file, at least 1.
    """

    group_sizes: NDArray[np.int64]
    groups_per_file: NDArray[np.int64]

    def __post_init__(self) -> None:
        if min(self.group_sizes.min(initial=1), self.groups_per_file.min(initial=1)) < 1 or not len(self.group_sizes):
            raise ValueError("a population has files, each file has groups, and each group has frames")
        if self.groups_per_file.sum() != len(self.group_sizes):
            raise ValueError(f"there are {len(self.group_sizes)} groups, and files with {self.groups_per_file.sum()}")

    @classmethod
    def of(cls, groups_per_file: Sequence[Sequence[int]]) -> Population:
        """From the number of frames of each group of each file."""
        sizes = [size for groups in groups_per_file for size in groups]
        return cls(np.array(sizes, np.int64), np.array([len(groups) for groups in groups_per_file], np.int64))

    @classmethod
    def of_layout(cls, layout: Layout) -> Population:
        """From where the samples of a dataset lie (``dataset.layout``): samples then take the place of frames."""
        starts = layout.group_starts
        bounds = np.searchsorted(starts, np.append(layout.files, layout.num_samples))
        return cls(np.diff(np.append(starts, layout.num_samples)), np.diff(bounds))

    @classmethod
    def of_catalog(cls, catalog: Catalog | str | os.PathLike[str]) -> Population:
        """From a catalog, without going through its videos one by one.

        Raises:
            CatalogError: It is empty or damaged.
        """
        path = catalog.path if isinstance(catalog, Catalog) else os.fspath(catalog)
        if not isinstance(catalog, Catalog):
            with Catalog.open(path) as opened:  # for the folder of a packet store, and for its errors
                path = opened.path
        file = CatalogFile(path)
        if not len(file):
            raise CatalogError(path, "has no videos; index some with framefeed index")
        parts = [_groups(batch, path) for batch in file.batches if batch.num_rows]
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    # --- how many -------------------------------------------------------------------------------------------------

    @cached_property
    def num_frames(self) -> int:
        """Frames of all files."""
        return int(self.group_sizes.sum())

    @property
    def num_files(self) -> int:
        """Files."""
        return len(self.groups_per_file)

    @property
    def num_groups(self) -> int:
        """Groups of all files."""
        return len(self.group_sizes)

    @cached_property
    def file_sizes(self) -> NDArray[np.int64]:
        """Frames of each file."""
        sizes: NDArray[np.int64] = np.add.reduceat(self.group_sizes, self.first_groups)
        return sizes

    @property
    def first_groups(self) -> NDArray[np.int64]:
        """The first group of each file."""
        return np.cumsum(self.groups_per_file) - self.groups_per_file

    # --- where ----------------------------------------------------------------------------------------------------

    @property
    def group_starts(self) -> NDArray[np.int64]:
        """The first frame of each group."""
        return np.cumsum(self.group_sizes) - self.group_sizes

    @property
    def file_starts(self) -> NDArray[np.int64]:
        """The first frame of each file."""
        return np.cumsum(self.file_sizes) - self.file_sizes

    @property
    def group_files(self) -> NDArray[np.int64]:
        """The file of each group."""
        return np.repeat(np.arange(self.num_files, dtype=np.int64), self.groups_per_file)

    @cached_property
    def layout(self) -> Layout:
        """The same for orders; what is as long as the frames are many is made when an order asks for it."""
        return Layout(self.num_frames, self.file_starts, self._frame_groups)

    def _frame_groups(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.num_groups, dtype=np.int64), self.group_sizes)

    def files(self, numbers: NDArray[np.int64]) -> Population:
        """Those files alone, by their rising numbers."""
        chosen = np.zeros(self.num_files, np.bool_)
        chosen[numbers] = True
        return Population(self.group_sizes[chosen[self.group_files]], self.groups_per_file[chosen])

    def __repr__(self) -> str:
        return f"Population({self.num_files} files, {self.num_groups} groups, {self.num_frames} frames)"


def _groups(batch: Any, path: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sizes of all groups of a batch of rows, and how many each row has."""
    batch.validate(full=True)  # that no list reaches beyond its column
    (start, packet_bounds), (frames, frame_bounds) = (_list(batch, name) for name in ("start", "frames"))
    packets, counts = np.diff(packet_bounds), np.diff(frame_bounds)
    if (counts < 1).any() or (frames < 0).any() or (frames >= np.repeat(packets, counts)).any():
        raise CatalogError(path, "damaged; delete it and build it again")
    # A group's frames are neighbours that decode from the same packet.
    starts = start[np.repeat(packet_bounds[:-1], counts) + frames]
    is_first = np.empty(len(starts), np.bool_)
    is_first[1:] = starts[1:] != starts[:-1]
    is_first[frame_bounds[:-1]] = True
    firsts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(firsts, len(starts)))
    return sizes, np.diff(np.searchsorted(firsts, frame_bounds))


def _list(batch: Any, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """All values of a column of lists, and where each row's begin and the last one's end."""
    column = batch.column(batch.schema.get_field_index(name))
    bounds = column.offsets.to_numpy().astype(np.int64)
    return column.values.to_numpy()[bounds[0] : bounds[-1]], bounds - bounds[0]
