"""Which frame a picture really is.

Generated clips have the number in their pixels. Of other videos a linear decode is made once, and small gray pictures
of it are kept: a frame that a reader returns is compared with the one that it should be and with its neighbours. Colour
conversions differ by a few levels between libraries, so a frame is only called wrong where a neighbour fits clearly
better, or where it fits to nothing near. Some libraries turn pictures as the file says and some do not; both are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import av.error
import numpy as np
from numpy.typing import NDArray

from framefeed.bench.clips import read_strip
from framefeed.errors import InvalidFile
from framefeed.media import PathMedia
from framefeed.opening import open_input

__all__ = ["Painted", "Seen", "Truth", "Wrong", "look_at"]

SIZE = (36, 64)  # of the small pictures, in lines and columns
NEAR = 16  # neighbours on either side that a frame is compared with
CLEARLY = 0.75  # levels of 255 by which a neighbour must fit better
NOTHING_LIKE = 24.0  # levels; colour conversions do not differ by so much


@dataclass(frozen=True)
class Wrong:
    """A frame that is not the one that was asked for.

    Attributes:
        index: The frame that was asked for.
        got: The one that came; None where it is none that is near.
    """

    index: int
    got: int | None


class Truth(Protocol):
    """Tells wrong frames."""

    def wrong(self, frames: NDArray[np.uint8], indices: Sequence[int]) -> list[Wrong]:
        """The frames of (T, H, W, 3) that are not those of these numbers."""


class Painted:
    """Of clips that `framefeed.bench.clips` paints."""

    def wrong(self, frames: NDArray[np.uint8], indices: Sequence[int]) -> list[Wrong]:
        """The frames whose painted number is another one."""
        found = []
        for frame, index in zip(frames, indices, strict=True):
            try:
                number: int | None = read_strip(frame)
            except ValueError:
                number = None
            if number != index:
                found.append(Wrong(index, number))
        return found


class Seen:
    """Of any video, by comparison.

    Args:
        thumbnails: (frames, *SIZE), a small gray picture of each frame, as it is stored.
        turned: Whether the file says that pictures are to be turned or mirrored.
    """

    def __init__(self, thumbnails: NDArray[np.float32], *, turned: bool = False) -> None:
        self._thumbnails = thumbnails
        self._turned = turned

    def __len__(self) -> int:
        return len(self._thumbnails)

    def wrong(self, frames: NDArray[np.uint8], indices: Sequence[int]) -> list[Wrong]:
        """The frames that a neighbour fits better, or nothing."""
        found = []
        for frame, index in zip(frames, indices, strict=True):
            low = max(0, index - NEAR)
            near = self._thumbnails[low : index + NEAR + 1]
            ways = [np.rot90(side, turns) for side in (frame, frame[:, ::-1]) for turns in range(4)]
            smalls = [thumbnail(way) for way in (ways if self._turned else ways[:1])]
            distances = np.min([np.abs(near - small).mean(axis=(1, 2)) for small in smalls], axis=0)
            best = int(distances.argmin())
            own = float(distances[index - low])
            if own > NOTHING_LIKE and distances[best] > NOTHING_LIKE:
                found.append(Wrong(index, None))
            elif best != index - low and own - float(distances[best]) > CLEARLY:
                found.append(Wrong(index, low + best))
        return found


def thumbnail(frame: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A small gray picture of an (H, W, 3) frame: means of blocks."""
    gray = frame.astype(np.float32).mean(axis=2)
    for axis, parts in enumerate(SIZE):
        edges = np.linspace(0, gray.shape[axis], parts + 1).astype(np.int64)[:-1]
        counts = np.diff(np.append(edges, gray.shape[axis]))
        if (counts == 0).any():  # fewer pixels than parts: each is repeated
            gray = np.repeat(gray, -(-parts // gray.shape[axis]), axis=axis)
            edges = np.linspace(0, gray.shape[axis], parts + 1).astype(np.int64)[:-1]
            counts = np.diff(np.append(edges, gray.shape[axis]))
        shape = [1, 1]
        shape[axis] = parts
        gray = np.add.reduceat(gray, edges, axis=axis) / counts.reshape(shape)
    small: NDArray[np.float32] = gray.astype(np.float32)
    return small


def look_at(path: Path, num_frames: int, *, turned: bool = False) -> Seen:
    """Decodes a video from its start, up to so many frames."""
    found = []
    try:
        with open_input(PathMedia(path)) as container:
            container.streams.video[0].thread_type = "AUTO"
            for frame in container.decode(video=0):
                found.append(thumbnail(frame.to_ndarray(format="rgb24").astype(np.uint8, copy=False)))
                if len(found) == num_frames:
                    break
    except av.error.FFmpegError as error:
        raise InvalidFile(path, f"cannot be decoded from its start to its end: {error}") from error
    return Seen(np.stack(found) if found else np.zeros((0, *SIZE), np.float32), turned=turned)
