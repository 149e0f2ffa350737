"""``Correlation``: how much alike the values of two frames of one group, or of one file, are."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Correlation"]


@dataclass(frozen=True)
class Correlation:
    """Correlation of the values of two frames; that of frames of two files is 0.

    Attributes:
        group: Of two different frames of one group, on average.
        file: Of two frames of one file that are of different groups, on average.
        distances: Distances within a group, rising from 1, for which it is known; none where it is the same for all.
        by_distance: The correlation at each of them. Between them it is interpolated, beyond the last it stays.
        file_distances: The same for two frames of one file that are of different groups.
        by_file_distance: The correlation at each of them.
        error: Standard error of ``group``; None where it is not an estimate.
    """

    group: float
    file: float = 0.0
    distances: tuple[int, ...] = ()
    by_distance: tuple[float, ...] = ()
    file_distances: tuple[int, ...] = ()
    by_file_distance: tuple[float, ...] = ()
    error: float | None = None

    def __post_init__(self) -> None:
        for value in (self.group, self.file, *self.by_distance, *self.by_file_distance):
            if not -1 <= value <= 1:
                raise ValueError(f"a correlation is in -1..1, got {value}")
        for distances, values in (
            (self.distances, self.by_distance),
            (self.file_distances, self.by_file_distance),
        ):
            if len(distances) != len(values):
                raise ValueError(f"{len(distances)} distances and {len(values)} correlations")
            if any(after <= before for before, after in pairwise((0, *distances))):
                raise ValueError(f"distances rise from 1, got {distances}")

    def in_group(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """The correlation of frames of one group that are so far apart; 1 for the same frame."""
        found = _interpolated(distances, self.distances, self.by_distance, self.group)
        return np.where(distances == 0, 1.0, found)

    def across_groups(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """The correlation of frames of two groups of one file that are so far apart."""
        return _interpolated(distances, self.file_distances, self.by_file_distance, self.file)


def _interpolated(
    distances: NDArray[np.int64], known: tuple[int, ...], values: tuple[float, ...], otherwise: float
) -> NDArray[np.float64]:
    if not known:
        return np.full(len(distances), otherwise)
    return np.asarray(np.interp(distances, known, values), np.float64)
