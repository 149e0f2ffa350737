"""Whatever ends a run, the same command completes it: no row is missing, none is there twice."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from framefeed import OutputError, StateError, infer
from framefeed.infer.execution.work import Finished
from framefeed.infer.execution.worker import InferenceWorker
from framefeed.infer.rows import RowWriter, read_rows
from framefeed.testing.shape_detector import ShapeDetector
from infer.truth import SIZE
from infer.zygote import Zygote

KILLS = 20


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as found:
        yield found


def arguments(clips: list[Path], models: Mapping[str, Path], output: Path, **more: Any) -> dict[str, Any]:
    """A small job of many segments."""
    return {
        "videos": [str(path) for path in clips],
        "model": str(models["onnx"]),
        "output": str(output),
        "frame_skip": 1,
        "batch_size": 4,
        "segment_frames": 10,
        "device": "cpu",
        "progress": False,
        **more,
    }


def check_complete(output: Path, expected: bytes) -> None:
    assert output.read_bytes() == expected
    assert sorted(path.name for path in output.parent.glob(f"*{output.stem}*")) == [
        output.name,
        f"{output.name}.run.json",
    ]


def test_killed_at_any_moment(clips: list[Path], models: Mapping[str, Path], tmp_path: Path, zygote: Zygote) -> None:
    clips = clips[:2]
    whole = tmp_path / "whole.csv"
    for name in ("first.csv", whole.name):  # the first one warms up
        began = time.monotonic()
        assert zygote.wait(zygote.start(arguments(clips, models, tmp_path / name))) == 0
    takes = time.monotonic() - began
    expected = whole.read_bytes()
    chance = random.Random(1)
    killed = 0
    for number in range(5 * KILLS):
        output = tmp_path / f"{number}.csv"
        child = zygote.start(arguments(clips, models, output))
        moment = chance.uniform(0.0, takes)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        if zygote.wait(child) == 0:  # it was done by then
            takes = min(takes, moment)
        else:
            killed += 1
            assert zygote.wait(zygote.start(arguments(clips, models, output))) == 0
        check_complete(output, expected)
        if killed == KILLS:
            return
    raise AssertionError(f"only {killed} of {5 * KILLS} runs were killed before their ends")


def test_killed_before_each_change_of_the_disk(
    clips: list[Path], models: Mapping[str, Path], tmp_path: Path, zygote: Zygote
) -> None:
    job = {"max_batches": 5, "segment_frames": 8}  # two segments
    whole = tmp_path / "whole.csv"
    assert zygote.wait(zygote.start(arguments(clips[:1], models, whole, **job))) == 0
    expected = whole.read_bytes()
    for step in range(1000):
        output = tmp_path / f"{step}.csv"
        status = zygote.wait(zygote.start(arguments(clips[:1], models, output, **job), crash_at=step))
        if status == 0:
            break  # it makes no more changes than that
        assert status == -signal.SIGKILL
        assert zygote.wait(zygote.start(arguments(clips[:1], models, output, **job))) == 0
        check_complete(output, expected)
    assert 15 < step < 100


def test_killed_again_and_again(clips: list[Path], models: Mapping[str, Path], tmp_path: Path, zygote: Zygote) -> None:
    """Each time it gets a little farther."""
    job = {"max_batches": 8, "segment_frames": 4}
    whole, output = tmp_path / "whole.csv", tmp_path / "found.csv"
    assert zygote.wait(zygote.start(arguments(clips[:1], models, whole, **job))) == 0
    for _ in range(100):
        status = zygote.wait(zygote.start(arguments(clips[:1], models, output, **job), crash_at=12))
        if status == 0:
            break
    assert status == 0
    check_complete(output, whole.read_bytes())


# --- in this process ----------------------------------------------------------------------------------------------


def run(clips: list[Path], model: Any, output: Path, **more: Any) -> infer.InferResult:
    job = {"frame_skip": 1, "batch_size": 4, "segment_frames": 10, "device": "cpu", "image_size": SIZE, **more}
    return infer.run(clips, model, output=output, **job)


class Stopping:
    """A model that stops the run after some batches."""

    def __init__(self, after: int, error: BaseException) -> None:
        self._detector = ShapeDetector(*SIZE)
        self.left = after
        self.error = error
        self.frames = 0

    def __call__(self, batch: torch.Tensor) -> Any:
        self.left -= 1
        if not self.left:
            raise self.error
        self.frames += len(batch)
        return self._detector(batch)


def test_interrupted(clips: list[Path], tmp_path: Path) -> None:
    threads = threading.active_count()  # others may have left some
    whole = run(clips, Stopping(0, KeyboardInterrupt()), tmp_path / "whole.csv")
    output = tmp_path / "found.csv"
    model = Stopping(15, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(clips, model, output)
    assert not output.exists() and (tmp_path / "found.csv.work").is_dir()
    model.frames = 0
    result = run(clips, model, output)
    assert 0 < result.resumed_frames == whole.num_frames - model.frames
    assert output.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert threading.active_count() < threads + 12


def test_what_is_complete_is_not_done_again(clips: list[Path], tmp_path: Path) -> None:
    model, output = Stopping(0, KeyboardInterrupt()), tmp_path / "found.parquet"
    first = run(clips, model, output)
    model.frames = 0
    again = run(clips, model, output)
    assert model.frames == 0
    assert (again.num_rows, again.num_frames) == (first.num_rows, first.num_frames)
    assert not (tmp_path / "found.parquet.work").exists()
    output.unlink()  # somebody removed the output: then it is
    run(clips, model, output)
    assert model.frames == first.num_frames and read_rows(output).num_rows == first.num_rows


def test_another_configuration_is_refused(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "found.csv"
    stopping = Stopping(15, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(clips, stopping, output)
    for what, change in (("frame_skip 1 -> 2", {"frame_skip": 2}), ("confidence 0.25 -> 0.5", {"confidence": 0.5})):
        with pytest.raises(StateError, match=rf"found\.csv: .*other options: {what}.*--restart"):
            run(clips, stopping, output, **change)
    with pytest.raises(StateError, match="model"):
        run(clips, models["onnx"], output)
    with pytest.raises(StateError, match=r"other videos: .*0\.mp4.* -> null"):
        run(clips[1:], stopping, output)
    content = clips[0].stat()
    os.utime(clips[0], ns=(content.st_atime_ns, content.st_mtime_ns + 10**9))
    with pytest.raises(StateError, match=r"other videos: .*0\.mp4"):
        run(clips, stopping, output)
    os.utime(clips[0], ns=(content.st_atime_ns, content.st_mtime_ns))
    result = run(clips, models["onnx"], output, restart=True)
    assert result.resumed_frames == 0
    with pytest.raises(StateError, match="other options: frame_skip 1 -> 3"):
        run(clips, models["onnx"], output, frame_skip=3)
    before = output.read_bytes()
    assert run(clips, models["onnx"], output, frame_skip=3, restart=True).num_frames == 3 * 15 + 10
    assert output.read_bytes() != before


def test_files_of_others_are_not_replaced(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "found.csv"
    output.write_text("somebody's work")
    with pytest.raises(StateError, match="without a record of how it was made"):
        run(clips, models["onnx"], output)
    assert output.read_text() == "somebody's work" and not (tmp_path / "found.csv.work").exists()
    run(clips, models["onnx"], output, restart=True)
    assert read_rows(output).num_rows


def test_only_one_process_at_a_time(clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "found.csv"
    detector = ShapeDetector(*SIZE)
    errors: list[StateError] = []

    def model(batch: torch.Tensor) -> Any:
        if not errors:
            with pytest.raises(StateError, match="another process is at this run") as caught:
                run(clips, model, output)
            errors.append(caught.value)
        return detector(batch)

    assert run(clips, model, output).num_frames == 165
    assert len(errors) == 1


class Forgetful(InferenceWorker):
    """Loses the first segment that it has done."""

    def run(self, *arguments: Any, **named: Any) -> Iterator[Finished]:
        found = super().run(*arguments, **named)
        next(found)
        yield from found


def test_a_segment_that_is_lost_is_noticed(
    clips: list[Path], models: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("framefeed.infer.api.InferenceWorker", Forgetful)
        with pytest.raises(RuntimeError, match=r"1 of \d+ segments failed"):
            run(clips, models["onnx"], tmp_path / "found.csv")
    assert not (tmp_path / "found.csv").exists()
    result = run(clips, models["onnx"], tmp_path / "found.csv")
    assert result.num_frames - result.resumed_frames == 10


def test_nothing_stays_where_nothing_was_done(clips: list[Path], tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="broken"):
        run(clips, Stopping(1, KeyError("broken")), tmp_path / "found.csv")
    assert list(tmp_path.iterdir()) == []
    # Nor does it matter with which options that was.
    with pytest.raises(KeyboardInterrupt):
        run(clips, Stopping(1, KeyboardInterrupt()), tmp_path / "found.csv")
    assert run(clips, Stopping(0, KeyError()), tmp_path / "found.csv", frame_skip=9).num_frames == 3 * 5 + 4


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Stands for a full disk: the system refuses to write more."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_disk_full(
    clips: list[Path], models: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, output = tmp_path / "whole.csv", tmp_path / "found.csv"
    run(clips, models["onnx"], whole)
    journal = output.with_name("found.csv.work") / "journal"
    full = r"cannot be written \(File too large\); .* is kept"
    with files_of_at_most(1000), pytest.raises(OutputError, match=rf"catalog\.arrow: {full}"):
        run(clips, models["onnx"], output)
    with pytest.raises(KeyboardInterrupt):  # the index is made, and nothing else
        run(clips, Stopping(1, KeyboardInterrupt()), output)
    kept = 0
    for size in (12_000, 20_000, 28_000):
        with files_of_at_most(size), pytest.raises(OutputError, match=rf"found\.csv\.work/journal: {full}"):
            run(clips, models["onnx"], output)
        assert not output.exists() and kept < journal.stat().st_size <= size
        kept = journal.stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "write", no_space)
        with pytest.raises(OutputError, match=r"found\.csv: cannot be written \(No space left on device\)"):
            run(clips, models["onnx"], output)
    assert not output.exists()
    result = run(clips, models["onnx"], output)
    assert result.resumed_frames == result.num_frames
    assert output.read_bytes() == whole.read_bytes()


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_damaged_journal_is_used_as_far_as_it_is_whole(
    clips: list[Path], models: Mapping[str, Path], tmp_path: Path
) -> None:
    whole, output = tmp_path / "whole.csv", tmp_path / "found.csv"
    run(clips, ShapeDetector(*SIZE), whole)
    with pytest.raises(KeyboardInterrupt):
        run(clips, Stopping(30, KeyboardInterrupt()), output)
    journal = tmp_path / "found.csv.work" / "journal"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 1
    journal.write_bytes(data)
    model = Stopping(0, KeyboardInterrupt())
    result = run(clips, model, output)
    assert 0 < result.resumed_frames < 100
    assert output.read_bytes() == whole.read_bytes()
