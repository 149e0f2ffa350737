"""Identification of the frame that a picture shows.

Generated clips have the number in their pixels. Other videos are decoded from start to end, and each picture of a
reader is compared with the pictures of that decode at full size, in the reader's conversion to RGB.

Nearly all readers convert with libswscale. A reader's settings are found on the video itself: those with which its
pictures equal pictures of the decode bit for bit, whichever frames they are. Then a picture that differs in one value
is another frame. If no settings reproduce a reader's pictures exactly, as on a GPU, there is a tolerance: the largest
distance of its pictures from the nearest ones. A frame is then right if it is the only one within the tolerance.

Identical pictures prove nothing. A reader whose pictures are right but could be other frames as well is neither right
nor wrong, but untested.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import av.error
import numpy as np
from numpy.typing import NDArray

from framefeed.compare.conversions import WAYS, RgbConversion, conversions, turn
from framefeed.errors import InvalidFile
from framefeed.media.media import PathMedia
from framefeed.media.opening import open_input
from framefeed.testing.scenes import read_strip

__all__ = ["DecodedTruth", "Look", "PaintedTruth", "Pictures", "Sight", "Truth", "Verdict", "Wrong"]

NEAR = 16  # neighbours on either side to compare a frame with
ATTEMPTS = 6  # pictures used to find a conversion
MISSES = 2  # of these that may match nothing
LIMIT = 32  # largest error of a conversion, of 255 levels; more is another picture
MOST = 96  # frames compared within a tolerance, which is slow

_Way = tuple[RgbConversion, tuple[bool, int]]


@dataclass(frozen=True)
class Wrong:
    """A wrong frame.

    Attributes:
        index: The requested frame.
        got: The returned frame; None if unknown.
    """

    index: int
    got: int | None


@dataclass(frozen=True)
class Sight:
    """A picture returned by a reader.

    Attributes:
        request, place: Its request, and its position there.
        index: The requested frame.
        seen: What ``Truth.look`` kept of it.
    """

    request: int
    place: int
    index: int
    seen: Any


@dataclass(frozen=True)
class Verdict:
    """Verdict on a reader's pictures.

    Attributes:
        checked: Number of checked pictures.
        wrong: The wrong frames.
        tested: True if wrong frames would have been noticed.
    """

    checked: int
    wrong: list[Wrong]
    tested: bool


Look = Callable[[NDArray[np.uint8]], Any]
Pictures = Callable[[Sight], NDArray[np.uint8]]
"""Reads a picture again."""


class Truth(Protocol):
    """Detects wrong frames."""

    @property
    def look(self) -> Look:
        """Function that reduces a picture to what is compared. Runs in the reader's process."""

    def judge(self, sights: Sequence[Sight], pictures: Pictures) -> Verdict:
        """Compares the pictures seen with the expected frames."""


class PaintedTruth:
    """Truth of clips painted by `framefeed.testing.scenes`."""

    @property
    def look(self) -> Look:
        """Function that reads the painted number."""
        return _painted_number

    def judge(self, sights: Sequence[Sight], pictures: Pictures) -> Verdict:
        """Finds the frames with another painted number."""
        wrong = [Wrong(each.index, each.seen) for each in sights if each.seen != each.index]
        return Verdict(len(sights), wrong, bool(sights))


def _painted_number(picture: NDArray[np.uint8]) -> int | None:
    try:
        return read_strip(picture)
    except ValueError:
        return None


def _digest(picture: NDArray[np.uint8]) -> bytes:
    return blake2b(np.ascontiguousarray(picture).data, digest_size=16).digest()


class DecodedTruth:
    """Truth of any video, by comparison with a decode from its start.

    Args:
        path: The file.
        num_frames: Number of frames to decode, including some after the last requested one.
        turned: True if the file declares a rotation or mirroring. Some libraries apply it and some do not; both are
            right.

    Raises:
        InvalidFile: The file cannot be decoded that far.
    """

    def __init__(self, path: Path, num_frames: int, *, turned: bool = False) -> None:
        self._path = path
        self._count = num_frames
        self._ways = WAYS if turned else WAYS[:1]
        self._digests: dict[_Way, list[bytes]] = {}
        self._known: list[_Way] = []
        self._count = sum(1 for _ in self._frames())

    def __len__(self) -> int:
        return self._count

    @property
    def look(self) -> Look:
        """Function that computes a digest of the picture."""
        return _digest

    def _frames(self, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yields numbered frames of a linear decode."""
        try:
            with open_input(PathMedia(self._path)) as container:
                stream = container.streams.best("video")
                assert stream is not None
                stream.thread_type = "AUTO"  # type: ignore[attr-defined]  # of video streams
                decoded = islice(container.decode(stream), self._count if end is None else min(end, self._count))
                yield from ((number, frame) for number, frame in enumerate(decoded) if number >= begin)
        except av.error.FFmpegError as error:
            raise InvalidFile(self._path, f"cannot be decoded from start to end: {error}") from error

    # --- known conversions --------------------------------------------------------------------------------------------

    def judge(self, sights: Sequence[Sight], pictures: Pictures) -> Verdict:
        """Compares pictures exactly if the reader's conversion is found, and within a tolerance otherwise."""
        if not sights:
            return Verdict(0, [], False)
        way = self._find(sights, pictures)
        if way is None:
            return self._within_tolerance(sights, pictures)
        digests = self._digests[way]
        places: dict[bytes, list[int]] = {}
        for number, digest in enumerate(digests):
            places.setdefault(digest, []).append(number)
        wrong, tested = [], False
        for each in sights:
            same = places.get(each.seen, [])
            if each.index in same:
                tested |= sum(abs(number - each.index) <= NEAR for number in same) == 1
            else:
                got = min(same, key=lambda number, wanted=each.index: abs(number - wanted), default=None)  # type: ignore[misc]
                wrong.append(Wrong(each.index, got))
        return Verdict(len(sights), wrong, tested)

    def _find(self, sights: Sequence[Sight], pictures: Pictures) -> _Way | None:
        """Finds the conversion that explains most pictures, and at least half of them, as frames of this video."""
        best, most = None, 0
        left = list(sights)
        tried: list[_Way] = []
        for way in self._known:
            count = self._explained(way, sights)
            if count > most:
                best, most = way, count
        misses = 0
        for _ in range(ATTEMPTS):
            if best is not None:
                digests = set(self._digests[best])
                left = [each for each in left if each.seen not in digests]
            if not left or misses == MISSES:
                break
            sample = left.pop(len(left) // 2)
            found = self._matching(pictures(sample), sample.index, tried)
            misses += found is None
            if found is not None:
                tried.append(found)
                count = self._explained(found, sights)
                if count > most:
                    best, most = found, count
                    if found not in self._known:
                        self._known.append(found)
        return best if 2 * most >= len({each.seen for each in sights}) else None

    def _explained(self, way: _Way, sights: Sequence[Sight]) -> int:
        """Counts the different pictures that are frames of this video in that conversion."""
        if way not in self._digests:
            conversion, turned = way
            self._digests[way] = [_digest(turn(conversion(frame), turned)) for _, frame in self._frames()]
        return len({each.seen for each in sights} & set(self._digests[way]))

    def _matching(self, picture: NDArray[np.uint8], index: int, tried: Sequence[_Way]) -> _Way | None:
        """Returns a conversion that reproduces a picture from that frame or a near one."""
        own = ((frame, conversions()) for _, frame in self._frames(index, index + 1))
        near = ((frame, conversions(likely=True)) for _, frame in self._frames(index - NEAR, index + NEAR + 1))
        for frame, every in itertools.chain(own, near):
            for conversion in every:
                made = conversion(frame)
                for turned in self._ways:
                    way = (conversion, turned)
                    if way not in tried and np.array_equal(turn(made, turned), picture):
                        return way
        return None

    # --- unknown conversions ------------------------------------------------------------------------------------------

    def _within_tolerance(self, sights: Sequence[Sight], pictures: Pictures) -> Verdict:
        different = {(each.index, each.seen): each for each in sights}
        chosen = [different[key] for key in sorted(different)]
        if len(chosen) > MOST:
            chosen = [chosen[place] for place in np.linspace(0, len(chosen) - 1, MOST).astype(int).tolist()]
        conversion, turned = self._nearest(chosen[len(chosen) // 2], pictures)
        distances = self._distances(chosen, pictures, conversion, turned)
        nearest = [min(most for most, _, _ in found.values()) for found in distances]
        within = max(nearest)
        if within > LIMIT:  # some or all pictures are not frames of this video
            within = max((each for each in nearest if each <= LIMIT), default=0)
        within += 1 + within // 2
        wrong, tested = [], True
        for each, found in zip(chosen, distances, strict=True):
            own = found.get(each.index, (math.inf, math.inf, b""))
            best = min(found, key=lambda number, found=found: found[number][1])  # type: ignore[misc]
            fitting = {found[number][2] for number in found if found[number][0] <= within}
            if own[0] > within:
                tested = False
                if fitting and found[best][1] < own[1]:
                    wrong.append(Wrong(each.index, best))
                elif not fitting and own[0] > LIMIT and 2 * sum(near <= LIMIT for near in nearest) > len(nearest):
                    wrong.append(Wrong(each.index, None))
            elif len(fitting) > 1:
                tested = False
        told = any(
            sum(digest == found[each.index][2] for _, _, digest in found.values()) == 1
            for each, found in zip(chosen, distances, strict=True)
            if each.index in found
        )
        return Verdict(len(chosen), wrong, tested and told)

    def _nearest(self, sight: Sight, pictures: Pictures) -> _Way:
        """Returns the conversion nearest to a reader's, by one picture."""
        picture = pictures(sight).astype(np.int16)

        def distance(frame: Any, way: _Way) -> float:
            return _distance(picture, turn(way[0](frame), way[1]))[1]

        plain = [(RgbConversion(None), turned) for turned in self._ways]
        frames = [frame for _, frame in self._frames(sight.index - NEAR, sight.index + NEAR + 1)]
        if not frames:
            return plain[0]
        frame, first = min(itertools.product(frames, plain), key=lambda pair: distance(*pair))
        return min(((conversion, first[1]) for conversion in conversions()), key=lambda way: distance(frame, way))

    def _distances(
        self, sights: Sequence[Sight], pictures: Pictures, conversion: RgbConversion, turned: tuple[bool, int]
    ) -> list[dict[int, tuple[float, float, bytes]]]:
        """Returns, for each picture and near frame: the largest and the mean difference, and the frame's digest."""
        found: list[dict[int, tuple[float, float, bytes]]] = [{} for _ in sights]
        kept: dict[int, NDArray[np.int16]] = {}
        for number, frame in self._frames():
            active = [place for place, each in enumerate(sights) if abs(each.index - number) <= NEAR]
            kept = {place: kept[place] for place in active if place in kept}
            if active:
                made = np.ascontiguousarray(turn(conversion(frame), turned))
                digest = _digest(made)
                for place in active:
                    if place not in kept:
                        kept[place] = pictures(sights[place]).astype(np.int16)
                    found[place][number] = (*_distance(kept[place], made), digest)
        return [each or {-1: (math.inf, math.inf, b"")} for each in found]


def _distance(picture: NDArray[np.int16], other: NDArray[np.uint8]) -> tuple[float, float]:
    """Returns the largest and the mean difference of two pictures; infinite for different shapes."""
    if picture.shape != other.shape:
        return math.inf, math.inf
    difference = np.abs(picture - other)
    return float(difference.max(initial=0)), float(difference.mean())
