"""``VideoDecoder``: frames of one video by number or by time. A drop-in for ``torchcodec.decoders.VideoDecoder``."""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from framefeed._util.lazy_property import cached_property
from framefeed._util.limits import available_cpus
from framefeed.catalog.catalog import Catalog
from framefeed.catalog.paths import absolute
from framefeed.convert.transforms import CenterCrop, Geometry, RandomCrop, Resize, compile_transforms
from framefeed.decoder.reading import FrameReader
from framefeed.decoder.reading_cpu import CpuReader
from framefeed.device import CpuFallback, Fallback, choose_decoder, resolve_device
from framefeed.errors import FrameIndexError, FrameTimeError
from framefeed.index.video_index import VideoIndex
from framefeed.media.media import Media, PathMedia, check_unchanged, open_media
from framefeed.media.native import NativeFrame
from framefeed.plan import Plan
from framefeed.plan.ticks import Ticks, exact_fraction, exact_time
from framefeed.source import media_of
from framefeed.types import Frame, FrameBatch, VideoStreamMetadata

__all__ = ["CenterCrop", "RandomCrop", "Resize", "VideoDecoder"]


class VideoDecoder:
    """Frames of one video stream, exactly.

    A frame's number is its place in presentation order in a decode of the whole file. Requests are planned: every
    wanted frame is decoded once, packets that no wanted frame needs are not decoded, and groups of frames are decoded
    side by side.

    One decoder may be used by several threads at once. It can be sent to another process, which opens the video again,
    without a scan.

    Args:
        source: Path, bytes, uint8 tensor or file-like object with ``read`` and ``seek``.
        stream_index: Which stream of the file, counted over all media; None takes the best video stream.
        dimension_order: ``"NCHW"`` or ``"NHWC"``.
        num_ffmpeg_threads: How many threads a request may use. 0, the default, takes all CPUs of the process, or a
            single one inside a worker process of a ``DataLoader``.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"`` for frames on an NVIDIA GPU, decoded there, or ``"auto"`` for a
            GPU where one can be used.
        seek_mode: ``"exact"`` or ``"approximate"``. Both are exact here; the second is accepted so that code written
            for TorchCodec runs.
        transforms: ``Resize``, ``CenterCrop`` or ``RandomCrop`` of framefeed, TorchCodec or Torchvision, applied
            while decoding. A ``Resize`` comes first.
        custom_frame_mappings: Accepted as by TorchCodec and not needed: use ``index`` to spare the scan.
        index: A ``VideoIndex`` of this file, or a ``Catalog`` that has it or its path, so that the file is not scanned.
            With those of a packet store, the file is not read at all.
        fallback: ``"cpu"`` decodes what the GPU cannot decode on the CPU, and uploads it; None raises. With
            ``device="auto"`` it is ``"cpu"``.

    Attributes:
        metadata: Facts about the stream, under TorchCodec's names.
        stream_index: The stream that is decoded.
        index: The packet index.
        last_plan: What the latest request had to decode; ``last_plan.cost`` is packets fed for each frame wanted.
        device: Where frames are.
        cpu_fallback: Whether, and why, the video is decoded on the CPU although frames go to a GPU.

    Raises:
        SourceError: The file cannot be read.
        InvalidFile: It is no video.
        FileChanged: It is not the file that ``index`` describes.
    """

    def __init__(
        self,
        source: Any,
        *,
        stream_index: int | None = None,
        dimension_order: Literal["NCHW", "NHWC"] = "NCHW",
        num_ffmpeg_threads: int = 0,
        device: str | torch.device | None = None,
        seek_mode: Literal["exact", "approximate"] = "exact",
        transforms: Sequence[Any] | None = None,
        custom_frame_mappings: Any = None,
        index: Any = None,
        fallback: Literal["cpu"] | None = None,
    ) -> None:
        if seek_mode not in ("exact", "approximate"):
            raise ValueError(f"Invalid seek mode ({seek_mode}). Supported values are exact, approximate.")
        if custom_frame_mappings is not None and seek_mode == "approximate":
            raise ValueError("custom_frame_mappings is incompatible with seek_mode='approximate'.")
        if dimension_order not in ("NCHW", "NHWC"):
            raise ValueError(f"Invalid dimension order ({dimension_order}). Supported values are NCHW, NHWC.")
        if not isinstance(num_ffmpeg_threads, int) or num_ffmpeg_threads < 0:
            raise ValueError(f"num_ffmpeg_threads={num_ffmpeg_threads!r} should be an int, 0 for all CPUs.")
        if fallback not in (None, "cpu"):
            raise ValueError(f"fallback={fallback!r} is not supported; possible: None, 'cpu'")
        chosen = resolve_device(device)
        given = open_media(source)
        found = _find_index(given, index, stream_index)
        geometry = compile_transforms(transforms, *found.stream.display_size)
        self._open(
            _Options(
                given,
                found,
                "CHW" if dimension_order == "NCHW" else "HWC",
                geometry,
                num_ffmpeg_threads,
                chosen,
                "cpu" if device == "auto" else fallback,
            ),
            is_scanned=index is None,
        )

    def _open(self, options: _Options, *, is_scanned: bool) -> None:
        self._options = options
        self.device, self.index = options.device, options.index
        self._media: Media = options.media if self.index.stored is None else media_of(self.index)
        if not is_scanned:
            check_unchanged(self._media, self.index.fingerprint)
        self.cpu_fallback = CpuFallback()
        if self.device.type == "cuda":
            self.cpu_fallback = choose_decoder(self.index, self.device, options.fallback)
        self._reader: FrameReader[Any, Any]
        if self.device.type == "cuda" and not self.cpu_fallback:
            from framefeed.decoder.reading_cuda import CudaReader

            self._reader = CudaReader(self.index, self._media, options.layout, options.geometry, self.device)
        else:
            threads = options.num_threads or _default_threads()
            self._reader = CpuReader(self.index, self._media, options.layout, options.geometry, threads)
        self.metadata: VideoStreamMetadata = self.index.metadata()
        self.stream_index = self.index.stream.stream_index

    def __getstate__(self) -> _Options:
        # What it was made with: in another process, as in a worker that is spawned, the video is opened again.
        return self._options

    def __setstate__(self, options: _Options) -> None:
        self._open(dataclasses.replace(options, device=resolve_device(options.device)), is_scanned=False)

    @property
    def last_plan(self) -> Plan | None:
        """The plan of the last request that decoded; frames read ahead count for the request that decoded them."""
        return self._reader.last_plan

    def __len__(self) -> int:
        return self.index.num_frames

    def __repr__(self) -> str:
        stream = self.index.stream
        return f"VideoDecoder({self.index.path!r}, {stream.codec} {stream.width}x{stream.height}, {len(self)} frames)"

    # --- by number ------------------------------------------------------------------------------------------------

    def __getitem__(self, key: int | slice) -> torch.Tensor:
        """A frame as a tensor of three dimensions, or a slice of frames as one of four."""
        if isinstance(key, slice):
            return self._many(np.arange(*key.indices(len(self)), dtype=np.int64))
        try:
            number = operator.index(key)
        except TypeError:
            raise TypeError(f"Unsupported key type: {type(key)}. Supported types are int and slice.") from None
        return self._one(self._frame_number(number))

    def __iter__(self) -> Iterator[torch.Tensor]:
        """All frames in order."""
        for frame in self._reader.iterate():
            yield self._tensor(frame)

    def get_frame_at(self, index: int) -> Frame:
        """The frame with that number; negative numbers count from the end."""
        return self._frame(self._frame_number(operator.index(index)))

    def get_frames_at(self, indices: torch.Tensor | Sequence[int]) -> FrameBatch:
        """Frames by number, in any order, repeated or not; negative numbers count from the end."""
        return self._batch(self._frame_numbers(indices))

    def get_frames_in_range(self, start: int, stop: int, step: int = 1) -> FrameBatch:
        """Frames ``start``, ``start + step`` ... before ``stop``, by the rules of Python slices."""
        return self._batch(np.arange(*slice(start, stop, step).indices(len(self)), dtype=np.int64))

    # --- by time --------------------------------------------------------------------------------------------------

    def get_frame_played_at(self, seconds: float) -> Frame:
        """The frame that is shown at that time."""
        return self._frame(int(self._played_at([float(seconds)])[0]))

    def get_frames_played_at(self, seconds: torch.Tensor | Sequence[float]) -> FrameBatch:
        """The frames that are shown at these times, in any order, repeated or not."""
        return self._batch(self._played_at(_floats(seconds)))

    def get_frames_played_in_range(
        self, start_seconds: float, stop_seconds: float, fps: float | Fraction | None = None
    ) -> FrameBatch:
        """Frames shown in the half-open range [start_seconds, stop_seconds).

        Args:
            start_seconds: Start of the range. The frame that is being shown then is the first.
            stop_seconds: End of the range, not included.
            fps: Resamples to that rate: the frames that are shown at ``start_seconds``, ``start_seconds + 1 / fps`` and
                so on, repeated or left out as needed; as many as the length of the range times ``fps``, rounded. A
                float stands for the simple fraction that is rounded to it: 29.97 for 2997/100, 1 / 3 for a third.

        Raises:
            ValueError: The range is not within the stream, or ``fps`` is not positive.
        """
        begin, end = self.index.begin_seconds, self.index.end_seconds
        if not start_seconds <= stop_seconds:
            raise ValueError(
                f"Invalid start seconds: {start_seconds}. "
                f"It must be less than or equal to stop seconds ({stop_seconds})."
            )
        if not begin <= start_seconds < end:
            raise ValueError(
                f"Invalid start seconds: {start_seconds}. "
                f"It must be greater than or equal to {begin} and less than {end}."
            )
        if not stop_seconds <= end:
            raise ValueError(f"Invalid stop seconds: {stop_seconds}. It must be less than or equal to {end}.")
        if fps is not None:
            return self._resampled(start_seconds, stop_seconds, fps)
        if start_seconds == stop_seconds:
            return self._batch(np.empty(0, np.int64))
        first = int(self._played_at([start_seconds])[0])
        stop = int(np.searchsorted(self._begin_times, stop_seconds, side="left"))
        return self._batch(np.arange(first, max(stop, first + 1), dtype=np.int64))

    def get_all_frames(self, fps: float | Fraction | None = None) -> FrameBatch:
        """All frames, resampled where ``fps`` is given."""
        return self.get_frames_played_in_range(self.index.begin_seconds, self.index.end_seconds, fps)

    def get_native_frames_at(self, indices: torch.Tensor | Sequence[int]) -> list[NativeFrame]:
        """Frames as the decoder gives them: planes in the stream's own pixel format, not turned, not converted."""
        wanted = self._frame_numbers(indices)
        found: dict[int, NativeFrame] = {}
        plan = self._reader.read_native(wanted, found.__setitem__)
        for source, target in plan.copies:
            found[target] = found[source]
        return [found[row] for row in range(len(wanted))]

    # --- how ------------------------------------------------------------------------------------------------------

    def _frame_number(self, number: int) -> int:
        count = len(self)
        if not -count <= number < count:
            raise FrameIndexError(self.index.path, f"no frame {number}; frames are 0..{count - 1}")
        return number % count

    def _frame_numbers(self, indices: Any) -> NDArray[np.int64]:
        values = indices.tolist() if isinstance(indices, torch.Tensor) else indices
        try:
            whole = [operator.index(value) for value in values]
        except TypeError:
            raise TypeError(f"frame numbers must be whole numbers, got {indices!r}") from None
        return np.array([self._frame_number(value) for value in whole], np.int64)

    @cached_property
    def _begin_times(self) -> NDArray[np.float64]:
        """When each frame starts to be shown: computed once, since it takes a millisecond for hours of video."""
        return self.index.pts_seconds(np.arange(len(self)))

    def _played_at(self, seconds: Sequence[float]) -> NDArray[np.int64]:
        begin, end = self.index.begin_seconds, self.index.end_seconds
        for value in seconds:
            if not (begin <= value < end):  # NaN too
                raise FrameTimeError(
                    self.index.path, f"no frame is played at {value} s; the stream is played from {begin} s to {end} s"
                )
        return np.searchsorted(self._begin_times, np.asarray(seconds, np.float64), side="right").astype(np.int64) - 1

    def _resampled(self, start_seconds: float, stop_seconds: float, fps: float | Fraction) -> FrameBatch:
        if not (fps > 0 and math.isfinite(fps)):
            raise ValueError(f"fps must be positive, got {fps}")
        base = self.index.stream.time_base
        rate = exact_fraction(fps)
        ticks = Ticks(exact_time(start_seconds, base), exact_time(stop_seconds, base), rate)
        batch = self._batch(ticks.frames(self.index.packets.frame_pts, base))
        batch.pts_seconds = torch.from_numpy(ticks.seconds())
        batch.duration_seconds = torch.full((ticks.count,), float(1 / rate), dtype=torch.float64)
        return batch

    def _one(self, number: int) -> torch.Tensor:
        return self._many(np.array([number], np.int64))[0]

    def _frame(self, number: int) -> Frame:
        frames = np.array([number], np.int64)
        seconds = float(self.index.frame_seconds(frames)[0])
        return Frame(self._many(frames)[0], float(self.index.pts_seconds(frames)[0]), seconds)

    def _batch(self, wanted: NDArray[np.int64]) -> FrameBatch:
        return FrameBatch(
            self._many(wanted),
            torch.from_numpy(self.index.pts_seconds(wanted)),
            torch.from_numpy(self.index.frame_seconds(wanted)),
        )

    def _many(self, wanted: NDArray[np.int64]) -> torch.Tensor:
        return self._tensor(self._reader.read(wanted))

    def _tensor(self, frames: NDArray[np.uint8] | torch.Tensor) -> torch.Tensor:
        tensor = frames if isinstance(frames, torch.Tensor) else torch.from_numpy(frames)
        return tensor.to(self.device)


@dataclasses.dataclass(frozen=True)
class _Options:
    """Arguments of a decoder."""

    media: Media
    index: VideoIndex
    layout: Literal["CHW", "HWC"]
    geometry: Geometry
    num_threads: int
    device: torch.device
    fallback: Fallback


def _floats(seconds: Any) -> list[float]:
    values = seconds.tolist() if isinstance(seconds, torch.Tensor) else list(seconds)
    return [float(value) for value in values]


def _default_threads() -> int:
    from torch.utils.data import get_worker_info

    return 1 if get_worker_info() is not None else available_cpus()


def _find_index(media: Media, index: Any, stream_index: int | None) -> VideoIndex:
    if index is None:
        return VideoIndex.scan_media(media, stream_index=stream_index)
    if isinstance(index, VideoIndex):
        if index.stored is not None and not _is_path_of(media, index):
            raise ValueError(f"the index is of {index.path}, whose packets a store has; the source is {media.name}")
    elif not isinstance(index, Catalog | str | os.PathLike):
        raise TypeError(f"index= takes a VideoIndex, a Catalog or a catalog's path, not a {type(index).__name__}")
    elif not isinstance(media, PathMedia):
        raise ValueError("a Catalog knows files by their path; give index= a VideoIndex for bytes and file objects")
    elif isinstance(index, Catalog):
        index = index[os.fspath(media.path)]
    else:
        with Catalog.open(index) as catalog:
            index = catalog[os.fspath(media.path)]
    found: VideoIndex = index
    if stream_index is not None and stream_index != found.stream.stream_index:
        raise ValueError(f"the index is of stream {found.stream.stream_index}, stream_index is {stream_index}")
    return found


def _is_path_of(media: Media, index: VideoIndex) -> bool:
    """Returns whether that is the name of the video, which may be gone."""
    if not isinstance(media, PathMedia):
        return False
    return absolute(media.path) == index.path or os.path.realpath(media.path) == os.path.realpath(index.path)
