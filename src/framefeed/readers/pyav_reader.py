"""Reader: PyAV."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framefeed.errors import DecodeError, NoVideoStream, UnsupportedStream
from framefeed.readers.base import GO_ON, AbstractVideoReader

if TYPE_CHECKING:
    import torch

__all__ = ["PyavReader"]


class PyavReader(AbstractVideoReader):
    """PyAV: reads the timestamps of all packets first, without decoding, and finds frames by timestamp.

    A frame is decoded from the keyframe before it until its timestamp comes; if decoding from there only gives later
    frames, from a keyframe further back. Exact if every packet shows a frame, or is marked otherwise, and has a unique
    timestamp; files without timestamps are rejected.
    """

    name = "pyav"
    package = "av"
    install = "pip install av"
    distributions = ("av",)
    exact = False
    remarks = (
        "wrong frames where packets show no frame and do not say so (VP8, fields, groups that were cut open), and in "
        "AVI with B-frames, which has no time stamps for them"
    )

    def _open(self) -> int:
        self._decoded = 0
        self._going: Iterator[Any] | None = None
        self._next = 0
        self._start()
        self._pts: list[int] = []
        self._keys: list[int] = []
        for packet in self._container.demux(self._video):
            if not packet.size or packet.is_discard:
                continue
            if packet.pts is None:
                raise UnsupportedStream(self.path, "has packets without timestamps, which are needed to find frames")
            self._pts.append(packet.pts)
            if packet.is_keyframe:
                self._keys.append(packet.pts)
        self._pts.sort()
        self._keys.sort()
        return len(self._pts)

    def _start(self) -> None:
        from framefeed.media.media import PathMedia
        from framefeed.media.opening import open_input

        container: Any = open_input(PathMedia(self.path))
        self._container = container
        if not self._container.streams.video:
            raise NoVideoStream(self.path, "has no video stream")
        self._video: Any = self._container.streams.best("video")
        self._video.thread_type = "AUTO"
        self._video.thread_count = self.num_threads

    def _seek(self, number: int) -> torch.Tensor:
        return self._pick([number], self._frames_from(self._pts[number]))[0]

    def _stream(self, numbers: list[int]) -> torch.Tensor:
        import torch

        going, self._going = self._going, None  # after an error there is no position to continue from
        if going is None or not self._next <= numbers[0] <= self._next + GO_ON:
            going = self._frames_from(self._pts[numbers[0]])
        frames = torch.stack(self._pick(numbers, going))
        self._going, self._next = going, numbers[-1] + 1
        return frames

    def _pick(self, numbers: list[int], frames: Iterator[Any]) -> list[torch.Tensor]:
        """Takes frames up to the last of these."""
        import torch

        wanted = {self._pts[number]: number for number in numbers}
        found: dict[int, torch.Tensor] = {}
        for frame in frames:
            if frame.pts in wanted:
                found[wanted[frame.pts]] = torch.from_numpy(frame.to_ndarray(format="rgb24"))
            if frame.pts >= self._pts[numbers[-1]]:
                break
        for number in numbers:
            if number not in found:
                raise DecodeError(self.path, f"PyAV returned no frame at the time of frame {number}", number)
        return [found[number] for number in numbers]

    def _frames_from(self, pts: int) -> Iterator[Any]:
        """Decodes from a position early enough for that frame."""
        for key in reversed(self._keys[: bisect_right(self._keys, pts)]):
            self._container.seek(key, stream=self._video, backward=True)
            frames = self._decode()
            first = next(frames, None)
            if first is not None and first.pts <= pts:
                yield first
                yield from frames
                return
        # Transport streams have no index, and a seek may land after the frame.
        self._container.close()
        self._start()
        yield from self._decode()

    def _decode(self) -> Iterator[Any]:
        for frame in self._container.decode(self._video):
            self._decoded += 1
            yield frame

    @property
    def frames_decoded(self) -> int | None:
        """Frames returned by the decoder so far."""
        return self._decoded

    def _close(self) -> None:
        self._going = None
        self._container.close()
