"""Memory: what the loader keeps never exceeds its budget, and the process needs little more than that."""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import damaged
from framefeed import ProcessDesc, VideoDataset, VideoLoader
from framefeed._util.limits import parse_bytes
from framefeed.batch.assembly import Assembly
from framefeed.batch.work import FinishedBatch
from framefeed.batch.workshop import CpuWorkshop
from helpers.clips_help import clip, clips_of, loader_threads, settled_stats, within
from waiting import soon

# Frames of three sizes, of which equally large parts are cut out: what is kept are whole frames.
NAMES = ("bframes.mp4", "wide.mp4", "rotated.mp4", "one_group.mp4", "vp9.webm")
PARTS = {"part": ProcessDesc(type="byte", width=32, height=32, random_crop=True, random_flip=True)}
SMALL, LARGE = 3 * 64 * 48, 3 * 96 * 56


@pytest.fixture(scope="module")
def dataset(clip_folder: Path) -> VideoDataset:
    return VideoDataset(clips_of(NAMES, clip_folder), processing=PARTS)


BUDGETS = [0, SMALL - 1, SMALL, LARGE, SMALL + LARGE, 2 * LARGE, 5 * SMALL + 1, 20 * LARGE, 50 * SMALL, 999 * LARGE]


ORDERS = ["shuffle", "chunked:4", "buffered:32"]


@pytest.mark.parametrize(("budget", "order"), [(size, ORDERS[place % 3]) for place, size in enumerate(BUDGETS)])
def test_frames_of_different_sizes_stay_within_the_budget(budget: int, order: str, dataset: VideoDataset) -> None:
    loader = VideoLoader(dataset, 8, order=order, memory_budget=budget, num_threads=2, drop_last=False)
    for _ in range(2):
        assert within(30, lambda: sum(len(batch["part"]) for batch in loader)) == len(dataset)
    stats = settled_stats(loader)
    assert stats.memory_held <= stats.memory_peak <= budget
    if budget < SMALL:
        assert stats.memory_peak == 0
    if 5 * SMALL < budget < 100 * LARGE:  # and it is made use of
        assert stats.memory_peak > budget / 2


@pytest.mark.parametrize("budget", [2 * SMALL, 20 * LARGE])
def test_two_iterators_share_the_budget(budget: int, dataset: VideoDataset) -> None:
    for seed in range(3):
        loader = VideoLoader(dataset, 4, shuffle=True, memory_budget=budget, num_threads=4, seed=seed)
        both = [iter(loader), iter(loader)]

        def take_turns(both: Any = both) -> None:
            for _ in range(25):
                for batches in both:
                    next(batches)

        within(30, take_turns)
        for batches in both:
            batches.close()
        assert settled_stats(loader).memory_peak <= budget


@pytest.mark.parametrize("budget", [2 * SMALL, 20 * LARGE])
def test_iterators_that_are_left_early_give_memory_back(budget: int, dataset: VideoDataset) -> None:
    loader = VideoLoader(dataset, 4, shuffle=True, memory_budget=budget, num_threads=4)
    for count in range(12):
        batches = iter(loader)
        within(30, lambda batches=batches, count=count: [next(batches) for _ in range(count % 4)])  # type: ignore[misc]
        if count % 2:
            batches.close()
    del batches
    iter(loader).close()
    assert settled_stats(loader).memory_peak <= budget
    # All of it can be had again.
    assert within(30, lambda: len(list(loader))) == len(loader)
    assert soon(lambda: loader._budget.taken == 0)


def test_several_bases_of_a_frame_count_together(clip_folder: Path) -> None:
    processing = {
        "rgb": ProcessDesc(type="byte"),
        "ycbcr": ProcessDesc(type="byte", color_space="YCbCr"),
        "small": ProcessDesc(type="byte", scale_width=32, scale_height=24),
        "the same": ProcessDesc(type="half", scale_width=32, scale_height=24),
    }
    each = SMALL + SMALL + SMALL // 4
    dataset = VideoDataset(clip("one_group.mp4", clip_folder), processing=processing)
    for count in (0, 1, 10):
        loader = VideoLoader(dataset, 4, shuffle=True, memory_budget=(count + 1) * each - 1, num_threads=1)
        assert within(30, lambda loader=loader: len(list(loader))) == 17  # type: ignore[misc]
        peak = settled_stats(loader).memory_peak
        # A single one may go straight into its batch each time.
        assert peak % each == 0 and (count > 1) * each <= peak <= count * each


def test_amounts() -> None:
    assert parse_bytes("512MB") == 512_000_000
    assert parse_bytes("8GiB") == 8 << 30
    assert parse_bytes(" 1.5 kb ") == 1500
    assert parse_bytes("7") == parse_bytes(7) == 7
    for wrong in ("", "GB", "1 XB", "-1", "1e9", "nan"):
        with pytest.raises(ValueError, match="memory"):
            parse_bytes(wrong)


def test_default_budget_is_shared_by_the_ranks_of_a_machine(
    dataset: VideoDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = VideoLoader(dataset).memory_budget
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert alone // 4 - 1 <= VideoLoader(dataset).memory_budget <= alone // 4


# --- the whole process ---

MEGABYTE = 1_000_000
# Beside the budget: decoders, batches that are being filled in, and what the allocator cannot give back.
CONSTANT = 96 * MEGABYTE

# Loads everything once, and forks a process for each run.
SCRIPT = """
import json, os, sys
from framefeed import ProcessDesc, VideoDataset, VideoLoader

def run(path, files, budget, batches):
    large = ProcessDesc(type="byte", scale_width=640, scale_height=480, width=64, height=64, random_crop=True)
    dataset = VideoDataset([path] * files, processing={"large": large})
    loader = VideoLoader(dataset, 8, shuffle=True, memory_budget=budget, num_threads=2)
    for number, batch in enumerate(loader, start=1):
        if number == batches:
            break
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    stats = loader.stats()
    found = {"rss": int(peak.split()[1]) * 1024, "pool": stats.memory_peak, "frames": stats.frames_delivered}
    print(json.dumps(found), flush=True)

for arguments in json.loads(sys.argv[2]):
    child = os.fork()
    if not child:
        run(sys.argv[1], *arguments)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
RUNS = [(64, 4, 40), (256, 8, 80), (1000, 14, 50)]


@pytest.fixture(scope="module")
def peaks(clip_folder: Path) -> list[dict[str, int]]:
    """What a process needs that keeps no frame, and each of those that do."""
    runs = [(4, 0, 10), *((files, megabytes * MEGABYTE, batches) for megabytes, files, batches in RUNS)]
    arguments = [sys.executable, "-c", SCRIPT, clip("hundred.mp4", clip_folder), json.dumps(runs)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("megabytes", "files", "batches"), RUNS)
def test_the_process_stays_within_the_budget(
    megabytes: int, files: int, batches: int, peaks: list[dict[str, int]]
) -> None:
    budget = megabytes * MEGABYTE
    assert files * 100 * 640 * 480 * 3 > 1.2 * budget  # all frames together would not fit
    without, found = peaks[0]["rss"], peaks[1 + RUNS.index((megabytes, files, batches))]
    assert found["frames"] == 8 * batches
    assert 0.8 * budget < found["pool"] <= budget
    assert found["rss"] - without <= budget + CONSTANT


@pytest.mark.parametrize(
    "options",
    [{"memory_budget": 0}, {"order": "shuffle"}, {"order": "shuffle", "memory_budget": 20 * LARGE}, {"num_workers": 1}],
    ids=str,
)
def test_batches_are_gone_when_nobody_has_them(
    options: dict[str, Any], dataset: VideoDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when the garbage collector comes: between two of its visits there may be more than a GPU holds."""
    there: weakref.WeakSet[Assembly] = weakref.WeakSet()
    assemble = CpuWorkshop.assemble

    def noted(self: CpuWorkshop, *arguments: Any) -> Assembly:
        made = assemble(self, *arguments)
        there.add(made)
        return made

    monkeypatch.setattr(CpuWorkshop, "assemble", noted)
    loader = VideoLoader(dataset, 4, num_threads=2, **options)
    with _no_collector():
        batches = iter(loader)
        for _ in range(len(loader) // 2):
            next(batches)
        batches.close()
        del batches
        assert soon(lambda: not there), f"{len(there)} are left"
        for _ in loader:
            pass
        assert soon(lambda: not there), f"{len(there)} are left"
        # And so is all that the loader kept.
        workshop = weakref.ref(loader._workshop)
        del loader
        assert soon(lambda: workshop() is None)


def test_batches_are_gone_after_errors(clip_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there: weakref.WeakSet[FinishedBatch] = weakref.WeakSet()
    begin = FinishedBatch.__init__

    def noted(self: FinishedBatch, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        there.add(self)

    monkeypatch.setattr(FinishedBatch, "__init__", noted)
    good = clip("bframes.mp4", clip_folder)
    bad = Path(shutil.copy(good, tmp_path / "bad.mp4"))
    start, end = damaged.group_bytes(bad, 0)
    damaged.flip_bits(bad, start + 8, end, count=200, seed=1)
    loader = VideoLoader(
        VideoDataset([good, bad, good], processing=PARTS), 4, shuffle=True, on_error="skip", num_threads=2
    )
    with _no_collector():
        for _ in loader:
            pass
        assert loader.skipped
        assert soon(lambda: not there), f"{len(there)} are left"
        workshop = weakref.ref(loader._workshop)
        del loader
        assert soon(lambda: workshop() is None)


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_memory_stays_flat_over_many_epochs(dataset: VideoDataset) -> None:
    """Whatever is kept for an epoch goes with it."""
    loader = VideoLoader(dataset, 16, shuffle=True, memory_budget=30 * LARGE, num_threads=2)
    for _ in range(6):
        assert within(30, lambda: len(list(loader))) == len(loader)
        assert soon(lambda: loader._budget.taken == 0)
    assert soon(lambda: loader_threads() == 0)
    assert loader.stats().memory_held <= 30 * LARGE


@pytest.mark.parametrize(
    ("workers", "budget", "early", "opens_early"),
    [
        (0, 10**9, 180, False),
        (1, 10**9, 180, False),
        (0, 48 * SMALL, 36, False),
        (0, 10**9, 180, True),
        (1, 10**9, 180, True),
    ],
)
def test_groups_are_decoded_before_files_come_to_them(
    workers: int,
    budget: int,
    early: int,
    opens_early: bool,
    clip_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if opens_early:  # as on a GPU
        monkeypatch.setattr(CpuWorkshop, "frames_ahead", 1000)
        monkeypatch.setattr(CpuWorkshop, "groups_ahead", 2)
    # Three files of five groups of twelve frames, side by side: all of them come to a new group with the same batch.
    paths = [shutil.copy(clip("bframes.mp4", clip_folder), tmp_path / f"{number}.mp4") for number in range(3)]
    dataset = VideoDataset([str(path) for path in paths], processing=PARTS)
    batches = [[number, 60 + number, 120 + number] for number in range(60)]
    loader = VideoLoader(
        dataset, batch_sampler=batches, memory_budget=budget, num_threads=2, buffer_length=1, num_workers=workers
    )
    iterator = iter(loader)
    within(30, lambda: next(iterator))  # and no more is asked for
    assert soon(lambda: loader.stats().packets_decoded >= early, 10)
    time.sleep(0.1)
    assert loader.stats().packets_decoded == early  # a quarter of the memory is for that
    assert within(30, lambda: sum(1 for _ in iterator)) == 59
    stats = settled_stats(loader)
    assert stats.packets_decoded == stats.frames_delivered == 180
    assert stats.memory_peak <= budget


def test_groups_of_a_shuffle_are_decoded_when_they_are_needed(dataset: VideoDataset) -> None:
    loader = VideoLoader(dataset, 4, shuffle=True, memory_budget=60 * LARGE, num_threads=2, buffer_length=1)
    iterator = iter(loader)
    within(30, lambda: next(iterator))
    time.sleep(0.3)
    assert loader.stats().misses <= 6 * 4  # open batches, and the two behind them
    assert loader.stats().packets_decoded < len(dataset)
    iterator.close()
