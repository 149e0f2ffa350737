"""Readers of single files, each used in the ways that its documentation recommends."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from framefeed.index.video_index import VideoIndex

__all__ = ["PEERS", "Framefeed", "Peer", "installed"]

RESIZED = (224, 224)
BATCH = 32
READS = ("random", "in order", "resized")
ALL = (*READS, "scan", "many files")


@dataclass(frozen=True)
class Peer:
    """A library in one way of using it.

    Attributes:
        name: Its name in tables.
        package: The package that has to be installed.
        ways: Cases that it takes part in.
        threads: Threads of a decoder.
    """

    name: str
    package: str
    ways: tuple[str, ...] = READS
    threads: int = 1

    def open(self, path: Path, *, resize: bool = False) -> Any:
        """Opens a file so that every frame can be told exactly; ``resize`` makes frames 224x224."""
        raise NotImplementedError

    def read(self, opened: Any, numbers: list[int]) -> Any:
        """Returns frames by their numbers, channels last or first."""
        raise NotImplementedError

    def ordered(self, opened: Any) -> Iterator[Any]:
        """Yields all frames in order, or batches of them."""
        raise NotImplementedError

    def scan(self, path: Path) -> Any:
        """Does what finding frames exactly needs."""
        return self.open(path)

    def one_frame(self, path: Path, number: int, catalog: Any) -> Any:
        """Returns a frame of a file that is opened for it."""
        return self.open(path)[number]


def installed(peer: Peer) -> bool:
    """Returns True where the peer can be used."""
    return importlib.util.find_spec(peer.package) is not None


def _spans(count: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, BATCH):
        yield start, min(count, start + BATCH)


class Framefeed(Peer):
    """Framefeed; it scans each file, as the others have to."""

    def open(self, path: Path, *, resize: bool = False) -> Any:
        """Opens a decoder."""
        from framefeed import Resize, VideoDecoder

        return VideoDecoder(path, transforms=[Resize(RESIZED)] if resize else None)

    def read(self, opened: Any, numbers: list[int]) -> Any:
        """Returns a batch."""
        return opened.get_frames_at(numbers).data

    def ordered(self, opened: Any) -> Iterator[Any]:
        """Yields frames."""
        yield from opened

    def scan(self, path: Path) -> Any:
        """Indexes the file."""
        return VideoIndex.scan(path)

    def one_frame(self, path: Path, number: int, catalog: Any) -> Any:
        """Returns a frame, with the catalog's index."""
        from framefeed import VideoDecoder

        return VideoDecoder(path, index=catalog, num_ffmpeg_threads=1)[number]


@dataclass(frozen=True)
class TorchCodec(Peer):
    """TorchCodec.

    Attributes:
        length: Frames of a batch in order.
        seek_mode: ``"exact"`` or ``"approximate"``.
    """

    length: int = 1
    seek_mode: str = "exact"

    def open(self, path: Path, *, resize: bool = False) -> Any:
        """Opens a decoder."""
        from torchcodec.decoders import VideoDecoder

        more: dict[str, Any] = {}
        if resize:
            from torchcodec.transforms import Resize

            more["transforms"] = [Resize(RESIZED)]
        return VideoDecoder(str(path), num_ffmpeg_threads=self.threads, seek_mode=self.seek_mode, **more)

    def read(self, opened: Any, numbers: list[int]) -> Any:
        """Returns a batch."""
        return opened.get_frames_at(numbers).data

    def ordered(self, opened: Any) -> Iterator[Any]:
        """Yields frames or batches."""
        if self.length == 1:
            for number in range(len(opened)):
                yield opened[number]
            return
        for start, stop in _spans(len(opened)):
            yield opened.get_frames_in_range(start, stop).data


class Decord(Peer):
    """decord2."""

    def open(self, path: Path, *, resize: bool = False) -> Any:
        """Opens a reader."""
        import decord

        size = {"height": RESIZED[0], "width": RESIZED[1]} if resize else {}
        return decord.VideoReader(str(path), num_threads=self.threads, **size)

    def read(self, opened: Any, numbers: list[int]) -> Any:
        """Returns a batch."""
        return opened.get_batch(numbers).asnumpy()

    def ordered(self, opened: Any) -> Iterator[Any]:
        """Yields batches."""
        for start, stop in _spans(len(opened)):
            yield opened.get_batch(range(start, stop)).asnumpy()


class OpenCV(Peer):
    """OpenCV."""

    def open(self, path: Path, *, resize: bool = False) -> Any:
        """Opens a capture; returns whether to resize, too."""
        import cv2

        return cv2.VideoCapture(str(path)), resize

    def read(self, opened: Any, numbers: list[int]) -> Any:
        """Returns a list of frames."""
        import cv2

        capture, pictures = opened[0], []
        for number in numbers:
            capture.set(cv2.CAP_PROP_POS_FRAMES, number)
            pictures.append(cv2.cvtColor(capture.read()[1], cv2.COLOR_BGR2RGB))
        return pictures

    def ordered(self, opened: Any) -> Iterator[Any]:
        """Yields frames."""
        import cv2

        capture, resize = opened
        while True:
            good, picture = capture.read()
            if not good:
                return
            if resize:
                # INTER_AREA, because the other libraries antialias, too.
                picture = cv2.resize(picture, RESIZED[::-1], interpolation=cv2.INTER_AREA)
            yield cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)


def _torchcodec_peers() -> Iterator[Peer]:
    for threads in (1, 2):
        name = f"TorchCodec, {threads} thread{'s' if threads > 1 else ''}"
        yield TorchCodec(name, "torchcodec", ALL if threads == 1 else READS, threads)
        yield TorchCodec(f"{name}, batches of {BATCH}", "torchcodec", READS[1:], threads, BATCH)
    yield TorchCodec("TorchCodec, approximate", "torchcodec", ("many files",), seek_mode="approximate")


PEERS: list[Peer] = [
    Framefeed("framefeed", "framefeed", ALL),
    *_torchcodec_peers(),
    Decord("decord2, 2 threads", "decord", threads=2),
    OpenCV("OpenCV", "cv2"),
]
