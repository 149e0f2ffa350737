"""Iterators come and go: no thread, memory or open file is left, in whatever way they end; processes end as well."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Sampler

import damaged
from framefeed import DecodeError, VideoLoader
from helpers import state_help as help
from waiting import soon

SOON = 1.5  # a picture takes a millisecond


@pytest.fixture(scope="module")
def paths(clip_folder: Path) -> list[str]:
    return help.few_files(clip_folder)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _check_given_back(loader: VideoLoader) -> None:
    assert soon(lambda: loader._budget.taken == 0), "memory is not given back"


# --- leaving early --------------------------------------------------------------------------------------------------


def _break(loader: VideoLoader) -> None:
    for _ in loader:
        break


def _exception(loader: VideoLoader) -> None:
    try:
        for _ in loader:
            raise LookupError
    except LookupError:
        pass


def _del(loader: VideoLoader) -> None:
    iterator = iter(loader)
    next(iterator)
    del iterator


def _begin_only(loader: VideoLoader) -> None:
    iter(loader)


def _close(loader: VideoLoader) -> None:
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    iterator.close()


def _close_at_once(loader: VideoLoader) -> None:
    iter(loader).close()


def _whole(loader: VideoLoader) -> None:
    help.epoch_rows(loader)


LEFT = [
    *(leave for leave in (_break, _exception, _del, _begin_only)),
    _close,
    _close_at_once,
    _whole,
]


@pytest.mark.parametrize("leave", LEFT)
def test_nothing_is_left(leave: Callable[[VideoLoader], None], paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths * 3, num_threads=3)
    with help.no_thread_left(SOON):
        leave(loader)
    _check_given_back(loader)


@pytest.mark.parametrize("leave", [_break, _exception, _del, _begin_only, _close])
def test_nothing_is_left_of_a_loader_that_is_gone(leave: Callable[[VideoLoader], None], paths: list[str]) -> None:
    with help.no_thread_left():
        loader = help.make_loader("shuffle", paths * 3)
        budget = loader._budget
        leave(loader)
        del loader
        gc.collect()
    assert soon(lambda: budget.taken == 0)


def test_nothing_is_left_of_a_loader_that_is_gone_without_a_collector(paths: list[str]) -> None:
    gc.disable()
    try:
        with help.no_thread_left(SOON):
            for _ in help.make_loader("shuffle", paths * 3):
                break
    finally:
        gc.enable()
        gc.collect()


def test_batches_outlive_everything(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths)
    expected = help.epoch_rows(loader)
    loader.set_epoch(0)
    iterator = iter(loader)
    batches = [next(iterator) for _ in range(5)]
    iterator.close()
    del iterator, loader
    gc.collect()
    assert [help.rows(batch) for batch in batches] == expected[:5]


def test_many_iterators_begun_and_dropped(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths, num_threads=2)
    help.epoch_rows(loader)
    with help.no_thread_left():
        files, threads = _open_files(), help.loader_threads()
        for number in range(20):
            iterator = iter(loader)
            for _ in range(number % 4):
                next(iterator)
            if number % 10 == 9:
                assert soon(lambda: len(help.loader_threads() - threads) <= 2)
        iterator.close()
        assert _open_files() <= files
    _check_given_back(loader)
    assert help.flat(help.epoch_rows(loader))


def test_many_loaders(paths: list[str]) -> None:
    help.epoch_rows(help.make_loader("shuffle", paths))
    with help.no_thread_left():
        before = _open_files()
        for _ in range(20):
            next(iter(help.make_loader("chunked:4", paths)))
        gc.collect()
        assert soon(lambda: bool(gc.collect()) or _open_files() <= before)


def test_an_iterator_in_a_reference_cycle(paths: list[str]) -> None:
    class Holder:
        pass

    loader = help.make_loader("shuffle", paths)
    with help.no_thread_left():
        holder: Any = Holder()
        holder.iterator, holder.me = iter(loader), holder
        next(holder.iterator)
        loader.set_epoch(0)
        gone = weakref.ref(holder.iterator)
        del holder
        gc.collect()
        assert gone() is None
    _check_given_back(loader)


# --- after errors ---------------------------------------------------------------------------------------------------


class _Raising(Sampler[int]):
    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Any:
        yield from range(12)
        raise LookupError("no more")


def test_nothing_is_left_after_a_sampler_that_raises(paths: list[str]) -> None:
    with help.no_thread_left(SOON):
        _go_through_errors(help.make_loader("sequential", paths, order=None, sampler=_Raising(), num_threads=3))
        gc.collect()


def test_nothing_is_left_after_a_batch_that_failed(paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "000.mp4"
    path.write_bytes(Path(paths[0]).read_bytes())
    start, end = damaged.group_bytes(path, 0)
    damaged.flip_bits(path, start + 8, end, count=200, seed=1)
    with help.no_thread_left(SOON):
        _go_through_errors(help.make_loader("sequential", [str(path), *paths[1:]]))
        gc.collect()


def _go_through_errors(loader: VideoLoader) -> None:
    """Stops after the first error, and lets go of everything."""
    iterator = iter(loader)
    try:
        for _ in range(5):
            next(iterator)
    except (LookupError, DecodeError):
        return
    raise AssertionError("there is an error")


def test_errors_and_a_close_leave_nothing(paths: list[str]) -> None:
    loader = help.make_loader("sequential", paths, order=None, sampler=_Raising(), num_threads=3)
    with help.no_thread_left():
        iterator = iter(loader)
        with pytest.raises(LookupError):
            for _ in range(5):
                next(iterator)
        iterator.close()
    _check_given_back(loader)


# --- several at once ------------------------------------------------------------------------------------------------


def test_memory_for_some_frames(paths: list[str]) -> None:
    """Frames have to go for others all the time; one thread, so that it is the same each time."""
    for frames, seed in ((12, 14), (15, 3), (16, 3)):
        dataset = help.make_dataset(paths, seed=seed)
        budget = frames * dataset.videos[0].frame_bytes
        loader = VideoLoader(dataset, 4, shuffle=True, drop_last=False, memory_budget=budget, num_threads=1)
        iterator = iter(loader)
        try:
            batches = list(iterator)
        finally:
            iterator.close()
        assert sorted(help.flat(help.epoch_rows(batches))) == sorted(help.truth(dataset))


@pytest.mark.parametrize("memory_budget", [0, 60_000, "1GB"])
def test_several_iterators_in_turn(memory_budget: int | str, paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths, memory_budget=memory_budget)
    iterators = [iter(loader) for _ in range(4)]
    found: list[list[str]] = [[] for _ in iterators]
    rng = np.random.default_rng(0)
    left = list(range(4))
    while left:
        number = int(rng.choice(left))
        batch = next(iterators[number], None)
        if batch is None:
            left.remove(number)
        else:
            found[number] += help.rows(batch)
    for epoch, rows in enumerate(found):
        assert sorted(rows) == sorted(help.truth(loader.dataset, epoch))
    assert len({tuple(row.split()[0] for row in rows) for rows in found}) == 4  # each in an order of its own
    _check_given_back(loader)


@pytest.mark.parametrize("memory_budget", [0, 60_000, "1GB"])
def test_iterators_in_several_threads(memory_budget: int | str, paths: list[str]) -> None:
    loader = help.make_loader("buffered:16", paths, memory_budget=memory_budget)
    found: dict[int, list[str]] = {}
    errors: list[BaseException] = []

    def consume() -> None:
        try:
            iterator = iter(loader)
            found[iterator.epoch] = help.flat(help.epoch_rows(iterator))
        except BaseException as error:
            errors.append(error)

    with help.no_thread_left():
        threads = [threading.Thread(target=consume) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    for error in errors:
        raise error
    assert sorted(found) == [0, 1, 2, 3]
    for epoch, rows in found.items():
        assert sorted(rows) == sorted(help.truth(loader.dataset, epoch))
    _check_given_back(loader)


def test_one_iterator_for_several_threads(paths: list[str]) -> None:
    """Each batch goes to one of them."""
    loader = help.make_loader("shuffle", paths)
    iterator = iter(loader)
    found: list[str] = []

    def consume() -> None:
        for batch in iterator:
            found.extend(help.rows(batch))

    threads = [threading.Thread(target=consume) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == sorted(help.truth(loader.dataset))


def test_closed_by_another_thread(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for a batch is woken up."""
    from framefeed.source.packets import ByteRanges

    go_on = threading.Event()
    original = ByteRanges.read

    def read(self: ByteRanges, numbers: Any) -> Any:
        go_on.wait(20)
        return original(self, numbers)

    monkeypatch.setattr(ByteRanges, "read", read)
    loader = help.make_loader("sequential", paths)
    with help.no_thread_left():
        iterator = iter(loader)
        threading.Timer(0.2, iterator.close).start()
        begin = time.monotonic()
        assert list(iterator) == []
        assert time.monotonic() - begin < 8
        go_on.set()
    assert not iterator.finished
    _check_given_back(loader)


# --- the end of the process -----------------------------------------------------------------------------------------


def _interrupt(child: help.Child) -> float:
    """Interrupts it while it waits for its first batch; how long it takes to end."""
    child.until_printed()
    time.sleep(0.05)
    begin = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    child.wait(20)
    took = time.monotonic() - begin
    assert child.code == -signal.SIGINT  # as Python ends after a KeyboardInterrupt that nobody caught
    assert child.errors.rstrip().endswith("KeyboardInterrupt"), child.errors
    assert "Fatal" not in child.errors
    assert child.lines == ["reading"]
    return took


def test_interrupted_while_waiting(paths: list[str]) -> None:
    assert _interrupt(help.start(help.iterate_slowly, paths=paths, seconds=0.5)) < 10


def test_interrupted_while_a_source_hangs(paths: list[str]) -> None:
    assert _interrupt(help.start(help.iterate_slowly, paths=paths, seconds=600)) < 10


@pytest.mark.parametrize("call", [help.exit_with_live_iterator, help.exit_with_two_iterators])
def test_exit_in_the_middle_of_decoding(call: Callable[..., None], paths: list[str]) -> None:
    for child in [help.start(call, paths=paths, repeats=8) for _ in range(3)]:
        assert child.wait(30) == 0, child.errors
        assert child.errors == ""
        assert len(child.lines) == 1


def test_exit_by_exception(paths: list[str]) -> None:
    child = help.start(help.exit_by_exception, paths=paths, repeats=8)
    assert child.wait(20) == 1
    assert "LookupError: not what was looked for" in child.errors
    assert child.errors.count("Traceback") == 1 and "Fatal" not in child.errors


def test_exit_of_a_plain_script(paths: list[str]) -> None:
    """Without anything of these tests around it."""
    code = (
        "import sys\nfrom framefeed import VideoDataset, VideoLoader\n"
        "loader = VideoLoader(VideoDataset(sys.argv[1:] * 20), 4, shuffle=True)\n"
        "iterator = iter(loader)\nprint(len(next(iterator)['default']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "dropped"])
def test_exit_waits_for_decoders_that_take_long(paths: list[str], keep: bool) -> None:
    """A thread that comes back from one while the interpreter goes away would take the process down."""
    code = f"""
import os, sys, threading, time
from framefeed import VideoDataset, VideoLoader
from framefeed.loader.decoding import Decoding
decode, begun = Decoding.decode, threading.Event()
def decode_slowly(self, jobs):
    os.write(1, b"begins\\n")
    begun.set()
    time.sleep(2)
    os.write(1, b"ends\\n")
    decode(self, jobs)
Decoding.decode = decode_slowly
loader = VideoLoader(VideoDataset(sys.argv[1:] * 20), 4, shuffle=True, buffer_length=2)
iterator = iter(loader)
begun.wait(30)
{"" if keep else "del iterator, loader"}
"""
    command = [sys.executable, "-c", code, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.split()
    assert lines and lines.count("begins") == lines.count("ends")


def test_exit_waits_for_the_thread_that_frees_the_memory(paths: list[str]) -> None:
    """The last of a feed's threads takes the feed with it, which nobody knows of then."""
    code = """
import os, sys, time
from framefeed import VideoDataset, VideoLoader
from framefeed.loader import feed
class Kept:
    def __del__(self):
        os.write(1, b"begins\\n")
        time.sleep(1)
        os.write(1, b"ends\\n")
iterator = iter(VideoLoader(VideoDataset(sys.argv[1:] * 20), 4, shuffle=True))
next(iterator)
iterator._feed.kept = Kept()
del iterator
end = time.monotonic() + 30
while len(feed._feeds) and time.monotonic() < end:
    time.sleep(0.001)
"""
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begins\nends\n", "")


# --- forks ----------------------------------------------------------------------------------------------------------


def test_worker_processes_beside_an_iterator(paths: list[str]) -> None:
    found = help.run(help.workers_beside_loader, paths=paths)
    expected = help.truth(help.make_dataset(paths))
    assert sorted(found["loader"]) == sorted(expected)
    assert found["workers"] == [expected, expected]


def test_a_used_loader_in_a_forked_child(paths: list[str]) -> None:
    child = help.start_quick(help.loader_in_forked_child, paths=paths)
    found = child.result()
    loader = help.make_loader("chunked:4", paths)
    assert found["code"] == 0
    assert found["first"] == help.epoch_rows(loader)
    assert found["second"] == help.epoch_rows(loader) == child.lines[0]


def test_children_forked_in_mid_epoch(paths: list[str]) -> None:
    found = help.run(help.fork_in_mid_epoch, paths=paths * 2, forks=3)
    dataset = help.make_dataset(paths * 2)
    assert sorted(found["parent"]) == sorted(help.truth(dataset))
    expected = sorted(help.truth(dataset, epoch=1))
    for outcome in found["children"]:
        assert outcome["code"] == 0
        assert sorted(outcome["rows"]) == expected


@pytest.mark.parametrize("whose", ["iterator", "budget"])
def test_a_child_forked_while_a_thread_holds_a_lock(whose: str, paths: list[str]) -> None:
    child = help.start_quick(help.fork_with_lock_held, paths=paths, whose=whose)
    found = child.result()
    assert found["code"] == 0, child.errors
    assert child.lines[0] == help.truth(help.make_dataset(paths), epoch=1)


# --- progress and pinned memory -------------------------------------------------------------------------------------


def test_progress_changes_nothing(paths: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    loader = help.make_loader("shuffle", paths, progress=True)
    plain = help.make_loader("shuffle", paths)
    before = set(threading.enumerate())
    for _ in range(2):
        assert help.epoch_rows(loader) == help.epoch_rows(plain)
    assert soon(lambda: set(threading.enumerate()) <= before)
    state = loader.state_dict()
    assert state == plain.state_dict()


def test_progress_after_a_resume_and_with_errors(paths: list[str], tmp_path: Path) -> None:
    path = tmp_path / "000.mp4"
    path.write_bytes(Path(paths[0]).read_bytes())
    loader = help.make_loader("sequential", [str(path), *paths[1:]], progress=True, on_error="skip", batch_size=2)
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    loader.load_state_dict(loader.state_dict())
    path.unlink()
    assert len(help.epoch_rows(loader)) == 16
    assert len(loader.skipped) == 2


def test_progress_of_two_iterators_at_once(paths: list[str]) -> None:
    loader = help.make_loader("shuffle", paths, progress=True)
    first, second = iter(loader), iter(loader)
    found = [help.flat(help.epoch_rows(iterator)) for iterator in (second, first)]
    assert [len(rows) for rows in found] == [36, 36]


def test_progress_of_an_iterator_that_is_dropped(paths: list[str]) -> None:
    before = set(threading.enumerate())
    for _ in help.make_loader("shuffle", paths, progress=True):
        break
    gc.collect()
    assert soon(lambda: set(threading.enumerate()) <= before, SOON)


class _WithoutLength(Sampler[int]):
    def __iter__(self) -> Any:
        return iter(range(10))


def test_progress_of_a_sampler_without_a_length(paths: list[str]) -> None:
    loader = help.make_loader("sequential", paths, order=None, sampler=_WithoutLength(), progress=True)
    assert len(help.flat(help.epoch_rows(loader))) == 10


def test_a_sampler_without_a_length(paths: list[str]) -> None:
    loader = help.make_loader("sequential", paths, order=None, sampler=_WithoutLength())
    with pytest.raises(TypeError, match="_WithoutLength has no length"):
        len(loader)
    assert len(help.flat(help.epoch_rows(loader))) == 10


def test_pinned_memory_without_a_gpu(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="pin_memory=True has no effect") as caught:
        loader = VideoLoader(help.make_dataset(paths), 4, pin_memory=True, drop_last=False)
    assert caught[0].filename == __file__
    assert help.flat(help.epoch_rows(loader)) == help.truth(loader.dataset)
