"""One contract for every reader whose library is installed: the frames that were asked for, told by their pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clips
from framefeed import DecodeError, FramefeedError, FrameIndexError, InvalidFile, SourceError
from framefeed.readers import READERS, AbstractVideoReader, open_reader, usable
from framefeed.testing.samples import read_number
from readers.conftest import CLIPS, FRAMES

HERE = [info.name for info in usable("cpu") if info.usable]
MODES = ("seek", "stream")
FORMATS = ("THWC", "TCHW")
# Every reader in every mode with both formats, and with every clip in one of them.
WAYS = [
    (clip, mode, FORMATS[(number + offset) % 2])
    for number, clip in enumerate(CLIPS)
    for offset, mode in enumerate(MODES)
]

RANDOM: list[int] = np.random.default_rng(5).permutation(FRAMES)[:20].tolist()
REQUESTS: dict[str, list[int]] = {
    "random": RANDOM,
    "repeated": [30, 3, 3, 30, 17, 3],
    "in order": list(range(FRAMES)),
    "backwards": list(range(FRAMES - 1, -1, -1)),
    "every seventh": list(range(2, FRAMES, 7)),
    "single": [29],
    "last": [FRAMES - 1],
    "first": [0],
}

# Where a reader is known to give wrong frames, and the words for it in its remarks.
_NO_FRAME = "packets show no frame"
KNOWN_WRONG: dict[tuple[str, str], str] = {
    ("torchcodec", "h264_open_gop_cut"): _NO_FRAME,
    ("torchcodec", "h264_intra_refresh"): "keyframes that are recovery points",
    ("torchcodec", "vp8_alt_ref"): _NO_FRAME,
    ("torchcodec", "h264_ts"): "transport streams",
    ("torchcodec", "h264_avi"): "AVI",
    ("torchcodec", "edit_negative_pts"): "edit lists",
    ("pyav", "h264_open_gop_cut"): _NO_FRAME,
    ("pyav", "vp8_alt_ref"): _NO_FRAME,
    ("pyav", "h264_avi"): "AVI with B-frames",
    ("decord", "hevc_open_gop.mp4"): "open groups",
    ("decord", "vp8_alt_ref"): _NO_FRAME,
    ("opencv", "h264_ts"): "transport",
    ("opencv", "mp4_vfr"): "frame rate varies",
    ("spdl", "h264_open_gop_cut"): _NO_FRAME,
    ("spdl", "h264_intra_refresh"): "keyframes that are recovery points",
    ("spdl", "hevc_radl"): "RADL",
    ("spdl", "vp8_alt_ref"): _NO_FRAME,
    ("spdl", "edit_negative_pts"): "edit lists",
    ("spdl", "edit_starts_in_group"): "edit lists",
}

Find = Callable[[str], Path]


def numbers(frames: torch.Tensor, output_format: str = "THWC") -> list[int | None]:
    """Painted numbers; None where there is none to be read."""
    pictures = frames if output_format == "THWC" else frames.permute(0, 2, 3, 1)
    return [_number(picture.numpy()) for picture in pictures]


def _number(picture: Any) -> int | None:
    try:
        return read_number(picture)
    except ValueError:
        return None


def check_right(reader: AbstractVideoReader, kind: str, found: Sequence[int | None], right: Sequence[int]) -> None:
    """Frames are right, or the reader says that they may not be."""
    wrong = [pair for pair in zip(found, right, strict=True) if pair[0] != pair[1]]
    known = KNOWN_WRONG.get((reader.name, kind))
    if known is None:
        assert wrong == [], f"{reader.name}, {reader.mode}: {len(wrong)} wrong frames (found, right)"
    else:
        assert not reader.exact and known in reader.remarks


@pytest.mark.parametrize(("clip", "mode", "output_format"), WAYS)
@pytest.mark.parametrize("name", HERE)
def test_frames_are_those_that_were_asked_for(
    name: str, clip: str, mode: str, output_format: str, reader_clips: Find
) -> None:
    with open_reader(name, reader_clips(clip), mode=mode, output_format=output_format) as reader:
        assert reader.num_frames == FRAMES
        for request in REQUESTS.values():
            try:
                frames = reader.read_frames(request)
            except DecodeError:
                assert (name, clip) in KNOWN_WRONG
                continue
            size = (96, 160, 3) if output_format == "THWC" else (3, 96, 160)
            assert tuple(frames.shape) == (len(request), *size)
            assert frames.dtype == torch.uint8 and frames.device.type == "cpu"
            check_right(reader, clip, numbers(frames, output_format), request)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HERE)
def test_frames_are_in_colour_and_in_memory_of_their_own(name: str, mode: str, reader_clips: Find) -> None:
    path = reader_clips("h264_bframes.mp4")
    with open_reader("framefeed", path) as ours:
        right = ours.read_frames([7, 30]).float()
    with open_reader(name, path, mode=mode) as reader:
        first = reader.read_frames([7, 30])
        kept = first.clone()
        reader.read_frames([8, 31])
        assert torch.equal(first, kept)
        # Libraries differ in how they make pixels of chroma; red and blue exchanged would differ by far more.
        assert (first.float() - right).abs().mean() < 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HERE)
def test_no_numbers_give_no_frames(name: str, mode: str, reader_clips: Find) -> None:
    path = reader_clips("vp9.webm")
    for output_format, shape in (("THWC", (0, 96, 160, 3)), ("TCHW", (0, 3, 96, 160))):
        with open_reader(name, path, mode=mode, output_format=output_format) as reader:
            assert tuple(reader.read_frames([]).shape) == shape


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HERE)
def test_numbers_that_are_not_there(name: str, mode: str, reader_clips: Find) -> None:
    path = reader_clips("h264_bframes.mp4")
    with open_reader(name, path, mode=mode) as reader:
        for bad in (-1, FRAMES, 10**9):
            with pytest.raises(IndexError, match=rf"h264_bframes.mp4: no frame {bad}; .*{FRAMES} frames"):
                reader.read_frames([0, bad])
        with pytest.raises(TypeError):
            reader.read_frames([1.5])  # type: ignore[list-item]
        assert numbers(reader.read_frames(np.array([4, 5]))) == [4, 5]  # type: ignore[arg-type]


@pytest.mark.parametrize("name", HERE)
def test_closed_readers_refuse(name: str, reader_clips: Find) -> None:
    path = reader_clips("h264_bframes.mp4")
    with open_reader(name, path) as reader:
        assert repr(path.name)[1:-1] in repr(reader) and f"{FRAMES} frames" in repr(reader)
        assert "closed" not in repr(reader)
    assert "closed" in repr(reader)
    reader.close()
    with pytest.raises(ValueError, match="closed"):
        reader.read_frames([0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HERE)
def test_readers_side_by_side(name: str, mode: str, reader_clips: Find) -> None:
    first, second = reader_clips("h264_bframes.mp4"), reader_clips("vp9.webm")
    with open_reader(name, first, mode=mode) as one, open_reader(name, second, mode=mode) as other:
        for number in (40, 3, 17):
            assert numbers(one.read_frames([number])) == [number]
            assert numbers(other.read_frames([number + 1, number])) == [number + 1, number]


@pytest.mark.parametrize("name", HERE)
def test_number_of_threads(name: str, reader_clips: Find) -> None:
    with open_reader(name, reader_clips("h264_bframes.mp4"), num_threads=1) as reader:
        assert numbers(reader.read_frames(RANDOM)) == RANDOM
    with pytest.raises(ValueError, match="num_threads must be"):
        open_reader(name, reader_clips("h264_bframes.mp4"), num_threads=-1)


@pytest.mark.parametrize("name", HERE)
def test_files_that_are_no_videos(name: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"missing.mp4: "):
        open_reader(name, tmp_path / "missing.mp4")
    text = tmp_path / "text.mp4"
    text.write_text("no video at all\n" * 100)
    with pytest.raises(InvalidFile, match=r"text.mp4: "):
        open_reader(name, text)


@pytest.mark.parametrize("name", HERE)
def test_decoded_frames_are_counted_where_that_is_known(name: str, reader_clips: Find) -> None:
    with open_reader(name, reader_clips("h264_bframes.mp4"), mode="seek") as reader:
        reader.read_frames([0])
        before = reader.frames_decoded
        reader.read_frames([23])  # the last of its group
        after = reader.frames_decoded
    if before is None or after is None:
        assert name not in ("framefeed", "pyav")
    else:
        assert before >= 1 and before + 1 < after <= FRAMES


# Oddities on which libraries differ. One of each sort; all of them take long.
ODD = (
    "h264_open_gop",
    "h264_open_gop_cut",
    "h264_intra_refresh",
    "hevc_radl",
    "vp8_alt_ref",
    "vp9_alt_ref",
    "h264_ts",
    "h264_avi",
    "edit_negative_pts",
    "edit_starts_in_group",
    "mp4_vfr",
)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("name", HERE)
def test_odd_files_give_right_frames_or_errors_or_remarks(name: str, kind: str, mode: str, clip_folder: Path) -> None:
    right = clips.KINDS[kind].numbers
    assert right is not None
    try:
        reader = open_reader(name, clips.make(kind, clip_folder), mode=mode)
    except FramefeedError:
        assert name != "framefeed"
        return
    with reader:
        found: dict[int, int | None] = {}
        for number in np.random.default_rng(1).permutation(len(right)).tolist():
            try:
                found[number] = numbers(reader.read_frames([number]))[0]
            except (FrameIndexError, FramefeedError):
                assert name != "framefeed"
        check_right(reader, kind, list(found.values()), [right[number] for number in found])


def test_only_readers_that_say_so_are_wrong() -> None:
    for (name, _), words in KNOWN_WRONG.items():
        assert not READERS[name].exact and words in READERS[name].remarks


@pytest.mark.parametrize("name", READERS)
def test_every_reader_is_described(name: str) -> None:
    reader = READERS[name]
    assert reader.name == name and reader.install.startswith("pip install ") and reader.__doc__
    assert set(reader.devices) <= {"cpu", "cuda"} and reader.modes == MODES
    assert reader.exact or reader.remarks
    assert not reader.remarks.endswith(".") and "\n" not in reader.remarks
