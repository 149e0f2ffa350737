"""Verification on your own files: compares random and sequential access with a linear decode, bit for bit.

The linear decode is the truth: one thread, from the first packet to the last, nothing skipped. Pictures are compared in
the decoder's own pixel format, before any conversion. Only digests of the linear decode are kept, so memory does not
grow with the length of the file.

In a damaged file, the frames that cannot be decoded are listed. A linear decode omits pictures of damaged packets, but
these keep their numbers, so pictures are matched by packet.
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

from framefeed.decoder.video_decoder import VideoDecoder
from framefeed.errors import DecodeError
from framefeed.index.containers.container import open_container
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, PathMedia
from framefeed.media.native import NativeFrame

__all__ = ["DamagedFrame", "FrameDifference", "Progress", "VerifyResult", "verify_file"]

Progress = Callable[[int, int], None]
"""``progress(done, total)``: pictures decoded so far and in all."""

Access = Literal["random", "sequential"]

# Pictures of one request: enough to fill several groups and threads, and few enough for any size.
MAX_REQUEST = 32
MAX_REQUEST_BYTES = 256 << 20

MAX_DIFFERENCES = 1000  # enough for a file that is wrong from start to end


@dataclass(frozen=True)
class FrameDifference:
    """A frame that differs from the linear decode.

    Attributes:
        frame: Frame number in presentation order.
        access: Access mode.
        reason: The difference.
    """

    frame: int
    access: Access
    reason: str

    def __str__(self) -> str:
        return f"frame {self.frame} ({self.access} access): {self.reason}"


@dataclass(frozen=True)
class DamagedFrame:
    """A frame that cannot be decoded exactly.

    Attributes:
        frame: Frame number in presentation order.
        reason: The damage.
    """

    frame: int
    reason: str

    def __str__(self) -> str:
        return f"frame {self.frame} cannot be decoded exactly: {self.reason}"


@dataclass(frozen=True)
class VerifyResult:
    """Result of a verification.

    Attributes:
        path: The file.
        num_frames: Number of frames in the index.
        linear_frames: Number of frames in the linear decode.
        random_frames: Frames read at random, in request order.
        sequential_frames: Number of frames read in order.
        differences: Frames that differ; only the first ones if there are very many.
        damaged: All frames for which reading raises a ``DecodeError``, rising.
    """

    path: str
    num_frames: int
    linear_frames: int
    random_frames: tuple[int, ...]
    sequential_frames: int
    differences: tuple[FrameDifference, ...]
    damaged: tuple[DamagedFrame, ...] = ()

    @property
    def equal(self) -> bool:
        """True if the number of frames and every frame equal the linear decode."""
        return self.num_frames == self.linear_frames and not self.differences and not self.damaged


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
        sample: Number of frames to read at random; None reads all. With long groups, the time for all grows with the
            square of the file's length.
        seed: Seed of the frames, their order and the request sizes.
        stream_index: Index of the stream among all streams of the file; None for the best video stream.
        progress: Called as pictures are decoded.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: The file is not a readable video.
    """
    media = PathMedia(path)
    index = VideoIndex.scan_media(media, stream_index=stream_index)
    order = np.random.default_rng(seed).permutation(index.num_frames)
    chosen = order if sample is None else order[:sample]
    steps = _Steps(progress, 2 * index.num_frames + len(chosen))

    frame_of = {packet: frame for frame, packet in enumerate(index.packets.frames.tolist())}
    shown: list[int | None] = []
    truth: dict[int, bytes] = {}
    for packet, picture in steps.count(_linear_decode(media, index)):
        frame = frame_of.get(packet)
        shown.append(frame)
        if frame is not None:
            truth[frame] = _digest(picture)
    decoder = VideoDecoder(path, index=index)
    compare = _FrameComparison(decoder, truth, steps)
    compare.check_order(shown)
    limit = _request_limit(index)
    sizes = np.random.default_rng((seed, 1)).integers(1, limit + 1, size=len(chosen))
    compare.read("random", _split(chosen.tolist(), sizes.tolist()))
    every = list(range(index.num_frames))
    compare.read("sequential", _split(every, [limit] * len(every)))
    return VerifyResult(
        path=index.path,
        num_frames=index.num_frames,
        linear_frames=len(shown),
        random_frames=tuple(chosen.tolist()),
        sequential_frames=index.num_frames,
        differences=tuple(compare.differences),
        damaged=tuple(DamagedFrame(frame, reason) for frame, reason in sorted(compare.damaged.items())),
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

    def count(self, pictures: Iterable[tuple[int, NativeFrame]]) -> Iterator[tuple[int, NativeFrame]]:
        for picture in pictures:
            yield picture
            self.add(1)


class _FrameComparison:
    """Reads frames and compares their digests with the truth."""

    def __init__(self, decoder: VideoDecoder, truth: dict[int, bytes], steps: _Steps) -> None:
        self._decoder = decoder
        self._truth = truth
        self._steps = steps
        self._whole: set[int] = set()
        self.differences: list[FrameDifference] = []
        self.damaged: dict[int, str] = {}

    def check_order(self, shown: Iterable[int | None]) -> None:
        """Compares the order of the linear decode's pictures with the frame numbers."""
        latest = -1
        for frame in shown:
            if frame is not None and frame < latest:
                self._differ("sequential", frame, f"the linear decode shows it after frame {latest}")
            latest = latest if frame is None else max(latest, frame)

    def read(self, access: Access, requests: Iterable[list[int]]) -> None:
        for frames in requests:
            left = frames
            while left:
                try:
                    pictures = self._decoder.get_native_frames_at(left)
                except DecodeError as error:
                    if not error.reasons.keys() & left:
                        raise
                    for frame, reason in error.reasons.items():
                        self._refused(access, frame, reason)
                    left = [frame for frame in left if frame not in error.reasons]
                    continue
                for frame, picture in zip(left, pictures, strict=True):
                    self._check(access, frame, _digest(picture))
                break
            self._steps.add(len(frames))

    def _refused(self, access: Access, frame: int, reason: str) -> None:
        if frame in self._whole:
            self._differ(access, frame, f"decoding failed, but succeeded before: {reason}")
        self.damaged.setdefault(frame, reason)

    def _check(self, access: Access, frame: int, digest: bytes) -> None:
        self._whole.add(frame)
        if frame in self.damaged:
            self._differ(access, frame, f"decoding succeeded, but failed before: {self.damaged[frame]}")
        elif digest != self._truth.get(frame, digest):  # a linear decode may omit frames after damage
            same = next((other for other, value in self._truth.items() if value == digest), None)
            reason = "its picture differs from the linear decode's"
            self._differ(access, frame, reason if same is None else f"is frame {same} of the linear decode")

    def _differ(self, access: Access, frame: int, reason: str) -> None:
        if len(self.differences) < MAX_DIFFERENCES:
            self.differences.append(FrameDifference(frame, access, reason))


def _linear_decode(media: Media, index: VideoIndex) -> Iterator[tuple[int, NativeFrame]]:
    """Yields every picture of a linear decode with one thread, with its packet number; -1 if unknown."""
    number = 0
    with open_container(media) as container:
        stream = container.streams[index.stream.stream_index]
        assert isinstance(stream, av.VideoStream)
        stream.thread_type = "NONE"
        stream.thread_count = 1
        for packet in container.demux(stream):
            if packet.size:
                packet.pts = packet.dts = number
                number += 1
            # A damaged packet shows nothing here. Random access is stricter: it reports the lost frame.
            with contextlib.suppress(av.error.FFmpegError):
                for picture in packet.decode():
                    yield -1 if picture.pts is None else picture.pts, NativeFrame.copy_of(picture)


def _digest(picture: NativeFrame) -> bytes:
    digest = hashlib.blake2b(f"{picture.pix_fmt} {picture.width}x{picture.height}".encode(), digest_size=16)
    for plane in picture.planes:
        digest.update(plane.data)
    return digest.digest()


def _request_limit(index: VideoIndex) -> int:
    """Returns the number of pictures of this size that may be held at once."""
    largest_picture = index.stream.width * index.stream.height * 8  # four components of 16 bits
    return max(1, min(MAX_REQUEST, MAX_REQUEST_BYTES // max(1, largest_picture)))


def _split(frames: list[int], sizes: list[int]) -> Iterator[list[int]]:
    """Cuts a list into parts of these sizes, which add up to at least its length."""
    start = 0
    for size in sizes:
        if start >= len(frames):
            return
        yield frames[start : start + size]
        start += size
