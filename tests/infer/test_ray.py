"""On Ray, whatever happens to its workers, the rows are those of a run on one machine."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from framefeed import FramefeedError, ModelError, infer
from framefeed.cli import main
from framefeed.infer import ray as ray_module
from framefeed.infer.execution.segments import Segment
from framefeed.infer.execution.work import Finished, VideoRef, WorkerStats
from framefeed.infer.options import InferOptions
from framefeed.infer.ray import RayOptions, ray_options
from framefeed.testing.shape_detector import ShapeDetector
from infer.truth import SIZE, check_rows

ray = pytest.importorskip("ray")

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """One for all tests: it takes seconds to start."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray_module.start_local(ray, num_cpus=2)
        yield
        ray.shutdown()


def run(clips: list[Path], model: Any, **more: Any) -> infer.InferResult:
    job = {"frame_skip": 1, "batch_size": 4, "segment_frames": 10, "device": "cpu", **more}
    return infer.run(clips, model, **job)


ONE = RayOptions(min_workers=1, max_workers=1, cpus_per_worker=1)
TWO = RayOptions(min_workers=2, max_workers=2, cpus_per_worker=1)


# --- with Ray: as few runs as possible, since each starts processes that import everything -------------------------


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


@contextlib.contextmanager
def _killing(journal: Path) -> Iterator[list[int]]:
    """Kills a worker as soon as something is done; has none where nothing was found to kill meanwhile."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.005):
            if journal.exists() and journal.stat().st_size:
                for worker in _workers():
                    os.kill(worker, signal.SIGKILL)
                    killed.append(worker)
                    return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


def test_a_worker_that_is_killed(cluster: None, clips: list[Path], models: Mapping[str, Path], tmp_path: Path) -> None:
    """The rows are the same byte for byte, no packet is decoded twice, a bad file is told; and the run goes on here."""
    broken = tmp_path / "1.mp4"
    broken.write_bytes(b"no video")
    videos, job = [*clips, broken], {"batch_size": 1}
    here = run(videos, models["onnx"], output=tmp_path / "here.csv", **job)
    for attempt in range(5):  # all may be done before one is found
        output = tmp_path / f"there{attempt}.csv"
        with _killing(tmp_path / f"{output.name}.work" / "journal") as killed:
            there = run(videos, models["onnx"], output=output, ray=TWO, **job)
        if killed:
            break
    assert killed
    assert output.read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert there.stats["packets_decoded"] == here.stats["packets_decoded"]
    assert there.num_frames == here.num_frames == 165
    assert [bad.path for bad in there.errors] == [bad.path for bad in here.errors] == [str(broken)]
    broken.write_bytes(clips[1].read_bytes())
    result = run(videos, models["onnx"], output=output, **job)
    assert (result.errors, result.num_frames, result.resumed_frames) == ([], 165 + 45, 165)


def test_it_listens_on_the_loopback_only(cluster: None) -> None:
    found = _listening()
    assert len(found) > 3
    assert {each.split(":")[0][-8:] for each in found} == {"0100007F"}
    assert os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") is None


def _listening() -> list[str]:
    """Addresses that processes of this test's Ray listen on, as /proc has them."""
    tables = [Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table.splitlines()]
    sockets = {line[9]: line[1] for line in lines if line[3] == "0A"}
    parents: dict[int, int] = {}
    holders: list[tuple[int, str]] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            links = [os.readlink(entry) for entry in (folder / "fd").iterdir()]
            holders += [(int(folder.name), sockets[link[8:-1]]) for link in links if link[8:-1] in sockets]
    return [address for process, address in holders if process == os.getpid() or _is_below(process, parents)]


def test_from_the_command_line(
    cluster: None, clips: list[Path], models: Mapping[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "infer",
        *map(str, clips),
        "--model",
        str(models["onnx"]),
        "--device",
        "cpu",
        "--frame-skip",
        "5",
        "--json",
    ]
    said = []
    for name, more in (("here.csv", []), ("there.csv", ["--ray", "--ray-workers", "1"])):
        assert main([*words, "--output", str(tmp_path / name), *more]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes() != b""
    assert said[0]["frames"] == said[1]["frames"] > 0


def test_workers_that_always_die_are_not_started_for_ever(
    cluster: None, clips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deadly(batch: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGKILL)  # the model takes its process down with it
        return batch

    assert 0 < ray_module.MAX_RETRIES < ray_module.MAX_RESTARTS < 100
    monkeypatch.setattr(ray_module, "MAX_RESTARTS", 0)  # each takes seconds
    monkeypatch.setattr(ray_module, "MAX_RETRIES", 0)
    with pytest.raises(ModelError, match="its workers on Ray failed"):
        run(clips, deadly, image_size=SIZE, output=tmp_path / "found.csv", ray=ONE)


# --- what a worker does, in this process ---------------------------------------------------------------------------


class InProcess:
    """Does what Ray does with segments, one after the other."""

    def __init__(self, model: Any, options: RayOptions) -> None:
        self._model = model
        self.stats = WorkerStats()

    def choose_device(self, device: str) -> str:
        return device

    def use(self, options: InferOptions) -> InProcess:
        self._actor = ray_module._Actor(pickle.loads(pickle.dumps(self._model)), options)
        return self

    def run(self, segments: Sequence[Segment], videos: Sequence[VideoRef], advance: Any) -> Iterator[Finished]:
        known = {video.number: video for video in videos}
        for number, segment in reversed(list(enumerate(segments))):  # in whatever order they come back
            work = pickle.dumps((segment, [known[piece.video] for piece in segment.pieces]))
            (result,) = self._actor({"number": [number], "work": [work]})["result"]
            found = pickle.loads(result)
            if isinstance(found, FramefeedError):
                raise found
            yield found[0]

    def close(self) -> None:
        pass


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_module, "RayExecutor", InProcess)


@pytest.mark.parametrize("kind", ["onnx", "pt2", "ts", "fixed", "boxes", "half", "callable"])
def test_every_format_gives_the_same_rows(
    in_process: None, clips: list[Path], models: Mapping[str, Path], kind: str
) -> None:
    model: Any = ShapeDetector(*SIZE) if kind == "callable" else models[kind]
    job = {"image_size": SIZE, "frame_skip": 7}
    here, there = run(clips, model, **job), run(clips, model, ray=TWO, **job)
    assert here.rows is not None and there.rows is not None and here.num_rows == 3 * 26
    assert there.rows.equals(here.rows)
    lengths = {str(path): 30 if path.stem == "turned" else 45 for path in clips}
    check_rows(there.rows.to_pylist(), {path: list(range(0, length, 7)) for path, length in lengths.items()})


def test_a_model_that_cannot_be_used_there(in_process: None, clips: list[Path], models: Mapping[str, Path]) -> None:
    with pytest.raises(ModelError, match="expects frames of 128x128, not 64x64"):
        run(clips, models["onnx"], image_size=64, ray=ONE)
    with pytest.raises(ModelError, match="one row for each"):
        run(clips, _one_row, image_size=SIZE, ray=ONE)


def _one_row(batch: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1, 7, 84)


def test_options() -> None:
    assert ray_options(True) == RayOptions()
    assert ray_options("host:6379") == RayOptions(address="host:6379")
    assert ray_options(TWO) is TWO
    possible: list[dict[str, Any]] = [{"min_workers": 0}, {"min_workers": 3, "max_workers": 2}, {"cpus_per_worker": 0}]
    for wrong in possible:
        with pytest.raises(ValueError):
            RayOptions(**wrong)
