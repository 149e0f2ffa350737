"""``VideoDecoder`` behaves as TorchCodec's does: arguments, results, errors, metadata."""

from __future__ import annotations

import copy
import io
import math
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clips
import framefeed
from framefeed import (
    Catalog,
    CenterCrop,
    Frame,
    FrameBatch,
    MissingBackend,
    RandomCrop,
    Resize,
    VideoDecoder,
    VideoIndex,
)
from framefeed.device import CpuFallback


@pytest.fixture(scope="module")
def path(clip_folder: Path) -> Path:
    return clips.make("h264_bframes", clip_folder)


@pytest.fixture(scope="module")
def decoder(path: Path) -> VideoDecoder:
    return VideoDecoder(path)


def test_length_items_and_slices(decoder: VideoDecoder) -> None:
    count = len(decoder)
    assert count == 48
    first = decoder[0]
    assert first.shape == (3, 64, 96) and first.dtype == torch.uint8 and first.is_contiguous()
    assert torch.equal(decoder[-1], decoder[count - 1])
    assert torch.equal(decoder[np.int64(3)], decoder[3])  # type: ignore[index]
    assert torch.equal(decoder[2:8:3], torch.stack([decoder[2], decoder[5]]))
    assert torch.equal(decoder[-3:], torch.stack([decoder[45], decoder[46], decoder[47]]))
    assert decoder[5:5].shape == (0, 3, 64, 96)
    assert torch.equal(decoder[8:2:-2], torch.stack([decoder[8], decoder[6], decoder[4]]))
    assert len(list(decoder)) == count


@pytest.mark.parametrize("number", [48, -49, 1000])
def test_numbers_out_of_range(decoder: VideoDecoder, number: int) -> None:
    for ask in (
        lambda: decoder[number],
        lambda: decoder.get_frame_at(number),
        lambda: decoder.get_frames_at([0, number]),
    ):
        with pytest.raises(IndexError, match=f"no frame {number}; frames are 0..47"):
            ask()


@pytest.mark.parametrize("key", ["a", 1.5, None, (1, 2)])
def test_keys_of_other_types(decoder: VideoDecoder, key: Any) -> None:
    with pytest.raises(TypeError, match="Supported types are int and slice"):
        decoder[key]


def test_frames_at_any_order_and_repeated(decoder: VideoDecoder) -> None:
    wanted = [3, 1, 3, 0, -1]
    batch = decoder.get_frames_at(wanted)
    assert isinstance(batch, FrameBatch)
    assert torch.equal(batch.data, torch.stack([decoder[number] for number in wanted]))
    assert torch.allclose(batch.pts_seconds, torch.tensor([3, 1, 3, 0, 47], dtype=torch.float64) / 30)
    assert torch.allclose(batch.duration_seconds, torch.full((5,), 1 / 30, dtype=torch.float64))
    assert torch.equal(decoder.get_frames_at(torch.tensor([2, 4])).data, decoder[2:5:2])
    assert torch.equal(decoder.get_frames_at(range(3)).data, decoder[:3])
    empty = decoder.get_frames_at([])
    assert empty.data.shape == (0, 3, 64, 96) and empty.pts_seconds.shape == (0,)
    with pytest.raises(TypeError, match="whole numbers"):
        decoder.get_frames_at([1.5])  # type: ignore[list-item]


def test_a_frame_and_a_batch_as_values(decoder: VideoDecoder) -> None:
    frame = decoder.get_frame_at(6)
    assert isinstance(frame, Frame)
    data, pts, duration = frame
    assert isinstance(data, torch.Tensor) and pts == pytest.approx(0.2) and duration == pytest.approx(1 / 30)
    assert "data (shape): (3, 64, 96)" in repr(frame)
    batch = decoder.get_frames_in_range(0, 4)
    assert len(batch) == 4 and batch[1:3].data.shape[0] == 2
    assert [float(one.pts_seconds) for one in batch] == pytest.approx([0, 1 / 30, 2 / 30, 3 / 30])
    with pytest.raises(ValueError, match="3 dimensions"):
        Frame(torch.zeros(2, 2), 0.0, 0.0)
    with pytest.raises(ValueError, match="need times of the shape"):
        FrameBatch(torch.zeros(2, 3, 4, 4), torch.zeros(3), torch.zeros(2))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [((0, 5, 2), [0, 2, 4]), ((-4, -1), [44, 45, 46]), ((5, 5), []), ((46, 60), [46, 47]), ((5, 2), [])],
)
def test_ranges(decoder: VideoDecoder, arguments: tuple[int, ...], expected: list[int]) -> None:
    batch = decoder.get_frames_in_range(*arguments)
    assert (batch.pts_seconds * 30).round().int().tolist() == expected


def test_played_at(decoder: VideoDecoder) -> None:
    assert decoder.get_frame_played_at(0).pts_seconds == 0
    assert decoder.get_frame_played_at(0.5).pts_seconds == pytest.approx(0.5)
    assert decoder.get_frame_played_at(0.51).pts_seconds == pytest.approx(0.5)
    times = decoder.get_frames_played_at([1.2, 0.0, 1.2])
    assert (times.pts_seconds * 30).round().int().tolist() == [36, 0, 36]
    assert decoder.get_frames_played_at([]).data.shape[0] == 0


@pytest.mark.parametrize("seconds", [1.6, -0.1, math.nan, math.inf])
def test_played_at_no_time(decoder: VideoDecoder, seconds: float) -> None:
    with pytest.raises(IndexError, match="no frame is played at"):
        decoder.get_frame_played_at(seconds)
    with pytest.raises(RuntimeError, match="no frame is played at"):  # what TorchCodec raises for lists
        decoder.get_frames_played_at([0.0, seconds])


def test_played_in_range(decoder: VideoDecoder) -> None:
    def numbers(start: float, stop: float) -> list[int]:
        return [round(30 * float(pts)) for pts in decoder.get_frames_played_in_range(start, stop).pts_seconds]

    assert numbers(0, 0.1) == [0, 1, 2]
    assert numbers(0.11, 0.19) == [3, 4, 5]
    assert numbers(0.11, 0.111) == [3]
    assert numbers(0.1, 0.1) == []
    assert len(numbers(0, 1.6)) == 48 and decoder.get_all_frames().data.shape[0] == 48
    resampled = decoder.get_frames_played_in_range(0.1, 1, fps=7)
    assert resampled.data.shape[0] == 6
    assert resampled.pts_seconds.tolist() == pytest.approx([0.1 + tick / 7 for tick in range(6)])
    assert resampled.duration_seconds.tolist() == pytest.approx([1 / 7] * 6)
    doubled = decoder.get_frames_played_in_range(0, 0.2, fps=60).data
    assert torch.equal(doubled[0], doubled[1]) and torch.equal(doubled[10], decoder[5])


@pytest.mark.parametrize(
    ("arguments", "fps"),
    [((0.5, 0.1), None), ((0, 2), None), ((-1, 1), None), ((math.nan, 1), None), ((1.6, 1.6), None), ((0, 1), 0)]
    + [((0, 1), -3), ((0, 1), math.nan)],
)
def test_played_in_no_range(decoder: VideoDecoder, arguments: tuple[float, float], fps: float | None) -> None:
    with pytest.raises(ValueError):
        decoder.get_frames_played_in_range(*arguments, fps=fps)


def test_metadata(decoder: VideoDecoder) -> None:
    metadata = decoder.metadata
    assert metadata.num_frames == metadata.num_frames_from_content == metadata.num_frames_from_header == 48
    assert (metadata.width, metadata.height, metadata.codec) == (96, 64, "h264")
    assert metadata.average_fps == pytest.approx(30) and metadata.average_fps_from_header == 30
    assert metadata.begin_stream_seconds == 0 and metadata.end_stream_seconds == pytest.approx(1.6)
    assert metadata.pixel_format == "yuv420p" and metadata.rotation is None
    assert decoder.stream_index == metadata.stream_index == 0
    assert "num_frames: 48" in repr(metadata)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seek_mode": "quick"}, "Invalid seek mode"),
        ({"dimension_order": "HWC"}, "Invalid dimension order"),
        ({"num_ffmpeg_threads": None}, "should be an int"),
        ({"num_ffmpeg_threads": -1}, "should be an int"),
        ({"device": "meta"}, "possible: 'cpu', 'cuda', 'cuda:N', 'auto'"),
        ({"fallback": "gpu"}, "possible: None, 'cpu'"),
        ({"stream_index": 5}, "not a video stream; video streams: "),
        ({"transforms": [torch.nn.Identity()]}, "supported: Resize, CenterCrop, RandomCrop"),
        ({"transforms": [CenterCrop((8, 8)), Resize((4, 4))]}, "Resize can only be the first"),
        ({"transforms": [CenterCrop((800, 8))]}, "larger than the frame"),
    ],
)
def test_bad_arguments(path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VideoDecoder(path, **arguments)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu(path: Path) -> None:
    with pytest.raises(MissingBackend, match=r"use device='cpu', or device='auto'"):
        VideoDecoder(path, device="cuda")
    decoder = VideoDecoder(path, device="auto")
    assert decoder.device.type == "cpu" and not decoder.cpu_fallback


def test_dimension_order_and_approximate_mode(path: Path, decoder: VideoDecoder) -> None:
    channels_last = VideoDecoder(path, dimension_order="NHWC", seek_mode="approximate", num_ffmpeg_threads=1)
    assert channels_last[7].shape == (64, 96, 3)
    assert torch.equal(channels_last[7].permute(2, 0, 1), decoder[7])
    assert torch.equal(channels_last.get_frames_at([7, 9]).data.permute(0, 3, 1, 2), decoder.get_frames_at([7, 9]).data)


class _Slow(io.BytesIO):
    """A file that gives a few bytes at a time, as a socket does."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size, 1000) if size is not None and size > 0 else size)


@pytest.mark.parametrize(
    "wrap",
    [
        bytes,
        bytearray,
        memoryview,
        io.BytesIO,
        _Slow,
        lambda data: torch.frombuffer(bytearray(data), dtype=torch.uint8),
    ],
)
@pytest.mark.parametrize("name", ["h264_bframes", "vp9_alt_ref", "h264_ts"])
def test_sources(name: str, wrap: Callable[[bytes], Any], clip_folder: Path) -> None:
    file = clips.make(name, clip_folder)
    expected = VideoDecoder(file)
    got = VideoDecoder(wrap(file.read_bytes()))
    assert len(got) == len(expected)
    for number in (17, 3, 30, 31, 0):
        assert torch.equal(got[number], expected[number])


def test_source_of_another_type() -> None:
    with pytest.raises(TypeError, match="a path, bytes, a uint8 tensor or a file-like object"):
        VideoDecoder(17)
    with pytest.raises(TypeError, match="lacks seek"):
        VideoDecoder(type("File", (), {"read": lambda self, size: b""})())
    with pytest.raises(framefeed.InvalidFile):
        VideoDecoder(b"not a video")


def test_index_is_used_and_checked(path: Path, clip_folder: Path) -> None:
    index = VideoIndex.scan(path)
    assert VideoDecoder(path, index=index).index is index
    with pytest.raises(ValueError, match="the index is of stream 0"):
        VideoDecoder(path, index=index, stream_index=1)
    with pytest.raises(framefeed.FileChanged):
        VideoDecoder(clips.make("h264_closed_no_b", clip_folder), index=index)


def test_index_by_the_path_of_a_catalog(path: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.arrow"
    Catalog.build(path, catalog, progress=False).close()
    expected = VideoDecoder(path)[3]
    for where in (catalog, str(catalog)):
        assert torch.equal(VideoDecoder(path, index=where)[3], expected)
    with pytest.raises(TypeError, match="a VideoIndex, a Catalog or a catalog's path, not a dict"):
        VideoDecoder(path, index={})
    with pytest.raises(ValueError, match="knows files by their path"):
        VideoDecoder(path.read_bytes(), index=catalog)


def test_decoders_go_to_other_processes(path: Path) -> None:
    """As a worker that is spawned gets them: the video is opened again, with the same options and the same index."""
    decoder = VideoDecoder(
        path, dimension_order="NHWC", num_ffmpeg_threads=1, transforms=[Resize((32, 48)), RandomCrop((16, 16))]
    )
    expected = decoder.get_frames_at([7, 3])
    for again in (pickle.loads(pickle.dumps(decoder)), copy.deepcopy(decoder)):
        assert torch.equal(again.get_frames_at([7, 3]).data, expected.data)  # the crop is the same, too
        assert again.metadata == decoder.metadata and repr(again) == repr(decoder)
    from_bytes = pickle.loads(pickle.dumps(VideoDecoder(path.read_bytes())))
    assert torch.equal(from_bytes[3], VideoDecoder(path)[3])
    with path.open("rb") as file, pytest.raises(TypeError, match="a file object cannot be sent to another process"):
        pickle.dumps(VideoDecoder(file))


def test_a_file_that_has_changed_on_the_way_to_another_process(path: Path, tmp_path: Path) -> None:
    moving = tmp_path / path.name
    shutil.copy(path, moving)
    sent = pickle.dumps(VideoDecoder(moving))
    moving.write_bytes(moving.read_bytes() + b"\0" * 8)
    with pytest.raises(framefeed.FileChanged):
        pickle.loads(sent)


def test_random_crop(path: Path, decoder: VideoDecoder) -> None:
    torch.manual_seed(3)
    places = {tuple(VideoDecoder(path, transforms=[RandomCrop((8, 8))])[4].flatten().tolist()) for _ in range(8)}
    assert len(places) > 1
    cut = VideoDecoder(path, transforms=[RandomCrop((32, 40))])
    whole = decoder.get_frames_at([2, 4]).data.unfold(2, 32, 1).unfold(3, 40, 1)
    same = (whole == cut.get_frames_at([2, 4]).data[:, :, None, None]).flatten(4).all(-1).all(1).all(0)
    assert same.any()  # the same place in both


def test_errors_are_those_that_torchcodec_raises(path: Path, tmp_path: Path) -> None:
    """Code that was written for it skips bad files by `except RuntimeError`."""
    text = tmp_path / "text.mp4"
    text.write_text("not a video")
    for source in (tmp_path / "missing.mp4", tmp_path, text, b"not a video"):
        with pytest.raises(RuntimeError):
            VideoDecoder(source)
    with pytest.raises(RuntimeError):
        VideoDecoder(path, stream_index=9)


def test_transforms(path: Path, decoder: VideoDecoder) -> None:
    resized = VideoDecoder(path, transforms=[Resize((32, 48))])
    assert resized[4].shape == (3, 32, 48)
    expected = torch.nn.functional.interpolate(decoder[4][None].float(), (32, 48), mode="bilinear", antialias=True)[0]
    assert (resized[4].float() - expected).abs().mean() < 2
    cropped = VideoDecoder(path, transforms=[CenterCrop((32, 40))])
    assert torch.equal(cropped[4], decoder[4][:, 16:48, 28:68])
    both = VideoDecoder(path, transforms=[Resize((32, 48)), CenterCrop((16, 16))])
    assert torch.equal(both[4], resized[4][:, 8:24, 16:32])


def test_streams_of_one_file(clip_folder: Path) -> None:
    file = clips.make("two_streams_mp4", clip_folder)
    sizes = set()
    for stream in (0, 1):
        decoder = VideoDecoder(file, stream_index=stream)
        truth = clips.linear_decode(file, stream)
        assert len(decoder) == len(truth) and decoder.stream_index == stream
        sizes.add((decoder.metadata.width, decoder.metadata.height))
    assert len(sizes) == 2


def test_size_that_changes_in_mid_stream(clip_folder: Path) -> None:
    file = clips.make("h264_size_change_ts", clip_folder)
    decoder = VideoDecoder(file)
    sizes = {tuple(decoder[number].shape[1:]) for number in range(len(decoder))}
    assert len(sizes) == 2
    with pytest.raises(framefeed.FrameSizeError, match=r"transforms=\[Resize"):
        decoder.get_frames_at(range(len(decoder)))
    resized = VideoDecoder(file, transforms=[Resize((40, 60))])
    assert resized.get_all_frames().data.shape == (len(decoder), 3, 40, 60)


def test_results_keep_their_memory(decoder: VideoDecoder) -> None:
    """Memory is used again only once nobody looks at it."""
    kept = [decoder.get_frames_at([number, number + 1]).data for number in range(20)]
    views = [batch[0, 1] for batch in kept]
    copies = [view.clone() for view in views]
    del kept
    for _ in range(3):
        decoder.get_frames_at(range(20))
    assert all(torch.equal(view, copy) for view, copy in zip(views, copies, strict=True))


def test_single_frames_of_a_long_group_go_on_from_one_another(
    clip_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framefeed.plan.request, "MIN_DEPTH", 6)
    path = clips.make("h264_one_group", clip_folder)
    truth = [frame.data for frame in VideoDecoder(path)]

    def cost(decoder: VideoDecoder, number: int) -> int:
        assert torch.equal(decoder.get_frame_at(number).data, truth[number])
        assert decoder.last_plan is not None
        return decoder.last_plan.num_packets

    decoder = VideoDecoder(path)
    for before, number in ((20, 30), (24, 35), (16, 18)):
        assert cost(VideoDecoder(path), number) > number // 3
        cost(decoder, before)
        assert cost(decoder, number) <= (number - before) // 2 + 2
    assert cost(decoder, 3) == cost(VideoDecoder(path), 3)


def test_single_frames_of_a_short_video_go_on_from_one_another(clip_folder: Path) -> None:
    """Not where another video was read before: its next frame may not be asked for soon."""
    path, other = clips.make("h264_one_group", clip_folder), VideoDecoder(clips.make("h264_bframes", clip_folder))
    truth = [frame.data for frame in VideoDecoder(path)]
    decoder = VideoDecoder(path)

    def cost(number: int, *, after_another: bool) -> int:
        if after_another:
            other.get_frame_at(0)
        assert torch.equal(decoder.get_frame_at(number).data, truth[number])
        assert decoder.last_plan is not None
        return decoder.last_plan.num_packets

    from_the_start = cost(19, after_another=True)
    cost(13, after_another=True)
    assert cost(19, after_another=False) == from_the_start
    cost(13, after_another=False)
    assert cost(19, after_another=False) <= from_the_start // 2
    assert [torch.equal(decoder.get_frame_at(n).data, truth[n]) for n in (5, 30, 12, 33, 14, 47, 2, 21)] == [True] * 8


def test_the_state_of_the_fallback(decoder: VideoDecoder) -> None:
    assert not decoder.cpu_fallback and decoder.cpu_fallback.status_known
    assert str(decoder.cpu_fallback) == "no fallback to the CPU"
    assert str(CpuFallback("no AV1 here")) == "decoded on the CPU: no AV1 here"
