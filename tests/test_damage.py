"""Bad input: a clear error that names the file, quickly; the next good file is read as if nothing had happened."""

from __future__ import annotations

import dataclasses
import gc
import io
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import clips
import damaged
from framefeed import DecodeError, FramefeedError, FrameSizeError, VideoDecoder, VideoIndex
from framefeed.media.native import NativeFrame

# These can be read in full: as root nothing is unreadable, and the headers' lies are about what nobody believes.
HARMLESS = {"unreadable", "huge_picture_in_header", "huge_box", "huge_time_step", "zero_timescale"}

# What is left of these is a whole video in itself; nothing in the file says that there was more. The last packet may be
# short, though, and whether a decoder can tell depends on where exactly it ends.
SHORTENED = {"cut_mkv", "cut_ts"}


def _read_everything(path: Path) -> int:
    decoder = VideoDecoder(path)
    for start in range(0, len(decoder), 16):
        decoder.get_frames_in_range(start, start + 16)
    return len(decoder)


@pytest.mark.parametrize("name", sorted(damaged.DAMAGED))
def test_bad_files_raise_at_once_and_harm_nobody_else(name: str, tmp_path: Path, clip_folder: Path) -> None:
    path = damaged.DAMAGED[name](tmp_path)
    started = time.perf_counter()
    if name in HARMLESS | SHORTENED:
        try:
            assert _read_everything(path) == len(clips.linear_decode(path))
        except DecodeError as error:
            packets = VideoIndex.scan(path).packets
            assert name in SHORTENED and error.frame is not None
            assert packets.frames[error.frame] == len(packets) - 1
    else:
        with pytest.raises(FramefeedError) as caught:
            _read_everything(path)
        assert str(path) in str(caught.value)
        assert len(caught.value.reason) > 10
    assert time.perf_counter() - started < 15

    good = clips.make("h264_bframes", clip_folder)
    truth = clips.linear_decode(good)
    for frame, picture in enumerate(VideoDecoder(good).get_native_frames_at(range(len(truth)))):
        assert picture == NativeFrame.copy_of(truth[frame])


@pytest.mark.parametrize("seed", range(12))
def test_damage_in_one_group_leaves_the_others(seed: int, tmp_path: Path, clip_folder: Path) -> None:
    good = clips.make("h264_bframes", clip_folder)
    truth = [NativeFrame.copy_of(frame) for frame in clips.linear_decode(good)]
    index = VideoIndex.scan(good)
    groups = np.unique(index.packets.start)
    assert len(groups) >= 3
    hit = int(groups[1])
    packet = hit + seed % 4  # a key frame, or one of the pictures that refer to it
    path = tmp_path / "flipped.mp4"
    path.write_bytes(good.read_bytes())
    begin = int(index.packets.pos[packet])
    damaged.flip_bits(path, begin + 6, begin + int(index.packets.size[packet]), 6, seed)

    decoder = VideoDecoder(path)
    assert len(decoder) == len(truth)
    in_group = index.packets.start[index.packets.frames] == hit
    for frame in np.flatnonzero(~in_group).tolist():
        assert decoder.get_native_frames_at([frame])[0] == truth[frame]
    noticed = any(frame.is_corrupt for frame in clips.linear_decode(path))
    for frame in np.flatnonzero(in_group).tolist():
        try:
            picture = decoder.get_native_frames_at([frame])[0]
        except DecodeError as error:
            assert error.frame == frame
            assert str(path) in str(error)
        else:
            # Never a neighbour in its place. Some flipped bits are just other valid data, which no decoder can notice:
            # then it is that data, as in a linear decode.
            same_as = [number for number, other in enumerate(truth) if other == picture]
            assert same_as == [frame] or (same_as == [] and not noticed)


def test_a_cut_file_gives_the_frames_that_are_there(tmp_path: Path) -> None:
    path = damaged.DAMAGED["cut_in_data"](tmp_path)
    index = VideoIndex.scan(path)
    assert 0 < index.num_cut_frames < index.num_frames
    decoder = VideoDecoder(path, index=index)
    assert decoder[0].shape[0] == 3
    with pytest.raises(DecodeError, match="cut off at byte"):
        decoder[-1]


def test_changed_file_is_noticed(tmp_path: Path, clip_folder: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(clips.make("h264_bframes", clip_folder).read_bytes())
    index = VideoIndex.scan(path)
    decoder = VideoDecoder(path, index=index)
    decoder[3]
    path.write_bytes(clips.make("h264_closed_no_b", clip_folder).read_bytes())
    with pytest.raises(FramefeedError, match="changed since it was indexed"):
        decoder[3]
    with pytest.raises(FramefeedError, match="changed since it was indexed"):
        VideoDecoder(path, index=index)
    path.unlink()
    with pytest.raises(FramefeedError, match="no such file"):
        decoder[3]


def test_reading_ahead_does_not_hand_out_frames_of_a_changed_file(tmp_path: Path, clip_folder: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(clips.make("h264_bframes", clip_folder).read_bytes())
    decoder = VideoDecoder(path, num_ffmpeg_threads=2)
    for frame in range(6):
        decoder[frame]
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(FramefeedError, match="changed since it was indexed"):
        decoder[6]


def test_damage_ahead_is_for_the_request_that_asks_for_it(tmp_path: Path, clip_folder: Path) -> None:
    good = clips.make("h264_bframes", clip_folder)
    index = VideoIndex.scan(good)
    path = tmp_path / "flipped.mp4"
    path.write_bytes(good.read_bytes())
    hit = int(np.unique(index.packets.start)[2])
    begin = int(index.packets.pos[hit])
    damaged.flip_bits(path, begin + 6, begin + int(index.packets.size[hit]), 40, 3)
    decoder = VideoDecoder(path, num_ffmpeg_threads=2)
    first_bad = int(np.flatnonzero(index.packets.start[index.packets.frames] == hit)[0])
    for frame in range(first_bad):
        decoder[frame]
    with pytest.raises(DecodeError, match=f"frame {first_bad} "):
        decoder[first_bad]


def test_a_file_object_after_an_error(clip_folder: Path) -> None:
    """What a request that failed leaves behind is not left to the garbage collector."""
    decoder = VideoDecoder(
        io.BytesIO(clips.make("h264_size_change_ts", clip_folder).read_bytes()), num_ffmpeg_threads=2
    )
    expected = decoder[10]
    for _ in range(10):
        with pytest.raises(FrameSizeError):
            decoder.get_frames_at([2, 7, 12, 30, 31, 36])
        gc.collect()
        for frame in (0, 10, 35):
            picture = decoder[frame]
            assert frame != 10 or torch.equal(picture, expected)


def test_more_reordering_than_a_decoder_can_do(clip_folder: Path) -> None:
    """As a header may claim: FFmpeg ends the process where it is told of more than 16 pictures."""
    path = clips.make("h264_bframes", clip_folder)
    index = VideoIndex.scan(path)
    claimed = dataclasses.replace(index, stream=dataclasses.replace(index.stream, reorder_depth=36))
    for threads in (1, 4):
        found = VideoDecoder(path, index=claimed, num_ffmpeg_threads=threads).get_frames_in_range(0, 40)
        assert torch.equal(found.data, VideoDecoder(path).get_frames_in_range(0, 40).data)
