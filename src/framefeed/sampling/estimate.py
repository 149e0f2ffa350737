"""Estimates of correlation within groups and files, by analysis of variance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from framefeed.sampling.correlation import Correlation

__all__ = ["Components", "estimate_correlation", "variance_components"]

# Number of files compared pairwise for correlation by distance, and of consecutive frames in each.
MAX_FILES = 1000
MAX_FRAMES = 512
MIN_PAIRS = 30

_Profile = tuple[tuple[int, ...], tuple[float, ...]]
"""Distances, and the correlation at each."""


@dataclass(frozen=True)
class Components:
    """Components of variance.

    Attributes:
        files: Variance of files' means.
        groups: Variance of the means of a file's groups.
        frames: Variance of frames within a group.
    """

    files: float
    groups: float
    frames: float

    @property
    def total(self) -> float:
        """Variance of all values."""
        return self.files + self.groups + self.frames


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums for analysis of variance, per file or with one file left out."""

    count: NDArray[np.float64]  # values
    groups: NDArray[np.float64]
    files: NDArray[np.float64]
    total: NDArray[np.float64]  # sum of values
    squares: NDArray[np.float64]  # of values
    group_squares: NDArray[np.float64]  # of groups' sums, by their counts
    file_squares: NDArray[np.float64]  # of files' sums, by their counts
    group_counts: NDArray[np.float64]  # squares of groups' counts
    group_shares: NDArray[np.float64]  # the same by their file's count
    file_counts: NDArray[np.float64]  # squares of files' counts

    def without(self, other: _Sums) -> _Sums:
        return _Sums(*(getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__))

    def all_together(self) -> _Sums:
        return _Sums(*(getattr(self, name).sum(keepdims=True) for name in self.__dataclass_fields__))


def variance_components(values: NDArray[np.float64], files: NDArray[np.int64], groups: NDArray[np.int64]) -> Components:
    """Estimates components of variance of values nested in groups and files of unequal size.

    Equates sums of squares with their expectations. Negative results become 0.

    Args:
        values: One for each known frame.
        files: File of each.
        groups: Group of each; groups of different files have different numbers.

    Raises:
        ValueError: No group has two values.
    """
    parts = _solve(_file_sums(values, files, groups).all_together())
    return Components(*(float(part[0]) for part in parts))


def estimate_correlation(
    values: NDArray[np.float64],
    files: NDArray[np.int64],
    groups: NDArray[np.int64],
    frames: NDArray[np.int64] | None = None,
    *,
    seed: int = 0,
) -> Correlation:
    """Estimates the correlation of the values of two frames of a group, and of a file.

    Args:
        values: One for each known frame.
        files: File of each.
        groups: Group of each; groups of different files have different numbers.
        frames: Number of each frame in its file, for correlation by distance; None leaves that out.
        seed: Seed of the choice of files for that, if there are very many.

    Raises:
        ValueError: No group has two values, all values are equal, or a frame has two values.
    """
    sums = _file_sums(values, files, groups)
    together = sums.all_together()
    within_group, within_file = _correlations(*_solve(together))
    if not np.isfinite(within_group[0]):
        raise ValueError("all values are equal: correlation is undefined")
    error = None
    if len(sums.count) > 2:  # jackknife over files
        each, _ = _correlations(*_solve(together.without(sums)))
        each = each[np.isfinite(each)]
        error = float(np.sqrt(max(0, len(each) - 1) * each.var()))
    in_group: _Profile = ((), ())
    across: _Profile = ((), ())
    if frames is not None:
        variance = Components(*(float(part[0]) for part in _solve(together))).total
        in_group, across = _by_distance(values, files, groups, frames, variance, seed)
    return Correlation(float(within_group[0]), float(within_file[0]), *in_group, *across, error=error)


def _correlations(
    files: NDArray[np.float64], groups: NDArray[np.float64], frames: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    total = files + groups + frames
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, (files + groups) / total, np.nan), np.where(total > 0, files / total, np.nan)


def _file_sums(values: NDArray[np.float64], files: NDArray[np.int64], groups: NDArray[np.int64]) -> _Sums:
    if not np.isfinite(values).all():
        raise ValueError("values must be finite; leave out frames without a value")
    centred = values - values.mean() if len(values) else values
    _, group_of = np.unique(groups, return_inverse=True)
    _, file_of = np.unique(files, return_inverse=True)
    file_of_group = np.zeros(int(group_of.max(initial=-1)) + 1, np.int64)
    file_of_group[group_of] = file_of
    counts, sums = np.bincount(group_of), np.bincount(group_of, centred).astype(np.float64)
    if not len(counts) or counts.max() < 2:
        raise ValueError("correlation within groups needs a group with two values")

    def by_file(of_groups: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(file_of_group, of_groups).astype(np.float64)

    in_file, file_total = by_file(counts.astype(np.float64)), by_file(sums)
    squared = by_file(counts.astype(np.float64) ** 2)
    return _Sums(
        count=in_file,
        groups=by_file(np.ones(len(counts))),
        files=np.ones(len(in_file)),
        total=file_total,
        squares=np.bincount(file_of, centred**2).astype(np.float64),
        group_squares=by_file(sums**2 / counts),
        file_squares=file_total**2 / in_file,
        group_counts=squared,
        group_shares=squared / in_file,
        file_counts=in_file**2,
    )


def _solve(sums: _Sums) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Solves for components: the expectation of each sum of squares is a known combination of them."""

    def divided(part: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(by > 1e-9, np.maximum(0, part) / np.maximum(by, 1e-9), 0.0)

    frames = divided(sums.squares - sums.group_squares, sums.count - sums.groups)
    between = sums.group_squares - sums.file_squares - (sums.groups - sums.files) * frames
    groups = divided(between, sums.count - sums.group_shares)
    between = sums.file_squares - sums.total**2 / sums.count - (sums.files - 1) * frames
    between = between - (sums.group_shares - sums.group_counts / sums.count) * groups
    return divided(between, sums.count - sums.file_counts / sums.count), groups, frames


def _by_distance(
    values: NDArray[np.float64],
    files: NDArray[np.int64],
    groups: NDArray[np.int64],
    frames: NDArray[np.int64],
    variance: float,
    seed: int,
) -> tuple[_Profile, _Profile]:
    """Estimates correlation from half the mean squared difference, the variance left at a distance.

    Returns:
        Distances and correlations of frames of one group, and of frames of one file in two groups.
    """
    rng = np.random.default_rng(seed)
    order = np.lexsort((frames, files))
    _, firsts, counts = np.unique(files[order], return_index=True, return_counts=True)
    chosen = np.arange(len(firsts))
    if len(chosen) > MAX_FILES:
        chosen = np.sort(rng.choice(chosen, MAX_FILES, replace=False))
    if ((np.diff(files[order]) == 0) & (np.diff(frames[order]) == 0)).any():
        raise ValueError("a frame has two values")
    blocks = []
    for file in chosen.tolist():
        size = min(MAX_FRAMES, int(counts[file]))
        start = int(firsts[file]) + int(rng.integers(0, counts[file] - size + 1))
        blocks.append(order[start : start + size])
    bounds = _bounds(max(int(np.ptp(frames[block])) for block in blocks))
    sums = np.zeros((2, 3, len(bounds) - 1))  # of one group and of two; pairs, distances, squares
    for block in blocks:
        first, second = np.triu_indices(len(block), 1)
        apart = frames[block][second] - frames[block][first]
        squares = (values[block][second] - values[block][first]) ** 2
        bins = np.searchsorted(bounds, apart, side="right") - 1
        same = groups[block][second] == groups[block][first]
        for kind, among in zip(sums, (same, ~same), strict=True):
            for place, weights in enumerate((None, apart[among], squares[among])):
                kind[place] += np.bincount(bins[among], weights, minlength=len(bounds) - 1)
    in_group, across = (_profile(kind, variance) for kind in sums)
    if across[0]:  # nearer frames than any observed in two groups count as frames of one group
        near = sum(distance < across[0][0] for distance in in_group[0])
        across = (in_group[0][:near] + across[0], in_group[1][:near] + across[1])
    return in_group, across


def _profile(sums: NDArray[np.float64], variance: float) -> _Profile:
    pairs, apart, squares = sums
    enough = pairs >= MIN_PAIRS
    if not enough.any():
        return (), ()
    middles = np.round(apart[enough] / pairs[enough]).astype(np.int64)
    found = np.clip(1 - squares[enough] / pairs[enough] / 2 / variance, -1, 1)
    return tuple(middles.tolist()), tuple(found.tolist())


def _bounds(far: int) -> NDArray[np.int64]:
    """Returns bounds of distance classes: 1, 2, 3, 4 and then ever wider ones, so that their centres rise."""
    wider = np.unique(np.geomspace(4, max(5, far + 1), 24).round().astype(np.int64))
    bounds: NDArray[np.int64] = np.unique(np.concatenate([[1, 2, 3], wider, [far + 2]])).astype(np.int64)
    return bounds
