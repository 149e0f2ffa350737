"""The dataset: which frames each sample has, what is made of them, and that worker processes agree."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler

import damaged
from framefeed import (
    Catalog,
    CatalogError,
    DecodeError,
    FramefeedError,
    FrameSizeError,
    InvalidFile,
    ProcessDesc,
    SourceError,
    VideoDataset,
    VideoDecoder,
    VideoIndex,
    video_size_from_file,
)
from framefeed.convert.desc import Changes
from helpers.clips_help import (
    MIXED,
    SPECS,
    Truth,
    clip,
    clips_of,
    draw_of,
    noisy_copy,
    num_frames,
    painted_number,
    same_bits,
)

BYTES = {"frames": ProcessDesc(type="byte")}
RANDOM = {
    "small": ProcessDesc(type="byte", scale_width=32, scale_height=24, random_flip=True),
    "part": ProcessDesc(width=20, height=16, random_crop=True, random_flip=True, normalized=True),
}


def _numbers(sample: Mapping[str, Any], name: str = "frames") -> list[int]:
    """The numbers that are painted into a sample's frames."""
    return [painted_number(frame.numpy()) for frame in sample[name]]


def _wrong(dataset: VideoDataset, truth: Truth, *, epoch: int = 0, step: int = 1) -> list[tuple[int, str]]:
    wrong = []
    for number in range(0, len(dataset), step):
        found, wanted = dataset[number], truth.sample(number, epoch)
        assert found.keys() == wanted.keys()
        wrong += [(number, name) for name in wanted if not same_bits(found[name], wanted[name])]
    return wrong


# --- indexing ---


def test_two_files_of_100_frames_and_sequences_of_5(clip_folder: Path) -> None:
    path = clip("hundred.mp4", clip_folder)
    dataset = VideoDataset([path, path], 5, processing=BYTES)
    assert len(dataset) == 192
    for number in (0, 1, 50, 94, 95, 96, 97, 150, 190, 191):
        first = number % 96
        assert dataset.locate(number) == (path, first)
        assert _numbers(dataset[number]) == list(range(first, first + 5))
    assert _numbers(dataset[-1]) == [95, 96, 97, 98, 99]
    assert _numbers(dataset[-192]) == [0, 1, 2, 3, 4]
    for outside in (192, -193, 10**12):
        with pytest.raises(IndexError, match=r"0\.\.191"):
            dataset[outside]


def test_length_1_counts_frames_through_all_files(clip_folder: Path) -> None:
    paths = clips_of(MIXED, clip_folder)
    dataset = VideoDataset(paths, 1, processing=BYTES)
    wanted = [(path, frame) for path in paths for frame in range(num_frames(path))]
    assert len(dataset) == len(wanted)
    assert [dataset.locate(number) for number in range(len(dataset))] == wanted
    assert _wrong(dataset, Truth(paths, processing=BYTES), step=7) == []


@pytest.mark.parametrize(("length", "stride"), [(5, 2), (1, 7), (2, 30), (3, 1)])
def test_stride(length: int, stride: int, clip_folder: Path) -> None:
    paths = clips_of([name for name in MIXED if name != "one_frame.mp4" or length == 1], clip_folder)
    dataset = VideoDataset(paths, length, frame_stride=stride, processing=BYTES)
    truth = Truth(paths, length, stride, BYTES)
    assert len(dataset) == len(truth)
    assert [dataset.locate(number) for number in range(len(dataset))] == truth.starts()
    for number in (0, 19, len(dataset) // 2, len(dataset) - 1):
        first = truth.starts()[number][1]
        assert _numbers(dataset[number]) == [first + stride * place for place in range(length)]


def test_any_whole_number_is_a_number(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder), processing=BYTES)
    for number in (np.int64(7), np.uint8(7), torch.tensor(7)):
        assert _numbers(dataset[number]) == [7]  # type: ignore[index]
    for wrong in (7.0, "7", None, slice(3)):
        with pytest.raises(TypeError):
            dataset[wrong]  # type: ignore[index]


def test_iterating_over_a_dataset_ends(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("rotated.mp4", clip_folder), 20, processing=BYTES)
    assert len(list(dataset)) == len(dataset) == 5  # type: ignore[call-overload]


def test_shorter_files_are_left_out_with_a_warning(clip_folder: Path) -> None:
    paths = clips_of(["one_frame.mp4", "bframes.mp4", "rotated.mp4", "one_frame.mp4"], clip_folder)
    with pytest.warns(UserWarning, match=r"left out 3 files.*one_frame\.mp4") as caught:
        dataset = VideoDataset(paths, 25, processing=BYTES)
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    assert dataset.filenames == (paths[1],)
    assert len(dataset) == 60 - 24
    assert dataset.locate(0) == (paths[1], 0)
    with pytest.warns(UserWarning, match="left out 1 files.*stride of 12"):
        dataset = VideoDataset([paths[2], paths[1]], 3, frame_stride=12, processing=BYTES)
    assert _numbers(dataset[0]) == [0, 12, 24]
    with pytest.warns(UserWarning, match="left out"):
        assert len(VideoDataset(paths, 61)) == 0


def test_a_file_may_come_twice_and_in_any_form(clip_folder: Path, tmp_path: Path) -> None:
    path = clip("bframes.mp4", clip_folder)
    for place in range(3):
        (tmp_path / f"{place}").mkdir()
        shutil.copy(path, tmp_path / f"{place}" / "clip.mp4")
    (tmp_path / "0" / "notes.txt").write_text("no video")
    names = [str(tmp_path / f"{place}" / "clip.mp4") for place in range(3)]
    assert VideoDataset(tmp_path).filenames == tuple(names)
    assert VideoDataset(str(tmp_path / "**" / "*.mp4")).filenames == tuple(names)
    assert VideoDataset(iter([names[1], str(tmp_path / "1"), names[0]])).filenames == (names[1], names[1], names[0])
    assert len(VideoDataset([path, path, path])) == 180


# --- another rate ---


def _rows(dataset: VideoDataset) -> list[list[int]]:
    """The frames of each sample, of a dataset of one file."""
    files, firsts = dataset.sequences.locate(np.arange(len(dataset)))
    rows: list[list[int]] = dataset.sequences.frames(files, firsts).tolist()
    return rows


NATIVE: list[tuple[str, float | Fraction]] = [
    ("thirty.mp4", 30),
    ("thirty.mp4", 30.0),
    ("thirty.mkv", 30),
    ("vp9.webm", 30),
    ("ntsc.mp4", Fraction(30000, 1001)),
    ("ntsc.mp4", 29.97),
    ("ntsc.mkv", Fraction(30000, 1001)),
    ("ntsc.mkv", 29.97),
    ("film.mkv", Fraction(24000, 1001)),
    ("film.mkv", 23.976),
    ("film.ts", 24000 / 1001),
    ("sixty.mkv", 60),
]


@pytest.mark.parametrize(("name", "fps"), NATIVE)
def test_native_rate_gives_every_frame(name: str, fps: float | Fraction, clip_folder: Path) -> None:
    path = clip(name, clip_folder)
    for length in (1, 2, 4, 5, 16):
        rows = _rows(VideoDataset(path, length, fps=fps))
        whole = num_frames(path) - length + 1
        assert rows[:whole] == [list(range(first, first + length)) for first in range(whole)]


@pytest.mark.parametrize(("name", "fps"), NATIVE)
def test_native_rate_gives_as_many_samples_as_no_rate(name: str, fps: float | Fraction, clip_folder: Path) -> None:
    path = clip(name, clip_folder)
    found = {length: len(VideoDataset(path, length, fps=fps)) for length in range(1, 31)}
    assert found == {length: num_frames(path) - length + 1 for length in range(1, 31)}


def test_native_rate_of_slow_motion(clip_folder: Path) -> None:
    path = clip("slow_motion.mkv", clip_folder)
    assert _rows(VideoDataset(path, 2, fps=300)) == [[first, first + 1] for first in range(89)]


@pytest.mark.parametrize("name", ["thirty.mp4", "thirty.mkv", "sixty.mkv", "ntsc.mp4", "film.mkv", "film.ts"])
def test_half_rate_is_every_other_frame(name: str, clip_folder: Path) -> None:
    path = clip(name, clip_folder)
    native = Fraction(SPECS[name].get("fps", 30))
    for length in (2, 5, 9):
        rows = _rows(VideoDataset(path, length, fps=native / 2))
        whole = num_frames(path) - 2 * (length - 1)
        assert rows[:whole] == [list(range(first, first + 2 * length, 2))[:length] for first in range(whole)]
        assert whole <= len(rows) <= whole + 1


@pytest.mark.parametrize("name", ["thirty.mp4", "thirty.mkv", "sixty.mkv", "ntsc.mp4", "film.mkv", "film.ts"])
def test_double_rate_shows_every_frame_twice(name: str, clip_folder: Path) -> None:
    path = clip(name, clip_folder)
    native = Fraction(SPECS[name].get("fps", 30))
    rows = _rows(VideoDataset(path, 8, fps=2 * native))
    assert rows[:86] == [[first + place // 2 for place in range(8)] for first in range(86)]


@pytest.mark.parametrize("name", ["vfr.mkv", "film.mkv", "thirty.mp4"])
@pytest.mark.parametrize("fps", [7, 13, 24.5, Fraction(1000, 91), 100])
def test_any_rate_gives_the_frame_that_is_shown(name: str, fps: float | Fraction, clip_folder: Path) -> None:
    """Each frame is the one that is shown at its time; a time within one unit of a frame's beginning may be either."""
    path = clip(name, clip_folder)
    index = VideoIndex.scan(path)
    times = [Fraction(int(pts)) * index.stream.time_base for pts in index.packets.frame_pts]
    end = times[-1] + int(index.packets.frame_duration[-1]) * index.stream.time_base
    dataset = VideoDataset(path, 6, fps=fps)
    rows = _rows(dataset)
    unit = index.stream.time_base
    span = 5 / Fraction(fps)
    assert (
        sum(time + span < end - unit for time in times) <= len(rows) <= sum(time + span < end + unit for time in times)
    )
    for first, row in enumerate(rows):
        assert row[0] == first
        for place, frame in enumerate(row):
            tick = times[first] + place / Fraction(fps)
            following = times[frame + 1] if frame + 1 < len(times) else end
            assert times[frame] - unit <= tick < following + unit


def test_variable_rate_shows_the_painted_frames(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("vfr.mkv", clip_folder), 4, fps=10, processing=BYTES)
    rows = _rows(dataset)
    assert len({tuple(np.diff(row)) for row in rows}) > 3
    for number in range(0, len(dataset), 9):
        assert _numbers(dataset[number]) == rows[number]


def test_a_low_rate_leaves_short_files_out(clip_folder: Path) -> None:
    paths = clips_of(["bframes.mp4", "one_frame.mp4"], clip_folder)  # of 2 s and 1/30 s
    with pytest.warns(UserWarning, match="one_frame"):
        dataset = VideoDataset(paths, 2, fps=1)
    assert len(dataset) == 30
    assert _rows(dataset)[-1] == [29, 59]


# --- what samples are ---


def test_default_is_all_frames_in_full_size_as_floats(clip_folder: Path) -> None:
    path = clip("bframes.mp4", clip_folder)
    sample = VideoDataset(path, 3)[10]
    assert list(sample) == ["default"]
    assert sample["default"].dtype == torch.float32
    assert torch.equal(sample["default"], VideoDecoder(path)[10:13].float())


def test_samples_equal_a_linear_decode(clip_folder: Path) -> None:
    paths = clips_of([name for name in MIXED if name != "one_frame.mp4"], clip_folder)
    processing = {**RANDOM, "middle": ProcessDesc(type="half", index_map=[-1, -1, 0], dimension_order="cfhw")}
    dataset = VideoDataset(paths, 5, frame_stride=2, processing=processing, seed=3)
    assert dataset[0]["middle"].shape == (3, 1, 48, 64)
    assert _wrong(dataset, Truth(paths, 5, 2, processing, seed=3), step=13) == []


def test_files_of_different_sizes(clip_folder: Path) -> None:
    paths = clips_of(["bframes.mp4", "wide.mp4", "rotated.mp4"], clip_folder)
    processing = {"as it is": ProcessDesc(type="byte"), "high": ProcessDesc(type="byte", scale_height=32)}
    dataset = VideoDataset(paths, 2, processing=processing)
    assert _wrong(dataset, Truth(paths, 2, 1, processing), step=5) == []
    shapes = [tuple(dataset[number]["as it is"].shape[2:]) for number in (0, 59, len(dataset) - 1)]
    assert shapes == [(48, 64), (56, 96), (64, 48)]
    assert [sample["high"].shape[3] for sample in dataset.__getitems__([0, 59, len(dataset) - 1])] == [43, 55, 24]


def test_several_samples_at_once_are_the_same(clip_folder: Path) -> None:
    paths = clips_of(MIXED[:4], clip_folder)
    dataset = VideoDataset(paths, 3, processing=RANDOM)
    wanted = [5, 200, 6, 5, 0, -1, 100, 101, 5]
    for found, number in zip(dataset.__getitems__(wanted), wanted, strict=True):
        alone = dataset[number]
        assert all(same_bits(found[name], alone[name]) for name in RANDOM)
    assert dataset.__getitems__([]) == []


def test_samples_do_not_share_memory(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder), processing=BYTES)
    first, again = dataset.__getitems__([3, 3])
    kept = first["frames"].clone()
    again["frames"].zero_()
    for number in range(20):
        dataset[number]["frames"].zero_()
    assert torch.equal(first["frames"], kept)


def test_label_gets_file_frame_and_changes(clip_folder: Path) -> None:
    calls = []

    def label(filename: str, frame: int, changes: Mapping[str, Changes]) -> tuple[str, int]:
        calls.append((filename, frame, dict(changes)))
        return filename, frame

    path = clip("bframes.mp4", clip_folder)
    relative = os.path.relpath(path)
    dataset = VideoDataset([path, relative], 5, frame_stride=2, processing=RANDOM, get_label=label, seed=9)
    assert len(dataset) == 104
    samples = dataset.__getitems__([3, 60, 103])
    assert [sample["labels"] for sample in samples] == [(path, 3), (relative, 8), (relative, 51)]
    for number, (_, _, changes) in zip((3, 60, 103), calls, strict=True):
        draw = draw_of(number, 9, 0)
        assert changes["small"] == Changes((24, 32), (0, 0, 24, 32), draw.flip < 0.5)
        top, left = int(draw.top * 33), int(draw.left * 45)
        assert changes["part"] == Changes((48, 64), (top, left, 16, 20), draw.flip < 0.5)


def test_an_error_of_the_label_is_not_hidden(clip_folder: Path) -> None:
    def label(filename: str, frame: int, changes: Mapping[str, Changes]) -> int:
        raise ZeroDivisionError(filename)

    dataset = VideoDataset(clip("bframes.mp4", clip_folder), get_label=label)
    with pytest.raises(ZeroDivisionError, match="bframes"):
        dataset[0]


def test_video_size(clip_folder: Path, tmp_path: Path) -> None:
    assert video_size_from_file(clip("wide.mp4", clip_folder)) == (96, 56)
    size = video_size_from_file(Path(clip("rotated.mp4", clip_folder)))
    assert (size.width, size.height) == (48, 64)
    assert VideoDataset(clip("rotated.mp4", clip_folder))[0]["default"].shape == (1, 3, size.height, size.width)
    with pytest.raises(SourceError, match=r"nothing\.mp4"):
        video_size_from_file(tmp_path / "nothing.mp4")


# --- randomness ---


def test_randomness_depends_on_seed_epoch_and_sample_alone(clip_folder: Path) -> None:
    paths = clips_of(["bframes.mp4", "open_gop.mp4"], clip_folder)

    def changes(seed: int, epoch: int, paths: list[str]) -> list[tuple[Any, ...]]:
        dataset = VideoDataset(paths, processing=RANDOM, seed=seed, get_label=lambda *label: label[2])
        dataset.set_epoch(epoch)
        assert dataset.epoch == epoch
        samples = dataset.__getitems__(range(60))[::-1]
        return [tuple(sample["labels"].values()) for sample in samples][::-1]

    first = changes(0, 0, paths)
    assert changes(0, 0, paths) == changes(0, 0, paths[:1]) == changes(0, 0, [paths[0], *paths]) == first
    others = [changes(1, 0, paths), changes(0, 1, paths), changes(1, 1, paths)]
    for other, another in pairwise([first, *others]):
        assert sum(a == b for a, b in zip(other, another, strict=True)) < 10


def test_about_half_is_flipped_and_crops_lie_everywhere(clip_folder: Path) -> None:
    path = clip("bframes.mp4", clip_folder)
    processing = {"part": ProcessDesc(width=62, height=47, random_crop=True, random_flip=True)}
    dataset = VideoDataset([path] * 40, processing=processing, get_label=lambda *label: label[2]["part"])
    draws = [sample["labels"] for sample in dataset.__getitems__(range(0, 2400, 2))]
    assert 530 < sum(change.flip for change in draws) < 670
    places = [change.crop[:2] for change in draws]
    for top in range(2):
        for left in range(3):
            assert 140 < places.count((top, left)) < 260


def test_descriptions_of_a_sample_share_flip_and_crop(clip_folder: Path) -> None:
    """Half the size, half the crop: the same part of the picture, flipped or not."""
    path = clip("wide.mp4", clip_folder)
    processing = {
        "full": ProcessDesc(width=48, height=28, random_crop=True, random_flip=True),
        "half": ProcessDesc(scale_width=48, width=24, height=14, random_crop=True, random_flip=True),
    }
    dataset = VideoDataset(path, processing=processing, get_label=lambda *label: label[2])
    for number in range(len(dataset)):
        sample = dataset[number]
        full, half = sample["labels"]["full"], sample["labels"]["half"]
        assert full.flip == half.flip
        for side in (0, 1):
            assert abs(full.crop[side] - 2 * half.crop[side]) <= 2
        small = torch.nn.functional.avg_pool2d(sample["full"][0], 2)
        assert (small - sample["half"][0]).abs().mean() < 30


# --- worker processes ---


def _label(filename: str, frame: int, changes: Mapping[str, Changes]) -> tuple[str, int]:
    return os.path.basename(filename), frame


class _Watched(VideoDataset):
    """Tells how many samples it was asked for at once."""

    def __getitems__(self, samples: Any) -> list[dict[str, Any]]:
        return [{**sample, "asked": len(samples)} for sample in super().__getitems__(samples)]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes(method: str, clip_folder: Path) -> None:
    paths = clips_of(MIXED[:4], clip_folder)
    dataset = _Watched(paths, 3, processing=RANDOM, get_label=_label, seed=5)
    dataset[0]  # the parent has decoded before it forks
    truth = Truth(paths, 3, 1, RANDOM, seed=5)
    batch_size = 30
    loader = DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=2,
        multiprocessing_context=method,
        timeout=60,
        persistent_workers=True,
    )
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        batches = list(loader)
        assert sum(len(batch["small"]) for batch in batches) == len(dataset)
        assert batches[0]["asked"].tolist() == [batch_size] * batch_size
        for number in range(0, len(dataset), 23):
            batch, row = batches[number // batch_size], number % batch_size
            wanted = truth.sample(number, epoch)
            assert all(same_bits(batch[name][row], wanted[name]) for name in RANDOM)
            path, first = truth.starts()[number]
            assert (batch["labels"][0][row], int(batch["labels"][1][row])) == (os.path.basename(path), first)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_workers_and_parent_share_a_catalog(clip_folder: Path, tmp_path: Path) -> None:
    paths = clips_of(MIXED[:3], clip_folder)
    catalog = Catalog.build(paths, tmp_path / "catalog.arrow", progress=False)
    dataset = VideoDataset(None, processing=BYTES, catalog=catalog)
    dataset[0]
    loader = DataLoader(
        dataset,
        batch_size=16,
        sampler=RandomSampler(dataset),
        num_workers=2,
        multiprocessing_context="fork",
        timeout=60,
    )
    assert sum(len(batch["frames"]) for batch in loader) == len(dataset) == 184


@pytest.mark.parametrize("with_catalog", [False, True])
def test_pickles(with_catalog: bool, clip_folder: Path, tmp_path: Path) -> None:
    paths = clips_of(MIXED[:3], clip_folder)
    catalog = Catalog.build(paths, tmp_path / "catalog.arrow", progress=False) if with_catalog else None
    dataset = VideoDataset(paths, 5, processing=RANDOM, get_label=_label, seed=2, catalog=catalog)
    dataset.set_epoch(4)
    before = dataset[11]
    for twin in (pickle.loads(pickle.dumps(dataset)), copy.copy(dataset)):
        assert (len(twin), twin.filenames, twin.epoch) == (len(dataset), dataset.filenames, 4)
        assert twin[11]["labels"] == before["labels"]
        assert all(same_bits(twin[11][name], before[name]) for name in RANDOM)


def test_a_pickled_twin_has_its_own_epoch(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder))
    twin = pickle.loads(pickle.dumps(dataset))
    dataset.set_epoch(7)
    assert (twin.epoch, dataset.epoch) == (0, 7)


# --- catalogs ---


@pytest.fixture
def catalog(clip_folder: Path, tmp_path: Path) -> Catalog:
    return Catalog.build(clips_of(MIXED, clip_folder), tmp_path / "catalog.arrow", progress=False)


def test_catalog_all_files(catalog: Catalog, clip_folder: Path) -> None:
    paths = clips_of(MIXED, clip_folder)
    for given in (catalog, catalog.path, Path(catalog.path)):
        dataset = VideoDataset(None, processing=BYTES, catalog=given)
        assert dataset.filenames == tuple(paths)
        assert len(dataset) == catalog.total_frames
        assert _wrong(dataset, Truth(paths, processing=BYTES), step=31) == []


def test_catalog_part_of_its_files(catalog: Catalog, clip_folder: Path) -> None:
    paths = clips_of([MIXED[4], MIXED[1], MIXED[1]], clip_folder)
    given = [os.path.relpath(paths[0]), paths[1], paths[2]]
    dataset = VideoDataset(
        given, 5, frame_stride=2, processing=BYTES, catalog=catalog, get_label=lambda *label: label[0]
    )
    assert dataset.filenames == tuple(given)
    assert [dataset[number]["labels"] for number in (0, 51, 52, len(dataset) - 1)] == [given[n] for n in (0, 0, 1, 2)]
    assert _wrong(VideoDataset(given, 5, processing=BYTES, catalog=catalog), Truth(paths, 5, 1, BYTES), step=31) == []


def test_catalog_with_another_rate_and_short_files(catalog: Catalog, clip_folder: Path) -> None:
    scanned = VideoDataset(clips_of(MIXED[:-1], clip_folder), 4, fps=20)
    with pytest.warns(UserWarning, match="one_frame"):
        dataset = VideoDataset(None, 4, fps=20, catalog=catalog)
    assert dataset.filenames == scanned.filenames
    every = np.arange(len(scanned))
    assert np.array_equal(
        dataset.sequences.frames(*dataset.sequences.locate(every)),
        scanned.sequences.frames(*scanned.sequences.locate(every)),
    )


def test_catalog_reads_no_file_until_it_is_needed(clip_folder: Path, tmp_path: Path) -> None:
    copies = [shutil.copy(clip("bframes.mp4", clip_folder), tmp_path / f"{number}.mp4") for number in range(3)]
    catalog = Catalog.build(copies, tmp_path / "catalog.arrow", progress=False)
    os.unlink(copies[1])
    dataset = VideoDataset(None, processing=BYTES, catalog=catalog)
    assert len(dataset) == 180
    assert _numbers(dataset[0]) == [0] and _numbers(dataset[179]) == [59]
    with pytest.raises(SourceError, match=r"1\.mp4"):
        dataset[60]


def test_catalog_lacks_a_file(catalog: Catalog, clip_folder: Path) -> None:
    known, unknown = clip("bframes.mp4", clip_folder), clip("wide.mp4", clip_folder)
    with pytest.raises(FramefeedError, match=r"wide\.mp4: not in the catalog"):
        VideoDataset([known, unknown], catalog=catalog)
    with pytest.warns(UserWarning, match=r"left out 1 of 2 files: .*wide\.mp4"):
        dataset = VideoDataset([known, unknown], catalog=catalog, on_error="skip")
    assert dataset.filenames == (known,)
    assert [bad.path for bad in dataset.unreadable] == [unknown]


def test_no_catalog_there(tmp_path: Path, clip_folder: Path) -> None:
    with pytest.raises(CatalogError, match="none"):
        VideoDataset(None, catalog=tmp_path / "none")
    with pytest.raises(ValueError, match="filenames, or a catalog"):
        VideoDataset(None)


# --- bad arguments and bad files ---


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sequence_length": 0}, "sequence_length must be at least 1"),
        ({"sequence_length": -5}, "sequence_length must be at least 1"),
        ({"frame_stride": 0}, "frame_stride must be at least 1"),
        ({"fps": 0}, "fps must be positive"),
        ({"fps": -30.0}, "fps must be positive"),
        ({"fps": float("nan")}, "fps must be positive"),
        ({"fps": float("inf")}, "fps must be positive"),
        ({"fps": 30, "frame_stride": 2}, "frame_stride and fps"),
        ({"on_error": "ignore"}, '"raise" or "skip"'),
        ({"processing": {}}, "at least one description"),
        ({"processing": {"labels": ProcessDesc()}}, "reserved for labels"),
        ({"processing": {"a": ProcessDesc(index_map=[0, 1, 2])}, "sequence_length": 2}, "index_map has 3 entries"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], words: str, clip_folder: Path) -> None:
    with pytest.raises(ValueError, match=words):
        VideoDataset(clip("bframes.mp4", clip_folder), **arguments)


@pytest.mark.parametrize(
    "arguments",
    [{"sequence_length": 1.5}, {"frame_stride": "2"}, {"seed": 0.5}, {"processing": {"a": {"type": "half"}}}],
)
def test_arguments_of_a_wrong_type(arguments: dict[str, Any], clip_folder: Path) -> None:
    with pytest.raises(TypeError):
        VideoDataset(clip("bframes.mp4", clip_folder), **arguments)


def test_bad_epoch(clip_folder: Path) -> None:
    dataset = VideoDataset(clip("bframes.mp4", clip_folder))
    with pytest.raises(ValueError, match="at least 0"):
        dataset.set_epoch(-1)
    assert dataset.epoch == 0


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_bad_seed(seed: int, clip_folder: Path) -> None:
    with pytest.raises(ValueError, match="seed"):
        VideoDataset(clip("bframes.mp4", clip_folder), seed=seed)


def test_a_rate_of_nearly_nothing(clip_folder: Path) -> None:
    with pytest.raises(ValueError, match="fps"):
        VideoDataset(clip("bframes.mp4", clip_folder), fps=1e-9)


def test_nothing_to_read(tmp_path: Path) -> None:
    dataset = VideoDataset([])
    assert (len(dataset), dataset.filenames, list(dataset.unreadable)) == (0, (), [])
    with pytest.raises(IndexError):
        dataset[0]
    assert dataset.__getitems__([]) == []
    for given in (tmp_path, tmp_path / "*.mp4", [tmp_path / "**"]):
        with pytest.raises(InvalidFile, match="no video file"):
            VideoDataset(given)


BAD = ["zero_bytes", "text", "garbage", "audio_only", "missing", "no_moov", "empty_moov", "unknown_codec"]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_raises_and_is_named(name: str, tmp_path: Path, clip_folder: Path) -> None:
    bad = damaged.DAMAGED[name](tmp_path)
    good = clip("bframes.mp4", clip_folder)
    with pytest.raises(FramefeedError) as caught:
        VideoDataset([good, bad])
    assert str(bad) in str(caught.value)


def test_bad_files_are_skipped_and_reported(tmp_path: Path, clip_folder: Path) -> None:
    bad = [str(damaged.DAMAGED[name](tmp_path)) for name in BAD]
    good = clips_of(["bframes.mp4", "open_gop.mp4"], clip_folder)
    with pytest.warns(UserWarning, match=r"left out 8 of 10 files: .* and 5 more") as caught:
        dataset = VideoDataset([bad[0], good[0], *bad[1:], good[1]], processing=BYTES, on_error="skip")
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    assert [file.path for file in dataset.unreadable] == bad
    assert all(len(file.reason) > 5 for file in dataset.unreadable)
    assert dataset.filenames == tuple(good)
    assert _wrong(dataset, Truth(good, processing=BYTES), step=17) == []


def test_a_crop_that_does_not_fit_names_the_file(clip_folder: Path) -> None:
    paths = clips_of(["wide.mp4", "bframes.mp4"], clip_folder)
    dataset = VideoDataset(paths, processing={"part": ProcessDesc(width=80)})
    assert dataset[0]["part"].shape == (1, 3, 56, 80)
    with pytest.raises(FrameSizeError, match=r"bframes\.mp4.*'part'.*80x48.*64x48"):
        dataset[40]


def test_damage_in_a_group_leaves_the_others(clip_folder: Path, tmp_path: Path) -> None:
    path = clip("bframes.mp4", clip_folder)
    dataset = VideoDataset(noisy_copy(path, 28, tmp_path / "damaged.mp4"), processing=BYTES)

    def readable() -> Iterator[int]:
        for number in range(60):
            try:
                sample = dataset[number]
            except DecodeError as error:
                assert "damaged.mp4" in str(error) and error.frame == number
            else:
                assert _numbers(sample) == [number]
                yield number

    found = list(readable())
    assert {*range(24), *range(36, 60)} <= {*found} < {*range(60)}
