"""Proof on your own files: frames read at random and in order against a linear decode, bit for bit.

The linear decode is the truth: one thread, from the first packet to the last, nothing skipped. Pictures are compared
in the decoder's own pixel format, before any conversion. Only digests of the linear decode are kept, so that memory
does not grow with the length of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import av
import av.error
import numpy as np

from framefeed.decoder import VideoDecoder
from framefeed.index.container import open_container
from framefeed.index.video_index import VideoIndex
from framefeed.media import Media, PathMedia
from framefeed.native import NativeFrame

__all__ = ["Difference", "Progress", "VerifyResult", "verify_file"]

Progress = Callable[[int, int], None]
"""``progress(done, total)``: pictures decoded so far and in all."""

Access = Literal["random", "sequential"]

# Pictures of one request: enough to fill several groups and threads, and few enough to hold at any size.
MAX_REQUEST = 32
MAX_REQUEST_BYTES = 256 << 20

MAX_DIFFERENCES = 1000  # a file that is wrong from start to end does not need a longer list


@dataclass(frozen=True)
class Difference:
    """A frame that is not the linear decode's.

    Attributes:
        frame: Its number in presentation order.
        access: How it was read.
        reason: What is wrong with it.
    """

    frame: int
    access: Access
    reason: str

    def __str__(self) -> str:
        return f"frame {self.frame} ({self.access} access): {self.reason}"


@dataclass(frozen=True)
class VerifyResult:
    """What a comparison found.

    Attributes:
        path: The file.
        num_frames: Frames by the index.
        linear_frames: Frames by the linear decode.
        random_frames: The frames that were read at random, in the order they were asked for.
        sequential_frames: How many frames were read in order.
        differences: Frames that differ, the first of them if there are very many.
    """

    path: str
    num_frames: int
    linear_frames: int
    random_frames: tuple[int, ...]
    sequential_frames: int
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether the number of frames and every picture that was read are the linear decode's."""
        return self.num_frames == self.linear_frames and not self.differences


def verify_file(
    path: str | os.PathLike[str],
    *,
    sample: int | None = 256,
    seed: int = 0,
    stream_index: int | None = None,
    progress: Progress | None = None,
) -> VerifyResult:
    """Compares random and sequential access with a linear decode of the same stream.

    Args:
        path: The video.
        sample: How many frames to read at random; None reads each one. In a file of long groups that takes time that
            grows with the square of its length.
        seed: Chooses the frames, their order and how many are asked for at once.
        stream_index: Place of the stream among all streams of the file; None takes the best video stream.
        progress: Called as pictures are decoded.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: It is no video.
        DecodeError: A frame cannot be decoded exactly because its data is damaged. There is no truth to compare with.
    """
    media = PathMedia(path)
    index = VideoIndex.scan_media(media, stream_index=stream_index)
    order = np.random.default_rng(seed).permutation(index.num_frames)
    chosen = order if sample is None else order[:sample]
    steps = _Steps(progress, 2 * index.num_frames + len(chosen))

    truth = [_digest(picture) for picture in steps.count(_linear_decode(media, index))]
    decoder = VideoDecoder(path, index=index)
    compare = _Comparison(decoder, truth, steps)
    limit = _request_limit(index)
    sizes = np.random.default_rng((seed, 1)).integers(1, limit + 1, size=len(chosen))
    compare.read("random", _split(chosen.tolist(), sizes.tolist()))
    every = list(range(index.num_frames))
    compare.read("sequential", _split(every, [limit] * len(every)))
    return VerifyResult(
        path=index.path,
        num_frames=index.num_frames,
        linear_frames=len(truth),
        random_frames=tuple(chosen.tolist()),
        sequential_frames=index.num_frames,
        differences=tuple(compare.differences),
    )


class _Steps:
    """Counts pictures for the progress bar."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def count(self, pictures: Iterable[NativeFrame]) -> Iterator[NativeFrame]:
        for picture in pictures:
            yield picture
            self.add(1)


class _Comparison:
    """Reads frames and compares their digests with the truth."""

    def __init__(self, decoder: VideoDecoder, truth: list[bytes], steps: _Steps) -> None:
        self._decoder = decoder
        self._truth = truth
        self._steps = steps
        self.differences: list[Difference] = []

    def read(self, access: Access, requests: Iterable[list[int]]) -> None:
        for frames in requests:
            for frame, picture in zip(frames, self._decoder.get_native_frames_at(frames), strict=True):
                self._check(access, frame, _digest(picture))
            self._steps.add(len(frames))

    def _check(self, access: Access, frame: int, digest: bytes) -> None:
        if frame < len(self._truth) and digest == self._truth[frame]:
            return
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(Difference(frame, access, self._reason(frame, digest)))

    def _reason(self, frame: int, digest: bytes) -> str:
        if frame >= len(self._truth):
            return f"the linear decode shows {len(self._truth)} frames only"
        if digest in self._truth:
            return f"is frame {self._truth.index(digest)} of the linear decode"
        return "its picture differs from the linear decode's"


def _linear_decode(media: Media, index: VideoIndex) -> Iterator[NativeFrame]:
    """Every picture that one thread gets from start to end."""
    with open_container(media) as container:
        stream = container.streams[index.stream.stream_index]
        assert isinstance(stream, av.VideoStream)
        stream.thread_type = "NONE"
        stream.thread_count = 1
        for packet in container.demux(stream):
            # A damaged packet shows nothing here. Random access is not so forgiving: it says which frame is lost.
            with contextlib.suppress(av.error.InvalidDataError):
                for picture in packet.decode():
                    yield NativeFrame.copy_of(picture)


def _digest(picture: NativeFrame) -> bytes:
    digest = hashlib.blake2b(f"{picture.pix_fmt} {picture.width}x{picture.height}".encode(), digest_size=16)
    for plane in picture.planes:
        digest.update(plane.data)
    return digest.digest()


def _request_limit(index: VideoIndex) -> int:
    """How many pictures of this size may be held at once."""
    largest_picture = index.stream.width * index.stream.height * 8  # four components of 16 bits
    return max(1, min(MAX_REQUEST, MAX_REQUEST_BYTES // max(1, largest_picture)))


def _split(frames: list[int], sizes: list[int]) -> Iterator[list[int]]:
    """Cuts a list into pieces of these sizes; the sizes add up to at least its length."""
    start = 0
    for size in sizes:
        if start >= len(frames):
            return
        yield frames[start : start + size]
        start += size
