"""On Ray, whatever happens to its workers, the rows are those of a run on one machine."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from framefeed import ModelError, infer
from framefeed.infer.ray import RayOptions, ray_options
from framefeed.infer.rows import read_rows

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One for all tests: it takes seconds to start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=40)
        yield
        ray.shutdown()


def run(clips: list[Path], model: Any, **more: Any) -> infer.InferResult:
    job = {"frame_skip": 1, "batch_size": 4, "segment_frames": 10, "device": "cpu", **more}
    return infer.run(clips, model, **job)


TWO = RayOptions(min_workers=2, max_workers=2, cpus_per_worker=1)


def test_the_same_rows(cluster: None, clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    here = run(clips, models["onnx"], output=tmp_path / "here.csv")
    there = run(clips, models["onnx"], output=tmp_path / "there.csv", ray=TWO)
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert there.stats["packets_decoded"] == here.stats["packets_decoded"]
    assert (there.num_frames, there.errors) == (here.num_frames, [])


def _workers() -> list[int]:
    """Processes of this one's cluster that run a model."""
    parents: dict[int, int] = {}
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "stat").read_text()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[int(folder.name)] = int(status.rpartition(")")[2].split()[1])
        if b"ray::MapWorker" in command:
            found.append(int(folder.name))
    return [process for process in found if _is_below(process, parents)]


def _is_below(process: int, parents: Mapping[int, int]) -> bool:
    while process > 1:
        process = parents.get(process, 0)
        if process == os.getpid():
            return True
    return False


def test_a_worker_that_is_killed(cluster: None, clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    here = run(clips, models["onnx"], output=tmp_path / "here.csv", batch_size=1)
    killed: list[int] = []

    def kill() -> None:
        """One, as soon as something is done."""
        journal = tmp_path / "there.csv.work" / "journal"
        until = time.monotonic() + 60
        while time.monotonic() < until and not killed:
            if journal.exists() and journal.stat().st_size:
                for worker in _workers():
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)
                    return
            time.sleep(0.005)

    killer = threading.Thread(target=kill)
    killer.start()
    there = run(clips, models["onnx"], output=tmp_path / "there.csv", batch_size=1, ray=TWO)
    killer.join()
    assert killed
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert (there.num_frames, there.errors) == (here.num_frames, [])


def test_what_goes_wrong_there(cluster: None, clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    # A run that was begun here goes on there, bad files are told, and so is a model that cannot be used.
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    output = tmp_path / "found.parquet"
    result = run([clips[0], broken], models["onnx"], output=output, ray=TWO)
    assert [bad.path for bad in result.errors] == [str(broken)]
    broken.write_bytes(clips[1].read_bytes())
    result = run([clips[0], broken], models["onnx"], output=output)
    assert (result.errors, result.resumed_frames) == ([], 45)
    assert read_rows(output).num_rows == 2 * 45 * 3
    with pytest.raises(ModelError, match="takes frames of 128x128, not 64x64"):
        run(clips, models["onnx"], image_size=64, ray=TWO)


def test_options() -> None:
    assert ray_options(True) == RayOptions()
    assert ray_options("host:6379") == RayOptions(address="host:6379")
    assert ray_options(TWO) is TWO
    possible: list[dict[str, Any]] = [{"min_workers": 0}, {"min_workers": 3, "max_workers": 2}, {"cpus_per_worker": 0}]
    for wrong in possible:
        with pytest.raises(ValueError):
            RayOptions(**wrong)
