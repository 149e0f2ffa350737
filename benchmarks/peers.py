"""Readers that the benchmark compares, each used in the ways its documentation recommends."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framefeed.index.video_index import VideoIndex

__all__ = ["PEERS", "Peer", "installed"]

Batches = Callable[[], Iterator[Any]]
"""Starts over each time it is called; yields frames or batches of frames, channels last or first."""

RESIZED = (224, 224)


@dataclass(frozen=True)
class Peer:
    """A library in one way of using it.

    Attributes:
        name: What tables call it.
        package: What has to be installed.
        random: ``random(path)`` -> a function from frame numbers to frames; opening is not timed.
        in_order: ``in_order(path)`` -> all frames in order; opening is timed.
        resized: Likewise, resized to 224x224.
        open_exactly: Opens a file so that every frame can be told exactly.
        one_frame: ``one_frame(path, number, index)`` -> a frame of a file that is opened for it.
    """

    name: str
    package: str
    random: Callable[[Path], Callable[[list[int]], Any]] | None = None
    in_order: Callable[[Path, VideoIndex], Batches] | None = None
    resized: Callable[[Path, VideoIndex], Batches] | None = None
    open_exactly: Callable[[Path], Any] | None = None
    one_frame: Callable[[Path, int, Any], Any] | None = None


def installed(peer: Peer) -> bool:
    """Whether the peer can be used here."""
    return importlib.util.find_spec(peer.package) is not None


def _spans(count: int, length: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, length):
        yield start, min(count, start + length)


# --- framefeed ----------------------------------------------------------------------------------------------------


def _framefeed(path: Path, **arguments: Any) -> Any:
    from framefeed import VideoDecoder

    return VideoDecoder(path, **arguments)


def _framefeed_in_order(resize: bool) -> Callable[[Path, VideoIndex], Batches]:
    def make(path: Path, index: VideoIndex) -> Batches:
        from framefeed import Resize

        def read() -> Iterator[Any]:
            # Scanned anew, as the others have to: opening is part of reading a file from start to end.
            yield from _framefeed(path, transforms=[Resize(RESIZED)] if resize else None)

        return read

    return make


def _framefeed_peers() -> list[Peer]:
    def random(path: Path) -> Callable[[list[int]], Any]:
        decoder = _framefeed(path)
        return lambda wanted: decoder.get_frames_at(wanted).data

    def one_frame(path: Path, number: int, index: Any) -> Any:
        return _framefeed(path, index=index, num_ffmpeg_threads=1)[number]

    peer = Peer(
        "framefeed",
        "framefeed",
        random=random,
        in_order=_framefeed_in_order(resize=False),
        resized=_framefeed_in_order(resize=True),
        open_exactly=VideoIndex.scan,
        one_frame=one_frame,
    )
    return [peer]


# --- TorchCodec ---------------------------------------------------------------------------------------------------


def _torchcodec(path: Path, **arguments: Any) -> Any:
    from torchcodec.decoders import VideoDecoder

    return VideoDecoder(str(path), **arguments)


def _torchcodec_in_order(threads: int, length: int, resize: bool) -> Callable[[Path, VideoIndex], Batches]:
    def make(path: Path, index: VideoIndex) -> Batches:
        def read() -> Iterator[Any]:
            transforms = None
            if resize:
                from torchcodec.transforms import Resize

                transforms = [Resize(RESIZED)]
            decoder = _torchcodec(path, num_ffmpeg_threads=threads, transforms=transforms)
            if length == 1:
                for number in range(len(decoder)):
                    yield decoder[number]
                return
            for start, stop in _spans(len(decoder), length):
                yield decoder.get_frames_in_range(start, stop).data

        return read

    return make


def _torchcodec_peers() -> list[Peer]:
    peers = []
    for threads in (1, 2):

        def random(path: Path, threads: int = threads) -> Callable[[list[int]], Any]:
            decoder = _torchcodec(path, num_ffmpeg_threads=threads)
            return lambda wanted: decoder.get_frames_at(wanted).data

        def one_frame(path: Path, number: int, index: Any) -> Any:
            return _torchcodec(path)[number]

        peers.append(
            Peer(
                f"TorchCodec, {threads} thread{'s' if threads > 1 else ''}",
                "torchcodec",
                random=random,
                in_order=_torchcodec_in_order(threads, 1, resize=False),
                resized=_torchcodec_in_order(threads, 1, resize=True),
                open_exactly=_torchcodec if threads == 1 else None,
                one_frame=one_frame if threads == 1 else None,
            )
        )
        peers.append(
            Peer(
                f"TorchCodec, {threads} thread{'s' if threads > 1 else ''}, batches of 32",
                "torchcodec",
                in_order=_torchcodec_in_order(threads, 32, resize=False),
                resized=_torchcodec_in_order(threads, 32, resize=True),
            )
        )

    def approximate(path: Path, number: int, index: Any) -> Any:
        return _torchcodec(path, seek_mode="approximate")[number]

    peers.append(Peer("TorchCodec, approximate", "torchcodec", one_frame=approximate))
    return peers


# --- decord2 and OpenCV -------------------------------------------------------------------------------------------


def _decord_peer() -> Peer:
    def open_reader(path: Path, **arguments: Any) -> Any:
        import decord

        return decord.VideoReader(str(path), num_threads=2, **arguments)

    def random(path: Path) -> Callable[[list[int]], Any]:
        reader = open_reader(path)
        return lambda wanted: reader.get_batch(wanted).asnumpy()

    def in_order(resize: bool) -> Callable[[Path, VideoIndex], Batches]:
        def make(path: Path, index: VideoIndex) -> Batches:
            def read() -> Iterator[Any]:
                size = {"height": RESIZED[0], "width": RESIZED[1]} if resize else {}
                reader = open_reader(path, **size)
                for start, stop in _spans(len(reader), 32):
                    yield reader.get_batch(range(start, stop)).asnumpy()

            return read

        return make

    return Peer("decord2, 2 threads", "decord", random, in_order(False), in_order(True))


def _opencv_peer() -> Peer:
    def frame_at(capture: Any, number: int) -> Any:
        import cv2

        capture.set(cv2.CAP_PROP_POS_FRAMES, number)
        return cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB)

    def random(path: Path) -> Callable[[list[int]], Any]:
        import cv2

        capture = cv2.VideoCapture(str(path))
        return lambda wanted: [frame_at(capture, number) for number in wanted]

    def in_order(resize: bool) -> Callable[[Path, VideoIndex], Batches]:
        def make(path: Path, index: VideoIndex) -> Batches:
            def read() -> Iterator[Any]:
                import cv2

                capture = cv2.VideoCapture(str(path))
                while True:
                    good, picture = capture.read()
                    if not good:
                        return
                    if resize:
                        # INTER_AREA, because the other libraries antialias, too.
                        picture = cv2.resize(picture, RESIZED[::-1], interpolation=cv2.INTER_AREA)
                    yield cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)

            return read

        return make

    return Peer("OpenCV", "cv2", random, in_order(False), in_order(True))


PEERS: list[Peer] = [*_framefeed_peers(), *_torchcodec_peers(), _decord_peer(), _opencv_peer()]
