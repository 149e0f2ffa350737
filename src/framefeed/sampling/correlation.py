"""``Correlation``: correlation of values of two frames of one group, or of one file."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

__all__ = ["Correlation"]


@dataclass(frozen=True)
class Correlation:
    """Correlation of the values of two frames; 0 for frames of two files.

    Attributes:
        group: Mean over different frames of one group.
        file: Mean over frames of one file in different groups.
        distances: Known distances within a group, rising from 1; empty if the correlation is constant.
        by_distance: Correlation at each of them; interpolated between them, constant beyond the last.
        file_distances: The same for two frames of one file in different groups.
        by_file_distance: Correlation at each of them.
        error: Standard error of ``group``; None if it is not an estimate.
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
                raise ValueError(f"a correlation must be in -1..1, got {value}")
        for distances, values in (
            (self.distances, self.by_distance),
            (self.file_distances, self.by_file_distance),
        ):
            if len(distances) != len(values):
                raise ValueError(f"got {len(distances)} distances, but {len(values)} correlations")
            if any(after <= before for before, after in pairwise((0, *distances))):
                raise ValueError(f"distances must rise from 1, got {distances}")

    def in_group(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the correlation of frames of one group at these distances; 1 for the same frame."""
        found = _interpolated(distances, self.distances, self.by_distance, self.group)
        return np.where(distances == 0, 1.0, found)

    def across_groups(self, distances: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the correlation of frames of one file in two groups at these distances."""
        return _interpolated(distances, self.file_distances, self.by_file_distance, self.file)


def _interpolated(
    distances: NDArray[np.int64], known: tuple[int, ...], values: tuple[float, ...], otherwise: float
) -> NDArray[np.float64]:
    if not known:
        return np.full(len(distances), otherwise)
    return np.asarray(np.interp(distances, known, values), np.float64)
