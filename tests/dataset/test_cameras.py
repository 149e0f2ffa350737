"""Clips of several cameras: which frames belong together, where files are looked for, and what may be missing."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from framefeed import (
    Catalog,
    DecodeError,
    FileChanged,
    FrameSizeError,
    InvalidFile,
    MultiCameraDataset,
    ProcessDesc,
    SourceError,
    VideoLoader,
)
from helpers.cameras_help import (
    CLIPS,
    NAMES,
    PLAIN,
    ROUGH,
    clip_of,
    cut,
    differences,
    direct,
    noisy,
    numbers_in,
    plain_camera,
    truth,
    write_cameras,
)
from helpers.clips_help import loader_threads, same_bits
from waiting import soon


@pytest.fixture(scope="module")
def index(clip_folder: Path) -> Path:
    return write_cameras(clip_folder)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two clips with two plain cameras."""
    folder = tmp_path_factory.mktemp("pair")
    for clip, first in (("one", 0), ("two", 500)):
        plain_camera(folder / clip / "left.mp4", 12, first)
        plain_camera(folder / clip / "right.mp4", 12, first + 100)
    return folder


@pytest.fixture
def copy(pair: Path, tmp_path: Path) -> Path:
    """The same, to be spoilt."""
    return Path(shutil.copytree(pair, tmp_path / "copy"))


def _index(folder: Path, count: int = 12) -> dict[str, dict[str, int]]:
    return {str(folder): {"one": count, "two": count}}


def _numbers(dataset: MultiCameraDataset, sample: int) -> list[int]:
    return numbers_in(dataset[sample]["frames"])


# --- samples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "stride", "processing"),
    [(1, 1, PLAIN), (3, 2, ROUGH), (2, 1, {"last": ProcessDesc(index_map=[-1, 0], dimension_order="hwcf")})],
)
def test_samples_are_those_of_a_linear_decode(
    length: int, stride: int, processing: dict[str, ProcessDesc], index: Path
) -> None:
    dataset = MultiCameraDataset(index, sequence_length=length, frame_stride=stride, processing=processing, seed=3)
    assert len(dataset) == sum(frames - (length - 1) * stride for frames in CLIPS.values())
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        for number in range(epoch, len(dataset), 3):
            found, wanted = dataset[number], truth(dataset, number, epoch, stride=stride)
            assert found.keys() == wanted.keys()
            assert all(same_bits(found[name], wanted[name]) for name in wanted)


def test_a_sample_has_a_dimension_for_cameras(index: Path) -> None:
    sample = MultiCameraDataset(index, sequence_length=2, processing={**PLAIN, **ROUGH})[5]
    assert sample["frames"].shape == (4, 2, 3, 48, 64)
    assert sample["part"].shape == (4, 2, 3, 32, 40)
    assert sample["small"].shape == (4, 3, 2, 24, 32)  # "cfhw"


@pytest.mark.parametrize("order", ["sequential", "shuffle", "buffered:16", "chunked:4"])
def test_the_loader_gives_the_same(order: str, index: Path) -> None:
    dataset = MultiCameraDataset(index, sequence_length=2, processing=ROUGH, seed=5, get_label=clip_of)
    loader = VideoLoader(dataset, 4, order=order, drop_last=False, memory_budget="1MB")
    for epoch in range(2):
        batches = [batch.tolist() for batch in loader._epochs.batches(epoch, 0)]
        assert sorted(number for batch in batches for number in batch) == list(range(len(dataset)))
        dataset.set_epoch(epoch)
        assert differences(list(loader), direct(dataset, batches)) == []


def test_worker_processes_give_the_same(index: Path) -> None:
    dataset = MultiCameraDataset(index, processing=ROUGH, cameras=["front", "side"])
    loader: DataLoader[Any] = DataLoader(dataset, 8, num_workers=2, multiprocessing_context="fork")
    batches = [list(range(low, min(low + 8, len(dataset)))) for low in range(0, len(dataset), 8)]
    assert differences(list(loader), direct(dataset, batches)) == []


def test_a_copy_by_pickle_gives_the_same(index: Path) -> None:
    dataset = MultiCameraDataset(index, processing=ROUGH, seed=9)
    dataset.set_epoch(4)
    assert len(dataset.layout.files) == 3
    again = pickle.loads(pickle.dumps(dataset))
    assert differences(direct(again, [[0, 30, 60]]), direct(dataset, [[0, 30, 60]])) == []


def test_cameras_are_taken_by_name_and_in_order(index: Path) -> None:
    every = MultiCameraDataset(index, processing=PLAIN)
    assert every.cameras == NAMES
    some = MultiCameraDataset(index, cameras=["rear", "front"], processing=PLAIN)
    assert some.cameras == ("rear", "front")
    for number in (0, 23, 24, 40, 41, 60):
        both = _numbers(every, number)
        assert _numbers(some, number) == [both[2], both[0]]
        clip, frame = every.locate(number)
        assert both == [1000 * "abc".index(Path(clip).name) + 100 * camera + frame for camera in range(4)]
    assert repr(some) == "MultiCameraDataset(3 clips, 2 cameras, 61 samples)"


def test_labels_know_the_clip_and_what_was_done(index: Path) -> None:
    dataset = MultiCameraDataset(index, processing=ROUGH, get_label=clip_of)
    clip, frame, changes = dataset[30]["labels"]
    assert (clip, frame) == ("b", 6)
    assert dict(changes)["part"].crop[2:] == (32, 40)


def test_negative_numbers_count_from_the_end(index: Path) -> None:
    dataset = MultiCameraDataset(index, processing=PLAIN)
    assert _numbers(dataset, -1) == _numbers(dataset, 60)
    assert dataset.locate(-1) == dataset.locate(60)
    with pytest.raises(IndexError, match=r"no sample 61; samples are 0\.\.60"):
        dataset[61]


# --- the index ------------------------------------------------------------------------------------------------------


def test_folders_are_looked_for_beside_the_file_then_here(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "index.json"
    file.write_text(json.dumps({"copy": {"one": 12, "two": 12}}))
    beside = MultiCameraDataset(file)
    assert [clip.files[0] for clip in beside.clips] == [str(copy / clip / "left.mp4") for clip in ("one", "two")]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file.rename(elsewhere / "index.json")
    monkeypatch.chdir(tmp_path)
    assert len(MultiCameraDataset("elsewhere/index.json")) == 24
    assert len(MultiCameraDataset({"copy": {"one": 12}})) == 12


def test_files_may_be_given_by_camera(pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"here": {"x": pair / "one" / "left.mp4", "y": str(pair / "two" / "right.mp4")}}
    dataset = MultiCameraDataset(given, processing=PLAIN)
    assert (dataset.cameras, dataset.clips[0].name) == (("x", "y"), "here")
    assert _numbers(dataset, 3) == [3, 603]
    file = pair / "files.json"
    file.write_text(json.dumps({"here": {"x": "one/left.mp4", "y": "two/right.mp4"}}))
    monkeypatch.chdir(tmp_path)
    assert _numbers(MultiCameraDataset(file, processing=PLAIN), 3) == [3, 603]


def test_the_index_may_name_fewer_frames_than_there_are(pair: Path) -> None:
    dataset = MultiCameraDataset({str(pair): {"one": np.int64(5), "two": 12}}, processing=PLAIN)
    assert [clip.num_frames for clip in dataset.clips] == [5, 12]
    assert [_numbers(dataset, number) for number in (4, 5)] == [[4, 104], [500, 600]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{not json", "JSON"),
        ("", "JSON"),
        ("[" * 100_000, "JSON"),
        ("[1, 2]", "video_dir: {clip_id: num_frames}"),
        ('"v"', "video_dir: {clip_id: num_frames}"),
        ("{}", "the index has no clips"),
        ('{"v": {}}', r"'v' maps to \{\}"),
        ('{"v": 12}', "'v' maps to 12"),
        ('{"v": ["one"]}', "'v' maps to"),
        ('{"v": {"one": 0}}', "v/one: expected a positive number of frames, got 0"),
        ('{"v": {"one": -3}}', "v/one: expected a positive number of frames, got -3"),
        ('{"v": {"one": true}}', "v/one: expected a positive number of frames, got True"),
        ('{"v": {"one": 12.5}}', r"v/one: expected a positive number of frames, got 12\.5"),
        ('{"v": {"one": null}}', "v/one: expected a positive number of frames, got None"),
        ('{"v": {"one": {"left": "x.mp4"}}}', "v/one: expected a positive number of frames, got {'left': 'x.mp4'}"),
        ('{"v": {"one": 12, "two": "x.mp4"}}', "'v' mixes files such as 'two'"),
    ],
)
def test_malformed_indexes(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "v" / "one").mkdir(parents=True)
    plain_camera(tmp_path / "v" / "one" / "left.mp4", 1)
    file = tmp_path / "index.json"
    file.write_text(text)
    with pytest.raises(InvalidFile, match=why) as caught:
        MultiCameraDataset(file)
    assert caught.value.path == str(file)


def test_indexes_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"missing\.json: no such file"):
        MultiCameraDataset(tmp_path / "missing.json")
    with pytest.raises(SourceError, match="a directory"):
        MultiCameraDataset(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(InvalidFile, match="not text"):
        MultiCameraDataset(tmp_path / "binary.json")
    with pytest.raises(ValueError, match="the index has no clips"):
        MultiCameraDataset({})


@pytest.mark.parametrize("missing", ["error", "mask"])
def test_folders_that_are_missing_or_empty(missing: Any, copy: Path) -> None:
    file = copy / "index.json"
    file.write_text(json.dumps({"gone": {"one": 12}}))
    with pytest.raises(SourceError, match=r"gone/one: no such folder \(named in .*index\.json"):
        MultiCameraDataset(file, missing=missing)
    (copy / "gone" / "one").mkdir(parents=True)
    (copy / "gone" / "one" / "notes.txt").write_text("no video")
    with pytest.raises(InvalidFile, match="gone/one: has no video file"):
        MultiCameraDataset(file, missing=missing)


def test_two_files_of_one_camera(copy: Path) -> None:
    shutil.copy(copy / "one" / "left.mp4", copy / "one" / "left.mov")
    with pytest.raises(InvalidFile, match=r"one: has two files for camera 'left': left\.mov, left\.mp4"):
        MultiCameraDataset(_index(copy))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"cameras": []}, "one or more distinct names"),
        ({"cameras": ["left", "left"]}, "one or more distinct names"),
        ({"cameras": "left"}, r"a list of names, such as \['left'\]"),
        ({"cameras": ["left", "top"]}, "no clip has camera 'top'; available cameras: left, right"),
        ({"sequence_length": 0}, "at least 1"),
        ({"frame_stride": 0}, "at least 1"),
        ({"synchronise": "luck"}, '"number" or "time"'),
        ({"missing": "ignore"}, '"error" or "mask"'),
        ({"tolerance_seconds": -1.0}, "at least 0"),
        ({"tolerance_seconds": float("nan")}, "at least 0"),
        ({"processing": {"mask": ProcessDesc()}}, "'mask': it is reserved"),
        ({"seed": -1}, "seed"),
    ],
)
def test_arguments_that_are_not_possible(options: dict[str, Any], why: str, pair: Path) -> None:
    with pytest.raises(ValueError, match=why):
        MultiCameraDataset(_index(pair), **options)


def test_clips_without_a_whole_sequence_are_warned_of(pair: Path) -> None:
    given = {str(pair): {"one": 3, "two": 12}}
    with pytest.warns(UserWarning, match="1 clips are shorter than one sequence: .*one"):
        dataset = MultiCameraDataset(given, sequence_length=3, frame_stride=2, processing=PLAIN)
    assert dataset.counts.tolist() == [0, 8]
    assert numbers_in(dataset[0]["frames"]) == [500, 502, 504, 600, 602, 604]
    loader = VideoLoader(dataset, 2, order="buffered:4")
    assert [batch["frames"].shape[0] for batch in loader] == [2] * 4


def test_a_catalog_spares_scanning(pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Catalog.build([pair], tmp_path / "catalog.arrow", num_workers=1)
    wanted = MultiCameraDataset(_index(pair), processing=PLAIN)
    monkeypatch.setattr("framefeed.index.video_index.VideoIndex.scan", lambda *_: pytest.fail("scanned"))
    dataset = MultiCameraDataset(_index(pair), processing=PLAIN, catalog=tmp_path / "catalog.arrow")
    assert differences(direct(dataset, [[0, 13]]), direct(wanted, [[0, 13]])) == []


# --- what is missing ------------------------------------------------------------------------------------------------


def _remove(file: Path) -> None:
    file.unlink()


def _garble(file: Path) -> None:
    file.write_bytes(b"no video at all")


def _shorten(file: Path) -> None:
    plain_camera(file, 9, 100)


@pytest.mark.parametrize(
    ("spoil", "why", "there"),
    [
        (_remove, "one: has no file for camera 'right'; found left", 0),
        (_garble, r"one/right\.mp4: ", 0),
        (_shorten, r"one/right\.mp4: has 9 frames, but the dict says 12", 9),
    ],
)
def test_a_camera_is_an_error_or_masked(spoil: Callable[[Path], None], why: str, there: int, copy: Path) -> None:
    spoil(copy / "one" / "right.mp4")
    with pytest.raises(InvalidFile, match=why):
        MultiCameraDataset(_index(copy))
    dataset = MultiCameraDataset(_index(copy), missing="mask", processing=PLAIN)
    assert len(dataset) == 24
    (told,) = dataset.missing_cameras
    assert str(copy / "one") in told
    batches = [list(range(low, low + 6)) for low in range(0, 24, 6)]
    found = direct(dataset, batches)
    assert torch.cat([batch["mask"] for batch in found]).tolist() == [
        [True, number < there or number >= 12] for number in range(24)
    ]
    frames = torch.cat([batch["frames"] for batch in found])
    for number in range(24):
        clip, frame = divmod(number, 12)
        assert numbers_in(frames[number, 0]) == [500 * clip + frame]
        if clip or frame < there:
            assert numbers_in(frames[number, 1]) == [500 * clip + frame + 100]
        else:
            assert not frames[number, 1].any()
    for budget in (0, "8MB"):
        loaded = list(VideoLoader(dataset, batch_sampler=batches, memory_budget=budget))
        assert differences(loaded, found) == []


def test_the_first_camera_may_be_missing_too(copy: Path) -> None:
    (copy / "one" / "left.mp4").unlink()
    dataset = MultiCameraDataset(_index(copy), missing="mask", processing=PLAIN, sequence_length=2, get_label=clip_of)
    assert dataset.cameras == ("left", "right")
    assert dataset.clips[0].files == (None, str(copy / "one" / "right.mp4"))
    found = dataset[4]
    assert found["mask"].tolist() == [False, True]
    assert numbers_in(found["frames"][1]) == [104, 105]
    assert found["labels"][:2] == ("one", 4)
    noisy(str(copy / "one" / "right.mp4"), 5)
    loader = VideoLoader(dataset, 4, drop_last=False, on_error="skip")
    kept = sum(len(batch["frames"]) for batch in loader)
    assert kept == len(dataset) - len(loader.skipped) < len(dataset)
    assert {skipped.path for skipped in loader.skipped} == {str(copy / "one" / "right.mp4")}


def test_frames_that_no_description_shows_do_not_count(copy: Path) -> None:
    _shorten(copy / "one" / "right.mp4")
    given = {**PLAIN, "first": ProcessDesc(type="byte", index_map=[0])}
    both = MultiCameraDataset(_index(copy), missing="mask", sequence_length=2, processing=given)
    first = MultiCameraDataset(_index(copy), missing="mask", sequence_length=2, processing={"first": given["first"]})
    assert both[8]["mask"].tolist() == [True, False]
    assert numbers_in(both[8]["first"]) == [8, 108]
    assert first[8]["mask"].tolist() == [True, True]
    assert first[9]["mask"].tolist() == [True, False]


def test_a_clip_without_any_camera(copy: Path) -> None:
    for camera in ("left", "right"):
        _garble(copy / "one" / f"{camera}.mp4")
    with pytest.raises(InvalidFile, match="one: has none of the cameras left, right"):
        MultiCameraDataset(_index(copy), missing="mask")


def test_damage_within_a_file_is_told_when_it_is_read(copy: Path) -> None:
    noisy(str(copy / "one" / "right.mp4"), 5)
    cut(str(copy / "two" / "left.mp4"), 9)
    dataset = MultiCameraDataset(_index(copy), processing=PLAIN)
    good, bad = [], []
    for number in range(len(dataset)):
        try:
            good += _numbers(dataset, number)
        except DecodeError as error:
            bad.append((number, Path(error.path).relative_to(copy).as_posix()))
    assert {path for number, path in bad if number < 12} == {"one/right.mp4"}
    assert {path for number, path in bad if number >= 12} == {"two/left.mp4"}
    assert len(good) == 2 * (24 - len(bad))
    loader = VideoLoader(dataset, 3, drop_last=False, on_error="skip")
    assert [number for batch in loader for number in numbers_in(batch["frames"])] == good
    assert [skipped.sample for skipped in loader.skipped] == [number for number, _ in bad]
    assert soon(lambda: loader_threads() == 0)


def test_a_file_that_changes_later(copy: Path) -> None:
    dataset = MultiCameraDataset(_index(copy), processing=PLAIN)
    os.utime(copy / "one" / "right.mp4", (1, 1))
    with pytest.raises(FileChanged, match=r"one/right\.mp4"):
        dataset[0]
    assert _numbers(dataset, 12) == [500, 600]


def test_cameras_of_one_sample_need_one_size(copy: Path) -> None:
    plain_camera(copy / "one" / "right.mp4", 12, 100, width=80)
    dataset = MultiCameraDataset(_index(copy), processing=PLAIN)
    with pytest.raises(FrameSizeError, match="give scale_width and scale_height"):
        next(iter(VideoLoader(dataset, 2)))
    scaled = {"frames": ProcessDesc(type="byte", scale_width=64, scale_height=48)}
    assert _numbers(MultiCameraDataset(_index(copy), processing=scaled), 3) == [3, 103]


# --- time -----------------------------------------------------------------------------------------------------------


def _timed(folder: Path, name: str, rate: int, frames: int, first: int, *, late: Fraction = Fraction(0)) -> Path:
    """A camera that begins that many seconds late. MKV keeps times as they are, in milliseconds."""
    times = [round((Fraction(place, rate) + late) * 1000) for place in range(frames)]
    path = folder / f"{name}.mkv"
    plain_camera(path, frames, first, fps=rate, pts=times, time_base=Fraction(1, 1000))
    return path


def test_frames_go_together_by_time(tmp_path: Path) -> None:
    """30 frames a second; 15; and 30 a fifth of a frame late."""
    late = Fraction(1, 150)
    _timed(tmp_path / "clip", "a", 30, 20, 0)
    _timed(tmp_path / "clip", "b", 15, 11, 100)
    _timed(tmp_path / "clip", "c", 30, 20, 200, late=late)
    dataset = MultiCameraDataset({str(tmp_path): {"clip": 20}}, synchronise="time", processing=PLAIN)
    assert (len(dataset), dataset.clips[0].num_frames) == (20, 20)
    for number in range(20):
        first, half, other = _numbers(dataset, number)
        assert (first, other) == (number, 200 + number)
        assert abs((half - 100) * 2 - number) <= 1
    slow = MultiCameraDataset({str(tmp_path): {"clip": 10}}, cameras=["b", "a"], synchronise="time", processing=PLAIN)
    assert [_numbers(slow, number) for number in range(10)] == [[100 + n, 2 * n] for n in range(10)]


def test_sequences_by_time(tmp_path: Path) -> None:
    _timed(tmp_path / "clip", "a", 30, 12, 0)
    _timed(tmp_path / "clip", "b", 15, 7, 100)
    dataset = MultiCameraDataset(
        {str(tmp_path): {"clip": 12}}, synchronise="time", sequence_length=3, frame_stride=2, processing=PLAIN
    )
    assert len(dataset) == 8
    assert numbers_in(dataset[2]["frames"]) == [2, 4, 6, 101, 102, 103]


def test_cameras_that_begin_at_different_times(tmp_path: Path) -> None:
    """The second begins three frames later."""
    _timed(tmp_path / "clip", "a", 30, 12, 0)
    file = _timed(tmp_path / "clip", "b", 30, 12, 100, late=Fraction(1, 10))
    given = {str(tmp_path): {"clip": 12}}
    by_number = MultiCameraDataset(given, processing=PLAIN)
    assert _numbers(by_number, 5) == [5, 105]
    with pytest.raises(InvalidFile, match=r"b\.mkv: has no frame within 0\.0175 s of 0 s.*tolerance_seconds") as caught:
        MultiCameraDataset(given, synchronise="time")
    assert caught.value.path == str(file)
    dataset = MultiCameraDataset(given, synchronise="time", missing="mask", processing=PLAIN)
    assert [dataset[number]["mask"].tolist() for number in range(12)] == [[True, number >= 3] for number in range(12)]
    assert not dataset[2]["frames"][1].any()
    assert [_numbers(dataset, number) for number in range(3, 12)] == [[n, 97 + n] for n in range(3, 12)]
    assert "3 frames" in dataset.missing_cameras[0]
    loaded = list(VideoLoader(dataset, 4, memory_budget=0))
    assert differences(loaded, direct(dataset, [range(low, low + 4) for low in (0, 4, 8)])) == []
    generous = MultiCameraDataset(given, synchronise="time", tolerance_seconds=0.1, processing=PLAIN)
    assert [_numbers(generous, number)[1] for number in range(5)] == [100, 100, 100, 100, 101]


def test_tolerance(tmp_path: Path) -> None:
    _timed(tmp_path / "clip", "a", 30, 6, 0)
    _timed(tmp_path / "clip", "b", 30, 6, 100, late=Fraction(1, 100))
    given = {str(tmp_path): {"clip": 6}}
    assert len(MultiCameraDataset(given, synchronise="time", tolerance_seconds=0.0101)) == 6
    with pytest.raises(InvalidFile, match=r"within 0\.0095 s"):
        MultiCameraDataset(given, synchronise="time", tolerance_seconds=0.0095)
    with pytest.raises(InvalidFile, match=r"within 0 s"):
        MultiCameraDataset(given, synchronise="time", tolerance_seconds=0)


def test_cameras_half_a_frame_apart_still_match(tmp_path: Path) -> None:
    """Whatever containers round: without a lost frame, some frame is always near enough."""
    for place, late in enumerate((Fraction(0), Fraction(1, 60), Fraction(1, 61))):
        _timed(tmp_path / "clip", f"{place}", 30, 30, 100 * place, late=late)
    dataset = MultiCameraDataset({str(tmp_path): {"clip": 29}}, synchronise="time", processing=PLAIN)
    assert len(dataset) == 29


def test_by_time_the_first_camera_that_is_there_leads(tmp_path: Path) -> None:
    _timed(tmp_path / "one", "a", 30, 8, 0)
    for clip in ("one", "two"):
        _timed(tmp_path / clip, "b", 15, 5, 100)
        _timed(tmp_path / clip, "c", 30, 9, 200)
    dataset = MultiCameraDataset(
        {str(tmp_path): {"one": 8, "two": 5}}, synchronise="time", missing="mask", processing=PLAIN
    )
    assert dataset.counts.tolist() == [8, 5]
    found = dataset[8 + 2]
    assert found["mask"].tolist() == [False, True, True]
    assert numbers_in(found["frames"][1:]) == [102, 204]
