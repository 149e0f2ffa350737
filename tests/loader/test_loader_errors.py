"""Bad samples: the batch that needs one says so, naming file and frame; all others are delivered, each once."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Sampler

import clips
import damaged
from framefeed import (
    DecodeError,
    FileChanged,
    FramefeedError,
    FrameSizeError,
    ProcessDesc,
    SampleTimeout,
    SourceError,
    VideoDataset,
    VideoIndex,
    VideoLoader,
)
from framefeed.batch.workshop import CpuWorkshop
from framefeed.loader.decoding import Decoding
from framefeed.loader.feed import Feed
from framefeed.media import media
from framefeed.media.media import PathMedia
from framefeed.source.packets import ByteRanges
from helpers import state_help as help
from waiting import soon

BAD = 77  # of 200 files


@pytest.fixture(scope="module")
def paths(clip_folder: Path) -> list[str]:
    return help.few_files(clip_folder)


@pytest.fixture
def copies(paths: list[str], tmp_path: Path) -> list[str]:
    """Files that a test may spoil."""
    found = [tmp_path / Path(path).name for path in paths]
    for path, copy in zip(paths, found, strict=True):
        copy.write_bytes(Path(path).read_bytes())
    return [str(path) for path in found]


def _go_through(loader: VideoLoader, limit: int = 1000) -> list[dict[str, Any] | Exception]:
    """All batches, and errors in place of those that have none."""
    iterator = iter(loader)
    found: list[dict[str, Any] | Exception] = []
    for _ in range(limit):
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)
    raise AssertionError(f"no end after {limit} batches")


def _planned(loader: VideoLoader, epoch: int = 0) -> list[list[int]]:
    """The samples of each batch."""
    return [batch.tolist() for batch in loader._epochs.batches(epoch, 0)]


class _Spoilt:
    """A dataset with samples that cannot be had, and what the others have to be."""

    def __init__(self, dataset: VideoDataset, bad: set[int]) -> None:
        self.dataset = dataset
        self.bad = bad
        good = [number for number in range(len(dataset)) if number not in bad]
        self.truth = dict(zip(good, help.truth(dataset, numbers=good), strict=True))

    def check_raise(self, loader: VideoLoader, check: Callable[[Exception, list[int]], None]) -> None:
        """Exactly the batches with a bad sample raise, each in its place; the others are what they have to be."""
        found = _go_through(loader)
        planned = _planned(loader)
        assert len(found) == len(planned)
        for batch, numbers in zip(found, planned, strict=True):
            if self.bad.isdisjoint(numbers):
                assert not isinstance(batch, Exception), batch
                assert help.rows(batch) == [self.truth[number] for number in numbers]
            else:
                assert isinstance(batch, Exception)
                check(batch, [number for number in numbers if number in self.bad])

    def check_skip(self, loader: VideoLoader) -> None:
        """Bad samples are left out and reported, each once; all others are what they have to be."""
        found = [help.rows(batch) for batch in loader]
        planned = [[number for number in numbers if number not in self.bad] for numbers in _planned(loader)]
        assert found == [[self.truth[number] for number in numbers] for numbers in planned if numbers]
        assert sorted(skipped.sample for skipped in loader.skipped) == sorted(self.bad)
        for skipped in loader.skipped:
            assert (skipped.path, skipped.frame) == self.dataset.locate(skipped.sample)
            assert skipped.path in skipped.reason
        assert loader.stats().skipped == len(self.bad)


# --- a damaged file -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one_in_200(clip_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> _Spoilt:
    """One file of 200 has noise in its second group of frames."""
    paths = help.many_files(clip_folder)
    bad = tmp_path_factory.mktemp("damaged") / Path(paths[BAD]).name
    bad.write_bytes(Path(paths[BAD]).read_bytes())
    start, end = damaged.group_bytes(bad, 1)
    damaged.flip_bits(bad, start + 8, end, count=200, seed=1)
    dataset = help.make_dataset([*paths[:BAD], str(bad), *paths[BAD + 1 :]])
    return _Spoilt(dataset, _bad_samples(dataset, BAD))


def _bad_samples(dataset: VideoDataset, file: int) -> set[int]:
    """Those of a file that cannot be had one by one."""
    bad = set()
    for number in range(*_samples_of(dataset, file)):
        try:
            dataset[number]
        except FramefeedError:
            bad.add(number)
    return bad


def _samples_of(dataset: VideoDataset, file: int) -> tuple[int, int]:
    bounds = [0, *np.cumsum(dataset.sequences.counts).tolist()]
    return bounds[file], bounds[file + 1]


def test_the_damage_is_as_meant(one_in_200: _Spoilt) -> None:
    first, end = _samples_of(one_in_200.dataset, BAD)
    assert one_in_200.bad == set(range(first + 3, end))  # frames 4..7 are bad, and a sample has two


@pytest.mark.parametrize("order", ["sequential", "shuffle", "buffered:16"])
def test_damage_raises_in_its_place(order: str, one_in_200: _Spoilt) -> None:
    path = one_in_200.dataset.filenames[BAD]

    def check(error: Exception, bad: list[int]) -> None:
        assert isinstance(error, DecodeError)
        assert error.path == path and path in str(error)
        first = one_in_200.dataset.locate(bad[0])[1]
        assert error.frame in {max(4, first), first + 1}
        assert f"frame {error.frame} " in error.reason

    loader = VideoLoader(one_in_200.dataset, 8, order=order, drop_last=False)
    one_in_200.check_raise(loader, check)
    assert loader.skipped == []


@pytest.mark.parametrize("order", ["sequential", "shuffle", "chunked:4"])
def test_damage_is_skipped(order: str, one_in_200: _Spoilt) -> None:
    loader = VideoLoader(one_in_200.dataset, 8, order=order, drop_last=False, on_error="skip")
    one_in_200.check_skip(loader)
    assert all("frame " in skipped.reason and "exactly" in skipped.reason for skipped in loader.skipped)


@pytest.mark.parametrize("memory_budget", [0, 40_000])
def test_damage_with_little_memory(memory_budget: int, one_in_200: _Spoilt) -> None:
    numbers = list(range(60 * 7, 90 * 7))
    np.random.default_rng(0).shuffle(numbers)
    dataset = one_in_200.dataset
    options: dict[str, Any] = {"sampler": numbers, "drop_last": False, "memory_budget": memory_budget}
    one_in_200.check_skip(VideoLoader(dataset, 4, on_error="skip", **options))
    one_in_200.check_raise(VideoLoader(dataset, 4, **options), lambda error, bad: None)


def test_every_epoch_reports_anew(copies: list[str]) -> None:
    start, end = damaged.group_bytes(Path(copies[2]), 0)
    damaged.flip_bits(Path(copies[2]), start + 8, end, count=200, seed=1)
    dataset = help.make_dataset(copies)
    bad = _bad_samples(dataset, 2)
    assert len(bad) == 4
    loader = VideoLoader(dataset, 4, shuffle=True, drop_last=False, on_error="skip")
    for epoch in range(3):
        found = help.flat(help.epoch_rows(loader))
        expected = help.truth(dataset, epoch, sorted(set(range(36)) - bad))
        assert sorted(found) == sorted(expected)
        assert len(loader.skipped) == 4 * (epoch + 1)


def test_a_batch_without_a_good_sample_is_left_out(copies: list[str]) -> None:
    start, end = damaged.group_bytes(Path(copies[0]), 0)
    # Behind the first header: frame numbers that jump would look like lost packets.
    damaged.flip_bits(Path(copies[0]), start + 24, end, count=200, seed=1)
    spoilt = _Spoilt(help.make_dataset(copies), {0, 1, 2, 3})
    loader = VideoLoader(spoilt.dataset, 2, drop_last=False, on_error="skip")
    spoilt.check_skip(loader)
    assert len(loader) == 18
    assert loader.stats().batches == 16


@pytest.mark.parametrize("order", ["sequential", "shuffle"])
def test_a_cut_file_gives_what_is_there(order: str, tmp_path: Path) -> None:
    """What comes out does not depend on what is decoded along with it."""
    path = damaged.cut_in_data(tmp_path)
    index = VideoIndex.scan(path)
    dataset = VideoDataset([path], get_label=help.label_of)
    bad = {number for number in range(len(dataset)) if _fails(dataset, number)}
    assert 0 < len(bad) == index.num_cut_frames < 40
    loader = VideoLoader(dataset, 4, order=order, drop_last=False, on_error="skip")
    found = sorted(int(label.split(":")[1]) for batch in loader for label in batch["labels"])
    assert found == sorted(set(range(len(dataset))) - bad)
    assert sorted(skipped.sample for skipped in loader.skipped) == sorted(bad)


def _fails(dataset: VideoDataset, number: int) -> bool:
    try:
        dataset[number]
    except DecodeError:
        return True
    return False


def test_a_cut_file_says_so(tmp_path: Path) -> None:
    assert "cut off" in str(_error_of_cut_file(tmp_path))


def test_a_cut_file_names_the_frame(tmp_path: Path) -> None:
    error = _error_of_cut_file(tmp_path)
    assert error.frame == 47
    assert "frame 47 " in str(error)


def _error_of_cut_file(folder: Path) -> DecodeError:
    path = damaged.cut_in_data(folder)
    loader = VideoLoader(VideoDataset([path]), sampler=[47])
    with pytest.raises(DecodeError) as caught:
        next(iter(loader))
    assert str(path) in str(caught.value)
    return caught.value


# --- files that change ----------------------------------------------------------------------------------------------


def _delete(path: Path, other: Path) -> None:
    path.unlink()


def _overwrite(path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def _replace(path: Path, other: Path) -> None:
    copy = path.with_suffix(".new")
    copy.write_bytes(other.read_bytes())
    os.replace(copy, path)


def _truncate(path: Path, other: Path) -> None:
    os.truncate(path, path.stat().st_size * 6 // 10)


def _make_folder(path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    "change", [_delete, _overwrite, _replace, _truncate, _make_folder], ids=lambda f: f.__name__[1:]
)
def test_a_file_changes_in_mid_epoch(change: Callable[[Path, Path], None], on_error: Any, copies: list[str]) -> None:
    dataset = help.make_dataset(copies)
    truth = help.truth(dataset)
    loader = VideoLoader(
        dataset, 3, order="sequential", drop_last=False, on_error=on_error, buffer_length=1, memory_budget=20_000
    )
    planned = _planned(loader)
    iterator = iter(loader)
    found = help.rows(next(iterator)) + help.rows(next(iterator))
    change(Path(copies[3]), Path(copies[2]))
    lost: set[int] = set()
    for position in range(2, len(planned)):
        try:
            found += help.rows(next(iterator))
        except SourceError as error:
            assert on_error == "raise"
            assert copies[3] in str(error)
            assert isinstance(error, FileChanged) == (change in (_overwrite, _replace, _truncate))
            lost |= set(planned[position])
        except StopIteration:
            assert on_error == "skip"
            break
    assert next(iterator, None) is None
    first, end = _samples_of(dataset, 3)
    if on_error == "skip":
        lost = {skipped.sample for skipped in loader.skipped}
        assert lost <= set(range(first, end))
        assert all(skipped.path == copies[3] and copies[3] in skipped.reason for skipped in loader.skipped)
    assert len(lost & set(range(first, end))) >= 3  # that many were still to be decoded
    assert found == [row for number, row in enumerate(truth) if number not in lost]


def test_frames_that_were_kept_outlive_their_file(copies: list[str]) -> None:
    """Nothing is lost that was decoded before the file went."""
    dataset = help.make_dataset(copies)
    truth = help.truth(dataset)
    loader = VideoLoader(dataset, 3, shuffle=True, drop_last=False, on_error="skip")
    iterator = iter(loader)
    found = help.rows(next(iterator))
    for path in copies:
        Path(path).unlink()
    found += help.flat(help.epoch_rows(iterator))
    lost = {skipped.sample for skipped in loader.skipped}
    assert len(found) + len(lost) == len(truth)
    assert sorted(found) == sorted(row for number, row in enumerate(truth) if number not in lost)


def test_a_file_that_comes_back_is_read_again(copies: list[str]) -> None:
    spoilt = _Spoilt(help.make_dataset(copies), set(range(4, 11)))
    loader = VideoLoader(spoilt.dataset, 4, drop_last=False, on_error="skip")
    moved = Path(copies[1]).rename(copies[1] + ".away")
    spoilt.check_skip(loader)
    moved.rename(copies[1])
    assert help.flat(help.epoch_rows(loader)) == help.truth(spoilt.dataset, epoch=1)


def test_a_file_that_is_gone_is_not_tried_again_and_again(copies: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = VideoDataset(copies)
    first = int(dataset.counts[0])
    tried: list[str] = []
    decode = CpuWorkshop.decode

    def count(self: Any, video: Any, *more: Any, **options: Any) -> None:
        tried.append(str(video.index.path))
        decode(self, video, *more, **options)

    monkeypatch.setattr(CpuWorkshop, "decode", count)
    os.remove(copies[1])
    loader = VideoLoader(dataset, first, order="sequential", buffer_length=1, on_error="skip", drop_last=False)
    batches = iter(loader)
    next(batches)
    time.sleep(0.3)  # the threads have nothing to do meanwhile
    assert tried.count(copies[1]) <= 4
    list(batches)
    assert len(loader.skipped) == int(dataset.counts[1])


def test_a_file_that_cannot_be_opened_again(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many files not all stay open; one may be gone when its turn to be decoded comes."""
    dataset = VideoDataset(paths)
    opened = type(dataset.videos).__getitem__

    def open_again(videos: Any, number: int) -> Any:
        if number == 1 and sys._getframe(1).f_code.co_name == "decode":
            raise SourceError(paths[1], "is gone")
        return opened(videos, number)

    monkeypatch.setattr(type(dataset.videos), "__getitem__", open_again)
    loader = VideoLoader(dataset, 4, shuffle=True, on_error="skip", memory_budget=10**6, drop_last=False)
    found = [batch for batch in _go_through(loader) if not isinstance(batch, Exception)]
    missing = int(dataset.counts[1])
    assert {(skipped.path, skipped.reason) for skipped in loader.skipped} == {(paths[1], f"{paths[1]}: is gone")}
    assert sum(len(batch["default"]) for batch in found) == len(dataset) - missing == len(dataset) - len(loader.skipped)
    assert soon(lambda: loader._budget.taken == 0)


# --- sizes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_files_of_another_size(on_error: Any, copies: list[str], tmp_path: Path) -> None:
    wide = str(help.write_clip(tmp_path / "005.mp4", 5, 5, width=80))
    paths = [copies[0], wide, copies[3]]  # samples 0..3, 4..7 and 8..12
    dataset = help.make_dataset(paths)
    numbers = [[0, 1], [2, 5, 8], [4, 6], [9, 10]]
    loader = VideoLoader(dataset, batch_sampler=numbers, on_error=on_error)
    found = _go_through(loader)
    if on_error == "raise":
        error = found.pop(1)
        assert isinstance(error, FrameSizeError)
        assert all(text in str(error) for text in (wide, copies[0], "64x48", "80x48", "scale_width"))
        numbers.pop(1)
    else:
        assert [(skipped.sample, skipped.path) for skipped in loader.skipped] == [(5, wide)]
        assert all(text in loader.skipped[0].reason for text in (wide, copies[0], "64x48", "80x48"))
        numbers[1] = [2, 8]
    for batch, chosen in zip(found, numbers, strict=True):
        assert not isinstance(batch, Exception)
        assert help.rows(batch) == help.truth(dataset, numbers=chosen)


def test_a_crop_that_does_not_fit_one_file(copies: list[str], tmp_path: Path) -> None:
    wide = str(help.write_clip(tmp_path / "005.mp4", 5, 5, width=80))
    desc = ProcessDesc(type="byte", width=72)
    dataset = VideoDataset([wide, copies[0]], 2, processing={"crop": desc}, get_label=help.label_of)
    loader = VideoLoader(dataset, 3, drop_last=False, on_error="skip")
    assert [batch["labels"] for batch in loader] == [["005.mp4:0", "005.mp4:1", "005.mp4:2"], ["005.mp4:3"]]
    assert len(loader.skipped) == 4
    assert all(copies[0] in skipped.reason and "72" in skipped.reason for skipped in loader.skipped)


@pytest.mark.parametrize("order", ["sequential", "shuffle"])
@pytest.mark.parametrize("name", ["h264_size_change_ts", "h264_size_change_h264"])
def test_a_size_that_changes_in_mid_stream(name: str, order: str, clip_folder: Path) -> None:
    path = clips.make(name, clip_folder)
    dataset = VideoDataset([path], get_label=help.label_of, processing={"plain": ProcessDesc(type="byte")})
    assert len(dataset) == 48
    loader = VideoLoader(dataset, 5, order=order, drop_last=False)
    for batch, numbers in zip(_go_through(loader), _planned(loader), strict=True):
        if max(numbers) < 24:
            assert not isinstance(batch, Exception)
            assert [int(label.split(":")[1]) for label in batch["labels"]] == numbers
        else:
            assert isinstance(batch, FrameSizeError)
            assert str(path) in str(batch) and "128x96" in str(batch) and "96x64" in str(batch)
            assert any(f"frame {number} " in str(batch) for number in numbers if number >= 24)
    skipping = VideoLoader(dataset, 5, order=order, drop_last=False, on_error="skip")
    found = [int(label.split(":")[1]) for batch in skipping for label in batch["labels"]]
    assert sorted(found) == list(range(24))
    assert sorted(skipped.frame for skipped in skipping.skipped) == list(range(24, 48))


def test_scaled_a_size_may_change(clip_folder: Path) -> None:
    path = clips.make("h264_size_change_ts", clip_folder)
    desc = ProcessDesc(type="byte", scale_width=96, scale_height=64)
    loader = VideoLoader(VideoDataset([path], processing={"plain": desc}), 6, shuffle=True)
    assert sum(len(batch["plain"]) for batch in loader) == 48


# --- the user's own code --------------------------------------------------------------------------------------------


class _Unwanted(Exception):
    pass


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_labels_that_raise(on_error: Any, paths: list[str]) -> None:
    def get_label(filename: str, frame: int, changes: object) -> str:
        if filename == paths[1]:
            raise _Unwanted(f"no label for {filename}, {frame}")
        return help.label_of(filename, frame)

    dataset = help.make_dataset(paths, get_label=get_label)
    loader = VideoLoader(dataset, 4, drop_last=False, on_error=on_error)
    found = _go_through(loader)
    assert [isinstance(each, _Unwanted) for each in found] == [False, True, True, *[False] * 6]
    assert f"no label for {paths[1]}, 0" in str(found[1])
    good = help.flat(help.rows(each) for each in found if not isinstance(each, Exception))
    assert good == help.truth(help.make_dataset(paths), numbers=[0, 1, 2, 3, *range(12, 36)])


def test_labels_that_run_out(paths: list[str]) -> None:
    """As a next() too many inside get_label does."""
    left = iter(range(10))
    dataset = help.make_dataset(paths, get_label=lambda filename, frame, changes: next(left))
    with pytest.raises(Exception, match=r"StopIteration|get_label"):
        list(VideoLoader(dataset, 4))


class _Broken(Sampler[int]):
    def __init__(self, values: Sequence[Any], error: Exception | None = None) -> None:
        self.values = values
        self.error = error

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        yield from self.values
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("count", [0, 3, 200])
def test_samplers_that_raise(count: int, paths: list[str]) -> None:
    sampler = _Broken([number % 36 for number in range(count)], _Unwanted("out of samples"))
    loader = VideoLoader(help.make_dataset(paths), 4, sampler=sampler, drop_last=False)
    iterator = iter(loader)
    begin = time.monotonic()
    with pytest.raises(_Unwanted, match="out of samples"):
        for _ in range(60):
            next(iterator)
    with pytest.raises((_Unwanted, StopIteration)):  # and no hang
        next(iterator)
    assert time.monotonic() - begin < 10
    iterator.close()


@pytest.mark.parametrize("bad", [36, -37, 10**6, 2**62])
def test_samplers_that_ask_for_what_is_not_there(bad: int, paths: list[str]) -> None:
    dataset = help.make_dataset(paths)
    for options in ({"sampler": [1, 2, bad, 3]}, {"batch_sampler": [[1, 2], [bad, 3]]}):
        with pytest.raises(IndexError, match=rf"returned sample {bad}; samples are 0\.\.35"):
            list(VideoLoader(dataset, **options))


@pytest.mark.parametrize("bad", ["a", None, [1], 2**70])
def test_samplers_that_give_no_numbers(bad: Any, paths: list[str]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        list(VideoLoader(help.make_dataset(paths), 2, sampler=_Broken([1, 2, bad, 3])))


def test_samplers_that_give_fractions(paths: list[str]) -> None:
    with pytest.raises((TypeError, ValueError)):
        list(VideoLoader(help.make_dataset(paths), 2, sampler=_Broken([1, 2.5])))


def test_samplers_may_give_other_integers(paths: list[str]) -> None:
    dataset = help.make_dataset(paths)
    sampler: list[Any] = [torch.tensor(3), np.int64(4), -1, np.uint8(7)]
    (batch,) = VideoLoader(dataset, 4, sampler=sampler)
    assert help.rows(batch) == help.truth(dataset, numbers=[3, 4, 35, 7])


def test_empty_samplers_and_batches(paths: list[str]) -> None:
    dataset = help.make_dataset(paths)
    assert list(VideoLoader(dataset, 4, sampler=[])) == []
    found = [help.rows(batch) for batch in VideoLoader(dataset, batch_sampler=[[], [1], [], [2, 2]])]
    assert [rows for rows in found if rows] == [help.truth(dataset, numbers=[1]), help.truth(dataset, numbers=[2, 2])]


# --- sources that hang ----------------------------------------------------------------------------------------------

TIMEOUT = 0.4


class _Hanging:
    """Reads of one file, by a loader, that do not come back until they are let go."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.go_on = threading.Event()
        self.calls = 0

    def wait_if(self, path: str) -> None:
        if path == self.path and threading.current_thread().name == help.THREAD:
            self.calls += 1
            assert self.go_on.wait(20)


@pytest.fixture(params=["read packets", "read bytes"])
def hanging(request: pytest.FixtureRequest, paths: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[_Hanging]:
    """The second file hangs."""
    found = _Hanging(paths[1])
    original_read, original_bytes = ByteRanges.read, PathMedia.read

    def read(self: ByteRanges, numbers: Any) -> Any:
        found.wait_if(self._index.path)
        return original_read(self, numbers)

    def read_bytes(self: PathMedia, *arguments: Any) -> bytes:
        found.wait_if(self.path)
        return original_bytes(self, *arguments)

    if request.param == "read packets":
        monkeypatch.setattr(ByteRanges, "read", read)
    else:
        monkeypatch.setattr(PathMedia, "read", read_bytes)
    with help.no_thread_left():
        yield found
        found.go_on.set()


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("kind", "name"),
    [(Feed, "_open_next"), (Feed, "_prefetch"), (Decoding, "together"), (CpuWorkshop, "decode"), (CpuWorkshop, "take")],
)
def test_a_defect_is_raised(
    kind: type, name: str, num_threads: int, paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go with the thread that found it, which would leave whoever waits for a batch waiting."""
    original, calls = getattr(kind, name), []

    def fail(self: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if len(calls) >= 3:
            raise LookupError("a defect")
        return original(self, *arguments, **options)

    monkeypatch.setattr(kind, name, fail)
    loader = VideoLoader(help.make_dataset(paths), 4, num_threads=num_threads)
    with help.no_thread_left(), pytest.raises(LookupError, match="a defect"):
        for _ in range(3):
            list(loader)
    assert soon(lambda: loader._budget.taken == 0)
    monkeypatch.undo()
    assert help.flat(help.epoch_rows(loader))


@pytest.mark.parametrize("num_threads", [1, 3])
def test_a_hanging_file_raises_in_time(num_threads: int, paths: list[str], hanging: _Hanging) -> None:
    dataset = help.make_dataset(paths)
    loader = VideoLoader(dataset, 4, drop_last=False, timeout=TIMEOUT, num_threads=num_threads)
    good = set(range(36)) - set(range(4, 11))
    truth = dict(zip(sorted(good), help.truth(dataset, numbers=sorted(good)), strict=True))
    iterator = iter(loader)
    for numbers in _planned(loader):
        begin = time.monotonic()
        if good >= set(numbers):
            assert help.rows(next(iterator)) == [truth[number] for number in numbers]
        else:
            with pytest.raises(SampleTimeout) as caught:
                next(iterator)
            assert paths[1] in str(caught.value)
            assert f"within {TIMEOUT:g} s" in str(caught.value)
        assert time.monotonic() - begin < 3 * TIMEOUT + 4.0
    assert next(iterator, None) is None


def test_a_hanging_file_is_skipped(paths: list[str], hanging: _Hanging) -> None:
    spoilt = _Spoilt(help.make_dataset(paths), set(range(4, 11)))
    loader = VideoLoader(spoilt.dataset, 4, drop_last=False, timeout=TIMEOUT, on_error="skip")
    begin = time.monotonic()
    spoilt.check_skip(loader)
    assert time.monotonic() - begin < 8 * TIMEOUT + 8.0
    assert all("not decoded within" in skipped.reason for skipped in loader.skipped)


def test_an_iterator_of_a_hanging_file_can_be_closed(paths: list[str], hanging: _Hanging) -> None:
    loader = VideoLoader(help.make_dataset(paths), 4, sampler=[0, 5, 6, 7])
    iterator = iter(loader)
    assert soon(lambda: hanging.calls > 0)
    begin = time.monotonic()
    iterator.close()
    assert time.monotonic() - begin < 5
    assert next(iterator, None) is None
    hanging.go_on.set()
    assert soon(lambda: loader._budget.taken == 0)


def test_a_slow_file_is_no_error_without_a_timeout(paths: list[str], hanging: _Hanging) -> None:
    loader = VideoLoader(help.make_dataset(paths), 4, drop_last=False)
    threading.Timer(0.5, hanging.go_on.set).start()
    assert help.flat(help.epoch_rows(loader)) == help.truth(loader.dataset)


def test_reads_that_come_back_too_late_do_no_harm(paths: list[str], hanging: _Hanging) -> None:
    """Let go in the middle of the epoch: what was given up on is not delivered any more, the rest is right."""
    dataset = help.make_dataset(paths)
    loader = VideoLoader(dataset, 2, sampler=[0, 4, 11, 12, 5, 20, 4, 5, 21, 6], timeout=TIMEOUT, on_error="skip")
    iterator = iter(loader)
    labels = next(iterator)["labels"]
    hanging.go_on.set()
    found = [help.rows(batch) for batch in iterator]
    assert labels == ["000.mp4:0"]
    skipped = [each.sample for each in loader.skipped]
    assert skipped[0] == 4
    rest = [11, 12, 5, 20, 4, 5, 21, 6]
    for number in skipped[1:]:
        rest.remove(number)
    truth = dict(zip(range(36), help.truth(dataset), strict=True))
    assert sorted(help.flat(found)) == sorted(truth[number] for number in rest)
    assert soon(lambda: loader._budget.taken == 0)  # when its thread has let go of it


def test_a_file_that_hangs_while_it_is_opened_stops_no_other(
    paths: list[str], copies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = _Hanging(copies[1])
    original = os.open

    def open_file(path: Any, *arguments: Any, **options: Any) -> int:
        hanging.wait_if(path)
        return original(path, *arguments, **options)

    dataset = help.make_dataset(copies)
    media._POOL.forget()  # it has just been open, to be indexed
    monkeypatch.setattr(os, "open", open_file)
    loader = VideoLoader(dataset, 4, drop_last=False, timeout=TIMEOUT, on_error="skip")
    try:
        found = help.flat(help.epoch_rows(loader))
        assert {skipped.path for skipped in loader.skipped} == {copies[1]}
    finally:
        hanging.go_on.set()
    assert found == help.truth(dataset, numbers=[0, 1, 2, 3, *range(11, 36)])
