"""The training benchmark runs without other libraries, reads the right frames, and catches wrong ones."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import training
from benchmarks.clips import UNCLEAR, ClipSet, read_numbers, write_sets
from benchmarks.harness import Entry, Run
from benchmarks.peers import loaders
from benchmarks.peers.loaders import (
    READERS,
    SIZE,
    DataLoaderSource,
    FramefeedSource,
    Read,
    Reader,
    Source,
    Task,
    TaskBatches,
)
from framefeed import VideoIndex
from framefeed._util.versions import source_digest
from framefeed.compare.provenance import sources

CLIPS = ClipSet("gop16", "h264", 192, 128, gop=16, frames=64, b_frames=3, files=4)


def open_plainly(path: Path, shift: int = 0) -> Read:
    from framefeed import Resize, VideoDecoder

    decoder = VideoDecoder(path, transforms=[Resize(SIZE)], num_ffmpeg_threads=1)

    def read(numbers: list[int]) -> torch.Tensor:
        wanted = [(number + shift) % len(decoder) for number in numbers]
        return decoder.get_frames_at(wanted).data.permute(0, 2, 3, 1)

    return read


def open_shifted(path: Path) -> Read:
    return open_plainly(path, shift=1)


def make_plain(task: Task) -> Source:
    return DataLoaderSource(task, open_plainly, stay_open=True, workers=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def files(folder: Path) -> tuple[Path, ...]:
    return tuple(write_sets([CLIPS], folder)[CLIPS.name])


@pytest.fixture
def task(files: tuple[Path, ...]) -> Task:
    return Task("shuffle", files, CLIPS.frames, batch_size=32, buffer=64)


def shown(source: Source) -> list[tuple[int, int]]:
    """What the frames of an epoch show."""
    frames = torch.cat([batch.flatten(0, 1) for batch, _ in source.batches(lambda: False)])
    return [(file, number) for file, number in read_numbers(frames).tolist()]


def test_clips_differ_and_have_exact_groups(folder: Path, files: tuple[Path, ...]) -> None:
    assert len({path.read_bytes() for path in files}) == CLIPS.files
    for path in files:
        table = VideoIndex.scan(path).packets
        assert np.unique(table.start[table.frames], return_counts=True)[1].tolist() == [CLIPS.gop] * 4
    ready: list[int] = []
    stamps = [path.stat().st_mtime_ns for path in files]
    assert tuple(write_sets([CLIPS], folder, workers=2, done=ready.append)[CLIPS.name]) == files
    assert ready == [CLIPS.files] and stamps == [path.stat().st_mtime_ns for path in files]


def test_unclear_picture_is_no_frame() -> None:
    assert read_numbers(torch.full((1, 3, 224, 224), 128, dtype=torch.uint8)).tolist() == [[UNCLEAR, UNCLEAR]]


def test_all_cases_run(folder: Path, files: tuple[Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SMOKE_SETS", (CLIPS, replace(CLIPS, name="gop16, no B-frames", b_frames=0)))
    monkeypatch.setattr(training, "READERS", [READERS[0], Reader("plain", "framefeed", make_plain)])
    monkeypatch.setattr(loaders, "CHECKED_BATCHES", 1)
    monkeypatch.setitem(training.AT_LEAST, ("shuffle", CLIPS.gop), 0.01)
    output = tmp_path / "results.json"
    arguments = ["--smoke", "--seconds", "0.01", "--clips", str(folder), "--cpus", "0", "--output", str(output)]
    assert training.main(arguments) == 0
    document = json.loads(output.read_text())
    assert set(sources(document).values()) == {source_digest()}
    assert document["versions"]["framefeed"] and document["configuration"]["sets"][0]["files"] == CLIPS.files
    assert [result["case"] for result in document["results"]] == list(training.CASES)
    for result in document["results"]:
        assert all(row["wrong"] == 0 and row["median"] > 0 for row in result["readers"])
        ours = [row for row in result["readers"] if row["reader"].startswith("framefeed")]
        assert ours and all(row["decoded_per_delivered"] > 0.5 for row in ours)
        assert ("vs_fastest_peer" in result) == (result["case"] != "budgets")
        assert ("vs_own_sequential" in result) == (result["case"] == "buffered")
    assert document["results"][0]["at_least"] == 0.01


@pytest.mark.parametrize(("order", "length"), [("shuffle", 1), ("buffered", 1), ("sequential", 1), ("shuffle", 16)])
def test_an_epoch_has_every_sample_once(task: Task, order: str, length: int) -> None:
    size = 8 if length > 1 else 32
    chosen = Task(order, task.files, task.frames, length, 4 if length > 1 else 1, size, buffer=64)
    found = np.array(shown(FramefeedSource(chosen))).reshape(-1, length, 2)
    everything = [(file, number) for file in range(CLIPS.files) for number in range(chosen.starts)]
    assert (found == chosen.which(found[:, 0])).all()
    firsts = [(file, number) for file, number in found[:, 0].tolist()]
    assert sorted(firsts) == everything
    assert (firsts == everything) == (order == "sequential")


def test_other_loaders_may_use_processes(task: Task) -> None:
    source = DataLoaderSource(task, open_plainly, stay_open=False, workers=2)
    assert source.check() == 0
    asked = itertools.count()
    batches = list(source.batches(lambda: next(asked) < 3))
    assert [tuple(frames.shape) for frames, _ in batches] == [(32, 1, 3, *SIZE)] * 3
    source.close()


def test_wrong_frames_are_counted(task: Task) -> None:
    source = DataLoaderSource(task, open_shifted, stay_open=True, workers=0)
    wrong = source.check()
    assert wrong == loaders.CHECKED_BATCHES * 32

    def entry(reader: str, rate: int, wrong: int = 0) -> Entry:
        return Entry(reader, source, wrong, [Run(rate, 1.0, rate)])

    entries = [entry("framefeed", 100), entry("quick and wrong", 1000, wrong), entry("slow", 10)]
    case = training.Case("shuffle", CLIPS, entries)
    assert case.ratios() == {"vs_fastest_peer": 10.0}


def test_other_loaders_shuffle_all_and_read_in_order_by_worker(task: Task) -> None:
    shuffled = iter(TaskBatches(task))
    for _ in range(2):
        epoch = [sample for batch in itertools.islice(shuffled, 8) for sample in batch]
        assert sorted(epoch) == list(range(256)) and epoch != sorted(epoch)
    in_order = list(itertools.islice(TaskBatches(Task("sequential", task.files, 64, batch_size=48)), 6))
    assert [batch[0] for batch in in_order] == [0, 128, 48, 176, 96, 224]
    assert in_order[4] == [*range(96, 128), *range(16)]


def test_other_loaders_mix_by_a_buffer(task: Task) -> None:
    buffered = Task("buffered", task.files, task.frames, batch_size=32, buffer=64)
    source = DataLoaderSource(buffered, open_plainly, stay_open=True, workers=0)
    asked = itertools.count()
    named = [which for _, which in source.batches(lambda: next(asked) < 4)]
    assert all(which is not None and len(which) == 32 for which in named)
    first = [tuple(pair) for pair in np.asarray(named[0]).tolist()]
    assert len(set(first)) == 32 and first != sorted(first)
    assert source.check() == 0
